"""Mixing times: the first t at which a distribution, or the average of all so far, is near p*.

The distance is the total variation ½ ‖p^t - p*‖₁. (Levin & Peres, 2017, Markov Chains and Mixing
Times, chapter 4.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from unichain_gym.arrays import FloatArray, IntArray
from unichain_gym.errors import ConvergenceError, InvalidArgumentError, PeriodicChainError
from unichain_gym.limits import Limits
from unichain_gym.stepwise import (
    DOUBLING_STATES,
    STEP_WORK,
    Decay,
    first_time,
    normalized,
    square,
)

SMALLEST_DISTANCE = 16 * float(np.finfo(np.float64).eps)
MAX_LIMIT_ENTRIES = 5_000**2


def mixing_time(
    P: sparse.csr_array,
    limits: Limits,
    seen: IntArray,
    classes: IntArray,
    excess: FloatArray | None,
    period: int,
    tol: float,
) -> int:
    """Return the first t with max over rows of ½ ‖p^t - p*‖₁ ≤ tol.

    It is the difference itself that is multiplied, not p^t, so that it keeps its digits however
    small it becomes. It never grows, so it can be searched for.

    Parameters
    ----------
    P : csr_array, shape (n, n)
        The transitions between the states that are seen.
    limits : Limits
        Of the whole chain.
    seen, classes : ndarray of int, shape (n,) and (m,)
        The states that can be reached, and the recurrent classes.
    excess : ndarray, shape (n,), or None
        p^0 - p* on them; None for the worst of all states to start from.
    period : int
        Of these classes together.
    tol : float

    Raises
    ------
    PeriodicChainError
        For a period above 1.
    InvalidArgumentError
        For a tolerance that rounding hides.
    ConvergenceError
        If it takes too many steps.
    """
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
    decay = Decay(normalized(P), None if excess is None else excess[None])
    if limits.n_states * limits.n_classes <= MAX_LIMIT_ENTRIES:
        decay = replace(
            decay,
            limits=limits.class_distributions[classes][:, seen],
            absorption=limits.absorption()[seen][:, classes],
        )
    return first_time(decay, lambda x: float(0.5 * np.abs(x).sum(axis=1).max()), tol)


def averaged_mixing_time(
    P: sparse.csr_array, potential: FloatArray, period: int, tol: float
) -> int:
    """Return the first t at which the average of p^0 … p^t is within tol of its limit.

    With x = p^0 D (rows of `potential`, shape (m, S)), the sum Σ_{k<n} (p^k - p*) is x - x P^n.
    Its size s(n) = ½ ‖x - x P^n‖₁ changes over a period d by at most w = ½ ‖x P^n - x P^{n+d}‖₁,
    which never grows; so from s(n) > tol n one may skip as many periods as keep s above.
    """
    P = normalized(P)
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
        if not is_small or n_steps == 1:
            for _ in range(n_steps):
                columns = backward @ columns
            return columns
        for j in range(n_steps.bit_length()):
            if j == len(powers):
                powers.append(square(powers[-1]))
            if n_steps >> j & 1:
                columns = powers[j].T @ columns
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
