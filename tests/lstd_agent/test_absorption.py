"""Systems of transition counts of many states: by elimination, by iteration, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from lstd_agent.errors import EvaluationError
from lstd_agent.system import sparse_solvers
from lstd_agent.system.sparse_solvers import DominantSolver, elimination_work
from unichain_gym.elimination import GthFactors

N_STATES = 200


def random_counts(n: int, seed: int) -> sparse.csr_array:
    """Three transitions from each state to any."""
    rng = np.random.default_rng(seed)
    origin = np.repeat(np.arange(n), 3)
    target = (origin + rng.integers(1, n, 3 * n)) % n
    return sparse.csr_array((rng.integers(1, 9, 3 * n) * 1.0, (origin, target)), shape=(n, n))


def grounded(counts: sparse.csr_array, exits: Any) -> sparse.csc_array:
    return sparse.csc_array(sparse.diags_array(counts.sum(axis=1) + exits) - counts)


def steps(n: int) -> Any:
    """A step up and one down a line of states."""
    return sparse.csr_array(sparse.eye_array(n, k=1) + sparse.eye_array(n, k=-1))


@pytest.fixture
def large(monkeypatch: Any) -> None:
    """Let few states be as many as are not factored at once."""
    monkeypatch.setattr(sparse_solvers, "_MOST_FACTORED", 10)
    monkeypatch.setattr(sparse_solvers, "_LOCAL", 0.0)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("seed", [0, 1])
def test_iterations_agree_with_elimination_without_subtraction(seed: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(sparse_solvers, "_MOST_WORK", 0.0)  # factors are refused
    counts, exits = random_counts(N_STATES, seed), np.zeros(N_STATES)
    exits[7] = 1.0
    right = np.random.default_rng(seed).normal(size=(N_STATES, 2))
    right[:, 1] = np.arange(N_STATES) == 3
    exact = GthFactors(counts.toarray(), exits)
    solver = DominantSolver(grounded(counts, exits))
    expected = np.stack([exact.solve(column) for column in right.T], axis=1)
    found = solver.solve(right)
    assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())
    one = solver.solve(right[:, 0])
    assert_allclose(one, found[:, 0], atol=1e-9 * np.abs(expected).max())


@pytest.mark.usefixtures("large")
def test_parts_that_are_hardly_linked_are_eliminated_or_refused(monkeypatch: Any) -> None:
    """The residual of iterations is rounding, and says nothing of the part that is not left."""
    half = N_STATES // 2
    link = sparse.csr_array(([1e-7], ([half], [0])), shape=(N_STATES, N_STATES))
    parts = sparse.block_diag((random_counts(half, 0), random_counts(half, 1)))
    counts, exits = sparse.csr_array(parts + link), np.zeros(N_STATES)
    exits[0] = 1.0
    right = np.ones(N_STATES)
    expected = GthFactors(counts.toarray(), exits).solve(right)
    system = grounded(counts, exits)
    assert_allclose(DominantSolver(system).solve(right), expected, rtol=1e-5)
    monkeypatch.setattr(sparse_solvers, "_MOST_WORK", 0.0)
    with pytest.raises(EvaluationError, match="equations of 200 unknowns are out of reach"):
        DominantSolver(system).solve(right)


def test_lines_and_planes_are_local_and_random_graphs_are_not() -> None:
    side = 30
    n = side**2
    one = sparse.eye_array(side)
    plane = sparse.kron(steps(side), one) + sparse.kron(one, steps(side))
    works = [elimination_work(sparse.csc_array(each)) for each in (steps(n), plane)]
    assert works[0] < 2.0 * n
    assert n < works[1] < (2.0 * n) ** 2
    assert (
        elimination_work(sparse.csc_array(random_counts(n, 0))) > (sparse_solvers._LOCAL * n) ** 2
    )


def test_a_state_with_very_many_neighbors_does_not_fill_a_line_in() -> None:
    n = 1000
    line = sparse.lil_array(steps(n))
    line[:, n // 2] = 1.0
    assert elimination_work(sparse.csc_array(line)) < 20.0 * n
