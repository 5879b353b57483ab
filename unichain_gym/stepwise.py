"""Quantities of a chain at finite times: p^t, mixing times and absorption times.

Matrix powers are taken by doubling where the matrix is small, one sparse product a timestep
where that is cheaper. Rows of a power are rescaled to sum to 1, since otherwise rounding in a
row sum of P grows in proportion to t.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from unichain_gym.arrays import FloatArray
from unichain_gym.errors import ConvergenceError

# Rough costs in seconds: of a dense multiply-add, of a sparse one, of an entry of the result
# looked at, and of calling SciPy.
DENSE_FLOP, SPARSE_FLOP, ENTRY, SPARSE_CALL = 1e-10, 1.5e-9, 5e-9, 1e-5
STEP_WORK = 5e10
DOUBLING_STATES = 1_500


def normalized(P: sparse.csr_array) -> sparse.csr_array:
    """Return a transition matrix with rows that sum to 1 as nearly as rounding allows."""
    scale = np.repeat(P.sum(axis=1), np.diff(P.indptr))
    return sparse.csr_array((P.data / scale, P.indices, P.indptr), shape=P.shape)


def square(M: FloatArray) -> FloatArray:
    """Return the square of a stochastic matrix, its rows rescaled to sum to 1."""
    M = substochastic_square(M)
    M /= M.sum(axis=1, keepdims=True)
    return M


def substochastic_square(M: FloatArray) -> FloatArray:
    """Return M @ M without its entries below 1e-150.

    Their products would be subnormal numbers, which many processors multiply slowly.
    """
    M = M @ M
    M[M < 1e-150] = 0.0
    return M


def distributions(P: sparse.csr_array, start: FloatArray, t_max: int, tol: float) -> FloatArray:
    """Return p^t for t = 0 … t_max, shape (t_max + 1, S).

    By doubling: p^k … p^{2k-1} are p^0 … p^{k-1} times P^k. The doubling ends when a sparse
    product for each remaining timestep is cheaper. Since p ↦ p P never lengthens a difference,
    ‖p^{t+k} - p^t‖₁ ≤ k ‖p^{t+1} - p^t‖₁; once that bounds all that remains by `tol`, p^t is
    repeated. A periodic chain never gets there.
    """
    S = start.size
    p = np.empty((t_max + 1, S))
    p[0] = start
    P = normalized(P)
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


def first_time(
    P: sparse.csr_array,
    block: FloatArray,
    is_near: Callable[[FloatArray], bool],
    square: Callable[[FloatArray], FloatArray],
) -> int:
    """Return the first t at which `is_near(block P^t)`, which must stay true once it is.

    One step at a time at first. Up to `DOUBLING_STATES` states, once that has taken as long as
    doubling would, by doubling and then bisection with dense powers.

    Raises
    ------
    ConvergenceError
        If it takes more than `STEP_WORK` multiplications, or 2^62 steps.
    """
    S = P.shape[0]
    step_work = max(1, P.data.size * len(block))
    n_steps = int(STEP_WORK / step_work)
    if S <= DOUBLING_STATES:
        doubling_cost = 20 * S**3 * DENSE_FLOP
        step_cost = SPARSE_CALL + step_work * SPARSE_FLOP + block.size * ENTRY
        n_steps = min(n_steps, int(doubling_cost / step_cost))
    backward = sparse.csr_array(P.T)
    columns = block.T
    for t in range(n_steps + 1):
        if is_near(columns.T):
            return t
        columns = backward @ columns
    if S > DOUBLING_STATES:
        raise ConvergenceError(
            f"not reached within {n_steps} steps, all that {STEP_WORK:.0e} multiplications allow "
            f"for {S} states: choose a larger tolerance"
        )
    t, block = n_steps + 1, columns.T
    if is_near(block):
        return t
    powers = [P.toarray()]
    while not is_near(block @ powers[-1]):
        powers.append(square(powers[-1]))
        if len(powers) > 62:
            raise ConvergenceError(
                "not reached within 2^62 steps; rounding may keep the distance above the "
                "tolerance: choose a larger one"
            )
    # Not near at t, near at t + 2^(j + 1).
    for j in range(len(powers) - 2, -1, -1):
        ahead = block @ powers[j]
        if not is_near(ahead):
            block, t = ahead, t + 2**j
    return t + 1


def mixing_time(P: sparse.csr_array, start: FloatArray, stationary: FloatArray, tol: float) -> int:
    """Return the first t with max over rows of ½ ‖start P^t - p*‖₁ ≤ tol.

    The distance never grows with t, so it can be searched for. Start is (m, S).
    """

    def is_near(p: FloatArray) -> bool:
        return bool(0.5 * np.abs(p - stationary).sum(axis=1).max() <= tol)

    return first_time(normalized(P), start, is_near, square)


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


def max_absorption_time(P_TT: sparse.csr_array, tol: float) -> int:
    """Return the first t with ‖P_TT^t‖_F ≤ tol.

    The Frobenius norm may rise before it falls, so it cannot be bisected. But the probabilities
    a_t = P_TT^t 1 of not being absorbed yet only fall, and ‖a_t‖₂/√n ≤ ‖P_TT^t‖_F, so nothing
    before the first t with ‖a_t‖₂ ≤ √n tol can be the answer: the scan starts there. It takes
    many timesteps at once where the matrix is small.
    """
    n = P_TT.shape[0]
    if n == 0:
        return 0
    root = float(np.sqrt(n))
    backward = sparse.csr_array(P_TT.T)
    t = first_time(
        backward,
        np.ones((1, n)),
        lambda a: bool(np.linalg.norm(a) <= root * tol),
        substochastic_square,
    )
    power = np.eye(n)
    for bit in f"{t:b}":
        power = substochastic_square(power)
        if bit == "1":
            power = power @ P_TT
    if np.linalg.norm(power) <= tol:
        return t
    if n > DOUBLING_STATES:
        while np.linalg.norm(power) > tol:
            power, t = power @ P_TT, t + 1
        return t
    ahead = consecutive_powers(P_TT.toarray(), max(1, 2**20 // n**2))
    while True:
        following = power @ ahead
        is_near = np.linalg.norm(following, axis=(1, 2)) <= tol
        if is_near.any():
            return t + 1 + int(np.argmax(is_near))
        power, t = following[-1], t + len(ahead)


def consecutive_powers(P: FloatArray, n: int) -> FloatArray:
    """Return P, P^2, …, P^n, shape (n, S, S), by doubling."""
    powers = np.empty((n, *P.shape))
    powers[0] = P
    k = 1
    while k < n:
        m = min(k, n - k)
        np.matmul(powers[:m], powers[k - 1], out=powers[k : k + m])
        k += m
    return powers
