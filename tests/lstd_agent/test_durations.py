"""Steps that take time: fits of sampled semi-Markov chains are right, whichever way trials come."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from lstd_agent import (
    FitWarning,
    KeptTrials,
    LambdaReturn,
    LoggedTrials,
    MultiStep,
    OneHot,
    PolicyIteration,
    Restart,
    SeminormLSTDAgent,
    TransitionCounts,
    baselines,
)
from lstd_agent.errors import InvalidInputError


class Chain(NamedTuple):
    """A random semi-Markov chain: streams of transient states, and a core of three states."""

    P: Any
    reward: Any
    duration: Any
    rate: Any  # further reward per unit of time

    @classmethod
    def draw(cls, seed: int, scale: float = 1.0) -> Chain:
        rng = np.random.default_rng(seed)
        P = np.zeros((7, 7))
        P[4:, 4:] = rng.dirichlet(np.ones(3), 3)
        for i, follows in enumerate((2, 3, 4, 4)):
            P[i, follows] = rng.uniform(0.4, 0.9)
            P[i, i] = 1.0 - P[i, follows]
        duration = scale * rng.uniform(0.1, 2.0, 7)
        return cls(P, rng.normal(0.0, 3.0, 7), duration, rng.normal(0.0, 2.0, 7) / scale)

    def exact(self) -> tuple[float, Any]:
        """Return gain and bias by a dense solution of b = r - g τ + P b."""
        A = np.eye(7) - self.P.T
        A[-1] = 1.0
        p = np.linalg.solve(A, np.eye(7)[-1])
        paid = self.reward + self.rate * self.duration
        gain = p @ paid / (p @ self.duration)
        A = np.eye(7) - self.P + np.outer(np.ones(7), p)
        return gain, np.linalg.solve(A, paid - gain * self.duration)

    def trials(self, n: int, t_max: int, kind: str = "exponential", seed: int = 0) -> Any:
        """Return states, rewards and durations of trials."""
        rng = np.random.default_rng(seed)
        states = np.empty((n, t_max + 2), dtype=np.int64)
        states[:, 0] = rng.integers(0, 4, n)
        cumulative = self.P.cumsum(axis=1)
        cumulative[:, -1] = 1.0
        for t in range(t_max + 1):
            states[:, t + 1] = (cumulative[states[:, t]] <= rng.random((n, 1))).sum(axis=1)
        here = states[:, :-1]
        times = {
            "deterministic": np.ones(here.shape),
            "exponential": rng.exponential(size=here.shape),
            "lognormal": rng.lognormal(-0.32, 0.8, here.shape),
        }[kind] * self.duration[here]
        return states, self.reward[here] + self.rate[here] * times, times


SEVEN = gym.spaces.Discrete(7)
ONE_HOT_BOX = gym.spaces.Box(0.0, 1.0, (7,), np.float64)


def agent_of(states: Any, rewards: Any, times: Any, **options: Any) -> SeminormLSTDAgent:
    agent = SeminormLSTDAgent(OneHot(), **options)
    return agent.add_trials(states, rewards, durations=times, observation_space=SEVEN)


def vectors_of(states: Any, rewards: Any, times: Any, **options: Any) -> SeminormLSTDAgent:
    agent = SeminormLSTDAgent(lambda x: x, **options)
    shown = np.eye(7)[states]
    return agent.add_trials(shown, rewards, durations=times, observation_space=ONE_HOT_BOX)


def check(agent: SeminormLSTDAgent, chain: Chain, of: Callable[[int], Any]) -> None:
    """Fail unless gain, start value and differences of starts are within 5 standard errors."""
    gain, bias = chain.exact()
    assert abs(agent.gain_ - gain) < 5.0 * agent.gain_error_
    assert abs(agent.start_bias_ - bias[:4].mean()) < 5.0 * agent.start_bias_error_
    for by in ("fit", "returns"):
        found = agent.compare(of(0), of(1), **({"t": 0} if by == "fit" else {"by": by}))
        assert abs(found.difference - bias[0] + bias[1]) < 5.0 * found.standard_error
        assert found.standard_error < np.ptp(bias)


@pytest.mark.parametrize("kind", ["deterministic", "lognormal"])
@pytest.mark.parametrize("make", [agent_of, vectors_of])
def test_sampled_answers_are_near_the_exact_ones_without_warnings(make: Any, kind: str) -> None:
    scale = {"deterministic": 1e-3, "exponential": 1.0, "lognormal": 1e3}[kind]
    chain = Chain.draw(7, scale)
    agent = make(*chain.trials(500, 40, kind)).fit()
    check(agent, chain, lambda i: i if make is agent_of else np.eye(7)[i])
    assert agent.diagnostics().settled


@pytest.mark.parametrize(
    "options",
    [
        {"backup": "model"},
        {"backup": "one_step", "n_anchors": 1},
        {"backup": MultiStep(4)},
        {"backup": LambdaReturn(0.8), "n_anchors": 4},
        {"calibration": "references"},
        {"gain": 2.0},
    ],
)
def test_every_backup_subtracts_the_gain_times_the_duration(options: dict[str, Any]) -> None:
    chain = Chain.draw(3)
    gain, _ = chain.exact()
    if "gain" in options:
        options = {"gain": gain}
    agent = agent_of(*chain.trials(1000, 40), **options).fit()
    _, bias = chain.exact()
    found, error = agent.predict([0, 1, 2, 3], 0), agent.standard_errors([0, 1, 2, 3], 0)
    right = bias[:4] - bias[agent.main_reference_]
    assert (np.abs(found - right) < 5.0 * error).all()
    assert agent.gain_ == pytest.approx(gain, abs=5.0 * agent.gain_error_ + 1e-12)


def test_durations_of_one_change_nothing_and_their_unit_only_the_gain() -> None:
    states, rewards, times = Chain.draw(5).trials(300, 40)
    for make, at in ((agent_of, np.arange(4)), (vectors_of, np.eye(7)[:4])):

        def fitted(durations: Any, make: Any = make) -> SeminormLSTDAgent:
            return make(states, rewards, durations, backup="one_step", n_anchors=1).fit()

        none, ones = fitted(None), fitted(np.ones_like(times))
        assert none.predict(at, 0) == pytest.approx(ones.predict(at, 0), rel=1e-9)
        assert none.gain_ == pytest.approx(ones.gain_, rel=1e-9)
        hours, seconds = fitted(times), fitted(3600.0 * times)
        assert hours.predict(at, 0) == pytest.approx(seconds.predict(at, 0), rel=1e-9)
        assert hours.gain_ == pytest.approx(3600.0 * seconds.gain_, rel=1e-9)
        assert hours.diagnostics().tail_rewards[0] == pytest.approx(hours.gain_, abs=0.5)


class Replay(gym.Env[Any, Any]):
    """Shows recorded trials one after the other; it ends with the last step of each."""

    observation_space, action_space = SEVEN, gym.spaces.Discrete(1)

    def __init__(self, states: Any, rewards: Any, times: Any) -> None:
        self.trials, self.i = (states, rewards, times), -1

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.i, self.t = (self.i + 1) % len(self.trials[0]), 0
        return int(self.trials[0][self.i, 0]), {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.t += 1
        states, rewards, times = (part[self.i] for part in self.trials)
        is_last = self.t == len(rewards)
        info = {"duration": float(times[self.t - 1])}
        return int(states[self.t]), float(rewards[self.t - 1]), False, is_last, info


TRIALS = Chain.draw(1).trials(24, 11, seed=4)


def by_collect() -> SeminormLSTDAgent:
    return SeminormLSTDAgent(OneHot()).collect(
        Replay(*TRIALS), np.zeros(7, int), n_trials=24, t_max=11
    )


def by_copies(mode: AutoresetMode) -> SeminormLSTDAgent:
    parts = [[part[i : i + 6] for part in TRIALS] for i in range(0, 24, 6)]
    envs = SyncVectorEnv([partial(Replay, *p) for p in parts], autoreset_mode=mode)
    agent = SeminormLSTDAgent(OneHot())
    for _ in range(6 if mode == AutoresetMode.NEXT_STEP else 3):
        agent.collect(envs, np.zeros(7, int), n_trials=4, t_max=11)
    return agent


def by_loop() -> SeminormLSTDAgent:
    agent = SeminormLSTDAgent(OneHot()).attach(Replay(*TRIALS), t_max=11)
    for states, rewards, times in zip(*(part[:4] for part in TRIALS), strict=True):
        for t in range(12):
            agent.observe(t, states[t], rewards[t], states[t + 1], duration=times[t])
        agent.end_trial()
    states, rewards, times = (part[4:].T for part in TRIALS)
    for t in range(12):
        agent.observe(t, states[t], rewards[t], states[t + 1], duration=times[t])
    agent.end_trial()
    return agent


def table_of(**columns: Any) -> LoggedTrials:
    states, rewards, _ = TRIALS
    table = {
        "trial": np.repeat(np.arange(24), 13),
        "state": states.ravel(),
        "paid": np.column_stack([rewards, np.full(24, np.nan)]).ravel(),
        **columns,
    }
    names: dict[str, Any] = {name: name for name in columns}
    return LoggedTrials.from_frame(
        table, trial="trial", observation="state", reward="paid", **names
    )


def by_table(**columns: Any) -> SeminormLSTDAgent:
    return SeminormLSTDAgent(OneHot()).add_trials(table_of(**columns), observation_space=SEVEN)


CLOCK = np.column_stack([np.zeros(24), TRIALS[2].cumsum(axis=1)]).ravel()
WAYS: dict[str, Callable[[], SeminormLSTDAgent]] = {
    "collect": by_collect,
    "copies": lambda: by_copies(AutoresetMode.NEXT_STEP),
    "loop": by_loop,
    "arrays": lambda: agent_of(*TRIALS),
    "durations in a table": lambda: by_table(
        duration=np.column_stack([TRIALS[2], np.full(24, np.nan)]).ravel()
    ),
    "times in a table": lambda: by_table(time=CLOCK),
    "dates in a table": lambda: by_table(
        time=np.datetime64("2026-01-01", "ns") + (CLOCK * 1e9).astype("timedelta64[ns]")
    ),
    "kept trials": lambda: SeminormLSTDAgent(np.eye(7)).add(
        KeptTrials.of(TRIALS[0], TRIALS[1], durations=TRIALS[2])
    ),
    "other order": lambda: agent_of(*(part[::-1] for part in TRIALS)),
    "halves": lambda: agent_of(*(p[:9] for p in TRIALS)).merge(agent_of(*(p[9:] for p in TRIALS))),
    "counts": lambda: SeminormLSTDAgent(np.eye(7)).add(by_loop().counts),
}


@pytest.mark.parametrize("way", WAYS)
def test_trials_from_any_source_keep_their_durations(way: str) -> None:
    counts: Any = WAYS[way]().counts
    states, rewards, times = TRIALS
    for sums, right in ((counts.duration_sums, times), (counts.reward_sums, rewards)):
        expected = [np.bincount(states[:, t], right[:, t], 7) for t in range(12)]
        assert np.allclose(sums.toarray(), expected, atol=1e-8)


def test_copies_that_are_reset_within_the_step_keep_their_last_duration() -> None:
    counts: Any = by_copies(AutoresetMode.SAME_STEP).counts
    assert counts.duration_sums[[11]].sum() > 0.0
    last = TRIALS[2].reshape(4, 6, 12)[:, [0, 2, 4], 11]  # each collection resets once more
    assert counts.duration_sums[[11]].sum() == pytest.approx(last.sum())


def test_copies_with_and_without_durations_are_refused() -> None:
    class Forgetful(Replay):
        def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
            return *super().step(action)[:4], {}

    envs = SyncVectorEnv([lambda: Replay(*TRIALS), lambda: Forgetful(*TRIALS)])
    with pytest.raises(InvalidInputError, match="got nan at timestep 0 of trial 1"):
        SeminormLSTDAgent(OneHot()).collect(envs, np.zeros(7, int), n_trials=2, t_max=11)


def test_fits_do_not_depend_on_the_order_of_trials_or_on_where_they_are_held(
    tmp_path: Path,
) -> None:
    states, rewards, times = Chain.draw(2).trials(100, 30)
    order = np.random.default_rng(0).permutation(100)
    for make, at in ((agent_of, np.arange(7)), (vectors_of, np.eye(7))):
        agent = make(states, rewards, times).fit()
        other = make(states[order], rewards[order], times[order], max_bytes=1).fit()
        assert np.array_equal(agent.predict(at, 0), other.predict(at, 0))
        agent.save(tmp_path / "agent.npz")
        given: dict[str, Any] = {} if make is agent_of else {"features": lambda x: x}
        loaded = SeminormLSTDAgent.load(tmp_path / "agent.npz", **given)
        assert np.array_equal(agent.predict(at, 0), loaded.predict(at, 0))
        assert loaded.gain_error_ == agent.gain_error_


def test_trials_that_are_cut_short_or_end_count_with_their_time() -> None:
    chain = Chain.draw(4)
    states, rewards, times = chain.trials(1500, 50)
    lengths = np.random.default_rng(9).integers(20, 52, 1500)
    cut = [[p[:n] for p, n in zip(part, lengths, strict=True)] for part in (rewards, times)]
    shown = [p[: n + 1] for p, n in zip(states, lengths, strict=True)]
    check(agent_of(shown, *cut).fit(), chain, lambda i: i)
    ending = SeminormLSTDAgent(OneHot(), on_termination="absorb", gain=1.0)
    ended = np.ones(200, dtype=bool)
    times = np.full((200, 3), 0.5)
    ending.add_trials(
        np.tile([0, 1, 2, 0], (200, 1)),
        np.tile([1.0, 2.0, 4.0], (200, 1)),
        durations=times,
        terminated=ended,
        observation_space=gym.spaces.Discrete(3),
    )
    with pytest.warns(FitWarning, match="too short"):
        ending.fit()
    assert ending.predict(0, 0) == pytest.approx(5.5)


def test_counts_without_trials_are_checked_by_drawn_ones() -> None:
    chain = Chain.draw(0)
    counts = agent_of(*chain.trials(2000, 50)).counts
    agent = (
        SeminormLSTDAgent(np.eye(7))
        .add(counts)
        .add(agent_of(*chain.trials(2000, 50, seed=1)).counts)
    )
    assert agent.fit().diagnostics().warnings == []
    _, bias = chain.exact()
    assert abs(agent.compare(0, 1, 0).difference - bias[0] + bias[1]) < 0.15 * np.ptp(bias)


def test_a_tail_with_a_changing_rate_raises_a_warning() -> None:
    states, rewards, times = Chain.draw(0).trials(400, 40)
    times = times * np.linspace(1.0, 3.0, 41)  # steps become longer for ever
    with pytest.warns(FitWarning, match="tail has not settled"):
        agent_of(states, np.ones_like(rewards), times).fit()


def test_many_sparse_states_have_their_gain_per_unit_of_time() -> None:
    rng, n = np.random.default_rng(0), 600
    states = np.cumsum(np.c_[rng.integers(0, n, 400), rng.random((400, 40)) < 0.7], axis=1) % n
    reward, duration = rng.normal(size=n), 1e3 * rng.uniform(0.5, 1.5, n)
    here = states[:, :-1]
    times = duration[here] * rng.exponential(size=here.shape)
    agent = SeminormLSTDAgent(OneHot(), backup="one_step", n_anchors=1)
    agent.add_trials(
        states, reward[here], durations=times, observation_space=gym.spaces.Discrete(n)
    )
    agent.fit()
    assert agent.gain_ == pytest.approx(
        reward.mean() / duration.mean(), abs=4.0 * agent.gain_error_
    )
    assert agent.gain_error_ < 1e-3


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf, "long", [1.0, 2.0]])
def test_invalid_lengths_of_time_are_refused(bad: Any) -> None:
    agent = SeminormLSTDAgent(np.eye(7))
    with pytest.raises(InvalidInputError, match="duration"):
        agent.observe(0, 0, 1.0, 1, duration=bad)
    with pytest.raises(InvalidInputError, match="duration"):
        agent.add_trials([[0, 1]], [[1.0]], durations=[[bad]])


def test_steps_that_take_no_time_at_all_have_no_gain() -> None:
    states, rewards, times = TRIALS
    with pytest.raises(InvalidInputError, match="take no time"):
        agent_of(states, rewards, 0.0 * times).fit()
    with pytest.raises(InvalidInputError, match="take no time"):
        vectors_of(states, rewards, 0.0 * times).fit()
    times = np.where(states[:, :-1] == 0, 0.0, times)
    with pytest.warns(FitWarning, match="fewer than 10 samples"):
        agent_of(states, rewards, times).fit()  # some of them may


def test_trials_with_and_without_durations_do_not_mix() -> None:
    states, rewards, _ = TRIALS
    for make in (agent_of, vectors_of):
        agent, other = make(*TRIALS), make(states, rewards, None)
        before = agent.n_trials
        for add in (
            lambda a=agent, o=other: a.merge(o),
            lambda a=agent, o=other: o.merge(a),
            lambda a=agent, m=make: a.add_trials(
                states if m is agent_of else np.eye(7)[states], rewards
            ),
        ):
            with pytest.raises(InvalidInputError, match="durations and others do not"):
                add()
        assert agent.n_trials == before
    agent = agent_of(*TRIALS)
    with pytest.raises(InvalidInputError, match="durations and others do not"):
        agent.observe(0, 0, 1.0, 1)
    agent = SeminormLSTDAgent(np.eye(7))
    agent.observe(0, 0, 1.0, 1, duration=0.5)
    with pytest.raises(InvalidInputError, match="durations and others do not"):
        agent.observe(1, 1, 1.0, 2)
    sums = agent_of(*TRIALS).counts
    wrong = TransitionCounts(7, 24, sums.transition_counts, sums.reward_sums)
    with pytest.raises(InvalidInputError, match="durations and others do not"):
        sums + wrong


def test_linear_baselines_take_durations_and_discounts_refuse_them() -> None:
    counts = agent_of(*Chain.draw(1).trials(300, 40)).counts
    agent = SeminormLSTDAgent(OneHot(), n_anchors=1, backup="one_step").add(counts).fit()
    expected, at = agent.predict(np.arange(7)), np.eye(7)
    linear = baselines.average_reward_lstd(counts, at, agent.gain_)(at)
    assert np.diff(linear) == pytest.approx(np.diff(expected), rel=1e-6)
    tabular = baselines.certainty_equivalence(counts, agent.gain_)
    of_model = SeminormLSTDAgent(OneHot(), n_anchors=1, backup="model", gain=agent.gain_)
    model = of_model.add(counts).fit().predict(np.arange(7))
    assert np.diff(tabular) == pytest.approx(np.diff(model), rel=1e-6)
    with pytest.raises(InvalidInputError, match="these have durations"):
        baselines.discounted_lstd(counts, at, 0.9)


def test_starting_again_takes_no_time() -> None:
    class Once(Replay):
        def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
            observation, reward, _, _, info = super().step(action)
            return observation, reward, self.t % 3 == 0, False, info

    env = Restart(Once(*TRIALS))
    agent = SeminormLSTDAgent(OneHot()).collect(env, np.zeros(7, int), n_trials=2, t_max=7)
    counts: Any = agent.counts
    assert counts.duration_sums[[3]].sum() == 0.0
    assert counts.duration_sums[[2]].sum() > 0.0


# Four states with two actions: one is quick and pays little, the other one slow and pays more.
P = np.random.default_rng(8).dirichlet(np.ones(4), (4, 2))
R = np.array([[1.0, 3.0], [2.0, 2.5], [0.0, 4.0], [1.5, 2.0]])
T = np.array([[0.5, 2.0], [1.0, 0.3], [0.4, 1.0], [1.0, 3.0]])


def exact_pairs(policy: Any) -> tuple[float, Any]:
    """Return the gain of a policy and its action values, of the bias."""
    every = np.arange(4)
    p_, r, time = P[every, policy], R[every, policy], T[every, policy]
    A = np.eye(4) - p_.T
    A[-1] = 1.0
    p = np.linalg.solve(A, np.eye(4)[-1])
    gain = p @ r / (p @ time)
    bias = np.linalg.solve(np.eye(4) - p_ + np.outer(np.ones(4), p), r - gain * time)
    return gain, R - gain * T + P @ bias


class Jobs(gym.Env[Any, Any]):
    """The decision process of these, whose steps take exponential times."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, vectors: bool = False) -> None:
        self.vectors, self.state = vectors, 0
        self.observation_space = gym.spaces.Discrete(4)
        if vectors:
            self.observation_space = gym.spaces.Box(0.0, 1.0, (4,), np.float64)

    def shown(self) -> Any:
        return np.eye(4)[self.state] if self.vectors else self.state

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(4))
        return self.shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before = self.state
        time = self.np_random.exponential(T[before, action])
        self.state = int(self.np_random.choice(4, p=P[before, action]))
        return self.shown(), float(R[before, action]), False, False, {"duration": time}


