"""The minimizer, its projector and its error, held to algebra.

Figures of independent programs are in `test_reference_figures.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from lstd_agent.arrays import svd
from lstd_agent.rows.factors import Factor, factor_of_rows, reduced, total, without_each
from lstd_agent.system.minimizer import minimize


@st.composite
def chains_with_features(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    """A random chain, reward, distribution with some zeros, and features of any rank."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_states, d = draw(st.integers(1, 12)), draw(st.integers(1, 15))
    P = rng.dirichlet(np.ones(n_states), size=n_states)
    p = rng.dirichlet(np.ones(n_states)) * (rng.random(n_states) < draw(st.floats(0.3, 1)))
    p = p / p.sum() if p.sum() > 0 else np.eye(n_states)[0]
    F = rng.standard_normal((n_states, d))
    if draw(st.booleans()):
        F[:, -1] = F[:, 0]
    return P, rng.standard_normal(n_states), p, F


def rows_of(problem: tuple[np.ndarray, ...]) -> Any:
    """Root-weighted rows A, B and c of a chain."""
    P, r, p, F = problem
    root = np.sqrt(p)[:, None]
    return root * F, root * (F - P @ F), root * r[:, None]


@settings(max_examples=25)
@given(chains_with_features())
def test_the_projector_is_idempotent_and_keeps_representable_values(
    problem: tuple[np.ndarray, ...],
) -> None:
    _, _, p, F = problem
    A, _, _ = rows_of(problem)
    projection = F @ minimize(reduced(A, A, np.diag(np.sqrt(p)))).weights
    visited = p > 0
    scale = max(1.0, np.abs(projection).max())
    assert_allclose(projection @ projection, projection, atol=1e-6 * scale**2)
    assert_allclose((projection @ F)[visited], F[visited], atol=1e-6 * scale)


@settings(max_examples=25)
@given(chains_with_features())
def test_weights_equal_those_of_the_theorem(problem: tuple[np.ndarray, ...]) -> None:
    """(Z^{†/2} X)† Z^{†/2} y, by eigenvalues of Z, wherever nothing is near a cutoff."""
    A, B, c = rows_of(problem)
    eigenvalue, U = np.linalg.eigh(A.T @ A)
    keep = eigenvalue > 1e-12 * eigenvalue[-1]
    M = (U[:, keep] / np.sqrt(eigenvalue[keep])).T
    singular = np.linalg.svd(M @ A.T @ B, compute_uv=False)
    kept = singular > 1e-9 * max(singular[0], 1e-5)
    small = singular[~kept].max(initial=0.0)
    if eigenvalue[keep].min() < 1e-6 * eigenvalue[-1] or not kept.any() or small > 1e-12:
        return  # rounding would decide
    if singular[kept].min() < 1e-4 * singular[0]:
        return
    expected = np.linalg.pinv(M @ A.T @ B, rcond=1e-9) @ M @ (A.T @ c)
    found = minimize(reduced(A, B, c))
    assert found.rank == kept.sum()
    assert_allclose(found.weights, expected, atol=1e-7 * max(1.0, np.abs(expected).max()))
    assert found.condition == pytest.approx(singular[kept].max() / singular[kept].min(), rel=1e-5)


@settings(max_examples=25)
@given(chains_with_features())
def test_no_other_weights_have_a_smaller_error(problem: tuple[np.ndarray, ...]) -> None:
    A, B, c = rows_of(problem)
    equations = reduced(A, B, c)

    def error_of(weights: Any) -> Any:
        return np.sum((equations.B @ weights - equations.c) ** 2)

    w = minimize(equations).weights
    rng = np.random.default_rng(0)
    for scale in (1e-4, 1e-2, 1.0):
        other = w + scale * rng.standard_normal(w.shape)
        assert error_of(other) >= error_of(w) * (1 - 1e-8) - 1e-12


@settings(max_examples=25)
@given(chains_with_features())
def test_null_directions_change_no_equation_and_weights_have_no_part_in_them(
    problem: tuple[np.ndarray, ...],
) -> None:
    A, B, c = rows_of(problem)
    equations = reduced(A, B, c)
    found = minimize(equations)
    scale = max(1.0, np.abs(found.weights).max())
    assert_allclose(equations.B @ found.null, 0.0, atol=1e-9 * max(np.abs(A).max(), 1e-9))
    assert_allclose(found.null.T @ found.weights, 0.0, atol=1e-8 * scale)
    assert found.null.shape[1] == B.shape[1] - found.rank


