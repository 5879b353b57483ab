"""Other solvers find the same values as singular values do, wherever samples determine them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.statistics.equations import Factors, FeatureBasis, Moments
from lstd_agent.statistics.moments import MomentStatistics
from lstd_agent.system.fit_system import fit_system
from numpy.testing import assert_allclose

from lstd_agent import (
    GaussianFeatures,
    KeptTrials,
    LambdaReturn,
    OneHot,
    RadialBasis,
    SeminormLSTDAgent,
)
from lstd_agent.errors import EvaluationError, InvalidInputError
from lstd_agent.problems import population_counts, random_chain, random_features
from lstd_agent.system import solvers
from lstd_agent.system.minimizer import minimize, projected_bellman_error

OTHERS = ("qr", "lsmr")


def problem(n_visited: int, d: int, repeated: int = 0) -> tuple[Moments, Factors, np.ndarray]:
    """30 states of which some are visited, d features of which the last are copies."""
    rng = np.random.default_rng(n_visited + 100 * d)
    F = rng.standard_normal((30, d))
    F[:, d - repeated :] = F[:, :repeated]
    p = np.zeros(30)
    p[:n_visited] = rng.dirichlet(np.ones(n_visited))
    P = rng.dirichlet(np.full(n_visited, 0.3), size=30) @ np.eye(n_visited, 30)
    r = rng.standard_normal(30)
    D = np.diag(p)
    X = F.T @ D @ (F - 0.9 * P @ F)
    moments = Moments(X[None], (F.T @ D @ F)[None], (F.T @ D @ r)[None], np.array([0]))
    basis = FeatureBasis.of(F, 1e-12)
    root = np.sqrt(p)[:, None]
    B = root * (basis.U - 0.9 * P @ basis.U)
    factors = Factors((root * basis.U)[None], B[None], (root[:, 0] * r)[None], basis, np.array([0]))
    return moments, factors, F[:n_visited]


@pytest.mark.parametrize("solver", OTHERS)
@pytest.mark.parametrize(("n_visited", "d", "repeated"), [(30, 5, 0), (30, 8, 3), (4, 12, 0)])
@pytest.mark.parametrize("which", [0, 1])
def test_fitted_values_are_those_of_singular_values(
    solver: Any, n_visited: int, d: int, repeated: int, which: int
) -> None:
    given = problem(n_visited, d, repeated)
    equations, F = given[which], given[2]
    assert isinstance(equations, Moments | Factors)
    expected = minimize(equations, 1e-12, directions=True)
    found = minimize(equations, 1e-12, directions=True, solver=solver)
    scale = np.abs(F @ expected.weights[0]).max()
    assert_allclose(F @ found.weights[0], F @ expected.weights[0], atol=1e-8 * scale)
    assert found.weights.shape == expected.weights.shape
    if solver == "qr":
        assert found.rank == expected.rank
        # The same directions: those of one are combinations of those of the other.
        assert found.determined is not None
        assert expected.determined is not None
        both = np.hstack((found.determined[0], expected.determined[0]))
        assert np.linalg.matrix_rank(both, tol=1e-8 * np.abs(both).max()) == expected.rank[0]


@pytest.mark.parametrize("solver", OTHERS)
def test_weights_make_the_projected_bellman_error_least(solver: Any) -> None:
    moments, _, _ = problem(6, 10)
    weights = minimize(moments, 1e-12, solver=solver).weights
    assert projected_bellman_error(weights, moments, 1e-12)[0] < 1e-18


def test_only_the_smallest_weights_have_no_part_in_what_is_open() -> None:
    moments, _, _ = problem(4, 12)
    solvers: tuple[Any, ...] = ("svd", *OTHERS)
    norm = {s: np.linalg.norm(minimize(moments, solver=s).weights) for s in solvers}
    assert norm["lsmr"] == pytest.approx(norm["svd"], rel=1e-8)
    assert norm["qr"] > 1.01 * norm["svd"]


@pytest.mark.parametrize("solver", OTHERS)
@pytest.mark.parametrize(
    ("backup", "calibration"),
    [
        ("one_step", "linked"),
        ("one_step", "references"),
        ("model", "linked"),
        (LambdaReturn(0.9), "linked"),
        (LambdaReturn(0.9), "references"),
    ],
)
@pytest.mark.parametrize("d", [3, 17])
def test_systems_have_the_same_values(solver: Any, backup: Any, calibration: Any, d: int) -> None:
    chain = random_chain("h36c", 0)
    counts = population_counts(chain, 1_000, 100, np.random.default_rng(0))
    F = random_features(36, d, 0)
    how: Any = {"calibration": calibration, "backup": backup}
    anchors = np.array([0, 20, 50])
    statistics = CountStatistics(counts, F)
    expected = fit_system(statistics, anchors, chain.gain, **how)
    found = fit_system(statistics, anchors, chain.gain, solver=solver, **how)
    for k in range(len(expected.anchors)):
        seen = np.flatnonzero(expected.occupancy[k])
        here = np.full(len(seen), k)
        values = expected.values(F[seen], here)
        assert_allclose(found.values(F[seen], here), values, atol=1e-6 * np.ptp(values))
    if solver == "qr":
        assert_allclose(found.rank, expected.rank)


@pytest.mark.parametrize("solver", OTHERS)
def test_nothing_visited_or_no_features_leave_weights_zero(solver: Any) -> None:
    zero = Moments(np.zeros((1, 3, 3)), np.zeros((1, 3, 3)), np.zeros((1, 3)), np.array([0]))
    found = minimize(zero, solver=solver)
    assert_allclose(found.weights, np.zeros((1, 3)))
    assert found.rank[0] == 0
    constant = np.ones((1, 1, 1))
    same = Moments(0.0 * constant, constant, 0.0 * constant[0], np.array([0]))
    assert_allclose(minimize(same, solver=solver).weights, 0.0)


def test_iterations_that_do_not_converge_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "_ITERATIONS_PER_UNKNOWN", 0)
    with pytest.raises(EvaluationError, match="LSMR has not converged in 1 iterations"):
        minimize(problem(30, 5)[0], solver="lsmr")


def test_the_agent_takes_and_keeps_a_solver(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"solver must be one of .*; got 'lu'"):
        SeminormLSTDAgent(GaussianFeatures(2), solver="lu")  # type: ignore[arg-type]
    chain = random_chain("h6", 0)
    counts = population_counts(chain, 500, 50, np.random.default_rng(0))
    found = {}
    for solver in ("svd", "qr"):
        agent = SeminormLSTDAgent(OneHot(), anchors=[0, 10], gain=chain.gain, solver=solver)
        agent.add(counts).fit()
        agent.save(tmp_path / "agent.npz")
        again = SeminormLSTDAgent.load(tmp_path / "agent.npz")
        assert again.solver == solver
        found[solver] = agent.predict(np.arange(6))
        assert_allclose(again.predict(np.arange(6)), found[solver])
    assert_allclose(found["qr"], found["svd"], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("solver", OTHERS)
def test_vectors_have_the_same_values(solver: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 32, 1))
    for t in range(31):
        x[:, t + 1] += 0.8 * x[:, t]
    trials = KeptTrials.of(x, x[:, :-1, 0])
    features = RadialBasis.grid(low=[-3.0], high=[3.0], n=8)
    statistics = MomentStatistics(trials, features, trials.states())
    how: Any = {"anchors": np.array([0, 10]), "gain": 0.0}
    expected, found = (fit_system(statistics, **how, solver=s) for s in ("svd", solver))
    for k in range(2):
        values = expected.values(features(x[:, 5]), np.full(200, k))
        values_found = found.values(features(x[:, 5]), np.full(200, k))
        assert_allclose(values_found, values, atol=1e-5 * np.ptp(values))
