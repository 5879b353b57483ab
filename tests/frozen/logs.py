"""Cases of logs, ends, exploration, files and merging."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from lstd_agent import (
    GaussianFeatures,
    LambdaReturn,
    OneHot,
    PolicyIteration,
    Polynomial,
    SeminormLSTDAgent,
)
from unichain_gym import TabularEnv, TabularVectorEnv, make_mdp

from .cases import (
    ACTIONS,
    ERRORS,
    SHAPE,
    VALUES,
    Case,
    case,
    chain_of,
    counted,
    of_trials,
    rounds_of_counts,
)
from .vectors import ONE, TWO, autoregression, autoregression_gain, autoregression_values

LOGGED = ("values", "difference", "coverage", "determined", *ERRORS, *SHAPE)
"""Without the bias of the start, whose weights are not settled where trials were cut."""


def cut(trials, seed=0, shortest=8):
    """Cut trials at random; the first is kept whole."""
    rng = np.random.default_rng(seed)
    observations, rewards = trials
    lengths = rng.integers(shortest, rewards.shape[1], len(rewards))
    lengths[0] = rewards.shape[1]
    seen = [o[: n + 1] for o, n in zip(observations, lengths, strict=True)]
    return seen, [r[:n] for r, n in zip(rewards, lengths, strict=True)]


def walks(chain, n=16, t_max=30, seed=0):
    """Trials of a chain, state by state."""
    paths = [chain.simulate(t_max + 1, seed + i) for i in range(n)]
    return np.stack([p.states for p in paths]), np.stack([p.rewards for p in paths])


def gamblers(n=25, seed=0):
    """1, 2 … 5, up or down a place a step from anywhere; 0 and 6 end, and 6 pays 1: v = i / 6."""
    rng = np.random.default_rng(seed)
    seen, paid = [], []
    for i in range(n):
        path = [1 + i % 5]
        while 0 < path[-1] < 6:
            path.append(path[-1] + 2 * int(rng.integers(2)) - 1)
        seen.append(np.array(path))
        paid.append(np.array(path[1:]) == 6.0)
    return seen, [1.0 * p for p in paid]


@case
def counted_log():
    chain = chain_of("h15b")
    agent = of_trials(
        walks(chain), OneHot(), anchors=[0, 10], gain=chain.gain,
        add={"observation_space": Discrete(15)},
    )  # fmt: skip
    return Case(agent=agent, at=[0, 1, 2, 3, 13, 14])


@case
def counted_log_cut_short():
    chain = chain_of("h15b")
    agent = of_trials(
        cut(walks(chain)), OneHot(), anchors=[0, 10], gain=chain.gain,
        add={"observation_space": Discrete(15)},
    )  # fmt: skip
    return Case(agent=agent, at=[0, 1, 2, 3, 13, 14], frozen=LOGGED)


@case
def counted_log_cut_short_lambda():
    chain = chain_of("h15b")
    agent = of_trials(
        cut(walks(chain)), GaussianFeatures(5), anchors=[0, 10], gain=chain.gain,
        backup=LambdaReturn(0.9), add={"observation_space": Discrete(15)},
    )  # fmt: skip
    return Case(agent=agent, at=[0, 1, 2, 13, 14], frozen=LOGGED)


@case
def vector_log_cut_short():
    agent = of_trials(
        cut(autoregression(20, 1)), Polynomial(2), anchors=[0, 6], gain=autoregression_gain(1)
    )
    return Case(agent=agent, at=ONE, frozen=LOGGED, truth=autoregression_values(ONE))


@case
def vector_log_cut_short_lambda():
    agent = of_trials(
        cut(autoregression(21, 2)), Polynomial(2), anchors=[0, 6], gain=autoregression_gain(2),
        backup=LambdaReturn(0.9),
    )  # fmt: skip
    return Case(agent=agent, at=TWO, frozen=LOGGED, truth=autoregression_values(TWO))


@case
def vector_log_with_a_last_timestep():
    """Timesteps beyond ``t_max`` are ignored."""
    agent = of_trials(
        autoregression(22, 1), Polynomial(2), anchors=[0, 6], gain=autoregression_gain(1),
        add={"t_max": 20},
    )  # fmt: skip
    return Case(agent=agent, at=ONE, truth=autoregression_values(ONE))


@case
def counted_ends():
    trials = gamblers()
    agent = of_trials(
        trials, OneHot(), make=SeminormLSTDAgent.transient, terminated=[True] * 25,
        add={"observation_space": Discrete(7)},
    )  # fmt: skip
    at = [1, 2, 3, 4, 5]
    return Case(agent=agent, at=at, truth=np.array(at) / 6)


@case
def vector_ends():
    seen, paid = gamblers(seed=1)
    trials = [o[:, None].astype(float) for o in seen], paid
    agent = of_trials(
        trials, Polynomial(1), make=SeminormLSTDAgent.transient, terminated=[True] * 25
    )
    at = [[1.0], [2.0], [3.0], [4.0], [5.0]]
    return Case(agent=agent, at=at, truth=np.ravel(at) / 6)


@case
def counted_ends_lambda():
    agent = of_trials(
        gamblers(seed=2), OneHot(), make=SeminormLSTDAgent.transient, terminated=[True] * 25,
        backup=LambdaReturn(0.6), add={"observation_space": Discrete(7)},
    )  # fmt: skip
    at = [1, 2, 3, 4, 5]
    return Case(agent=agent, at=at, truth=np.array(at) / 6)


@case
def vector_ends_in_two_neighborhoods():
    seen, paid = gamblers(seed=3)
    trials = [o[:, None].astype(float) for o in seen], paid
    agent = of_trials(
        trials, Polynomial(2), anchors=[0, 4], gain=0.0, on_termination="absorb",
        terminated=[True] * 25,
    )  # fmt: skip
    at = [[1.0], [2.0], [3.0], [4.0], [5.0]]
    return Case(agent=agent, at=at, truth=np.ravel(at) / 6)


def explored(mnemonic, explore, **options):
    """An agent whose trials were explored, and its chain."""
    mdp = make_mdp(mnemonic)
    policy = mdp.random_policy(3)
    chain = mdp.induce(policy)
    agent = SeminormLSTDAgent(
        OneHot(), **{"backup": "one_step", "gain": chain.gain, "anchors": [0, 15], **options}
    )
    for seed in range(5):
        env = TabularVectorEnv(mdp, 200)
        agent.collect(env, policy, n_trials=200, t_max=60, seed=seed, explore=explore)
    return agent.fit(), chain


EXPLORED = (*VALUES, *SHAPE, *ACTIONS)


@case
def exploratory_actions():
    agent, chain = explored("h12c", 2)
    at = list(range(12))
    off = 0.2 * np.ptp(chain.bias)
    return Case(agent=agent, at=at, frozen=EXPLORED, actions=chain.action_bias, off=off)


@case
def exploratory_actions_lambda():
    agent, chain = explored("h12c", 0.1, backup=LambdaReturn(0.6))
    at = [0, 1, 2, 6, 10, 11]
    return Case(agent=agent, at=at, frozen=EXPLORED, truth=chain.bias[at])


@case
def actions_of_another_policy_and_at_a_timestep():
    agent, chain = explored("h6", 1)
    other = make_mdp("h6").random_policy(5)
    at = [0, 1, 2, 3, 4, 5]
    more = {
        "other": agent.action_values(at, policy=other),
        "at_a_timestep": agent.action_values(at, t=3),
    }
    return Case(agent=agent, at=at, frozen=EXPLORED, more=more, truth=chain.bias[at])


def steered(seed, n=40, t_max=30):
    """x' = .8 x + a - ½ + noise; actions 0 and 1 by a coin; pays -x²."""
    rng = np.random.default_rng(seed)
    x, seen, paid, taken = 3 * rng.random(n), [], [], []
    for _ in range(t_max + 1):
        a = rng.integers(2, size=n)
        seen.append(x)
        paid.append(-(x**2))
        taken.append(a)
        x = 0.8 * x + a - 0.5 + 0.5 * rng.normal(size=n)
    observations = np.stack([*seen, x], axis=1)[..., None]
    return (observations, np.stack(paid, axis=1)), np.stack(taken, axis=1)


