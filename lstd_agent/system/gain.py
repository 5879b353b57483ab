r"""The gain, as one more unknown of the least squares of the tail's rows.

The tail is the second half of all timesteps. Its rows
:math:`\tilde f \mid f - f' \mid \tau \mid r`, with :math:`\tilde f = (f, 1)`, solve

.. math:: r \approx (f - f')^T w + g \tau,

projected on :math:`\tilde f`. Neither a period nor a remaining transient biases this g, if features
can represent the values.

:math:`g = \sum_i \alpha_i r_i` is as noisy as a mean of :math:`1 / \sum \alpha_i^2` samples, the
*effective number of samples* (with durations in units of their mean). If it is a small share of the
tail's samples, a few rows decide the gain. Then the rows of all timesteps are used. If these do not
determine the gain either, the gain is the tail's mean reward, with a warning.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.rows.factors import Factor, Segments, total
from lstd_agent.system.minimizer import minimize
from lstd_agent.trials.spaces import MAX_REWARD

# A gain with a smaller effective share of the samples is rejected; it is open if it has a larger
# part in a direction that the samples leave open.
LEAST_SHARE, _OPEN = 0.2, 1e-6

GainRows = Literal["tail", "all", "mean"]


class Gain(NamedTuple):
    r"""A gain, reward per unit of time, and how it was found.

    ``share`` is the effective share of the samples of these rows. If they determine the gain,
    ``settled`` (p,) are mean features in the long run, :math:`\sum_i \alpha_i \tilde f_i`; those of
    the tail are others if some trials have not left the start.
    """

    value: float
    rows: Literal["given", "tail", "all", "mean"]
    share: float = 1.0
    settled: FloatArray | None = None


def estimate_gain(source: Any, segments: Segments, rows: GainRows | None = None) -> Gain:
    """Return the gain by given rows, or by the first that determine it: tail, all, mean.

    An exact source, without noise, takes the tail.
    """
    T, share = source.t_max, 0.0
    tail = segments.between((T + 1) // 2, T) or segments.between(0, T + 1)
    every: Any = (("tail", tail), ("all", segments.between(0, T + 1)))
    for name, factors in every:
        if rows in (name, None):
            found = _solved(source, total(factors), name)
            if rows == name or found.share >= LEAST_SHARE or source.n_trials == 0:
                return found
            share = share or found.share
    return Gain(mean_reward(segments), "mean", share)


def mean_reward(segments: Segments) -> float:
    """Return the mean reward of the tail per unit of time."""
    tail = segments.tail
    return float(tail.sums[-2] / tail.sums[-1]) if tail.n else 0.0


def _solved(source: Any, rows: Factor, name: Literal["tail", "all"]) -> Gain:
    """Return the gain by some rows."""
    equations = rows.reduced(rows.p, source.rcond)
    B = equations.B.copy()
    # f - f' has no constant: its column holds the gain of a step of mean duration.
    duration = float(rows.sums[-1] / rows.n) if rows.n and rows.sums[-1] else 1.0
    B[:, -1] = equations.c[:, 1] / duration
    # With features in place of rewards, the gain is their mean in the long run.
    c = np.hstack((equations.c[:, :1], equations.A))
    found = minimize(equations._replace(B=B, c=c), source.rcond)
    is_open = rows.n == 0.0 or found.spread[-1] == 0.0
    if is_open or np.linalg.norm(found.null[-1]) > _OPEN:
        return Gain(0.0, name, 0.0)  # any gain solves the equations
    share = 1.0 / found.spread[-1] ** 2 / rows.n
    settled = found.weights[-1, 1:]
    if source.constant:
        settled = settled / settled[-1]  # of a step, long or short
    return Gain(float(found.weights[-1, 0]) / duration, name, float(share), settled)


def check_gain(gain: float | str | None) -> float | None:
    """Return the option of a gain, or raise `InvalidInputError`."""
    if gain == "per_neighborhood":
        raise InvalidInputError(
            "gain='per_neighborhood' is refused: the gain is one number for all states, the "
            "long-run average reward. Less the mean of an early window, what transient states earn "
            "above the gain would vanish. Give a number, or None to estimate the gain"
        )
    number: Any = float(gain) if isinstance(gain, np.number) else gain
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    # Integers are compared as they are, since they may be too large for a float.
    if number is None or (is_number and abs(number) <= MAX_REWARD):
        return None if number is None else float(number)
    raise InvalidInputError(
        f"gain must be a finite number or None, of size at most {MAX_REWARD:g}; got {gain!r}"
    )