@pytest.mark.parametrize("vectors", [False, True])
def test_action_values_are_the_exact_ones(vectors: bool) -> None:
    policy = np.array([0, 1, 1, 0])
    features = (lambda x: x[:, :-1]) if vectors else OneHot()
    act = (lambda x: policy[np.argmax(x)]) if vectors else policy
    agent = SeminormLSTDAgent(features, backup="one_step")
    agent.collect(Jobs(vectors), act, n_trials=200, t_max=15, seed=1, explore=3).fit()
    gain, q = exact_pairs(policy)
    at = np.eye(4) if vectors else np.arange(4)
    found = agent.action_values(at)
    given: dict[str, Any] = {} if vectors else {"policy": policy}
    error = agent.action_standard_errors(at, **given)
    # Values are relative to a state, so that differences of all pairs are compared.
    apart = (found - q) - (found - q).mean()
    assert (np.abs(apart) < 5.0 * np.maximum(error, error.mean())).all()
    assert error.max() < 0.5 * np.ptp(q)
    assert abs(agent.gain_ - gain) < 5.0 * agent.gain_error_
    other = 1 - policy
    if not vectors:
        _, q = exact_pairs(other)
        found = agent.action_values(at, policy=other)
        error = agent.action_standard_errors(at, policy=other)
        assert (np.abs(found - q) < 5.0 * error).all()


