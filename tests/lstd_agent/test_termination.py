"""Tasks that end: refused, or absorbed, whatever an environment does after the end."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.testing import assert_allclose, assert_array_equal

from lstd_agent import OneHot, Polynomial, Restart, SeminormLSTDAgent, TileCoding
from lstd_agent.errors import FitWarning, InvalidInputError, TerminationError
from lstd_agent.trials.kept import KeptTrials

STAY = np.zeros(4, dtype=int)
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


class RandomWalk(gym.Env[Any, Any]):
    """1, 2, …, n - 2, up or down a place a step from the middle; at either end it is over.

    Going off the upper end pays 1, everything else 0: the value of place i is i / (n - 1).
    """

    def __init__(self, n: int = 7) -> None:
        self.n = n
        self.observation_space = gym.spaces.Discrete(n)
        self.action_space = gym.spaces.Discrete(1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.n // 2
        return self.place, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert 0 < self.place < self.n - 1, "stepped after the end"
        self.place += 2 * int(self.np_random.integers(2)) - 1
        over = self.place in (0, self.n - 1)
        return self.place, float(self.place == self.n - 1), over, False, {}


def shares(agent: SeminormLSTDAgent) -> Any:
    """The share of trials (t_max + 1, S) that is in each state, the terminal one last."""
    counts = agent.counts
    moves = counts.transition_counts.toarray().reshape(-1, counts.n_states, counts.n_states)
    return moves.sum(axis=2) / counts.n_trials


def environments(make: Any) -> list[Any]:
    return [make(), *(SyncVectorEnv([make] * 5, autoreset_mode=mode) for mode in MODES)]


def test_a_task_that_terminates_is_refused_by_default(walk: Any) -> None:
    message = r"trial 0 of the round terminated at timestep 2: .*lstd_agent.Restart.*absorb"
    for env in environments(lambda: walk(ends=True)):
        with pytest.raises(TerminationError, match=message):
            SeminormLSTDAgent(OneHot()).collect(env, STAY, n_trials=5, t_max=9)


def test_absorbing_ignores_everything_after_the_end(walk: Any) -> None:
    # 0 → 1 → 2 → end, so the visits are one place a timestep, then terminal (4) for ever. The
    # place that ends the trial, 3, is never left and so not visited.
    for env in environments(lambda: walk(ends=True)):
        agent = SeminormLSTDAgent(OneHot(), on_termination="absorb")
        agent.collect(env, STAY, n_trials=5, t_max=9)
        expected = np.zeros((10, 5))
        expected[[0, 1, 2], [0, 1, 2]] = 1
        expected[3:, 4] = 1
        assert_array_equal(shares(agent), expected)
        assert_array_equal(agent.counts.reward_sums.sum(axis=1)[:4], [0, 5, 10, 0])


def test_absorbed_vectors_are_kept_alike_in_every_mode(walk: Any) -> None:
    for env in environments(lambda: walk(ends=True, kind="box")):
        agent = SeminormLSTDAgent(Polynomial(1), on_termination="absorb")
        agent.collect(env, lambda x: 0, n_trials=5, t_max=9, batched=False)
        kept = agent.kept_trials
        assert isinstance(kept, KeptTrials)
        nowhere = [np.nan] * 8  # the walk ends on its third step
        assert_array_equal(kept.observations[..., 0], [[0, 1, 2, *nowhere]] * 5)
        assert_array_equal(kept.rewards, [[0, 1, 2, *[0] * 7]] * 5)


def test_values_until_termination_equal_those_of_the_random_walk() -> None:
    env = SyncVectorEnv([RandomWalk] * 100)
    agent = SeminormLSTDAgent.transient(OneHot())
    agent.collect(env, np.zeros(7, dtype=int), n_trials=2000, t_max=60, seed=0).fit()
    places = np.arange(1, 6)
    error = np.abs(agent.predict(places) - places / 6)
    assert agent.main_reference_ is None
    assert "terminal" in agent.summary()
    assert (error < 5 * agent.standard_errors(places)).all()
    assert_allclose(agent.predict(places), places / 6, atol=0.05)


class EndsOnce(gym.Wrapper[Any, Any, Any, Any]):
    """Ends its first episode after three steps, and no other."""

    episodes = 0

    def reset(self, **options: Any) -> Any:
        self.episodes += 1
        self.steps = 0
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        observation, reward, *_, info = super().step(action)
        return observation, reward, self.episodes == 1 and self.steps == 3, False, info


@pytest.mark.parametrize("mode", MODES)
def test_limits_that_cut_off_a_copy_after_its_end_do_not_matter(walk: Any, mode: Any) -> None:
    def make() -> Any:
        return gym.wrappers.TimeLimit(EndsOnce(walk()), max_episode_steps=5)

    env = SyncVectorEnv([make] * 2, autoreset_mode=mode)
    agent = SeminormLSTDAgent(OneHot(), on_termination="absorb").collect(
        env, STAY, n_trials=2, t_max=12
    )
    assert_array_equal(shares(agent)[3:, 4], 1)


def test_a_limit_in_the_step_that_ends_a_trial_does_not_matter(walk: Any) -> None:
    for env in environments(lambda: gym.wrappers.TimeLimit(walk(ends=True), 3)):
        agent = SeminormLSTDAgent(OneHot(), on_termination="absorb").collect(
            env, STAY, n_trials=5, t_max=9
        )
        assert_array_equal(shares(agent)[3:, 4], 1)


@pytest.mark.filterwarnings("ignore:.*tail has not settled:lstd_agent.errors.FitWarning")
def test_a_rarely_reached_terminal_state_is_the_reference() -> None:
    agent = SeminormLSTDAgent.transient(OneHot())
    agent.collect(
        SyncVectorEnv([RandomWalk] * 50), np.zeros(7, dtype=int), n_trials=500, t_max=6, seed=0
    ).fit()
    assert agent.system_.occupancy[0].argmax() == 3
    assert agent.main_reference_ is None
    assert agent.system_.offsets.tolist() == [0.0]


def test_several_neighborhoods_agree_on_the_terminal_state() -> None:
    env = SyncVectorEnv([RandomWalk] * 100)
    agent = SeminormLSTDAgent(OneHot(), anchors=[0, 8, 20], gain=0.0, on_termination="absorb")
    agent.collect(env, np.zeros(7, dtype=int), n_trials=2000, t_max=50, seed=0).fit()
    assert agent.main_reference_ is None
    assert (agent.system_.offsets == 0.0).all()
    places = np.arange(1, 6)
    for t in (0, 8, 20):
        error = np.abs(agent.predict(places, t) - places / 6)
        assert (error < 6 * agent.standard_errors(places, t)).all()


def test_the_terminal_value_is_0_for_many_sparse_features_too() -> None:
    tiles = TileCoding([0.0], [30.0], 600, 1)
    agent = SeminormLSTDAgent(tiles, gain=0.0, on_termination="absorb")
    falls = [np.arange(n, -1.0, -1.0)[:, None] for n in (12, 11, 10) for _ in range(10)]
    agent.add_trials(falls, [-np.ones(len(x) - 1) for x in falls], terminated=np.ones(30, bool))
    with pytest.warns(FitWarning, match="observations still move"):  # no trial stays at the end
        found = agent.fit()
    assert_allclose(found.predict([[5.0], [7.0]], 5), [-5.0, -7.0], atol=1e-6)
    assert found.main_reference_ is None
    assert "value 0 at  terminal" in found.summary()


def test_the_users_loop_absorbs_too(walk: Any) -> None:
    env = walk(ends=True)
    agent = SeminormLSTDAgent(OneHot(), on_termination="absorb").attach(env, STAY, t_max=9)
    for _ in range(3):
        state, _ = env.reset()
        for t in range(10):
            following, reward, terminated, *_ = env.step(agent.act(state))
            agent.observe(t, state, reward, following, terminated)
            state = following
            if terminated:
                break
        agent.end_trial()
    collected = SeminormLSTDAgent(OneHot(), on_termination="absorb").collect(
        env, STAY, n_trials=3, t_max=9
    )
    a, b = (each.counts.transition_counts.toarray() for each in (agent, collected))
    assert_array_equal(a, b)
    lockstep = SeminormLSTDAgent(OneHot(), on_termination="absorb").attach(env, t_max=9)
    for t in range(3):
        lockstep.observe(t, [t] * 3, [float(t)] * 3, [t + 1] * 3, [t == 2] * 3)
    lockstep.end_trial()
    assert_array_equal(shares(lockstep), shares(agent))


def test_trials_that_ended_stay_ended_while_others_go_on() -> None:
    # The first ends at t = 0, the second at t = 2. In between, and after, the first's copy has
    # started again: it is in state 1, is paid 7, and even ends again.
    agent = SeminormLSTDAgent(np.eye(2), on_termination="absorb")
    agent.observe(0, [0, 0], [1.0, 1.0], [1, 0], [True, False])
    agent.observe(1, [1, 0], [7.0, 1.0], [1, 0], [True, False])
    agent.observe(2, [1, 0], [7.0, 1.0], [0, 1], [False, True])
    agent.observe(3, [0, 1], [7.0, 7.0], [1, 0], [False, False])
    agent.end_trial()
    visits = 2.0 * shares(agent)
    assert_array_equal(visits, [[2, 0, 0], [1, 0, 1], [1, 0, 1], [0, 0, 2]])
    rewards = agent.counts.reward_sums.toarray()
    assert_array_equal(rewards, [[2, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]])
    sample = agent.batches.sample
    assert sample is not None
    assert sorted(sample.trials.observations[:, :4].tolist()) == [[0, 0, 0, 2], [0, 2, 2, 2]]


def test_a_first_trial_that_terminates_does_not_set_t_max(walk: Any) -> None:
    agent = SeminormLSTDAgent(OneHot(), on_termination="absorb").attach(walk(ends=True))
    agent.observe(0, 2, 0.0, 3, terminated=True)
    with pytest.raises(InvalidInputError, match=r"give t_max to attach\(\)"):
        agent.end_trial()
    with pytest.raises(InvalidInputError, match="terminated at timestep 0; call end_trial"):
        agent.observe(1, 3, 0.0, 3)


def test_restart_makes_a_task_continuing(walk: Any) -> None:
    env = Restart(walk(ends=True))
    agent = SeminormLSTDAgent(OneHot(), 1).collect(env, STAY, n_trials=12, t_max=15).fit()
    # 0 → 1 → 2 → 3 → 0 → …, paying 0, 1, 2, 0. Gain 3/4; b(s) - b(0) by b = r - g + b':
    # b(1) = b(0) + g - 0, b(2) = b(1) + g - 1, b(3) = b(2) + g - 2.
    visits = shares(agent)
    assert_array_equal(visits.argmax(axis=1), 4 * [0, 1, 2, 3])
    assert agent.gain_ == pytest.approx(0.75)
    assert_allclose(agent.predict(np.arange(4)) - agent.predict(0), [0, 0.75, 0.5, -0.75])


@pytest.mark.parametrize("features", [OneHot(), Polynomial(1)])
def test_trials_that_have_all_ended_have_a_gain_of_0_for_sure(features: Any) -> None:
    kind: Any = "vectors" if isinstance(features, Polynomial) else "auto"
    agent = SeminormLSTDAgent(features, on_termination="absorb", observations=kind)
    env = SyncVectorEnv([lambda: RandomWalk(5)] * 20)
    agent.collect(
        env, lambda x: np.zeros(len(x), int), n_trials=200, t_max=400, seed=0, batched=True
    ).fit()
    assert agent.gain_ == agent.gain_error_ == 0.0
    assert agent.diagnostics().gain_rows == "end"
    assert not [each for each in agent.diagnostics().warnings if "gain" in each]


@pytest.mark.parametrize("kind", ["counted", "vectors"])
def test_none_is_the_end_of_a_task_whose_value_is_0(kind: Any) -> None:
    features = OneHot() if kind == "counted" else Polynomial(1)
    agent = SeminormLSTDAgent(features, on_termination="absorb", observations=kind)
    env = SyncVectorEnv([lambda: RandomWalk(5)] * 20)
    agent.collect(env, np.zeros(5, dtype=int), n_trials=2000, t_max=200, seed=0).fit()
    assert agent.predict(None) == 0.0
    assert agent.determined(None)
    middle = agent.compare(2, None)
    assert middle.difference == pytest.approx(0.5, abs=4.0 * middle.standard_error)
    assert 0.0 < middle.standard_error < 0.03
    assert agent.standard_errors(None) < 1e-6
    if kind == "counted":
        with pytest.raises(InvalidInputError, match="no trial goes on from 4: if the task ends"):
            agent.compare(2, 4)
    with pytest.raises(InvalidInputError):
        SeminormLSTDAgent(OneHot()).collect(Restart(RandomWalk(5)), STAY, 9, 9).fit().predict(None)
