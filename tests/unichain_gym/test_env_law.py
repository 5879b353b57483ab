"""The law of a step: single and vector environments against the exact probabilities.

The chi-square statistic of the transition counts of each (state, action), cells with an
expected count under 5 pooled, is compared with its quantile at a false-alarm rate of 1e-6:
a right implementation fails for one seed in a million, and the seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from unichain_gym import TabularEnv, TabularMDP, TabularVectorEnv, make_mdp

FALSE_ALARM_RATE = 1e-6
LARGEST_DOUBLE = float(np.nextafter(1.0, 0.0))


def single_counts(mdp, n_steps):
    """Counts (S, A, S) of one environment under uniform actions, restarted now and then."""
    counts = np.zeros((mdp.n_states, mdp.n_actions, mdp.n_states))
    env = TabularEnv(mdp)
    actions = np.random.default_rng(1).integers(mdp.n_actions, size=n_steps).tolist()
    state, _ = env.reset(seed=2)
    for t, action in enumerate(actions):
        following = env.step(action)[0]
        counts[state, action, following] += 1
        state = env.reset()[0] if t % 10 == 9 else following
    return counts


def vector_counts(mdp, n_steps, num_envs=500):
    """As `single_counts`, from ``num_envs`` environments."""
    counts = np.zeros((mdp.n_states, mdp.n_actions, mdp.n_states))
    envs = TabularVectorEnv(mdp, num_envs)
    rng = np.random.default_rng(1)
    states, _ = envs.reset(seed=2)
    for t in range(n_steps // num_envs):
        actions = rng.integers(mdp.n_actions, size=num_envs)
        following = envs.step(actions)[0]
        np.add.at(counts, (states, actions, following), 1)
        states = envs.reset()[0] if t % 10 == 9 else following
    return counts


def p_value(mdp, counts):
    """The chi-square p-value of transition counts under the MDP's probabilities."""
    P = mdp.to_arrays()[0]
    assert counts[P == 0.0].sum() == 0
    expected = P * counts.sum(axis=2, keepdims=True)
    rare = expected < 5.0
    cells = [np.where(rare, 0.0, table) for table in (counts, expected)]
    pooled = [np.where(rare, table, 0.0).sum(axis=2, keepdims=True) for table in (counts, expected)]
    observed, expected = (np.concatenate(pair, axis=2) for pair in zip(cells, pooled, strict=True))
    used = expected >= 5.0
    statistic = ((observed - expected)[used] ** 2 / expected[used]).sum()
    degrees = np.maximum(used.sum(axis=2) - 1, 0).sum()
    return stats.chi2.sf(statistic, degrees)


@pytest.mark.parametrize("mnemonic", ["h36c", "c10", "q64b", "m4"])
@pytest.mark.parametrize(("count", "n_steps"), [(single_counts, 60_000), (vector_counts, 400_000)])
def test_transitions_have_the_exact_law(mnemonic, count, n_steps):
    mdp = make_mdp(mnemonic)
    assert p_value(mdp, count(mdp, n_steps)) > FALSE_ALARM_RATE


@pytest.mark.parametrize(("count", "n_steps"), [(single_counts, 60_000), (vector_counts, 400_000)])
def test_the_test_of_the_law_detects_an_advance_probability_off_by_a_tenth(count, n_steps):
    sampled = make_mdp("h6", advance_probs=(0.3, 0.66))
    assert p_value(make_mdp("h6"), count(sampled, n_steps)) < FALSE_ALARM_RATE


def test_starts_of_single_and_vector_environments_have_the_law_asked_for():
    mdp = make_mdp("h6")
    p = np.array([0.5, 0.0, 0.2, 0.25, 0.05, 0.0])
    env, envs = TabularEnv(mdp), TabularVectorEnv(mdp, 20_000)
    options = {"distribution": p}
    env.reset(seed=1)
    singles = [env.reset(options=options)[0] for _ in range(5_000)]
    for starts in (singles, envs.reset(seed=2, options=options)[0]):
        counts = np.bincount(starts, minlength=6)
        assert counts[p == 0.0].sum() == 0
        test = stats.chisquare(counts[p > 0.0], len(starts) * p[p > 0.0])
        assert test.pvalue > FALSE_ALARM_RATE


@pytest.mark.parametrize("mnemonic", ["h36c", "x9d", "q64b", "m34c"])
def test_one_environment_and_a_vector_of_one_agree_for_the_same_seed(mnemonic):
    mdp = make_mdp(mnemonic)
    env, envs = TabularEnv(mdp), TabularVectorEnv(mdp, 1)
    assert env.reset(seed=11)[0] == envs.reset(seed=11)[0][0]
    for action in np.random.default_rng(0).integers(mdp.n_actions, size=500).tolist():
        state, reward, *_ = env.step(action)
        states, rewards, *_ = envs.step([action])
        assert (state, reward) == (states[0], rewards[0])


class ExtremeGenerator(np.random.Generator):
    """A generator that only draws the one number."""

    def __init__(self, draw):
        super().__init__(np.random.PCG64())
        self.draw = draw

    def random(self, size: Any = None, dtype: Any = float, out: Any = None) -> Any:
        if out is not None:
            out[...] = self.draw
            return out
        return self.draw if size is None else np.full(size, self.draw)


@pytest.fixture
def tenths():
    """Ten outcomes of probability 0.1, which add up to less than 1, between impossible ones."""
    next_state = [[[2, *[0] * 10, 2, 2]]] + [[[1] * 13]] * 2
    probability = [[[0.0, *[0.1] * 10, 0.0, 0.0]]] + [[[1.0] + [0.0] * 12]] * 2
    reward = [[[-1.0, *range(10), -1.0, -1.0]]] + [[[0.0] * 13]] * 2
    assert np.cumsum([0.1] * 10)[-1] <= LARGEST_DOUBLE
    start = np.array([1.0, 0.0, 0.0])
    return TabularMDP(np.array(next_state), np.array(probability), np.array(reward), start)


@pytest.mark.parametrize(("draw", "reward"), [(LARGEST_DOUBLE, 9.0), (0.0, 0.0)])
def test_an_extreme_draw_never_selects_an_outcome_of_probability_zero(tenths, draw, reward):
    env, envs = TabularEnv(tenths), TabularVectorEnv(tenths, 3)
    env.reset(options={"state": 0})
    envs.reset(options={"state": 0})
    env.np_random = envs.np_random = ExtremeGenerator(draw)
    assert env.step(0)[:2] == (0, reward)
    states, rewards, *_ = envs.step([0, 0, 0])
    np.testing.assert_array_equal(states, 0)
    np.testing.assert_array_equal(rewards, reward)


@pytest.mark.parametrize(("draw", "start"), [(LARGEST_DOUBLE, 10), (0.0, 1)])
def test_an_extreme_draw_never_starts_in_a_state_of_probability_zero(draw, start):
    p = np.array([0.0, *[0.1] * 10, 0.0])
    mdp = TabularMDP(np.zeros((12, 1, 1), int), np.ones((12, 1, 1)), np.zeros((12, 1, 1)), p)
    env, envs = TabularEnv(mdp), TabularVectorEnv(mdp, 2)
    env.np_random = envs.np_random = ExtremeGenerator(draw)
    assert env.reset()[0] == start
    np.testing.assert_array_equal(envs.reset()[0], start)
