"""Rows of chains, held to figures that independent programs computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lstd_agent import LambdaReturn, MultiStep
from lstd_agent.problems import ChainRows
from lstd_agent.rows.factors import Segments, factor_of, reduced
from lstd_agent.system.linked import (
    SingleSteps,
    Targets,
    solve_linked,
    solve_window,
    zero_of,
)
from lstd_agent.system.minimizer import Solved, minimize
from unichain_gym import make_mdp

ROUNDING = 1e-14
"""Ill-conditioned figures are held to so much times their condition."""

CUTOFF = 1e-12
"""The relative cutoff of the figures of single windows."""


def backup_of(case: Any) -> MultiStep | LambdaReturn:
    return MultiStep(case["m"]) if "m" in case else LambdaReturn(case["lambda"])


def chain_of(problem: Any) -> Any:
    return make_mdp(problem["env"]).induce(np.array(problem["policy"]))


def exact_rows(problem: Any, distributions: Any, rcond: float = 1e-10) -> ChainRows:
    chain = chain_of(problem)
    features = np.array(problem["features"])
    return ChainRows(chain, distributions, features, rcond=rcond)


def fitted(source: Any, weights: Any, features: Any) -> Any:
    """Fitted values of all states, by the weights of a window that has no offset."""
    columns = np.vstack((weights, np.zeros((1, weights.shape[1]))))
    return features @ source.coordinates.of_features(columns)[:-1, 0]


def linked(source: Any, case: Any, gain: float) -> list[Solved]:
    """Windows of a linked system: of single steps by factors, of λ by targets."""
    anchors = np.array(case["anchors"])
    segments = Segments.of(source, anchors)
    zeros = zero_of(source, segments, int(anchors[-1]))
    equations: Any = SingleSteps(source, segments, np.array([gain]))
    if case["lambda"] > 0.0:
        equations = Targets(source, [backup_of(case)], np.array([gain]))
    [[solved]] = solve_linked(source, equations, anchors, zeros)
    return solved


def difference(source: Any, solved: list[Solved], case: Any, features: Any) -> float:
    """The largest difference from the figures where windows visit, over the largest of them."""
    expected = np.array([[np.nan if v is None else v for v in row] for row in case["values"]])
    columns = [source.coordinates.of_features(each.columns)[:, 0] for each in solved]
    found = np.array([features @ w[:-1] + w[-1] for w in columns])
    return float(np.nanmax(np.abs(found - expected)) / np.nanmax(np.abs(expected)))


def test_exact_linked_systems(reference: Any) -> None:
    n_equal = n_stable = 0
    for problem in reference("linked")["exact"]:
        p = chain_of(problem).stepwise_distributions(problem["t_max"], tol=0.0).copy()
        p[p <= 1e-8] = 0.0
        for case in problem["cases"]:
            source = exact_rows(problem, p / p.sum(axis=1, keepdims=True))
            solved = linked(source, case, problem["gain"])
            assert source.main_state(case["anchors"][-1]) == case["main_reference"]
            off = difference(source, solved, case, np.array(problem["features"]))
            condition = max(each.condition for each in solved)
            assert off < max(1e-9, ROUNDING * condition)
            n_stable += case["stable"]
            n_equal += case["stable"] and off < 1e-9
    assert n_stable == 48
    assert n_equal >= 40


def test_exact_windows_of_single_steps(reference: Any) -> None:
    cases = reference("lstd")["cases"]
    assert len(cases) == 9
    for case in cases:
        p, features = np.array(case["distribution"]), np.array(case["features"])
        source, seen = exact_rows(case, p[None], CUTOFF), p > 0.0
        factor = factor_of(source.merged(0, 1))
        w = fitted(source, solve_window(source, factor.above(case["gain"])).weights, features)
        expected = np.array(case["fitted"])
        assert_allclose(w[seen], expected[seen], atol=1e-8 * np.abs(expected).max())


def test_projected_errors_and_projectors(reference: Any) -> None:
    for case in reference("lstd")["cases"]:
        chain, p = chain_of(case), np.array(case["distribution"])
        F, root = np.array(case["features"]), np.sqrt(p)
        A = root[:, None] * F
        B = root[:, None] * (F - chain.transition_matrix @ F)
        c = root * (chain.reward - case["gain"])
        equations = reduced(A, B, c[:, None], CUTOFF)
        error = np.linalg.norm(equations.B @ np.array(case["w"])[:, None] - equations.c)
        assert error == pytest.approx(case["repb"], rel=1e-8, abs=1e-10 * np.abs(c).max())
        trace = np.trace(F @ minimize(reduced(A, A, np.diag(root), CUTOFF), CUTOFF).weights)
        assert trace == pytest.approx(case["projector_trace"], abs=1e-8)


def test_exact_windows_of_several_steps(reference: Any) -> None:
    problems, cases = reference("lstd")["cases"], reference("multistep")["exact"]
    assert len(cases) == 72
    for case in cases:
        problem = problems[case["lstd_case"]]
        p, features = np.array(problem["distribution"]), np.array(problem["features"])
        # A target reaches as far as m steps, or until λ to their number is rounding.
        n = case["m"] if "m" in case else 1 + int(np.log(1e-17) / np.log(case["lambda"] or 1e-17))
        source, seen = exact_rows(problem, np.tile(p, (n, 1)), CUTOFF), p > 0.0
        targets = Targets(source, [backup_of(case)], np.array([problem["gain"]]))
        found = solve_window(source, targets.alone(0, 1))
        expected = np.array(case["fitted"])
        off = fitted(source, found.weights, features)[seen] - expected[seen]
        assert np.abs(off).max() < 1e-8 * np.abs(expected).max()
