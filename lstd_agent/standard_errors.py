r"""Standard errors by leaving out batches of trials (jackknife).

The same system, with the same windows and reference states, is fitted without batch b, for each of
B batches. Batch b has n_b of N trials. Its pseudo-value, with v the value of all trials,

.. math:: v_b = v + \frac{N - n_b}{n_b} (v - v_{-b}),

is the batch's own mean if v is a mean. It has variance σ²/n_b if v has σ²/N. Therefore

.. math:: \widehat{se}^2 = \frac{1}{(B - 1) N} \sum_b n_b (v_b - \bar v)^2,
          \quad \bar v = \sum_b \frac{n_b}{N} v_b .

v includes offsets and an estimated gain. Intervals take Student's t with B - 1 degrees of freedom.

Source: Busing, Meijer & van der Leeden (1999), the delete-m_j jackknife.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError


def batch_standard_errors(
    values: FloatArray, without: FloatArray, n_trials: IntArray
) -> FloatArray:
    """Return standard errors (m,) of values (m,) from values without each batch (B, m)."""
    weight = n_trials / n_trials.sum()
    means = values + (1.0 / weight - 1.0)[:, None] * (values - without)
    deviation = means - weight @ means
    return np.asarray(np.sqrt(weight @ deviation**2 / (len(means) - 1)))


def unseen_errors(
    n: NDArray[np.number], values: FloatArray, others: FloatArray, weight: FloatArray
) -> FloatArray:
    """Return what unseen outcomes may add to the errors of values (...) of n samples (...).

    What n samples did not show may have a probability of 3/n (two standard errors). Its effect is
    the spread about the value of others (M,), by weights (M,) that sum to 1.
    """
    mean = weight @ others
    spread = np.sqrt(weight @ (others - mean) ** 2 + (values - mean) ** 2)
    return np.asarray(1.5 * spread / np.maximum(n, 1.0))


def quantile_of_t(level: float, degrees: int) -> float:
    """Return how many standard errors a two-sided interval of a level spans to each side."""
    from scipy.special import stdtrit  # takes long to import

    return float(stdtrit(degrees, 0.5 + level / 2.0))


@dataclass(frozen=True)
class Comparison:
    """A difference of values, with its own standard error.

    Attributes
    ----------
    difference, standard_error : float
        Value of the first minus the value of the second, in units of reward.
    degrees : int
        Degrees of freedom of the standard error: one less than there are batches of trials.

    Examples
    --------
    >>> print(Comparison(difference=-27.371, standard_error=0.2))
    -27.37 ± 0.20
    """

    difference: float
    standard_error: float
    degrees: int = 19

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return a confidence interval, by Student's distribution.

        Parameters
        ----------
        level : float
            Share of such intervals that hold the true difference, above 0 and below 1.

        Returns
        -------
        low, high : float
            In units of reward.

        Raises
        ------
        InvalidInputError
            For another level.
        """
        if not 0.0 < level < 1.0:
            raise InvalidInputError(f"level must be above 0 and below 1; got {level!r}")
        half = quantile_of_t(level, self.degrees) * self.standard_error
        return self.difference - half, self.difference + half

    def _repr_html_(self) -> str:
        """Return the difference with its interval for notebooks."""
        low, high = self.interval()
        return f"<b>{self}</b> (95 % interval: {low:.6g} to {high:.6g})"

    def __str__(self) -> str:
        error = self.standard_error
        if not 1e-6 < error < np.inf:
            return f"{self.difference:.6g} ± {error:.2g}"
        places = max(0, 1 - int(np.floor(np.log10(error))))  # two digits of the error
        return f"{self.difference:.{places}f} ± {error:.{places}f}"