@pytest.mark.first(1)
@pytest.mark.parametrize("vectors", [False, True])
def test_policy_iteration_finds_the_policy_of_the_largest_gain_per_unit_of_time(
    vectors: bool,
) -> None:
    gains = {policy: exact_pairs(np.array(policy))[0] for policy in product((0, 1), repeat=4)}
    best = max(gains, key=lambda policy: gains[policy])
    per_step = max(gains, key=lambda policy: sum(R[np.arange(4), policy]))
    assert best != per_step
    given: dict[str, Any] = {"features": lambda x: x[:, :-1]} if vectors else {}
    search = PolicyIteration(Jobs(vectors), n_trials=100, t_max=15, seed=0, **given)
    search.run(4)
    policy: Any = search.policy_
    found = tuple(np.asarray(policy(np.eye(4)) if vectors else policy).tolist())
    assert gains[found] == pytest.approx(gains[best], rel=0.02)
    last = search.iterations[-1]
    assert last.tail_reward == pytest.approx(gains[found], abs=6.0 * last.tail_error)


def test_models_whose_steps_take_time_and_their_samples_agree() -> None:
    from unichain_gym import TabularMDP, TabularVectorEnv, simulate_counts

    mdp = TabularMDP.from_arrays(P, R, np.full(4, 0.25), durations=T)
    policy = np.array([0, 1, 1, 0])
    chain = mdp.induce(policy)
    agents = (
        SeminormLSTDAgent(OneHot()).add(simulate_counts(chain, 5000, 40, 0)),
        SeminormLSTDAgent(OneHot()).collect(
            TabularVectorEnv(mdp, 500), policy, n_trials=1000, t_max=40, seed=0
        ),
    )
    for agent in agents:
        for counts in (simulate_counts(chain, 5000, 40, 1), simulate_counts(chain, 5000, 40, 2)):
            agent.add(counts)
        agent.fit()
        assert abs(agent.gain_ - chain.gain) < 5.0 * agent.gain_error_
        found = agent.compare(0, 1, 0)
        assert abs(found.difference - chain.bias[0] + chain.bias[1]) < 5.0 * found.standard_error
        assert found.standard_error < 0.1
    search = PolicyIteration(TabularVectorEnv(mdp, 100), t_max=20, n_trials=400, seed=0).run()
    assert mdp.induce(np.asarray(search.policy_)).gain == pytest.approx(
        mdp.optimal_policy("gain").gain
    )
