"""The spectral gap: how fast a chain forgets its start.

The *absolute spectral gap* is γ = 1 - ρ(P - P*), with ρ the spectral radius: 1 minus the largest
|λ| of all eigenvalues of P except one 1 for each recurrent class (Levin & Peres, 2017, Markov
Chains and Mixing Times, chapter 12). P^t tends to P* as (1 - γ)^t, and 1/γ is the relaxation time.
Periodic classes have other eigenvalues of modulus 1, so their gap is 0.

Eigenvalues of nonsymmetric matrices may be very sensitive to rounding: computed directly, the
eigenvalues of a stream are wrong in the second digit. So

- eigenvalues are computed for each strongly connected component alone; the eigenvalue of
  a single state is known without computation;
- a component in which Kolmogorov's criterion holds (reversible, such as every walk on a tree)
  is similar to the symmetric matrix √(P(s, s') P(s', s)), whose eigenvalues are accurate;
- every other eigenvalue comes with its condition number. If this leaves the answer open by more
  than `TOLERANCE`, states with the same row are made one; if that does not help, it is refused;
- eigenvalues near 1 are also found from the deviation matrix, where 1/(1 - λ) is large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eig, eigvalsh
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, LinearOperator, eigs, eigsh

from unichain_gym.errors import ConvergenceError
from unichain_gym.interface import FloatArray, IntArray
from unichain_gym.limits import Limits
from unichain_gym.linear import find_solver
from unichain_gym.outcomes import EPSILON
from unichain_gym.structure import (
    Structure,
    edges,
    find_structure,
    group,
    group_sums,
    off_diagonal,
    path_sums,
    search_breadth_first,
)

ComplexArray = NDArray[np.complex128]

TOLERANCE = 1e-6
REVERSIBLE = 1e-10
DENSE_COMPONENT = 1_000
N_WANTED, N_BASIS = 6, 40
ARPACK_WORK = 2e10


def spectral_gap(P: sparse.csr_array, structure: Structure, periods: IntArray) -> float:
    """Return 1 - ρ(P - P*), within a relative `TOLERANCE`, or raise `ConvergenceError`."""
    if (periods > 1).any():
        return 0.0
    n_components, component = connected_components(P, connection="strong")
    row, column = edges(P)
    leaves = component[row] != component[column]
    leave = group_sums(row[leaves], P.data[leaves], P.shape[0])
    size = np.bincount(component)
    # The eigenvalue of a single state is the probability of staying; of a recurrent one it is 1.
    is_alone = (size[component] == 1) & (structure.class_label < 0)
    gap = float(leave[is_alone].min(initial=1.0))
    S = P.shape[0]
    for states in group(np.arange(S), component, n_components) if n_components < S else []:
        if states.size > 1:
            block = sparse.csr_array(P[states][:, states])
            low, high = _component_gap(block, leave[states])
            if min(gap, high) - min(gap, low) > TOLERANCE * min(gap, high):
                raise ConvergenceError(
                    f"the spectral gap of a component of {states.size} states is between "
                    f"{max(low, 0.0):.3g} and {high:.3g}, which is all that rounding leaves known "
                    "of its eigenvalues; mixing_time needs none"
                )
            gap = min(gap, 0.5 * (low + high))
    return gap


def _component_gap(B: sparse.csr_array, leave: FloatArray) -> tuple[float, float]:
    """Return bounds of 1 minus the largest modulus; leave = 1 - B 1, 0 for recurrent classes."""
    is_recurrent = not leave.any()
    potential, mismatch = _reversing_potential(B)
    is_reversible = mismatch <= REVERSIBLE
    if B.shape[0] > DENSE_COMPONENT:
        if is_reversible:
            return _reversible_sparse_gap(B, potential, mismatch, is_recurrent)
        return _sparse_gap(B, is_recurrent)
    M = B.toarray()
    if is_reversible:
        real = eigvalsh(np.sqrt(M * M.T))
        modulus = float(np.abs(real[:-1] if is_recurrent else real).max())
        error = M.shape[0] * EPSILON + mismatch
        low, high = 1.0 - modulus - error, 1.0 - modulus + error
    else:
        low, high = _dense_gap(M, is_recurrent)
        if high - low > TOLERANCE * high:
            M, leave = _lump(M, leave)
            low, high = _dense_gap(M, is_recurrent)
    if high - low > TOLERANCE * high:
        slow_low, slow_high = _inverse_gap(sparse.csr_array(M), leave, is_recurrent)
        low, high = max(low, slow_low), min(high, slow_high)
    return low, high


def _dense_gap(M: FloatArray, is_recurrent: bool) -> tuple[float, float]:
    values, error = _eigenvalues(M, drop_nearest_to=1.0 if is_recurrent else None)
    modulus = np.abs(values)
    low = 1.0 - float((modulus + error).max(initial=0.0))
    return low, 1.0 - float((modulus - error).max(initial=0.0))


def _lump(M: FloatArray, leave: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Merge states with equal rows until all rows differ, which keeps all nonzero eigenvalues.

    (B C and C B share them, with C the distinct rows and B the row of each state.) This removes a
    multiple eigenvalue 0, which rounding would turn into eigenvalues of modulus ε^(1/m).
    """
    while True:
        _, first, member = np.unique(M, axis=0, return_index=True, return_inverse=True)
        if first.size == len(M):
            return M, leave
        lumped = np.zeros((first.size, first.size))
        np.add.at(lumped.T, member.reshape(-1), M[first].T)
        M, leave = lumped, leave[first]


