r"""Standard errors by batch means.

The same system, same windows and reference states, is fitted to each of B batches of trials.
Batch b has n_b of N trials, and value v_b has variance σ²/n_b where the value of all trials has
σ²/N, so that

.. math:: \widehat{se}^2 = \frac{1}{(B - 1) N} \sum_b n_b (v_b - \bar v)^2,
          \quad \bar v = \sum_b \frac{n_b}{N} v_b .

Trials, not transitions, are independent, and offsets are part of v_b: the error of a value
includes that of its calibration.
"""

from __future__ import annotations

import numpy as np

from lstd_agent.seminorm_lstd import FloatArray, IntArray


def batch_standard_errors(values: FloatArray, n_trials: IntArray) -> FloatArray:
    """Return the standard errors of values that B batches estimate.

    Parameters
    ----------
    values : ndarray, shape (B, m)
        Of each batch, B at least 2.
    n_trials : ndarray of int, shape (B,)

    Returns
    -------
    ndarray, shape (m,)
    """
    weight = n_trials / n_trials.sum()
    deviation = values - weight @ values
    return np.asarray(np.sqrt(weight @ deviation**2 / (len(values) - 1)))
