"""Tails that have not settled are told, and those that have are left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from lstd_agent import OneHot, Polynomial, SeminormLSTDAgent
from lstd_agent.errors import FitWarning

N_TRIALS = 200


def evaluated(states: Any, rewards: Any, *, counted: bool) -> SeminormLSTDAgent:
    """An agent that was given trials: states (t_max + 2, m), and rewards of them."""
    n = int(states.max()) + 1
    space: spaces.Space[Any]
    if counted:
        space, seen = spaces.Discrete(n), states.T
        agent = SeminormLSTDAgent(OneHot())
    else:
        space, seen = spaces.Box(0.0, n - 1.0, (1,)), 1.0 * states.T[:, :, None]
        agent = SeminormLSTDAgent(lambda x: np.eye(n)[x[:, 0].astype(int)])
    return agent.add_trials(seen, rewards[:-1].T, observation_space=space)


def drained(t_max: int, chance: float) -> Any:
    """Work that falls by 1 by this chance from 20, and then is 0 or 1."""
    rng = np.random.default_rng(0)
    states = np.full((t_max + 2, N_TRIALS), 20)
    for t in range(t_max + 1):
        less = np.maximum(states[t] - 1, 0)
        done = rng.integers(2, size=N_TRIALS)
        falls = rng.random(N_TRIALS) < chance
        states[t + 1] = np.where(states[t] > 1, np.where(falls, less, states[t]), done)
    return states


@pytest.mark.parametrize("t_max", [3, 20])
@pytest.mark.parametrize("counted", [False, True])
def test_a_tail_that_hardly_moves_has_not_settled(t_max: int, counted: bool) -> None:
    """What is left to come is worth a hundred times what half the tail shows of it."""
    states = drained(t_max, 0.1)
    agent = evaluated(states, -1.0 * states, counted=counted)
    with pytest.warns(FitWarning, match=r"tail has not settled.*larger t_max"):
        agent.fit()


def test_a_tail_of_one_timestep_is_too_short() -> None:
    states = drained(1, 0.1)
    with pytest.warns(FitWarning, match="timesteps 1 to 1, is too short to show"):
        evaluated(states, -1.0 * states, counted=True).fit()


@pytest.mark.parametrize("counted", [False, True])
def test_a_settled_tail_raises_no_warning(counted: bool) -> None:
    states = drained(120, 0.9)
    agent = evaluated(states, -1.0 * states, counted=counted).fit()
    assert agent.diagnostics().warnings == []


@pytest.mark.parametrize("t_max", [41, 42, 43, 44])
def test_a_period_of_vectors_is_not_a_trend(t_max: int) -> None:
    """Five steps into a ring of four; halves of 11 timesteps would differ."""
    states = np.repeat(np.append(np.arange(5), np.arange(t_max - 3) % 4 + 5)[:, None], 40, axis=1)
    rewards = np.array([3.0, 1, 4, 1, 5, 9, 2, 6, 5])[states]
    agent = evaluated(states, rewards, counted=False).fit()
    found = agent.diagnostics()
    assert found.settled, found
    assert agent.gain_ == pytest.approx(5.5)


@pytest.mark.parametrize("counted", [False, True])
def test_trials_with_different_gains_are_reported(counted: bool) -> None:
    """Gains are 1/2 or 5/2 by a coin at the start that observations do not show."""
    rng = np.random.default_rng(0)
    states = rng.integers(2, size=(102, N_TRIALS))
    rewards = states + 2.0 * rng.integers(2, size=N_TRIALS)
    agent = evaluated(states, rewards, counted=counted)
    with pytest.warns(FitWarning, match=r"mean rewards of their own.*no single gain"):
        agent.fit()
    assert "DIFFER IN MEAN REWARD" in str(agent.diagnostics())


def test_trials_of_one_gain_have_no_own_means() -> None:
    """A state is kept for 10 timesteps on average, a sixth of what is compared."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        changes = rng.random((122, 40)) < 0.05
        states = (np.cumsum(changes, axis=0) + rng.integers(2, size=40)) % 2
        agent = evaluated(states, 1.0 * states, counted=True).fit()
        assert agent.diagnostics().own_means == 0.0


def test_a_start_with_a_hidden_season_is_reported() -> None:
    """Half a year of cost 2, half a year of 0, from any month: 6 and 6, not of chance 1/6.

    A start in the costly half has 3.5 months of it left on average, and not 6.
    """
    month = (np.arange(135)[:, None] + np.arange(240)) % 12
    season = month // 6
    agent = evaluated(season, 2.0 - 2.0 * season, counted=True)
    with pytest.warns(FitWarning, match=r"value of start 0 is.*that distinguish more states"):
        agent.fit()


def test_rounding_of_rewards_gives_no_own_means() -> None:
    states = drained(60, 0.9)
    agent = evaluated(states, np.full(states.shape, 0.1), counted=False).fit()
    assert agent.diagnostics().warnings == []


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e10])
def test_an_offset_of_all_rewards_silences_no_alarm(offset: float) -> None:
    states = drained(20, 0.1)
    agent = evaluated(states, offset - 1.0 * states, counted=False)
    with pytest.warns(FitWarning, match="has not settled: the mean reward"):
        agent.fit()


def test_a_tail_whose_mean_reward_is_not_the_gain_has_not_settled() -> None:
    """From 20, halfway to 0; few trials are left, whose halves chance may tell apart."""
    states = drained(12, 0.9)[:, :40]
    rewards = -1.0 * states + np.random.default_rng(1).normal(scale=4.0, size=states.shape)
    agent = evaluated(states, rewards, counted=True)
    with pytest.warns(FitWarning, match=r"tail has not settled.*and the gain is"):
        agent.fit()


def test_batches_that_end_before_the_last_quarter_are_left_out() -> None:
    states = drained(60, 0.9)
    lengths = np.where(np.arange(N_TRIALS) < 50, 61, 50)
    seen = [states[: n + 1, i] for i, n in enumerate(lengths)]
    paid = [-1.0 * states[:n, i] for i, n in enumerate(lengths)]
    agent = SeminormLSTDAgent(OneHot())
    agent.add_trials(seen, paid, observation_space=spaces.Discrete(21)).fit()
    assert agent.diagnostics().own_means == 0.0


def test_few_stored_trials_suffice_to_report_a_hidden_start() -> None:
    states = drained(60, 0.9)
    states[0, ::2] = 19
    seen, rewards = states.T, -1.0 * states[:-1].T
    for n_stored_trials in (0, 10):
        agent = SeminormLSTDAgent(OneHot(), n_stored_trials=n_stored_trials, distance="tv")
        agent.add_trials(seen, rewards, observation_space=spaces.Discrete(21))
        with pytest.warns(FitWarning, match="value of start 20"):
            agent.fit()
        assert agent.diagnostics().drawn


def test_the_last_quarter_tells_of_a_gain_that_makes_the_tail_right_on_average() -> None:
    """Work costs 1 a step until it is done. A parabola is off by as much before as after that."""
    states = drained(36, 0.9)
    agent = SeminormLSTDAgent(Polynomial(2, scale=20.0))
    agent.add_trials(1.0 * states.T[:, :, None], -1.0 * (states > 1)[:-1].T).fit()
    assert agent.gain_ < -0.03  # the right gain is 0
    assert abs(agent.gain_) < 3.0 * agent.gain_error_