@case
def actions_of_vectors():
    """With the coin ever after: q(s, a) = r(s) + E v(s'), v(x) = -x² / .36 up to a constant."""
    trials, actions = steered(0)
    x = np.array([0.0, 1.0, 2.0])
    after = 0.8 * x[:, None] + np.array([-0.5, 0.5])
    q = -(x[:, None] ** 2) - after**2 / 0.36
    gain = -(0.25 + 0.25) / 0.36
    agent = of_trials(
        trials, Polynomial(2), actions=actions, anchors=[0], gain=gain,
        add={"action_space": Discrete(2)},
    )  # fmt: skip

    at = x[:, None]
    more = {
        "action_values": agent.action_values(at),
        "action_coverage": agent.action_coverage(at),
    }
    return Case(agent=agent, at=at, more=more, actions=q, off=4.0)


@case
def best_actions_of_a_chain():
    search = PolicyIteration("unichain_gym:Unichain-h6-v0", t_max=100, n_trials=500, seed=0)
    search.run()
    best = make_mdp("h6").induce([1] * 6)
    assert np.array_equal(np.asarray(search.policy_), [1] * 6)
    assert search.converged
    last = search.iterations[-1]
    assert abs(last.gain - best.gain) < 0.5
    at = np.arange(6)
    agent = counted(best, OneHot(), anchors=[0])
    return Case(agent=agent, at=at, truth=best.bias)


