r"""Standard errors by batch means, of jackknife pseudovalues.

The same system, same windows and reference states, is fitted to all trials but those of batch b,
for each of B batches. Batch b has n_b of N trials; what it adds to the value v of all trials,

.. math:: v_b = v + \frac{N - n_b}{n_b} (v - v_{-b}),

is the batch's own mean where v is a mean, and has variance σ²/n_b where v has σ²/N, so that

.. math:: \widehat{se}^2 = \frac{1}{(B - 1) N} \sum_b n_b (v_b - \bar v)^2,
          \quad \bar v = \sum_b \frac{n_b}{N} v_b .

Why not fit the system to each batch: a batch alone may not visit a state at all, and what its fit
says there tells nothing of the error of the whole. Trials, not transitions, are independent, and
offsets are part of v: the error of a value includes that of its calibration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import add
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray


def sums_without_each(batches: Sequence[Any]) -> Iterator[Any]:
    """Yield the sum of all batches but each, of at least 2, by additions alone."""
    after = list(accumulate(reversed(batches[1:]), add))
    yield after.pop()
    before = batches[0]
    for batch in batches[1:-1]:
        yield before + after.pop()
        before = before + batch
    yield before


def batch_standard_errors(
    values: FloatArray, without: FloatArray, n_trials: IntArray
) -> FloatArray:
    """Return the standard errors of values that B batches of trials estimate.

    Parameters
    ----------
    values : ndarray, shape (m,)
        Of all trials.
    without : ndarray, shape (B, m)
        Of all trials but those of each batch, B at least 2.
    n_trials : ndarray of int, shape (B,)
        Of each batch.

    Returns
    -------
    ndarray, shape (m,)

    Notes
    -----
    Source: Busing, Meijer & van der Leeden (1999), the delete-m_j jackknife.
    """
    weight = n_trials / n_trials.sum()
    return errors_of_means(values + (1.0 / weight - 1.0)[:, None] * (values - without), n_trials)


def errors_of_means(means: FloatArray, n_trials: IntArray) -> FloatArray:
    """Return the standard errors of means over all trials, by those of B batches.

    Parameters
    ----------
    means : ndarray, shape (B,) or (B, m)
        Of each batch; B is at least 2.
    n_trials : ndarray of int, shape (B,)
        Of each batch.

    Returns
    -------
    ndarray, shape () or (m,)
    """
    weight = n_trials / n_trials.sum()
    deviation = means - weight @ means
    return np.asarray(np.sqrt(weight @ deviation**2 / (len(means) - 1)))


def most_by_chance(degrees: IntArray | int, chance: float) -> FloatArray:
    """Return how many standard errors chance explains, up or down, by Student's distribution."""
    from scipy.special import stdtrit  # takes long to import

    return np.asarray(-stdtrit(degrees, chance / 2.0))
