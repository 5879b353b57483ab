"""The pooled model: values by all timesteps' transitions, and what they leave open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from numpy.testing import assert_allclose
from scipy import sparse

from lstd_agent import KeptTrials, OneHot, Polynomial, SeminormLSTDAgent, TransitionCounts
from lstd_agent.errors import EvaluationError, InvalidInputError
from lstd_agent.fit_options import FitOptions, Fitted
from lstd_agent.rows.counts import CountRows
from lstd_agent.system.model import pooled_model
from lstd_agent.trials.counted import CountedTrials
from unichain_gym import make_mdp, simulate_counts

pytestmark = pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")


def counts_of(states: Any, rewards: Any, n_states: int) -> Any:
    return SeminormLSTDAgent(np.eye(n_states)).add(KeptTrials.of(states, rewards)).counts


def fitted(counts: Any, table: Any, anchors: Any, gain: float) -> Fitted:
    return FitOptions(anchors=anchors, backup="model", gain=gain).fit(
        CountRows(CountedTrials.of(counts), table), 1
    )


class Sums:
    """Transitions (S, S) and rewards (S,) that no trial is behind."""

    def __init__(self, transitions: Any, rewards: Any) -> None:
        visits = np.asarray(transitions.sum(axis=1)).ravel()
        means = rewards / np.where(visits > 0.0, visits, 1.0)
        self.transitions, self.models = lambda: transitions, dict[Any, Any]()
        self.pooled = lambda: (visits, means, np.ones(len(visits)))


def model_of(states: Any, rewards: Any, n_states: int, gain: float, main: int) -> Any:
    source = CountRows(CountedTrials.of(counts_of(states, rewards, n_states)), np.eye(n_states))
    return pooled_model(source, gain, main)


def test_values_are_weighted_least_squares_fits_of_the_pooled_chains_values() -> None:
    """All visits weigh alike in the first neighbourhood, and in later ones, by timestep, less
    the farther the fit of all alike is from the values there.
    """
    rng = np.random.default_rng(3)
    mdp = make_mdp("h15b")
    chain = mdp.induce(rng.integers(mdp.n_actions, size=15))
    counts = TransitionCounts.of(simulate_counts(chain, 100, 80, rng))
    F = rng.normal(size=(15, 3))
    anchors = np.array([0, 6, 25])
    system = fitted(counts, F, anchors, chain.gain).system
    N = counts.transition_counts.toarray().reshape(81, 15, 15)
    main = int(np.argmax(N[25:].sum(axis=(0, 2))))
    assert system.references.main == main
    n = N.sum(axis=(0, 2))
    P, r = N.sum(axis=0) / n[:, None], counts.reward_sums.toarray().sum(axis=0) / n
    rest = np.arange(15) != main
    v = np.zeros(15)
    v[rest] = np.linalg.solve(np.eye(14) - P[np.ix_(rest, rest)], (r - chain.gain)[rest])
    X = np.hstack((F, np.ones((15, 1))))

    def best(weight: Any) -> Any:
        root = np.sqrt(weight)
        return np.linalg.lstsq(root[:, None] * X, root * v, rcond=None)[0]

    for k, stop in enumerate([6, 25, 81]):
        visits = N[anchors[k] : stop].sum(axis=2)
        w = best(visits.sum(axis=0))
        if k > 0:
            w = best((visits / np.sqrt(visits @ (X @ w - v) ** 2)[:, None]).sum(axis=0))
        assert_allclose(system.weights[k], w[:3], rtol=1e-8)


def test_one_feature_a_state_and_sparse_ones_give_the_pooled_values() -> None:
    """1,100 states around a circle: features that are solved as sparse ones, and values v - 1."""
    S = 1100
    states = (np.arange(S)[:, None] + np.arange(6)) % S
    rewards = np.where(states[:, :5] == 0, float(S), 0.0)
    counts = counts_of(states, rewards, S)
    assert CountRows(CountedTrials.of(counts), np.eye(S)).is_sparse
    system = fitted(counts, np.eye(S), [0, 2], 1.0).system
    assert system.references.main == 0
    assert_allclose(system.weights[1] + system.offsets[1], -((S - np.arange(S)) % S), atol=1e-6)
    assert_allclose(system.weights[0] + system.offsets[0], -((S - np.arange(S)) % S), atol=1e-6)


def test_a_period_does_no_harm() -> None:
    states = [[0, 1, 2, 3, 1, 2, 3, 1, 2]]
    counts = counts_of(states, [[9, 1, 2, 3, 1, 2, 3, 1]], 4)
    system = fitted(counts, np.eye(4), [0, 1], 2.0).system
    values = system.weights + system.offsets[:, None]
    assert system.references.main == 1
    assert_allclose(values[1, 1:], [0.0, 1.0, 1.0], atol=1e-12)
    assert_allclose(values[0, 0], 7.0, atol=1e-12)


def test_values_of_states_that_were_never_left() -> None:
    """From 0 trials go to 1 and back, but for one of 20 that ends in 2 at the last timestep."""
    common = [[0, 1, 0, 1, 0, 1]] * 19
    rewards = [[0.0, 2.0, 0.0, 2.0, 0.0]] * 20
    model = model_of([*common, [0, 1, 0, 1, 0, 2]], rewards, 3, 1.0, 1)
    assert_allclose(model.values[:2], [-1.0, 0.0])
    assert_allclose(model.open_share, [1 / 60, 0.0, 1.0])


def test_classes_that_never_lead_to_the_main_reference_state_are_open() -> None:
    states = [[0, 1, 0, 1, 0, 1], [2, 3, 2, 3, 2, 3], [4, 2, 3, 2, 3, 2], [4, 1, 0, 1, 0, 1]]
    model = model_of(states, np.ones((4, 5)), 6, 1.0, 1)
    assert_allclose(model.open_share, [0.0, 0.0, 1.0, 1.0, 0.5, 1.0])
    assert_allclose(model.values, np.zeros(6))


def walked(walk: Any, t_max: int) -> SeminormLSTDAgent:
    agent = SeminormLSTDAgent(OneHot(), 1, gain=5.0, backup="model")
    for _ in range(3):
        agent.collect(walk(n=6), lambda state: 0, n_trials=10, t_max=t_max, seed=0)
    return agent


def test_a_value_is_determined_if_the_counts_lead_to_the_main_reference_state(walk: Any) -> None:
    agent = walked(walk, 9).fit()
    assert agent.main_reference_ == 5
    assert agent.determined([0, 1, 2, 3, 4, 5]).all()
    assert_allclose(agent.predict([0, 4, 5]), [-15.0, -1.0, 0.0], atol=1e-9)


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")
def test_without_a_way_back_only_earlier_states_are_determined(walk: Any) -> None:
    """With four timesteps no state is left for one seen before: state 0 is the main reference."""
    agent = walked(walk, 3).fit()
    assert agent.main_reference_ == 0
    assert agent.determined([0, 1, 2, 3, 4, 5]).tolist() == [True] + 5 * [False]
    errors = agent.standard_errors([0, 1, 2, 3, 4, 5])
    assert np.isfinite(errors[0])
    assert np.isinf(errors[1:]).all()


def test_a_state_that_is_left_for_good_is_no_main_reference() -> None:
    """Most trials are cut in state 0, so that it has most visits; it leads to 1 and 2 in turn."""
    seen = [np.zeros(6, dtype=int)] * 60 + [np.append([0, 0], np.arange(19) % 2 + 1)] * 12
    paid = [1.0 * x[:-1] for x in seen]
    agent = SeminormLSTDAgent(OneHot(), 1, backup="model")
    agent.add_trials(seen, paid, observation_space=Discrete(3)).fit()
    assert agent.main_reference_ == 1
    assert agent.determined([0, 1, 2]).all()
    assert_allclose(agent.gain_, 1.5)
    assert_allclose(agent.predict([1, 2]), [0.0, 0.5], atol=1e-9)


def test_values_of_a_task_that_ends_are_the_rewards_until_then(walk: Any) -> None:
    agent = SeminormLSTDAgent.transient(OneHot(), backup="model")
    agent.collect(walk(n=6, ends=True), lambda state: 0, n_trials=10, t_max=9, seed=0)
    agent.fit()
    assert agent.main_reference_ is None
    assert_allclose(agent.predict([0, 1, 2, 3, 4]), [10.0, 10.0, 9.0, 7.0, 4.0], atol=1e-9)


@pytest.mark.slow
def test_standard_errors_are_as_large_as_the_errors() -> None:
    """Root mean squares over 50 collections, which tell errors to a tenth."""
    chain = make_mdp("h6").induce(np.array([0, 1, 0, 1, 0, 1]))
    F = np.random.default_rng(0).normal(size=(6, 6))
    errors, expected = [], []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        agent = SeminormLSTDAgent(F, anchors=[0, 10], backup="model", gain=chain.gain)
        for _ in range(10):
            agent.add(simulate_counts(chain, 100, 40, rng))
        exact = chain.relative_value(agent.fit().main_reference_)[:2]
        errors.append(agent.predict([0, 1], 0) - exact)
        expected.append(agent.standard_errors([0, 1], 0))
    ratio = np.sqrt(np.mean(np.square(errors), axis=0) / np.mean(np.square(expected), axis=0))
    assert (np.abs(ratio - 1.0) < 0.3).all(), ratio


def test_it_needs_countable_states_and_no_reference_states(walk: Any) -> None:
    agent = SeminormLSTDAgent(Polynomial(2), 1, backup="model")
    agent.collect(walk(kind="box"), lambda x: 0, n_trials=10, t_max=8, seed=0)
    with pytest.raises(InvalidInputError, match="can be counted: for vector observations"):
        agent.fit()
    with pytest.raises(InvalidInputError, match="cannot have calibration='references'"):
        SeminormLSTDAgent(OneHot(), backup="model", calibration="references")


def test_a_hundred_thousand_states_are_solved_as_a_sparse_chain() -> None:
    """A stream of states, each left with probability ½ a step: its value is twice its distance."""
    S = 100_000
    last = sparse.coo_array(([1.0], ([S - 1], [S - 1])), shape=(S, S))
    P = sparse.csr_array(sparse.diags_array([0.5, 0.5], offsets=[0, 1], shape=(S, S)) + last / 2.0)
    model = pooled_model(Sums(P, np.append(np.ones(S - 1), 0.0)), 0.0, S - 1)
    assert_allclose(model.values, 2.0 * (S - 1 - np.arange(S)), rtol=1e-9)
    assert not model.open_share.any()


@pytest.mark.parametrize("S", [3_500, 50_000])
def test_random_graphs_are_solved_without_filling_them_in(S: int) -> None:
    """Factors of 50,000 states with three successors each, at random, would take gigabytes."""
    rng = np.random.default_rng(0)
    origin, target = np.repeat(np.arange(S), 3), rng.integers(S, size=3 * S)
    P = sparse.csr_array((np.full(3 * S, 1 / 3), (origin, target)), shape=(S, S))
    P.sum_duplicates()
    r = rng.normal(size=S)
    v = pooled_model(Sums(P, r), 0.0, 0).values
    residual = r + P @ v - v
    assert v[0] == 0.0
    assert np.abs(residual[1:]).max() < 1e-9 * np.abs(v).max()


def test_a_main_state_that_is_met_too_rarely_is_a_clear_error() -> None:
    """Of 60 states each leads up nine times as often as down, where the main one is."""
    i = np.arange(1, 60)
    origin, target = np.append(i, i), np.append(i - 1, np.minimum(i + 1, 59))
    counts = sparse.csr_array((np.repeat([1.0, 9.0], 59), (origin, target)), shape=(60, 60))
    with pytest.raises(EvaluationError, match="some of 59 states lead to state 0 so rarely"):
        pooled_model(Sums(counts, np.ones(60)), 0.0, 0)