HALVES: dict[str, Any] = {"anchors": [0, 5], "n_rounds": 8, "n_trials": 100}


@case
def counts_for_merging():
    agent = counted(chain_of("c10"), OneHot(), **HALVES)
    return Case(agent=agent, at=[0, 1, 2, 3, 4])


def halves():
    chain = chain_of("c10")
    rounds = list(rounds_of_counts(chain, 8, 100, 60))
    agents = [
        SeminormLSTDAgent(OneHot(), anchors=[0, 5], backup="one_step", gain=chain.gain)
        for _ in range(2)
    ]
    for agent, part in zip(agents, (rounds[:4], rounds[4:]), strict=True):
        for counts in part:
            agent.add(counts)
    return agents


MERGED = *VALUES, *SHAPE
"""Which trials are in a batch, and so standard errors, may differ after merging."""


@case
def merged_counts():
    first, second = halves()
    agent = first.merge(second).fit()
    return Case(agent=agent, at=[0, 1, 2, 3, 4], row="counts_for_merging", frozen=MERGED)


@case
def merged_counts_the_other_way_round():
    first, second = halves()
    agent = second.merge(first).fit()
    return Case(agent=agent, at=[0, 1, 2, 3, 4], row="counts_for_merging", frozen=MERGED)


@case
def a_saved_agent_of_counts():
    agent = counted(chain_of("c10"), OneHot(), **HALVES)
    return Case(agent=loaded(agent), at=[0, 1, 2, 3, 4], row="counts_for_merging")


def loaded(agent):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.npz"
        agent.save(path)
        return SeminormLSTDAgent.load(path)


def of_autoregression(order=None):
    observations, rewards = autoregression(0, 1)
    order = np.arange(len(rewards)) if order is None else order
    trials = observations[order], rewards[order]
    return of_trials(trials, Polynomial(2), anchors=[0], gain=autoregression_gain(1))


@case
def a_saved_agent_of_vectors():
    agent = loaded(of_autoregression())
    return Case(agent=agent, at=ONE, row="autoregression_one_dimension")


@case
def vectors_in_another_order():
    order = np.random.default_rng(0).permutation(16)
    agent = of_autoregression(order)
    names = "values", "difference", "start_bias", "coverage", *SHAPE
    return Case(agent=agent, at=ONE, row="autoregression_one_dimension", frozen=names)


@case
def other_features_of_the_same_trials():
    agent = counted(chain_of("c10"), GaussianFeatures(3), **HALVES)
    agent.use_features(OneHot()).fit()
    return Case(agent=agent, at=[0, 1, 2, 3, 4], row="counts_for_merging")


@case
def a_loop_of_ones_own():
    """The trials of `counted_log`, observed step by step."""
    chain = chain_of("h15b")
    states, rewards = walks(chain)
    agent = SeminormLSTDAgent(
        OneHot(), anchors=[0, 10], gain=chain.gain, backup="one_step", n_batches=16
    )
    agent.attach(TabularEnv(make_mdp("h15b")), t_max=30)
    for path, paid in zip(states, rewards, strict=True):
        for t in range(31):
            agent.observe(t, path[t], paid[t], path[t + 1])
        agent.end_trial()
    names = ("values", "difference", "start_bias", "coverage", "determined", *SHAPE)
    return Case(agent=agent.fit(), at=[0, 1, 2, 3, 13, 14], row="counted_log", frozen=names)


@case
def trials_collected_in_environments():
    """Anchors by pairs of stored trials, as in the paper."""
    chain = chain_of("h36c")
    policy = np.arange(36) // 2 % 2
    agent = SeminormLSTDAgent.paper(
        GaussianFeatures(6, seed=2), 4, gain=chain.gain, backup="one_step", n_stored_trials=200
    )
    agent.collect(TabularVectorEnv(make_mdp("h36c"), 200), policy, n_trials=400, t_max=150, seed=0)
    names = (*VALUES, *SHAPE, "references")
    return Case(agent=agent.fit(), at=[0, 1, 2, 8], frozen=names)
