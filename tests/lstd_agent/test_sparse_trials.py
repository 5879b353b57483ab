"""Many sparse features of vectors: the values of dense ones, without anything of size d × d."""

from __future__ import annotations

import re
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from lstd_agent.statistics import peeled, sparse_trials
from lstd_agent.statistics.factored import Factored
from lstd_agent.statistics.peeled import Peeled, Shifted
from lstd_agent.statistics.sparse_trials import RowEquations, SparseTrials
from lstd_agent.statistics.trial_moments import TrialMoments
from lstd_agent.system.krylov import _Window, minimal_residual
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from lstd_agent import KeptTrials, Polynomial, SeminormLSTDAgent, Standardized, TileCoding
from lstd_agent.errors import EvaluationError, InvalidInputError
from lstd_agent.system import krylov


class Plane(gym.Env[Any, Any]):
    """Tells the space; trials are made below."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)


def damped(n_trials: int, t_max: int, seed: int = 0) -> KeptTrials:
    """Trials of a damped oscillator that is pushed about, and pays minus its energy."""
    rng = np.random.default_rng(seed)
    position, velocity = rng.uniform(-1.0, 1.0, (2, n_trials))
    states = []
    for _ in range(t_max + 2):
        states.append(np.stack((position, velocity), axis=1))
        push = 0.1 * rng.normal(size=n_trials)
        velocity = np.clip(0.97 * velocity - 0.1 * position + push, -1.0, 1.0)
        position = np.clip(position + 0.1 * velocity, -1.0, 1.0)
    observed = np.stack(states, axis=1)
    return KeptTrials.of(observed, -np.square(observed[:, :-1]).sum(axis=2))


def fitted(features: Any, trials: KeptTrials, **options: Any) -> SeminormLSTDAgent:
    agent = SeminormLSTDAgent(features, backup="one_step", **options).attach(Plane())
    for i in range(4):
        agent.add(KeptTrials(trials.observations[i::4], trials.rewards[i::4]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return agent.fit()


def tiles(n_tiles: int) -> TileCoding:
    return TileCoding([-1.0, -1.0], [1.0, 1.0], n_tiles=n_tiles, n_tilings=8)


def weighted_tiles(x: Any) -> Any:
    """Tiles that count the more, the farther to the right: no constant is among their sums."""
    rows = tiles(6)(x)
    return sparse.csr_array(sparse.diags_array(1.0 + 0.3 * x[:, 0]) @ rows)


@pytest.mark.slow
@pytest.mark.parametrize("features", [tiles(7), weighted_tiles], ids=["tiles", "weighted"])
@pytest.mark.parametrize("anchors", [[0], [0, 1, 2, 30]])
def test_sparse_features_have_the_values_of_dense_ones(
    features: Any, anchors: Any, monkeypatch: Any
) -> None:
    trials = damped(400, 60)
    found = []
    for fewest in (10**6, 2):
        monkeypatch.setattr(sparse_trials, "_FEWEST_SPARSE", fewest)
        monkeypatch.setattr(sparse_trials, "_LARGEST_DENSITY", 1.0)
        monkeypatch.setattr(krylov, "_TOLERANCE_OF_CHANGE", 1e-7)
        agent = fitted(features, trials, anchors=anchors)
        assert (agent.fitted_statistics_.sparse_trials is None) == (fewest > 2)
        found.append(agent)
    dense, iterated = found
    assert iterated.gain_ == pytest.approx(dense.gain_, rel=1e-8)
    x = trials.observations[:20, ::7].reshape(-1, 2)
    t = np.tile(np.arange(0, 62, 7), 20)
    here = dense.determined(x, t) & (t <= 60)
    assert here.sum() > 100
    expected = dense.predict(x, t)[here]
    assert_allclose(iterated.predict(x, t)[here], expected, atol=1e-6 * np.ptp(expected))
    coverage = dense.coverage(x, t)
    assert_allclose(iterated.coverage(x, t), coverage, rtol=1e-5, atol=1e-12)
    assert_array_equal(iterated.determined(x, t)[here], True)
    errors = dense.standard_errors(x, t)[here]
    finite = np.isfinite(errors)
    assert finite.sum() > 50
    assert_allclose(iterated.standard_errors(x, t)[here][finite], errors[finite], rtol=1e-4)


def test_errors_by_what_a_batch_changes_are_those_of_separate_fits(monkeypatch: Any) -> None:
    """Refits begin with the solution of all trials, and are solved to what errors need."""
    monkeypatch.setattr(sparse_trials, "_FEWEST_SPARSE", 2)
    monkeypatch.setattr(sparse_trials, "_LARGEST_DENSITY", 1.0)
    trials = damped(200, 30)
    x, t = trials.observations[:30, ::9].reshape(-1, 2), np.tile(np.arange(0, 32, 9), 30)

    def errors() -> Any:
        return fitted(tiles(4), trials, anchors=[0, 5]).standard_errors(x, t)

    found = errors()
    monkeypatch.setattr(SparseTrials, "solved_of_whole", lambda self, key: {})
    separate = errors()
    assert_array_equal(np.isfinite(found), np.isfinite(separate))
    assert np.isfinite(found).sum() > 30
    finite = np.isfinite(found)
    assert_allclose(found[finite], separate[finite], rtol=0.01)


def test_minimal_residuals_solve_a_system_that_dense_elimination_solves() -> None:
    rng = np.random.default_rng(0)
    F = rng.normal(size=(200, 30)) * (rng.random((200, 30)) < 0.3)
    Z = Factored(sparse.csr_array(F))
    X = Z.Z.toarray() + 0.3 * rng.normal(size=(30, 30))
    right = rng.normal(size=30)
    found = minimal_residual(lambda w: X @ w, Z, right)
    assert_allclose(found, np.linalg.solve(X, right), rtol=1e-6)


def test_moments_that_have_no_room_are_refused_with_what_needs_none() -> None:
    agent = SeminormLSTDAgent(tiles(59)).attach(Plane()).add(damped(8, 5))
    message = r"moments of 28800 features .* take 13\.3 GB: features that are sparse"
    with pytest.raises(InvalidInputError, match=message):
        agent.statistics.equations(np.array([[0, 3]]), 0.0, 1e-10)


def test_standardize_is_short_for_standardized_features() -> None:
    trials = damped(40, 10)
    inner = Polynomial(2)
    short = fitted(inner, trials, anchors=[0, 3], standardize=True)
    long = fitted(Standardized(inner), trials, anchors=[0, 3])
    x = trials.observations[:5, 0]
    assert_array_equal(short.predict(x), long.predict(x))
    assert isinstance(short.features, Standardized)
    assert short.features.is_measured
    with pytest.raises(InvalidInputError, match="only functions and transformers"):
        SeminormLSTDAgent(np.eye(3), standardize=True)


def test_samples_that_lead_to_what_the_others_do_not_span_are_left_out() -> None:
    """Few trials in many tiles: whole ends of them lead nowhere, and no other sample does."""
    trials = damped(12, 30)
    features = tiles(9)
    statistics = SparseTrials(TrialMoments.of(trials, features), 1.0)
    equations = statistics.closed_equations(np.array([5, 31]), one=False)
    n = len(equations.trial)
    assert 0 < n < 12 * 26
    F = equations.Z.F.toarray()
    following = F - equations.steps.toarray()
    whole = np.linalg.matrix_rank(F, tol=1e-6)
    assert np.linalg.matrix_rank(np.vstack((F, following)), tol=1e-6) == whole
    # What was left out of a trial is its end.
    _, kept = np.unique(equations.trial, return_counts=True)
    assert kept.sum() == n
    assert kept.max() <= 26


def test_samples_that_tell_nothing_are_told_of() -> None:
    agent = fitted(tiles(34), damped(150, 60), anchors=[0, 5])
    left_out = agent.diagnostics().left_out
    assert left_out is not None
    assert left_out.of == 150 * 30
    warning = rf"^{left_out.number} of the 4500 samples of timesteps 30 to 59 lead to observations"
    assert 450 < left_out.number < 4500
    assert any(re.match(warning, text) for text in agent.diagnostics().warnings)
    with pytest.raises(EvaluationError, match=r"^40 of the 40 samples of timesteps 10 to 19 lead"):
        fitted(tiles(59), damped(4, 20), anchors=[0, 5])


def test_factors_that_do_not_fit_into_memory_are_refused(monkeypatch: Any) -> None:
    def out_of_memory(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("scipy.sparse.linalg.splu", out_of_memory)
    message = r"^the factors of 3 sparse features .* memory \(5 pairs .*\): use fewer or coarser"
    with pytest.raises(EvaluationError, match=message):
        Shifted(sparse.csc_array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]))


def left_out_one_at_a_time(F: Any, following: Any, trial: Any) -> Any:
    """Which samples tell nothing, by singular values and one trial after another."""
    kept = np.ones(len(trial), dtype=bool)
    while True:
        U = np.linalg.svd(F[kept].T, full_matrices=False)
        span = U[0][:, U[1] > 1e-6 * U[1][0]]
        ends = [np.flatnonzero(kept & (trial == i))[-1:] for i in np.unique(trial)]
        for end in np.concatenate(ends):
            x = following[end]
            if np.linalg.norm(x - span @ (span.T @ x)) > 1e-5:
                kept[end] = False
                break
        else:
            return ~kept


@pytest.mark.parametrize("fewest_peeled", [0.0, 1.1])
def test_ends_that_tell_nothing_are_those_found_one_at_a_time(
    fewest_peeled: float, monkeypatch: Any
) -> None:
    """Chains of them, in several rounds."""
    monkeypatch.setattr(peeled, "_FEWEST", fewest_peeled)
    trials = damped(12, 30)
    moments = TrialMoments.of(trials, tiles(6))
    F, following, rewards, trial = moments.parts[0].between(5, 31)
    expected = left_out_one_at_a_time(F.toarray(), following.toarray(), trial)
    assert 20 < expected.sum() < len(trial) - 50
    equations = SparseTrials(moments, 1.0).closed_equations(np.array([5, 31]), one=False)
    assert_array_equal(equations.trial, trial[~expected])
    assert_allclose(equations.y[:, 0], F[~expected].T @ rewards[~expected])


def test_weights_of_peeled_samples_have_their_values() -> None:
    """A staircase of features, each of which the one before uncovers, over a core."""
    rng = np.random.default_rng(0)
    stairs = np.eye(30) + np.diag(rng.uniform(0.5, 1.5, 29), -1)
    core = rng.normal(size=(20, 6)) @ rng.normal(size=(6, 8))
    F = sparse.csr_array(np.block([[stairs, rng.normal(size=(30, 8))], [np.zeros((20, 30)), core]]))
    found = Peeled(F)
    values = F @ rng.normal(size=38)
    assert_allclose(F @ found.solve(F.T @ values), values, atol=1e-8)
    assert_allclose(F @ found.null, 0.0, atol=1e-8)
    assert np.linalg.matrix_rank(found.null, tol=1e-6) == 2
    assert_array_equal(found.are_alone, np.arange(50) < 30)


def test_sums_along_trials_shorten_the_iteration() -> None:
    """Values pass along a cycle of 300 tiles in a few directions, not in 300."""
    n = 300
    F = sparse.eye_array(n, format="csr")
    steps = sparse.csr_array(F - sparse.csr_array(np.roll(np.eye(n), 1, axis=1)))
    trial, Z = np.zeros(n, dtype=np.int64), Factored(F)
    y = np.stack((np.sin(np.arange(n)), np.ones(n)), axis=1)
    window = _Window(RowEquations(Z, steps, trial, y, np.ones(n)))
    right = y[:, 0] - y[:, 0].mean()
    found = window.minimizer(right)
    assert_allclose(found - np.roll(found, -1), right, atol=1e-9)
