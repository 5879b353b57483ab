"""Quantities of a chain at finite times: p^t, mixing times, absorption times.

Small matrices are powered by doubling; for others each timestep is a sparse product. Rows of a
power are rescaled to sum to 1, since otherwise the rounding of their sums grows with t.

A mixing time is the first t at which p^t, or the average of p^0 … p^t, is near p*, in total
variation, ½ ‖p^t - p*‖₁. (Levin & Peres, 2017, Markov Chains and Mixing Times, chapter 4.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy import sparse

from unichain_gym.errors import ConvergenceError, InvalidArgumentError, PeriodicChainError, brief
from unichain_gym.interface import FloatArray, RewardProcess
from unichain_gym.outcomes import (
    EPSILON,
    MAX_DENSE_STATES,
    check_choice,
    read_count,
    read_number,
    require_dense,
    require_room,
)
from unichain_gym.structure import common_period, divide_rows, row_sums

# Rough costs in seconds: of a dense multiply-add, of a sparse one, of an entry of the result
# looked at, and of calling SciPy.
DENSE_FLOP, SPARSE_FLOP, ENTRY, SPARSE_CALL = 1e-10, 1.5e-9, 5e-9, 1e-5
STEP_WORK = 5e10
STEP_SECONDS = STEP_WORK * SPARSE_FLOP
DOUBLING_STATES = 2_500
RESCALE = 1e-100
MOST_AHEAD = 64
MixingStart = Literal["initial", "worst"]
SMALLEST_DISTANCE = 16 * EPSILON


def normalized(P: sparse.csr_array) -> sparse.csr_array:
    """Return a transition matrix with rows that sum to 1 as nearly as rounding allows."""
    return divide_rows(P, row_sums(P))


def square(M: FloatArray) -> FloatArray:
    """Return the square of a stochastic matrix, its rows rescaled to sum to 1."""
    M = M @ M
    # Products of smaller entries are subnormal, which slows down many processors.
    M[M < 1e-150] = 0.0
    M /= M.sum(axis=1, keepdims=True)
    return M


def stepwise_distributions(chain: RewardProcess, t_max: int, tol: float = 1e-12) -> FloatArray:
    """Return p^t = p^0 P^t for t = 0 … t_max, shape (t_max + 1, S).

    Stops early once all later distributions are provably within `tol` of p^t in the 1-norm: since p
    ↦ p P never lengthens a difference, ‖p^{t+k} - p^t‖₁ ≤ k ‖p^{t+1} - p^t‖₁.

    Parameters
    ----------
    t_max : int
        The last timestep.
    tol : float
        0 computes every timestep.
    """
    t_max, start = read_count("t_max", t_max), chain.initial_distribution
    S, tol = start.size, read_number("tol", tol)
    require_room("stepwise_distributions", t_max + 1, S)
    p = np.empty((t_max + 1, S))
    p[0] = start
    P = normalized(chain.transition_matrix)
    doublings = max(1.0, np.log2(t_max + 1))
    dense_cost = (doublings * S**3 + t_max * S**2) * DENSE_FLOP
    sparse_cost = t_max * (SPARSE_CALL + P.data.size * SPARSE_FLOP)
    if sparse_cost <= dense_cost:
        backward = sparse.csr_array(P.T)
        for t in range(t_max):
            p[t + 1] = backward @ p[t]
            if (t_max - t) * np.abs(p[t + 1] - p[t]).sum() < tol:
                p[t + 2 :] = p[t + 1]
                break
        return p
    power, k = P.toarray(), 1
    while k <= t_max:
        n = min(k, t_max + 1 - k)
        p[k : k + n] = p[:n] @ power
        k += n
        if k <= t_max:
            remaining = t_max - k + 1
            if (remaining + 1) * np.abs(p[k - 1] - p[k - 2]).sum() < tol:
                p[k:] = p[k - 1]
                break
            power = square(power)
    return p


class Scaled(NamedTuple):
    """matrix 2^exponent, so that decaying powers do not underflow.

    The largest entry is between ½ and 1 in size, and no product of two entries is subnormal.
    """

    matrix: FloatArray
    exponent: int

    @staticmethod
    def of(matrix: FloatArray, exponent: int = 0) -> Scaled:
        """Return matrix 2^exponent."""
        largest = float(np.abs(matrix).max(initial=0.0))
        if largest == 0.0:
            return Scaled(matrix, 0)
        shift = math.frexp(largest)[1]
        matrix = np.ldexp(matrix, -shift)
        matrix[np.abs(matrix) < 1e-150] = 0.0
        return Scaled(matrix, exponent + shift)

    def times(self, other: Scaled) -> Scaled:
        """Return the product."""
        return Scaled.of(self.matrix @ other.matrix, self.exponent + other.exponent)

    def is_within(self, size: Callable[[FloatArray], Any], tol: float) -> bool:
        """Whether a size, such as a norm, is at most tol."""
        mantissa, exponent = math.frexp(tol)
        distance = exponent - self.exponent
        if abs(distance) > 1_000:
            return distance > 0 or not self.matrix.any()
        return bool(size(self.matrix) <= math.ldexp(mantissa, distance))


def first_time(
    P: sparse.csr_array,
    block: FloatArray | None,
    size: Callable[[FloatArray], float],
    tol: float,
    deflated: Callable[[FloatArray], FloatArray] = lambda rows: rows,
) -> int:
    """Return the first t at which size(x P^t) ≤ tol, for a size that never grows with t.

    x, (m, S), is a block of rows, or the identity. ``deflated`` removes from each product the
    rounding errors that P never reduces.

    Single steps come first. For up to `DOUBLING_STATES` states, after the cost of doubling, dense
    powers are doubled and then bisected. More than `STEP_WORK` multiplications, or 2^62 steps,
    raise a `ConvergenceError`.
    """
    S = P.shape[0]
    rows = deflated(np.eye(S) if block is None else block)
    m = len(rows)
    sparse_cost = P.data.size * m * SPARSE_FLOP
    dense_cost = S * S * m * DENSE_FLOP
    is_dense = dense_cost < sparse_cost
    step_cost = SPARSE_CALL + min(sparse_cost, dense_cost) + rows.size * ENTRY
    n_steps = int(STEP_SECONDS / step_cost)
    if S <= DOUBLING_STATES:
        n_steps = min(n_steps, int(20 * S**3 * DENSE_FLOP / step_cost))
    if size(rows) <= tol:
        return 0
    if S <= DOUBLING_STATES and is_dense and block is None:
        return _double(P, None, 0, size, tol, deflated)  # a step would cost as much
    step: Any = P.T.toarray() if is_dense else sparse.csr_array(P.T)
    exponent, t, n_ahead, is_near = 0, 0, 1, False
    while t <= n_steps:
        # Several steps at once, since the size never grows; then bisection.
        columns = rows[0] if m == 1 else rows.T
        for _ in range(n_ahead):
            columns = step @ columns
        further = deflated(columns[None] if m == 1 else columns.T)
        rest = size(further)
        if rest <= math.ldexp(tol, -exponent):
            if n_ahead == 1:
                return t + 1
            n_ahead, is_near = n_ahead // 2, True
            continue
        rows, t = further, t + n_ahead
        n_ahead = max(1, n_ahead // 2) if is_near else min(2 * n_ahead, MOST_AHEAD)
        if rest < RESCALE:
            x = Scaled.of(rows, exponent)
            rows, exponent = x.matrix, x.exponent
    x = Scaled.of(rows, exponent)
    if S > DOUBLING_STATES:
        raise ConvergenceError(
            f"not reached within {t} steps, all that is reasonable for {S} states: choose a "
            "larger tolerance"
        )
    return _double(P, x, t, size, tol, deflated)


def _double(
    P: sparse.csr_array,
    x: Scaled | None,
    t: int,
    size: Callable[[FloatArray], float],
    tol: float,
    deflated: Callable[[FloatArray], FloatArray],
) -> int:
    """Search from the rows x at time t, the identity if None, at which they are not within tol."""

    def ahead(power: Scaled) -> Scaled:
        return power if x is None else x.times(power)

    powers = [Scaled.of(deflated(P.toarray()))]  # without the limit's part
    while not ahead(powers[-1]).is_within(size, tol):
        if len(powers) == 62:
            raise ConvergenceError("not reached within 2^62 steps: choose a larger tolerance")
        power = powers[-1].times(powers[-1])
        powers.append(Scaled.of(deflated(power.matrix), power.exponent))
    # Not near at t, near at t + 2^(j + 1).
    for j in range(len(powers) - 2, -1, -1):
        following = ahead(powers[j])
        if not following.is_within(size, tol):
            x, t = following, t + 2**j
    return t + 1


def mixing_time(
    chain: RewardProcess,
    tol: float = 1e-10,
    start: MixingStart = "initial",
    *,
    averaged: bool = False,
) -> int:
    """Return the first t at which the total variation ½ ‖p^t - p*‖₁ is at most tol.

    Parameters
    ----------
    tol : float
        At least 3.6e-15, since rounding of p* hides smaller distances; any if `averaged`.
    start : {"initial", "worst"}
        Start from the initial distribution, or from the slowest state.
    averaged : bool
        Use the average of p^0 … p^t, which converges for periodic chains too, as 1/t.

    Raises
    ------
    PeriodicChainError, InvalidArgumentError
        If p^t has no limit; if the start is unknown or the tolerance too small.
    """
    limits, initial = chain._limits, chain.initial_distribution
    check_tolerance(tol)
    check_choice("start", start, get_args(MixingStart))
    is_worst = start == "worst"
    if is_worst:
        chain._require_unichain("a worst-case mixing time", "start='initial'")
        require_dense("mixing_time(start='worst')", limits.n_states)
    seen = np.arange(limits.n_states) if is_worst else chain._reached
    classes = limits.structure.classes_among(seen)
    period = common_period(chain.class_periods[classes])
    P = normalized(limits.P[seen][:, seen])
    if averaged:
        sums = chain.deviation_matrix if is_worst else limits.left_potential(initial)[None, seen]
        return _averaged_mixing_time(P, sums, period, tol)
    if period > 1:
        raise PeriodicChainError(
            f"a chain of period {period} never mixes: p^t has no limit. Use averaged=True for "
            "the running average of p^t"
        )
    if tol < SMALLEST_DISTANCE:
        raise InvalidArgumentError(
            f"tol is {brief(tol)}, but rounding of the stationary distribution hides distances "
            f"below {SMALLEST_DISTANCE:.2g}; that is the smallest tol that works"
        )
    # Products of the difference, not of p^t, keep its digits at any size. It never grows, so
    # bisection finds the time.
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

    With x = p^0 D (rows of `potential`, shape (m, S)), the sum Σ_{k<n} (p^k - p*) is x - x P^n. Its
    size s(n) = ½ ‖x - x P^n‖₁ changes over a period d by at most w = ½ ‖x P^n - x P^{n+d}‖₁, which
    never grows. So from s(n) > tol n, skip the periods that cannot bring s below tol n.
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
        if n > 2**53:  # where n and n + 1 round to one double
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


def check_tolerance(tol: float) -> None:
    """Raise `InvalidArgumentError` unless a tolerance is positive."""
    if not read_number("tol", tol) > 0.0:
        raise InvalidArgumentError(f"tol must be positive; got {brief(tol)}")


def max_absorption_time(chain: RewardProcess, tol: float = 1e-8) -> int:
    """Return the first t with ‖P_TT^t‖_F ≤ tol, the paper's definition; 0 if T is empty.

    Parameters
    ----------
    tol : float

    Raises
    ------
    ModelTooLargeError
        For more than 5,000 transient states: use `mean_absorption_time`.
    """
    check_tolerance(tol)
    P_TT = chain._limits.P_TT
    n = P_TT.shape[0]
    if n == 0:
        return 0
    require_dense("max_absorption_time", n, "transient states", "; use mean_absorption_time")
    # The Frobenius norm may rise before it falls, so bisection fails. But the survival
    # probabilities a_t = P_TT^t 1 never rise, and ‖a_t‖₂/√n ≤ ‖P_TT^t‖_F. So the scan starts at
    # the first t with ‖a_t‖₂ ≤ √n tol. For small matrices it takes many timesteps at once.
    root = math.sqrt(n)
    backward = sparse.csr_array(P_TT.T)
    t = first_time(backward, np.ones((1, n)), lambda a: float(np.linalg.norm(a)) / root, tol)
    power, step = Scaled.of(np.eye(n)), Scaled.of(P_TT.toarray())
    for bit in f"{t:b}":
        power = power.times(power)
        if bit == "1":
            power = power.times(step)
    if n > DOUBLING_STATES:
        while not power.is_within(np.linalg.norm, tol):
            power, t = Scaled.of(power.matrix @ P_TT, power.exponent), t + 1
        return t
    if power.is_within(np.linalg.norm, tol):
        return t
    ahead = np.empty((max(1, 2**20 // n**2), n, n))  # P, P^2, …, by doubling
    ahead[0], k = P_TT.toarray(), 1
    while k < len(ahead):
        np.matmul(ahead[: len(ahead) - k][:k], ahead[k - 1], out=ahead[k : 2 * k])
        k *= 2
    while True:
        following = power.matrix @ ahead
        # Not within tol at t: the factor by which tol is to be scaled is in range.
        is_near = np.linalg.norm(following, axis=(1, 2)) <= math.ldexp(tol, -power.exponent)
        if is_near.any():
            return t + 1 + int(np.argmax(is_near))
        power, t = Scaled.of(following[-1], power.exponent), t + len(ahead)
