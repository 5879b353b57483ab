"""Rank decisions: nothing hangs on the cutoff, and awkward features are harmless."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse

from lstd_agent.decompositions import svd
from lstd_agent.features.kernels import Kernel
from lstd_agent.problems import population_counts, random_chain, random_features
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.statistics.equations import FeatureBasis, Moments
from lstd_agent.system.distances import mean_discrepancy
from lstd_agent.system.fit_system import fit_system, solve_windows
from lstd_agent.system.minimizer import minimize
from lstd_agent.system.neighborhoods import find_anchors
from lstd_agent.trials.counts import TransitionCounts
from unichain_gym.streams import MNEMONICS


def sampled(chain: Any, n_trials: int, t_max: int, seed: int = 0) -> TransitionCounts:
    return population_counts(chain, n_trials, t_max, np.random.default_rng(seed))


def values(system: Any, features: Any) -> Any:
    """Calibrated values (n, S) of every neighbourhood."""
    n = len(features)
    return np.stack([system.values(features, np.full(n, k)) for k in range(len(system.anchors))])


@pytest.mark.parametrize("mnemonic", MNEMONICS)
def test_the_cutoff_does_not_matter_from_1e_12_to_1e_8(mnemonic: str) -> None:
    """Where a state was visited, and unless the fit itself says that it hangs by a thread.

    A window's equations may nearly contradict each other, whatever the arithmetic: the
    reported condition then tells, and comes near the inverse of the cutoff.
    """
    chain = random_chain(mnemonic, 0)
    S = chain.n_states
    counts = sampled(chain, 10_000, 300)
    scale = np.ptp(chain.bias) + 1.0
    gram = Kernel("dirac")(np.eye(S), np.eye(S))
    distance = mean_discrepancy(CountStatistics(counts, np.eye(S)).distributions, gram)
    n_hanging = 0
    tables = [np.eye(S), *(random_features(S, d, 0) for d in (max(1, S // 5), S // 2, S, S + 5))]
    for features in tables:
        statistics = CountStatistics(counts, features)
        for n_anchors in (1, 2, 4):
            anchors = find_anchors(distance, 300, n_anchors, "exact")
            fits = [
                fit_system(statistics, anchors, chain.gain, rcond=rcond)
                for rcond in (1e-12, 1e-10, 1e-8)
            ]
            # Offsets carry the error of one neighbourhood to those linked with it.
            if fits[0].condition.max() > 1e7:
                n_hanging += 1
                continue
            found = [values(fit, features)[fits[1].occupancy > 0] for fit in fits]
            assert_allclose(found[0], found[1], atol=1e-6 * scale)
            assert_allclose(found[2], found[1], atol=1e-6 * scale)
    assert n_hanging <= 3, "of 15"


def test_states_seen_once_in_ten_million_samples_keep_their_values() -> None:
    """Two states, one hot: by hand b(0) - b(1) = r(0) - g = 4, at whatever frequency of 0."""
    n = 10**7
    N = sparse.csr_array(np.array([[0, 1, 0, n - 1]], dtype=np.int64))
    rewards = sparse.csr_array(np.array([[5.0, 1.0 * (n - 1)]]))
    for features in (np.eye(2), np.array([[1e4, 1e4 + 1], [1e4, 1e4 + 2]])):
        statistics = CountStatistics(TransitionCounts(2, n, N, rewards), features)
        system = fit_system(statistics, np.array([0]), 1.0, tail="window")
        assert_allclose(values(system, features)[0], [4.0, 0.0], atol=1e-6)
        assert system.rank[0] == 1


def test_features_of_states_that_no_trial_saw_do_not_matter() -> None:
    """As above, and a third state far away: its features would drown those of the others."""
    N = sparse.csr_array(np.array([[0, 1, 0, 0, 99, 0, 0, 0, 0]], dtype=np.int64))
    rewards = sparse.csr_array(np.array([[5.0, 99.0, 0.0]]))
    features = np.array([[1.0, 0.0], [0.0, 1.0], [1e14, 3e14]])
    statistics = CountStatistics(TransitionCounts(3, 100, N, rewards), features)
    system = fit_system(statistics, np.array([0]), 1.0, tail="window")
    assert_allclose(values(system, features)[0, :2], [4.0, 0.0], atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 9))
def test_roots_and_moments_give_the_same_minimizer(seed: int, d: int) -> None:
    """Where both are well-conditioned: moments of samples, minimized by the theorem itself."""
    rng = np.random.default_rng(seed)
    chain = random_chain("h6", seed % 7)
    statistics = CountStatistics(sampled(chain, 500, 9, seed), rng.normal(size=(6, d)))
    windows = np.array([[0, 2], [1, 6], [5, 10]])
    moments = statistics.moments(windows, chain.gain)
    expected = minimize(moments, 1e-10)
    found, n_samples = solve_windows(statistics, windows, chain.gain, 1e-10)
    assert (found.rank == expected.rank).all()
    assert (n_samples == moments.n_samples).all()
    # The theorem loses digits in Z: compare to what it can hold.
    eigenvalue = np.linalg.eigvalsh(moments.Z)
    loss = eigenvalue[:, -1] / np.where(
        eigenvalue > 1e-10 * eigenvalue[:, -1:], eigenvalue, np.inf
    ).min(axis=1, initial=np.inf)
    tolerance = 1e-12 * loss.max() * expected.condition.max()
    assume(tolerance < 1e-4)
    assert_allclose(
        found.weights, expected.weights, atol=tolerance * np.abs(expected.weights).max()
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 9))
def test_the_minimizer_is_the_smallest_that_solves_the_projected_equations(
    seed: int, d: int
) -> None:
    """Both conditions of a pseudoinverse solution, from sums over the samples alone."""
    rng = np.random.default_rng(seed)
    chain = random_chain("c10", seed % 5)
    F = rng.normal(size=(10, d))
    F = np.hstack((F, F[:, :1]))  # twice the same feature: X never sees their difference
    statistics = CountStatistics(sampled(chain, 300, 5, seed), F)
    windows = np.array([[0, 3], [2, 6]])
    moments = statistics.moments(windows, chain.gain)
    found, _ = solve_windows(statistics, windows, chain.gain, 1e-10)
    for k in range(2):
        M = np.linalg.pinv(moments.Z[k], rcond=1e-12, hermitian=True)
        X, y, w = moments.X[k], moments.y[k], found.weights[k]
        scale = np.abs(X.T @ M).max() * max(np.abs(y).max(), np.abs(X @ w).max())
        assert_allclose(X.T @ M @ (X @ w - y), 0.0, atol=1e-7 * scale)
        # Smallest: w has nothing along the directions that X does not see.
        _, singular, Vt = np.linalg.svd(X)
        unseen = Vt[(singular < 1e-9 * singular[0]).nonzero()[0]]
        assert len(unseen) >= 1
        assert_allclose(unseen @ w, 0.0, atol=1e-7 * max(1.0, np.abs(w).max()))


@pytest.fixture(scope="module")
def h36() -> Any:
    chain = random_chain("h36", 1)
    return chain, sampled(chain, 5000, 200)


@pytest.mark.parametrize(
    "change",
    [
        lambda F: np.hstack((F, np.ones((36, 1)))),
        lambda F: np.hstack((F, F[:, :5])),
        lambda F: np.hstack((F, np.zeros((36, 2)))),
        lambda F: np.hstack((F, F @ np.random.default_rng(0).normal(size=(36, 40)))),
        lambda F: F * 1e6,
        lambda F: F * np.logspace(-3, 3, 36),
    ],
    ids=["constant", "duplicates", "zeros", "d > S", "scaled", "scaled apart"],
)
def test_features_that_span_the_same_give_the_same_values(h36: Any, change: Any) -> None:
    """One-hot features span everything, so nothing changes what is fitted at visited states."""
    chain, counts = h36
    anchors = np.array([0, 40])
    plain, changed = (
        (F, fit_system(CountStatistics(counts, F), anchors, chain.gain))
        for F in (np.eye(36), change(np.eye(36)))
    )
    seen = plain[1].occupancy > 0
    expected, found = (values(system, F)[seen] for F, system in (plain, changed))
    assert_allclose(found, expected, atol=1e-7 * np.ptp(expected))


def test_a_constant_feature_alone_predicts_nothing(h36: Any) -> None:
    chain, counts = h36
    system = fit_system(CountStatistics(counts, np.ones((36, 1))), np.array([0]), chain.gain)
    assert_allclose(system.weights, 0.0, atol=1e-12)
    assert system.rank.tolist() == [0]
    assert system.condition.tolist() == [1.0]
    zero = fit_system(CountStatistics(counts, np.zeros((36, 2))), np.array([0]), chain.gain)
    assert_allclose(zero.weights, 0.0, atol=1e-300)


def test_windows_with_one_sample_are_fitted() -> None:
    """One trial, one timestep each: f(s)·w - f(s')·w = r - g, solved exactly when it can be."""
    chain = random_chain("h6", 2)
    counts = sampled(chain, 1, 20)
    for features in (np.eye(6), random_features(6, 3, 0), random_features(6, 9, 0)):
        statistics = CountStatistics(counts, features)
        windows = np.stack((np.arange(21), np.arange(1, 22)), axis=1)
        found, n_samples = solve_windows(statistics, windows, chain.gain, 1e-10)
        assert n_samples.tolist() == [1] * 21
        N = counts.transition_counts.toarray().argmax(axis=1)
        reward = counts.reward_sums.toarray().sum(axis=1)
        for t, (state, following) in enumerate(zip(*np.divmod(N, 6), strict=True)):
            residual = (features[state] - features[following]) @ found.weights[t]
            expected = reward[t] - chain.gain if state != following else 0.0
            assert residual == pytest.approx(expected, abs=1e-9)
        assert np.isfinite(
            values(fit_system(statistics, np.arange(21), chain.gain), features)
        ).all()


def test_many_windows_in_pieces_give_what_they_give_at_once(h36: Any, monkeypatch: Any) -> None:
    chain, counts = h36
    statistics = CountStatistics(counts, random_features(36, 4, 0))
    windows = np.stack((np.arange(200), np.arange(1, 201)), axis=1)
    whole, _ = solve_windows(statistics, windows, chain.gain, 1e-10)
    X = statistics.moments(windows, chain.gain).X
    monkeypatch.setattr("lstd_agent.statistics.equations._CHUNK_SIZE", 1000)
    pieces, _ = solve_windows(statistics, windows, chain.gain, 1e-10)
    assert_allclose(pieces.weights, whole.weights, rtol=1e-9, atol=1e-12)
    assert_allclose(statistics.moments(windows, chain.gain).X, X, rtol=1e-12, atol=1e-15)


def test_a_feature_basis_is_orthonormal_and_spans_the_features() -> None:
    F = np.random.default_rng(0).normal(size=(9, 4)) @ np.ones((4, 6))
    F[:, 0] = np.arange(9)
    basis = FeatureBasis.of(F, 1e-10)
    assert basis.U.shape == (9, 2)
    assert_allclose(basis.U.T @ basis.U, np.eye(2), atol=1e-14)
    assert_allclose(basis.U * basis.singular @ basis.V.T, F, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 5, 4), (2, 4, 6), (5, 3)])
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


def test_rounding_errors_are_not_taken_for_moments() -> None:
    """A constant feature's X is 0 but for rounding, which is all there is to compare it to."""
    one = np.ones((1, 1, 1))
    found = minimize(Moments(1e-17 * one, one, 0.5 * one[0], np.ones(1, int)))
    assert found.weights.tolist() == [[0.0]]
    assert found.rank.tolist() == [0]