def _eigenvalues(M: FloatArray, drop_nearest_to: float | None) -> tuple[ComplexArray, FloatArray]:
    """Return eigenvalues and error bounds, without the eigenvalue nearest to a number.

    To first order the bound is a rounding error, n ε ‖M‖, times the condition 1/|y* x| of the
    eigenvalue, with unit right and left vectors x and y; it is at most the bound of Elsner (1985,
    Linear Algebra Appl. 71), which holds for multiple eigenvalues too.
    """
    n = M.shape[0]
    eigensystem: Any = eig(M, left=True, right=True)
    values, left, right = eigensystem
    norm = float(np.linalg.norm(M))
    rounding = n * EPSILON * norm
    alignment = np.abs((left.conj() * right).sum(axis=0))
    with np.errstate(divide="ignore", over="ignore"):
        error = np.minimum(
            rounding / alignment, (2.0 * norm) ** (1.0 - 1.0 / n) * rounding ** (1.0 / n)
        )
    if drop_nearest_to is not None:
        others = np.arange(n) != np.abs(values - drop_nearest_to).argmin()
        values, error = values[others], error[others]
    return values, error


def _inverse_gap(B: sparse.csr_array, leave: FloatArray, is_recurrent: bool) -> tuple[float, float]:
    """Return bounds from the inverse of I - B (D, for a recurrent class): μ = 1/(1 - λ)."""
    eye = np.eye(B.shape[0])
    if is_recurrent:
        inverse = Limits(B, find_structure(B)).potential(eye)
    else:
        inverse = find_solver(B, leave).solve(eye)
    values, error = _eigenvalues(inverse, drop_nearest_to=0.0 if is_recurrent else None)
    size = np.abs(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(error < size, error / (size * (size - error)), np.inf)
        distance = 1.0 / values
    gap = (2.0 * distance.real - np.abs(distance) ** 2) / (1.0 + np.abs(1.0 - distance))
    return float((gap - error).min()), float((gap + error).min())


def _reversing_potential(B: sparse.csr_array) -> tuple[FloatArray, float]:
    """Look for φ with B(s, s') exp φ(s) = B(s', s) exp φ(s'), along a spanning tree.

    Such a φ, (n,), makes B reversible. Returns φ and the largest difference of φ(s') - φ(s) from
    the logarithm of the ratio of opposite entries; infinite if an opposite entry is zero.
    """
    n = B.shape[0]
    N = off_diagonal(B)
    N.sort_indices()
    opposite = sparse.csr_array(N.T)
    opposite.sort_indices()
    if not (
        np.array_equal(N.indptr, opposite.indptr) and np.array_equal(N.indices, opposite.indices)
    ):
        return np.zeros(n), np.inf
    row, column = edges(N)
    rise = np.log(N.data) - np.log(opposite.data)
    _, ancestor = search_breadth_first(N, np.zeros(1, dtype=np.int64))
    ancestor[0], risen = 0, np.zeros(n)
    child = np.arange(1, n)
    risen[1:] = rise[np.searchsorted(row * n + column, ancestor[1:] * n + child)]
    potential = path_sums(ancestor, risen)
    return potential, float(np.abs(potential[column] - potential[row] - rise).max())


def _reversible_sparse_gap(
    B: sparse.csr_array, potential: FloatArray, mismatch: float, is_recurrent: bool
) -> tuple[float, float]:
    """Return bounds for a large reversible component, by Lanczos iteration on √(B(s,s')B(s',s))."""
    S = sparse.csr_array(B.multiply(B.T)).sqrt()
    root = np.exp(0.5 * (potential - potential.max()))
    root = root / np.linalg.norm(root) if is_recurrent else np.zeros_like(root)
    value, _, residual = _largest(eigsh, S, root, root, N_BASIS)
    error = residual + mismatch + EPSILON * np.sqrt(B.shape[0])
    return 1.0 - abs(value) - error, 1.0 - abs(value) + error


def _sparse_gap(B: sparse.csr_array, is_recurrent: bool) -> tuple[float, float]:
    """Return bounds for a large component, by Arnoldi iterations from both sides.

    Arnoldi iteration may miss the largest eigenvalue if others are near it. So right and left
    vectors come from iterations with different starts and lengths, and must give the same
    eigenvalue. Both vectors give its condition.
    """
    ones = np.ones(B.shape[0])
    p = Limits(B, find_structure(B)).stationary if is_recurrent else 0.0 * ones
    value, right, residual = _largest(eigs, B, ones, p, N_BASIS)
    other, left, missed = _largest(eigs, sparse.csr_array(B.T), p, ones, 2 * N_BASIS)
    if value.imag * other.imag < 0.0:
        other, left = other.conjugate(), left.conj()
    alignment = max(abs(left @ right), EPSILON)
    rounding = EPSILON * np.sqrt(ones.size)
    error = float((residual + missed + rounding) / alignment + abs(value - other))
    return 1.0 - abs(value) - error, 1.0 - abs(value) + error


def _largest(
    solver: Callable[..., Any], M: sparse.csr_array, u: FloatArray, v: FloatArray, n_basis: int
) -> tuple[Any, Any, float]:
    """Return the largest eigenvalue of M - u v^T that ARPACK finds, its vector, the residual."""

    def apply(x: NDArray[Any]) -> NDArray[Any]:
        x = x.ravel()
        return np.asarray(M @ x - u * (v @ x))

    n = M.shape[0]
    operator: Any = LinearOperator((n, n), matvec=apply, dtype=np.float64)
    start = np.random.default_rng(n_basis).standard_normal(n)
    n_restarts = max(10, int(ARPACK_WORK / (n_basis * (M.data.size + n_basis * n))))
    try:
        values, vectors = solver(
            operator, N_WANTED, ncv=n_basis, v0=start, tol=1e-13, maxiter=n_restarts, which="LM"
        )
    except ArpackError as problem:
        raise ConvergenceError(
            f"the spectral gap of a component of {n} states is not found within {n_restarts} "
            "restarts of ARPACK: it is very small, or many eigenvalues are nearly as large "
            f"({problem}). Up to {DENSE_COMPONENT} states it is found directly; mixing_time needs "
            "no eigenvalue"
        ) from problem
    first = int(np.abs(values).argmax())
    value, vector = values[first], vectors[:, first]
    return value, vector, float(np.linalg.norm(apply(vector) - value * vector))
