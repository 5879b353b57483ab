"""Mixing times: the first t at which a distribution, or the average of all so far, is near p*.

The distance is the total variation ½ ‖p^t - p*‖₁. (Levin & Peres, 2017, Markov Chains and Mixing
Times, chapter 4.)
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from scipy import sparse

from unichain_gym.arrays import FloatArray
from unichain_gym.errors import ConvergenceError, InvalidArgumentError, PeriodicChainError
from unichain_gym.limits import Limits
from unichain_gym.outcomes import MAX_DENSE_STATES, check_choice, require_dense
from unichain_gym.restriction import reach
from unichain_gym.stepwise import (
    DOUBLING_STATES,
    STEP_WORK,
    check_tolerance,
    first_time,
    normalized,
    square,
)
from unichain_gym.structure import common_period, find_periods

MixingStart = Literal["initial", "worst"]
SMALLEST_DISTANCE = 16 * float(np.finfo(np.float64).eps)


def mixing_time(
    limits: Limits, initial: FloatArray, start: MixingStart, tol: float, averaged: bool
) -> int:
    """Return the first t at which p^t, or the average of p^0 … p^t, is within tol of p*.

    ``initial`` is p^0, (S,). The rest is as in `MarkovChain.mixing_time`, which lists the errors.
    """
    check_tolerance(tol)
    check_choice("start", start, get_args(MixingStart))
    is_worst = start == "worst"
    if is_worst:
        require_dense("mixing_time(start='worst')", limits.n_states)
    seen = np.arange(limits.n_states) if is_worst else reach(limits.P, initial)[0]
    classes = limits.structure.classes_among(seen)
    period = common_period(find_periods(limits.P, limits.structure)[classes])
    P = normalized(limits.P[seen][:, seen])
    if averaged:
        sums = limits.deviation if is_worst else limits.left_potential(initial)[None, seen]
        return _averaged_mixing_time(P, sums, period, tol)
    if period > 1:
        raise PeriodicChainError(
            f"a chain of period {period} never mixes: p^t has no limit. Use averaged=True for "
            "the running average of p^t"
        )
    if tol < SMALLEST_DISTANCE:
        raise InvalidArgumentError(
            f"tol is {tol!r}, but rounding of the stationary distribution hides distances "
            f"below {SMALLEST_DISTANCE:.2g}; that is the smallest tol that works"
        )
    # It is the difference itself that is multiplied, not p^t, so that it keeps its digits however
    # small it becomes. It never grows, so it can be searched for.
    excess = None if is_worst else (initial[seen] - limits.distribution(initial)[seen])[None]
    limits_ahead = absorption = None
    if limits.n_states * limits.n_classes <= MAX_DENSE_STATES**2:
        limits_ahead = limits.class_distributions[classes][:, seen]
        absorption = limits.absorption()[seen][:, classes]

    def without_limit(rows: FloatArray) -> FloatArray:
        if limits_ahead is None or absorption is None:
            return rows
        return np.asarray(rows - (rows @ absorption) @ limits_ahead)

    def distance(rows: FloatArray) -> float:
        return float(0.5 * np.abs(rows).sum(axis=1).max())

    return first_time(P, excess, distance, tol, without_limit)


def _averaged_mixing_time(
    P: sparse.csr_array, potential: FloatArray, period: int, tol: float
) -> int:
    """Return the first t at which the average of p^0 … p^t is within tol of its limit.

    With x = p^0 D (rows of `potential`, shape (m, S)), the sum Σ_{k<n} (p^k - p*) is x - x P^n.
    Its size s(n) = ½ ‖x - x P^n‖₁ changes over a period d by at most w = ½ ‖x P^n - x P^{n+d}‖₁,
    which never grows; so from s(n) > tol n one may skip as many periods as keep s above.
    """
    backward = sparse.csr_array(P.T)
    is_small = P.shape[0] <= DOUBLING_STATES
    powers = [P.toarray()] if is_small else []
    work = 0.0

    def size(difference: FloatArray) -> float:
        return float(0.5 * np.abs(difference).sum(axis=0).max())

    def advance(columns: FloatArray, n_steps: int) -> FloatArray:
        nonlocal work
        work += (n_steps.bit_length() if is_small else n_steps) * P.data.size * columns.shape[1]
        if work > STEP_WORK:
            raise ConvergenceError(
                f"not reached by the {STEP_WORK:.0e} multiplications allowed for {P.shape[0]} "
                "states: choose a larger tolerance"
            )
        if is_small and n_steps > 1:
            for j in range(n_steps.bit_length()):
                if j == len(powers):
                    powers.append(square(powers[-1]))
                if n_steps >> j & 1:
                    columns = powers[j].T @ columns
            return columns
        for _ in range(n_steps):
            columns = backward @ columns
        return columns

    x = potential.T
    n, y = 1, advance(x, 1)
    while True:
        if n > 2**53:  # where a double no longer tells n from n + 1
            raise ConvergenceError("not reached within 2^53 steps: choose a larger tolerance")
        ahead = y
        sums = []
        for j in range(period):
            sums.append(size(x - ahead))
            if sums[j] <= tol * (n + j):
                return n + j - 1
            ahead = advance(ahead, 1)
        w = size(y - ahead)
        skip = min(s - tol * (n + j) for j, s in enumerate(sums)) / (w + tol * period)
        # Rounding must not carry the skip past the first time.
        n_steps = period * max(1, int(skip * (1.0 - 1e-9)))
        n, y = n + n_steps, advance(y, n_steps)
