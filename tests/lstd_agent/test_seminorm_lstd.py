"""The minimiser, its projector and its error, held to independent figures and to algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lstd_agent.statistics.equations import Moments
from numpy.testing import assert_allclose
from study.exact_systems import ExactStatistics

from lstd_agent.system.minimizer import (
    inverse_square_root,
    minimize,
    projected_bellman_error,
    projector,
)
from unichain_gym import make_mdp


def test_moments_weights_and_error_equal_the_reference_figures(reference: Any) -> None:
    for case in reference("lstd")["cases"]:
        chain = make_mdp(case["env"]).induce(np.array(case["policy"]))
        features, p = np.array(case["features"]), np.array(case["distribution"])
        statistics = ExactStatistics(chain, features, p[None])
        moments = statistics.moments_of(p[None], case["gain"])
        for name in ("X", "Z", "y"):
            expected = np.array(case[name])
            tolerance = 1e-8 * np.abs(expected).max()
            assert_allclose(getattr(moments, name)[0], expected, rtol=0, atol=tolerance)
        weights = minimize(moments, rcond=1e-12).weights
        visited = p > 0.0
        fitted = np.array(case["fitted"])[visited]
        assert_allclose((features @ weights[0])[visited], fitted, rtol=1e-8)
        # The reference errors are zero up to rounding of values of this size.
        rounding = 1e-13 * np.abs(fitted).max()
        repb = np.sqrt(projected_bellman_error(weights, moments, rcond=1e-12)[0])
        assert abs(repb - case["repb"]) <= rounding
        trace = np.trace(projector(features, p, rcond=1e-12))
        assert trace == pytest.approx(case["projector_trace"], rel=1e-8)


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


def moments_of(P: np.ndarray, r: np.ndarray, p: np.ndarray, F: np.ndarray) -> Moments:
    D = np.diag(p)
    X = F.T @ D @ (np.eye(len(P)) - P) @ F
    return Moments(X[None], (F.T @ D @ F)[None], (F.T @ D @ r)[None], np.array([0]))


@settings(deadline=None, max_examples=60)
@given(chains_with_features())
def test_the_projector_is_idempotent_and_keeps_representable_values(
    problem: tuple[np.ndarray, ...],
) -> None:
    _, _, p, F = problem
    projection = projector(F, p)
    visited = p > 0
    scale = max(1.0, np.abs(projection).max())
    assert_allclose(projection @ projection, projection, atol=1e-6 * scale**2)
    assert_allclose((projection @ F)[visited], F[visited], atol=1e-6 * scale)


@settings(deadline=None, max_examples=60)
@given(chains_with_features())
def test_the_factors_give_the_moore_penrose_inverse(problem: tuple[np.ndarray, ...]) -> None:
    P, r, p, F = problem
    Z = moments_of(P, r, p, F).Z
    M = inverse_square_root(Z)
    expected = np.linalg.pinv(Z[0], rcond=1e-10, hermitian=True)
    scale = max(1.0, np.abs(expected).max())
    assert_allclose(M[0].T @ M[0], expected, atol=1e-7 * scale)


@settings(deadline=None, max_examples=60)
@given(chains_with_features())
def test_no_other_weights_have_a_smaller_error(problem: tuple[np.ndarray, ...]) -> None:
    moments = moments_of(*problem)
    weights = minimize(moments).weights
    least = projected_bellman_error(weights, moments)[0]
    rng = np.random.default_rng(0)
    for scale in (1e-4, 1e-2, 1.0):
        others = weights + scale * rng.standard_normal((1, weights.shape[1]))
        assert projected_bellman_error(others, moments)[0] >= least * (1 - 1e-8) - 1e-12


def test_weights_of_rank_zero_are_zero() -> None:
    zero = Moments(np.zeros((1, 3, 3)), np.zeros((1, 3, 3)), np.zeros((1, 3)), np.array([0]))
    solution = minimize(zero)
    assert (solution.weights == 0).all()
    assert solution.rank.tolist() == [0]
    assert solution.condition.tolist() == [1.0]


def test_fewer_visited_states_than_features_fits_the_visited_ones() -> None:
    rng = np.random.default_rng(3)
    chain = make_mdp("h36c").induce(np.zeros(36, dtype=int))
    features = rng.standard_normal((36, 20))
    p = np.zeros(36)
    p[33:] = chain.stationary_distribution[33:]
    statistics = ExactStatistics(chain, features, p[None])
    solution = minimize(statistics.moments_of(p[None], chain.gain))
    values = features @ solution.weights[0]
    exact = chain.bias
    assert_allclose((values - values[33])[33:], (exact - exact[33])[33:], rtol=1e-8)
    assert np.abs(solution.weights).max() < 1e3


def test_distributions_of_every_rank_are_minimized_as_if_they_were_alone() -> None:
    rng = np.random.default_rng(5)
    n, n_states, d = 150, 30, 17
    F = rng.standard_normal((n_states, d))
    p = rng.dirichlet(np.ones(n_states), size=n)
    n_visited = rng.integers(0, n_states + 1, size=n)
    n_visited[:70] = 2  # all of the first ones are of a small rank
    p[np.arange(n_states) >= n_visited[:, None]] = 0.0
    P = rng.dirichlet(np.ones(n_states), size=n_states)
    weight = p[:, :, None]
    X, Z = F.T @ (weight * (F - P @ F)), F.T @ (weight * F)
    y = (p * rng.standard_normal(n_states)) @ F
    solution = minimize(Moments(X, Z, y, np.zeros(n, dtype=np.int64)))
    for k in range(n):
        # With Z† = M^T M, the minimizer is (M X)† M y, and any such M gives the same.
        eigenvalue, U = np.linalg.eigh(Z[k])
        keep = eigenvalue > 1e-10 * eigenvalue[-1]
        M = (U[:, keep] / np.sqrt(eigenvalue[keep])).T
        expected = np.linalg.pinv(M @ X[k], rcond=1e-10) @ M @ y[k]
        assert_allclose(solution.weights[k], expected, rtol=1e-6, atol=1e-9)
        assert solution.rank[k] <= min(n_visited[k], d)


def test_sizes_of_features_change_no_fitted_value_of_one_or_of_several_right_sides() -> None:
    rng = np.random.default_rng(0)
    F, noise = rng.standard_normal((2, 40, 4))
    sizes = np.array([1e-3, 1.0, 50.0, 1e4])
    y = rng.standard_normal((40, 2))
    fitted = []
    for scale in (np.ones(4), sizes):
        G, H = F * scale, noise * scale
        for right in (y, y[:, 0]):
            moments = Moments(
                (G.T @ (G - H))[None], (G.T @ G)[None], (G.T @ right)[None], np.array([40]), scale
            )
            fitted.append(G @ minimize(moments).weights[0])
    expected = F @ np.linalg.solve(F.T @ (F - noise), F.T @ y)
    for found in fitted:
        assert_allclose(found, expected if found.ndim == 2 else expected[:, 0], rtol=1e-8)