def test_of_all_minimizers_the_smallest_by_a_metric_is_found() -> None:
    rng = np.random.default_rng(0)
    A, B, c = rng.normal(size=(4, 9)), rng.normal(size=(4, 9)), rng.normal(size=(4, 1))
    metric = rng.normal(size=(9, 9))
    equations = reduced(A, B, c)
    plain, found = (minimize(equations, metric=each).weights for each in (None, metric))
    assert_allclose(equations.B @ found, equations.B @ plain, atol=1e-9)
    # w = V (V^T M^T M V)^{-1} ... : the gradient of |M w|² has no part along what is open.
    null = minimize(equations).null
    assert_allclose(null.T @ metric.T @ metric @ found, 0.0, atol=1e-8)
    assert np.linalg.norm(metric @ found) < np.linalg.norm(metric @ plain)


def test_weights_of_rank_zero_are_zero() -> None:
    found = minimize(reduced(np.zeros((4, 3)), np.zeros((4, 3)), np.zeros((4, 1))))
    assert (found.weights == 0).all()
    assert (found.rank, found.condition) == (0, 1.0)


def test_rounding_errors_are_not_mistaken_for_differences() -> None:
    """A constant feature's B is 0 but for rounding, and there is nothing to compare it to."""
    one = np.ones((1, 1))
    found = minimize(reduced(one, 1e-17 * one, 0.5 * one))
    assert found.weights.tolist() == [[0.0]]
    assert found.rank == 0


def test_sizes_of_features_change_no_fitted_value() -> None:
    rng = np.random.default_rng(0)
    F, noise = rng.standard_normal((2, 40, 4))
    sizes = np.array([1e-3, 1.0, 50.0, 1e4])
    y = rng.standard_normal((40, 2))
    expected = F @ np.linalg.solve(F.T @ (F - noise), F.T @ y)
    for scale in (np.ones(4), sizes):
        G, H = F * scale, noise * scale
        assert_allclose(G @ minimize(reduced(G, G - H, y)).weights, expected, rtol=1e-7)


def gathered(rows: Any, weights: Any, p: int, are_trials: bool) -> Factor:
    parts = np.array_split(np.arange(len(rows)), 3)
    each = [(rows[part, :p], rows[part, p:], weights[part], are_trials) for part in parts]
    return total([factor_of_rows(*part) for part in each])


@pytest.mark.parametrize("are_trials", [False, True])
@pytest.mark.parametrize("p", [3, 40])
def test_factors_of_parts_stack_to_the_factor_of_the_whole(p: int, are_trials: bool) -> None:
    """They have the same equations, with some parts or without, whatever is kept of them."""
    rng = np.random.default_rng(p)
    rows, weights = rng.normal(size=(600, 2 * p + 2)), rng.integers(1, 5, 600) * 1.0
    parts = np.array_split(np.arange(600), 4)
    factors = [gathered(rows[i], weights[i], p, are_trials) for i in parts]
    rest = [np.setdiff1d(np.arange(600), i) for i in parts]
    for found, which in zip(
        [total(factors), *without_each(factors)], [np.arange(600), *rest], strict=True
    ):
        root = np.sqrt(weights[which])[:, None]
        A, B, c = np.split(root * rows[which], [p, 2 * p], axis=1)
        expected = minimize(reduced(A, B, c)).weights
        equations = found.reduced(p, 1e-10)
        assert_allclose(minimize(equations).weights, expected, rtol=1e-7, atol=1e-9)
        assert found.n == weights[which].sum()
        assert_allclose(found.sums, weights[which] @ rows[which], atol=1e-9)
        assert len(found.held) <= p


@pytest.mark.parametrize("shape", [(5, 4), (4, 6)])
def test_matrices_are_decomposed_where_divide_and_conquer_does_not_converge(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it did not for the equations of 200 bumps, finite and of full rank."""

    def fails(*args: Any, **options: Any) -> None:
        raise np.linalg.LinAlgError("SVD did not converge")

    matrices = np.random.default_rng(0).normal(size=shape)
    expected = np.linalg.svd(matrices, compute_uv=False)
    monkeypatch.setattr(np.linalg, "svd", fails)
    U, singular, Vt = svd(matrices)
    assert_allclose(singular, expected, rtol=1e-13)
    assert_allclose((U * singular[..., None, :]) @ Vt, matrices, atol=1e-13)
