"""Rank decisions: values do not depend on the cutoff, and awkward features are harmless."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from lstd_agent.fit_options import FitOptions
from lstd_agent.problems import random_chain, random_features
from lstd_agent.rows.counts import CountRows
from lstd_agent.system.approximators import System
from lstd_agent.system.distances import total_variation
from lstd_agent.system.neighborhoods import AnchorSearch
from lstd_agent.trials.counted import CountedTrials
from lstd_agent.trials.counts import TransitionCounts
from unichain_gym import simulate_counts
from unichain_gym.suite import MNEMONICS


def sampled(chain: Any, n_trials: int, t_max: int, seed: int = 0) -> TransitionCounts:
    drawn = simulate_counts(chain, n_trials, t_max, np.random.default_rng(seed))
    return TransitionCounts.of(drawn)


def fitted(counts: TransitionCounts, table: Any, anchors: Any, **options: Any) -> System:
    rcond = options.get("rcond", 1e-10)
    source = CountRows(CountedTrials.of(counts), table, rcond=rcond)
    return FitOptions(anchors=anchors, backup="one_step", **options).fit(source, 1).system


def values(system: System, features: Any) -> Any:
    """Calibrated values (n, S) of every neighbourhood."""
    return system.weights @ features.T + system.offsets[:, None]


TELLING = ("h6", "c10", "m16", "h36c")


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "mnemonic",
    [m if m in TELLING else pytest.param(m, marks=pytest.mark.slow) for m in MNEMONICS],
)
def test_the_cutoff_does_not_matter_from_1e_12_to_1e_8(mnemonic: str) -> None:
    """Where a state was visited, and unless the reported condition nears the cutoff's inverse."""
    chain = random_chain(mnemonic, 0)
    S = chain.n_states
    counts = sampled(chain, 10_000, 300)
    scale = np.ptp(chain.bias) + 1.0
    source = CountRows(CountedTrials.of(counts), np.eye(S))
    distance = total_variation(source.visits, source.trials_at)
    n_hanging = 0
    for features in [np.eye(S), *(random_features(S, d, 0) for d in (max(1, S // 5), S // 2, S))]:
        for n_anchors in (1, 2, 4):
            anchors = AnchorSearch(distance, 300).find(n_anchors, "exact")
            fits = [
                fitted(counts, features, anchors, gain=chain.gain, rcond=rcond)
                for rcond in (1e-12, 1e-10, 1e-8)
            ]
            # Offsets carry the error of one neighbourhood to those linked with it.
            if fits[0].condition.max() > 1e7:
                n_hanging += 1
                continue
            found = [values(fit, features)[fits[1].occupancy > 0] for fit in fits]
            assert_allclose(found[0], found[1], atol=1e-6 * scale)
            assert_allclose(found[2], found[1], atol=1e-6 * scale)
    assert n_hanging <= 3, "of 12"


def test_states_seen_once_in_ten_million_samples_keep_their_values() -> None:
    """Two states, one hot: by hand b(0) - b(1) = r(0) - g = 4, at whatever frequency of 0."""
    n = 10**7
    N = sparse.csr_array(np.array([[0, 1, 0, n - 1]], dtype=np.int64))
    rewards = sparse.csr_array(np.array([[5.0, 1.0 * (n - 1)]]))
    for features in (np.eye(2), np.array([[1e4, 1e4 + 1], [1e4, 1e4 + 2]])):
        system = fitted(TransitionCounts(2, n, N, rewards), features, [0], gain=1.0)
        assert_allclose(values(system, features)[0], [4.0, 0.0], atol=1e-6)
        assert system.rank[0] == 1


def test_features_of_states_that_no_trial_saw_do_not_matter() -> None:
    """As above, and a third state far away: its features would drown those of the others."""
    N = sparse.csr_array(np.array([[0, 1, 0, 0, 99, 0, 0, 0, 0]], dtype=np.int64))
    rewards = sparse.csr_array(np.array([[5.0, 99.0, 0.0]]))
    features = np.array([[1.0, 0.0], [0.0, 1.0], [1e14, 3e14]])
    system = fitted(TransitionCounts(3, 100, N, rewards), features, [0], gain=1.0)
    assert_allclose(values(system, features)[0, :2], [4.0, 0.0], atol=1e-9)


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
    plain, changed = (
        (F, fitted(counts, F, [0, 40], gain=chain.gain)) for F in (np.eye(36), change(np.eye(36)))
    )
    seen = plain[1].occupancy > 0
    expected, found = (values(system, F)[seen] for F, system in (plain, changed))
    assert_allclose(found, expected, atol=1e-7 * np.ptp(expected))


def test_a_single_constant_feature_predicts_0(h36: Any) -> None:
    chain, counts = h36
    system = fitted(counts, np.ones((36, 1)), [0], gain=chain.gain)
    assert_allclose(system.weights, 0.0, atol=1e-12)
    assert system.rank.tolist() == [0]
    assert system.condition.tolist() == [1.0]


def test_windows_with_one_sample_are_fitted() -> None:
    """One trial, one timestep each: a window's v(s) - v'(s') = r - g, solved exactly."""
    chain = random_chain("h6", 2)
    counts = sampled(chain, 1, 20)
    N = counts.transition_counts.toarray().argmax(axis=1)
    reward = counts.reward_sums.toarray().sum(axis=1)
    for features in (np.eye(6), random_features(6, 3, 0), random_features(6, 9, 0)):
        system = fitted(counts, features, np.arange(21), gain=chain.gain)
        assert system.n_samples.tolist() == [1] * 21
        v = values(system, features)
        for t, (state, following) in enumerate(zip(*np.divmod(N[:-1], 6), strict=True)):
            off = v[t, state] - v[t + 1, following] - (reward[t] - chain.gain)
            assert off == pytest.approx(0.0, abs=1e-8)
