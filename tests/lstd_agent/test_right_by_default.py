"""The default agent is right on tasks it was not made for, or says that it is not."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from lstd_agent import OneHot, Polynomial, RadialBasis, SeminormLSTDAgent, TileCoding
from lstd_agent.errors import FitWarning, InvalidInputError
from unichain_gym import TabularMDP, TabularVectorEnv


def random_task(rng: np.random.Generator) -> TabularMDP:
    """Up to 8 transient states before a core of up to 6, periodic or not; rewards to ±20."""
    n_transient, n_core = int(rng.integers(1, 9)), int(rng.integers(1, 7))
    S = n_transient + n_core
    P = np.zeros((S, S))
    for s in range(n_transient):
        P[s, s] = stay = rng.uniform(0.0, 0.9) * (rng.random() < 0.8)
        following = np.arange(s + 1, S) if rng.random() < 0.4 else np.array([s + 1])
        chosen = rng.choice(following, min(following.size, int(rng.integers(1, 4))), replace=False)
        P[s, chosen] += (1.0 - stay) * rng.dirichlet(np.ones(chosen.size))
    cycle, mixed = np.roll(np.eye(n_core), 1, axis=1), rng.dirichlet(np.ones(n_core), n_core)
    P[n_transient:, n_transient:] = cycle if rng.random() < 0.3 else 0.3 * cycle + 0.7 * mixed
    start = np.zeros(S)
    kind = rng.integers(3)
    if kind == 0:
        start[rng.integers(n_transient)] = 1.0
    elif kind == 1:
        start[rng.choice(S, 2, replace=False)] = rng.dirichlet([1.0, 1.0])
    else:
        start[:n_transient] = rng.dirichlet(np.ones(n_transient))
    rewards = rng.uniform(-20.0, 20.0, S) * (rng.random(S) < 0.8)
    return TabularMDP.from_arrays(P[:, None, :], rewards[:, None], start / start.sum())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_start_of_a_random_task_is_wrong_without_a_warning(seed: int) -> None:
    """Within 6 of its own standard errors or 2 % of the span, with and without t, or warned of."""
    rng = np.random.default_rng(1000 + seed)
    mdp = random_task(rng)
    policy = np.zeros(mdp.n_states, dtype=int)
    chain = mdp.induce(policy)
    t_max = min(int(3 * chain.max_absorption_time(1e-6)) + 30, 150)
    agent = SeminormLSTDAgent(OneHot())
    agent.collect(TabularVectorEnv(mdp, 250), policy, n_trials=5000, t_max=t_max, seed=seed)
    counts = agent.counts
    first = counts.transition_counts[[0]].toarray().reshape(counts.n_states, -1)
    starts = np.flatnonzero(first.sum(axis=1))
    for n_anchors in (1, 2, int(rng.integers(3, 9)), *((None,) if t_max < 60 else ())):
        agent.n_anchors = n_anchors
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            agent.fit()
        found = agent.diagnostics()
        exact = chain.relative_value(agent.main_reference_)
        warned = ~found.start_determined | (found.start_samples < 10) | (not found.settled)
        for t in (None, np.zeros(len(starts), dtype=int)):
            error = np.abs(agent.predict(starts, t) - exact[starts])
            small = error <= 0.02 * np.ptp(exact)
            assert (small | warned | (error <= 6 * agent.standard_errors(starts, t))).all()


FEATURES = {
    "3 bumps": RadialBasis.grid([0], [21], 3),
    "6 bumps": RadialBasis.grid([0], [21], 6),
    "12 bumps": RadialBasis.grid([0], [21], 12),
    "24 bumps": RadialBasis.grid([0], [21], 24),
    "60 bumps": RadialBasis.grid([0], [21], 60),
    "tiles": TileCoding([0.0], [21.0], 8, 4),
    "degree 2": Polynomial(2),
    "degree 6": Polynomial(6),
}


@pytest.mark.slow
# Three bumps in one neighbourhood are off by 5 %, within what is asked here, and say so.
@pytest.mark.filterwarnings("ignore:the mean value of the start:lstd_agent.errors.FitWarning")
@pytest.mark.parametrize("n_anchors", [1, 5])
@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES.keys())
def test_a_backlogs_value_does_not_depend_on_the_features(
    backlogs: Any, features: Any, n_anchors: int
) -> None:
    """It falls by 1 a step from 21 and then is 0 or 1: Σ (x - 1/2) for x = 2 … 21, and 1/2.

    A backlog of 20 that random work is added to costs 687.9 ± 1 more than none, by 20,000
    simulated pairs of trials.
    """
    for drains, start, t_max, value in ((True, 21.0, 100, -220.5), (False, 20.0, 150, -688.0)):
        agent = SeminormLSTDAgent(features, n_anchors)
        agent.collect(
            backlogs(20, start, drains),
            lambda x: np.zeros(len(x), int),
            n_trials=400,
            t_max=t_max,
            seed=1,
        )
        agent.fit()
        found = agent.predict([[start], [0.0]])
        at_start = agent.predict([[start], [0.0]], [0, t_max])
        for here, none in (found, at_start):
            assert here - none == pytest.approx(value, rel=0.1)


@pytest.mark.first(1)
@pytest.mark.parametrize(("drains", "start"), [(True, 21.0), (False, 20.0)])
def test_a_straight_line_through_a_backlogs_values_warns(
    backlogs: Any, drains: bool, start: float
) -> None:
    """It is a parabola that falls to -220.5 (work 21, drains) or -688; a line is a fifth off."""
    agent = SeminormLSTDAgent(Polynomial(1), 1)
    agent.collect(
        backlogs(20, start, drains),
        lambda x: np.zeros(len(x), int),
        n_trials=400,
        t_max=150,
        seed=1,
    )
    with pytest.warns(FitWarning, match=r"mean value of the start.*more neighborhoods"):
        agent.fit()
    found = agent.diagnostics()
    assert not found.start_agrees
    assert found.start_rewards == pytest.approx(-220.5 if drains else -688.0, rel=0.02)
    assert "NOT ALIKE" in str(found)
    agent.n_anchors = 5
    assert agent.fit().diagnostics().start_agrees


def test_one_batch_detects_a_misfit_of_the_start(backlogs: Any) -> None:
    agent = SeminormLSTDAgent(Polynomial(1), 1, n_batches=1)
    agent.collect(
        backlogs(20, 20.0, False), lambda x: np.zeros(len(x), int), n_trials=400, t_max=150, seed=1
    )
    with pytest.warns(FitWarning, match="mean value of the start"):
        agent.fit()


@pytest.mark.first(1)
@pytest.mark.parametrize("seed", [0, 5])
def test_a_start_value_that_is_all_noise_warns(
    as_numbers: Any, long_queue: TabularMDP, seed: int
) -> None:
    """With three bumps for 21 states 200 trials may leave an error of 200 in a value of -440."""
    env = as_numbers(TabularVectorEnv(long_queue, 10))
    agent = SeminormLSTDAgent(RadialBasis.grid([0], [20], 3), 1, backup="one_step")
    agent.collect(env, lambda x: np.zeros(len(x), int), n_trials=200, t_max=700, seed=seed)
    with pytest.warns(FitWarning, match="value of (the )?start"):
        agent.fit()


def test_a_constant_reward_has_no_misfit() -> None:
    P = np.roll(np.eye(5), 1, axis=1)
    P[4] = 0.2
    agent = fitted(P, np.full(5, 0.1), np.eye(5)[0], 40, 60).fit()
    assert agent.diagnostics().start_agrees


def test_a_start_that_is_left_at_once_keeps_its_value() -> None:
    """10 for the step into a coin of gain 1/2: b(0) - b(1) = 10 - 1/2 - 0."""
    outcomes = [(0, 0, 1, 1, 10), (1, 0, 1, 0.5, 0), (1, 0, 2, 0.5, 0), (2, 0, 1, 0.5, 1)]
    mdp = TabularMDP.from_transitions([*outcomes, (2, 0, 2, 0.5, 1)], [1, 0, 0])
    for n_anchors in (1, None):
        agent = SeminormLSTDAgent(OneHot(), n_anchors)
        agent.collect(
            TabularVectorEnv(mdp, 250), np.zeros(3, dtype=int), n_trials=5000, t_max=30, seed=0
        ).fit()
        found = agent.compare(0, 1)
        assert found.difference == pytest.approx(9.5, abs=0.05)
        assert abs(found.difference - 9.5) < 5 * found.standard_error


@pytest.mark.slow
def test_two_starts_that_share_no_state_for_long_are_compared(long_queue: TabularMDP) -> None:
    """In a long queue, b(20) - b(0) = -892.5."""
    agent = SeminormLSTDAgent(OneHot())
    agent.collect(
        TabularVectorEnv(long_queue, 500),
        np.zeros(21, dtype=int),
        n_trials=10_000,
        t_max=600,
        seed=0,
    ).fit()
    for t in (None, 0):
        found = agent.compare(20, 0, t)
        assert abs(found.difference + 892.5) < 4 * found.standard_error
        assert found.standard_error < 10.0


def fitted(P: Any, rewards: Any, start: Any, n_trials: int, t_max: int) -> SeminormLSTDAgent:
    mdp = TabularMDP.from_arrays(np.asarray(P)[:, None, :], np.reshape(rewards, (-1, 1)), start)
    policy = np.zeros(mdp.n_states, dtype=int)
    return SeminormLSTDAgent(OneHot()).collect(
        TabularVectorEnv(mdp, n_trials // 4), policy, n_trials=n_trials, t_max=t_max, seed=0
    )


def test_two_recurrent_classes_are_refused_by_name() -> None:
    agent = fitted(np.eye(2), [0.0, 1.0], [0.5, 0.5], 40, 30)
    with pytest.raises(InvalidInputError, match=r"2 separate classes of states: \{.\}, \{.\}"):
        agent.fit()


@pytest.mark.parametrize("calibration", ["linked", "references"])
@pytest.mark.parametrize("t_max", [29, 30])
def test_a_period_does_not_bias_the_gain(t_max: int, calibration: str) -> None:
    agent = fitted(np.roll(np.eye(3), 1, axis=1), [0.0, 0.0, 1.0], [1.0, 0.0, 0.0], 40, t_max)
    agent.calibration = calibration  # type: ignore[assignment]
    assert agent.fit().gain_ == pytest.approx(1 / 3, rel=1e-9)


def test_a_chain_that_has_not_settled_warns() -> None:
    """It falls by 1 a step with chance .9 from 500, so that t_max = 300 is too soon."""
    n = 501
    P = np.eye(n) * 0.1 + np.eye(n, k=-1) * 0.9
    P[0, :2] = 0.5
    agent = fitted(P, -np.arange(n), np.eye(n)[500], 400, 300)
    with pytest.warns(FitWarning, match=r"tail has not settled.*larger t_max"):
        agent.fit()
    assert not agent.diagnostics().settled


def test_an_unseen_state_has_no_coverage_and_an_infinite_error() -> None:
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=50)
    table = np.vstack((np.eye(6), np.ones((1, 6))))
    agent = SeminormLSTDAgent(table).attach(spaces_of(7))
    for seed in range(4):
        states, _ = env.reset(seed=seed)
        for t in range(60):
            following, rewards, *_ = env.step(np.ones(50, dtype=int))
            agent.observe(t, states, rewards, following)
            states = following
        agent.end_trial()
    agent.fit()
    assert agent.coverage(6) == 0.0
    assert not agent.determined(6)
    assert np.isinf(agent.standard_errors(6))
    assert np.isinf(agent.compare(6, 0).standard_error)
    assert agent.determined(np.arange(6)).all()


def spaces_of(n: int) -> Any:
    class Empty(gym.Env[Any, Any]):
        observation_space = spaces.Discrete(n)
        action_space = spaces.Discrete(2)

    return Empty()


@pytest.mark.filterwarnings(
    "ignore:starts 2 have fewer than 10 samples:lstd_agent.errors.FitWarning"
)
def test_a_state_that_one_trial_alone_has_seen_has_an_infinite_error() -> None:
    agent = SeminormLSTDAgent(np.eye(3), 1).attach(spaces_of(3))
    rng = np.random.default_rng(0)
    for batch in range(5):
        states = rng.integers(2, size=(31, 40))
        if batch == 0:
            states[0, 0] = 2
        for t in range(30):
            agent.observe(t, states[t], states[t] + 0.0, states[t + 1])
        agent.end_trial()
    agent.fit()
    assert agent.coverage(2) > 0.0
    assert np.isinf(agent.standard_errors(2))
    assert np.isfinite(agent.standard_errors([0, 1])).all()


def test_a_difference_has_its_own_error() -> None:
    """All of it costs in state 3, on the way from 9 to 0, so that 9 and 8 are as bad together."""
    P = np.eye(10, k=-1)
    P[3, 3], P[3, 2] = 0.9, 0.1
    P[0, :2] = 0.5
    agent = fitted(P, -10.0 * (np.arange(10) == 3), np.eye(10)[9], 800, 150).fit()
    error = agent.standard_errors([9, 8], 0)
    found = agent.compare(9, 8, 0)
    assert found.difference == pytest.approx(agent.predict(9, 0) - agent.predict(8, 0))
    assert found.standard_error < 0.2 * error.min()
    several = agent.compare([9, 8], [5, 4, 3])
    expected = agent.predict([9, 8]).mean() - agent.predict([5, 4, 3]).mean()
    assert several.difference == pytest.approx(expected)
    assert str(found).count("±") == 1


def test_the_papers_agent_has_the_papers_choices() -> None:
    agent = SeminormLSTDAgent.paper(OneHot(), 3)
    assert (agent.search, agent.calibration, agent.reference) == (
        "doubling",
        "references",
        "most_common",
    )
    assert agent.distance.estimator == "linear"  # type: ignore[union-attr]
    assert agent.distance.kernel.width == 1.0  # type: ignore[union-attr]


def test_a_settled_tail_of_a_linked_system_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="tail='settled' leaves samples out"):
        SeminormLSTDAgent(OneHot(), tail="settled")


def test_diagnostics_read_well() -> None:
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=100)
    agent = SeminormLSTDAgent(OneHot())
    agent.collect(env, np.ones(6, dtype=int), n_trials=1000, t_max=100, seed=0).fit()
    found = agent.diagnostics()
    assert found.settled
    assert found.start_determined.all()
    assert found.n_recurrent_classes == 1
    assert found.warnings == []
    assert str(found).splitlines()[0].startswith("tail        settled: mean reward")
    assert "starts      3, 3 determined" in str(found)
    start = f"mean value {found.start_value:.6g} ± {found.start_error:.2g} by the features"
    assert start in str(found)


def rare(chance: float) -> Any:
    """Work is up to 8 at the start, and from 19 up to 21 with a chance."""

    def starts(rng: np.random.Generator, n: int) -> Any:
        is_rare = rng.random(n) < chance
        here, there = rng.uniform(0.0, 8.0, n), rng.uniform(19.0, 21.0, n)
        return np.where(is_rare, there, here)

    return starts


@pytest.mark.slow
def test_a_few_starts_far_from_the_others_are_right_or_named(backlogs: Any) -> None:
    """Without a warning only where trials from there earned what their values say."""
    features, named = RadialBasis.grid([0], [21], 24), 0
    policy = lambda x: np.zeros(len(x), int)  # noqa: E731
    right = SeminormLSTDAgent(features)
    right.collect(
        backlogs(20, lambda r, n: r.uniform(0, 21, n), True),
        policy,
        n_trials=1500,
        t_max=100,
        seed=9,
    ).fit()
    for seed in (1, 2, 3):
        agent = SeminormLSTDAgent(features).collect(
            backlogs(20, rare(0.02), True), policy, n_trials=400, t_max=100, seed=seed
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = agent.fit().diagnostics()
        if caught:
            assert "do not determine the values of starts [" in str(caught[0].message)
            named += 1
            continue
        starts = np.array(found.starts)[~found.start_determined]
        assert starts.max() > 19.0
        off = agent.predict(starts, 0) - right.predict(starts, 0)
        assert np.abs(off - off.mean()).max() < 0.05 * 220.0
    assert named


def test_the_thin_edge_of_many_starts_raises_no_warning(backlogs: Any) -> None:
    agent = SeminormLSTDAgent(RadialBasis.grid([0], [21], 24))
    agent.collect(
        backlogs(20, rare(0.0), True),
        lambda x: np.zeros(len(x), int),
        n_trials=400,
        t_max=100,
        seed=1,
    ).fit()
    found = agent.diagnostics()
    assert 0 < (~found.start_determined).sum() < 20
    assert found.warnings == []


@pytest.mark.slow
@pytest.mark.xfail(
    strict=True,
    reason="the errors are infinite, and no warning names the starts: their trials vouch for them, "
    "though the values at the trials' end are as open",
)
def test_a_rare_start_with_an_unseen_successor_is_named() -> None:
    # A ring of six is entered in two phases. The last timestep by itself sees two of its states and
    # not where they lead, so that nothing tells the phases' difference in value.
    transitions = [
        (0, 0, 2, 0.5, 0.0),
        (0, 0, 4, 0.5, 0.0),
        (1, 0, 2, 0.7, 0.0),
        (1, 0, 4, 0.3, 0.0),
    ]
    transitions += [(2 + s, 0, 2 + (s + 1) % 6, 1.0, float(s**2)) for s in range(6)]
    mdp = TabularMDP.from_transitions(transitions, [0.02, 0.98, 0, 0, 0, 0, 0, 0])
    agent = SeminormLSTDAgent(OneHot(), None, backup="one_step")
    agent.collect(
        TabularVectorEnv(mdp, 250), np.zeros(8, dtype=int), n_trials=5000, t_max=79, seed=0
    )
    with pytest.warns(FitWarning, match="do not determine the values of starts 0, 1"):
        agent.fit()
    assert np.isinf(agent.standard_errors([0, 1], 0)).all()


def test_a_start_that_is_a_picture_is_named_in_a_line() -> None:
    pictures = np.random.default_rng(0).random((5, 12, 200))
    pictures[:, 0] = np.arange(200)
    agent = SeminormLSTDAgent(lambda x: (x[:, 1:2] == 1.0) == [True, False], 1)
    agent.add_trials(list(pictures), [np.zeros(11)] * 5)
    with pytest.warns(FitWarning, match=r"values of starts \[  0\.   1\. \.\.\. 198\. 199\.\]:"):
        agent.fit()
