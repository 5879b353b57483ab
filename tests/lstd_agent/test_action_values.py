"""Action values: exact from exact counts, right from samples of any behaviour, silent otherwise."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import VectorEnv
from gymnasium.wrappers.vector import TransformObservation
from numpy.testing import assert_allclose, assert_array_equal

from lstd_agent import FitWarning, KeptTrials, LambdaReturn, OneHot, RadialBasis, SeminormLSTDAgent
from lstd_agent.actions.chain_values import ActionValues, PolicyChain
from lstd_agent.actions.pair_equations import PairEquations, factor_of_pairs, pair_rows
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.trials.counts import ActionCounts
from unichain_gym import TabularEnv, TabularMDP, TabularVectorEnv, make_mdp


def exact_counts(mdp: TabularMDP) -> ActionCounts:
    """Probabilities in place of numbers of transitions."""
    S, A = mdp.n_states, mdp.n_actions
    state, action, k = np.nonzero(mdp.probability)
    p, r = mdp.probability[state, action, k], mdp.reward[state, action, k]
    keys = (state * A + action) * S + mdp.next_state[state, action, k]
    key, place = np.unique(keys, return_inverse=True)
    n, rewards, squares = (np.bincount(place, weights) for weights in (p, p * r, p * r**2))
    return ActionCounts(S, A, key, n.astype(float), rewards.astype(float), squares.astype(float))


def evaluated(mdp: TabularMDP, policy: np.ndarray, main: int) -> ActionValues:
    return ActionValues(PolicyChain(exact_counts(mdp), policy), main)


def as_probabilities(policy: np.ndarray, n_actions: int) -> np.ndarray:
    return np.eye(n_actions)[policy] if policy.ndim == 1 else policy


@pytest.mark.parametrize("name", ["h36c", "c10", "r20b", "m16", "q44", "x10", "h3"])
@pytest.mark.parametrize("seed", [0, 1])
def test_from_exact_counts_they_are_the_chains_action_bias(name: str, seed: int) -> None:
    mdp = make_mdp(name)
    policy = mdp.random_policy(seed, deterministic=bool(seed))
    chain = mdp.induce(policy)
    main = int(np.argmax(chain.stationary_distribution))
    found = evaluated(mdp, as_probabilities(policy, mdp.n_actions), main)
    scale = max(1.0, np.abs(chain.bias).max())
    assert found.gain == pytest.approx(chain.gain, abs=1e-8)
    assert_allclose(found.action_values, chain.action_bias - chain.bias[main], atol=1e-8 * scale)
    assert found.settled_value == pytest.approx(-chain.bias[main], abs=1e-8 * scale)


def test_a_periodic_chain_is_no_different() -> None:
    ring = TabularMDP.from_transitions(
        [(0, 0, 1, 1, 1), (1, 0, 2, 1, 0), (2, 0, 0, 1, 0), (0, 1, 0, 1, 0), (1, 1, 0, 1, 5),
         (2, 1, 2, 1, 0)],
        [1, 0, 0],
    )  # fmt: skip
    chain = ring.induce([0, 0, 0])
    found = evaluated(ring, np.eye(2)[[0, 0, 0]], 0)
    assert found.gain == pytest.approx(1 / 3)
    assert_allclose(found.action_values, chain.action_bias - chain.bias[0], atol=1e-12)


def test_the_state_that_values_are_relative_to_is_recurrent() -> None:
    mdp = make_mdp("h36c")
    exact, policy = exact_counts(mdp), np.full((36, 2), 0.5)
    often = np.where(exact.pair // 2 == 0, 1e6, 100.0)
    counts = dataclasses.replace(exact, count=exact.count * often)
    assert PolicyChain(counts, policy).main_state() in mdp.induce(policy).recurrent_states


def explored(
    name: str = "h12c", n_trials: int = 10_000, explore: object = 1, seed: int = 0
) -> tuple[SeminormLSTDAgent, TabularMDP, np.ndarray]:
    mdp = make_mdp(name)
    policy = mdp.random_policy(3)
    agent = SeminormLSTDAgent(OneHot(), backup="one_step")
    env = TabularVectorEnv(mdp, 1000)
    agent.collect(env, policy, n_trials=n_trials, t_max=60, seed=seed, explore=explore)  # type: ignore[arg-type]
    return agent, mdp, policy


def close_to_exact(agent: SeminormLSTDAgent, mdp: TabularMDP, q: np.ndarray, tol: float) -> bool:
    chain = mdp.induce(np.asarray(agent.policy))
    right = chain.action_bias - chain.bias[agent.main_reference_]
    return bool(np.abs(q - right).max() < tol * np.ptp(chain.bias))


@pytest.mark.first(1)
@pytest.mark.parametrize("explore", [1, 0.2])
def test_from_samples_they_come_near_the_chains(explore: object) -> None:
    agent, mdp, _ = explored(explore=explore)
    agent.fit()
    assert close_to_exact(agent, mdp, agent.action_values(np.arange(12)), 0.02)
    assert close_to_exact(agent, mdp, agent.action_values(np.arange(12), t=0), 0.06)
    assert agent.action_values(3).shape == (2,)
    assert (agent.action_coverage(np.arange(12)) > 0).all()


def test_values_of_an_explored_policy_are_its_own() -> None:
    agent, mdp, policy = explored(explore=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FitWarning)
        agent.fit()
    chain = mdp.induce(policy)
    error = agent.predict(np.arange(12)) - (chain.bias - chain.bias[agent.main_reference_])
    assert np.abs(error).max() < 0.02 * np.ptp(chain.bias)
    assert agent.gain_ == pytest.approx(chain.gain, abs=0.03)


def test_targets_of_many_steps_leave_explored_transitions_out_too() -> None:
    mdp = make_mdp("h12c")
    policy = mdp.random_policy(3)
    agent = SeminormLSTDAgent(OneHot(), backup=LambdaReturn(0.6))
    agent.collect(
        TabularVectorEnv(mdp, 1000), policy, n_trials=10_000, t_max=60, seed=0, explore=2
    ).fit()
    chain = mdp.induce(policy)
    error = agent.predict(np.arange(12)) - (chain.bias - chain.bias[agent.main_reference_])
    assert np.abs(error).max() < 0.03 * np.ptp(chain.bias)


def test_another_behaviour_serves_the_policy() -> None:
    rng = np.random.default_rng(0)
    agent, mdp, policy = explored(explore=lambda states: rng.random(len(states)) < 0.3)
    with pytest.raises(InvalidInputError, match="all actions at timestep 0 were exploratory"):
        agent.fit()
    q = agent.action_values(np.arange(12))
    chain = mdp.induce(policy)
    core = int(np.argmax(chain.stationary_distribution))
    error = (q - q[core, policy[core]]) - (chain.action_bias - chain.bias[core])
    assert np.abs(error).max() < 0.02 * np.ptp(chain.bias)


def test_values_that_depend_on_an_untried_action_are_nan() -> None:
    """Where the stream's first state is left in the first half, by the behaviour alone."""
    one_way = TabularMDP.from_transitions(
        [(0, 0, 1, 1, 0), (0, 1, 2, 1, 0), (1, 0, 2, 1, 1), (1, 1, 2, 1, 0), (2, 0, 2, 1, 0),
         (2, 1, 2, 1, 1)],
        [1, 0, 0],
    )  # fmt: skip
    agent = SeminormLSTDAgent(OneHot())
    env = TabularVectorEnv(one_way, 10)
    agent.collect(
        env, [0, 0, 0], n_trials=100, t_max=20, seed=0, explore=lambda s: np.ones(len(s), int)
    )
    q = agent.action_values([0, 1, 2])
    assert_array_equal(np.isnan(q), [[True, False], [True, True], [False, False]])
    assert_allclose(q[2], [0.0, 1.0])
    assert q[0, 1] == 0.0


def test_states_of_a_deterministic_policy_determine_its_actions() -> None:
    mdp = make_mdp("h6")
    policy = mdp.random_policy(1)
    agent = SeminormLSTDAgent(OneHot(), backup="model")
    agent.collect(TabularVectorEnv(mdp, 500), policy, n_trials=2000, t_max=100, seed=0).fit()
    q = agent.action_values(np.arange(6))
    # The equation of the main reference state is that of the gain, which was estimated apart.
    others = np.flatnonzero(np.arange(6) != agent.main_reference_)
    assert_allclose(q[others, policy[others]], agent.predict(others), atol=1e-9)
    assert np.isnan(q[np.arange(6), 1 - policy]).all()
    n = agent.action_coverage(np.arange(6))
    assert n.sum() == 2000 * 101
    assert (n[np.arange(6), 1 - policy] == 0).all()


def test_exploration_changes_neither_the_policys_draws_nor_the_tail() -> None:
    mdp = make_mdp("h6")
    env = TabularVectorEnv(mdp, 100)
    policy = mdp.random_policy(1)
    plain, recorded, some = (
        SeminormLSTDAgent(OneHot()).collect(
            env, policy, n_trials=300, t_max=21, seed=5, explore=explore
        )
        for explore in (None, 0, 4)
    )
    difference = plain.counts.transition_counts - recorded.counts.transition_counts
    assert difference.nnz == 0
    n_at = some.counts.trials_at
    assert (300 - n_at[:11]).sum() == 4 * 300
    assert (n_at[11:] == 300).all()
    assert some.action_coverage(np.arange(6)).sum() == 300 * 22


MASKED = TabularMDP.from_transitions(
    [
        (0, 0, 1, 1.0, 0.0),
        (0, 2, 2, 1.0, 0.5),
        (1, 1, 2, 1.0, 1.0),
        (2, 0, 0, 1.0, 2.0),
        (2, 1, 1, 1.0, 3.0),
        (2, 2, 0, 0.5, 4.0),
        (2, 2, 2, 0.5, 4.0),
    ],
    [0.0, 1.0, 0.0],
)


@pytest.mark.parametrize("env", [TabularEnv(MASKED), TabularVectorEnv(MASKED, 40)])
def test_only_available_actions_are_explored(env: gym.Env | VectorEnv) -> None:
    agent = SeminormLSTDAgent(OneHot())
    agent.collect(env, [0, 1, 2], n_trials=400, t_max=20, seed=0, explore=1.0)
    n = agent.action_coverage(np.arange(3))
    assert_array_equal(n > 0, MASKED.allowed_actions)
    first_half = agent.counts.trials_at[:10]
    assert (first_half == 0).all()


def test_action_counts_are_saved_merged_and_reset(tmp_path: Path) -> None:
    agent, _, _ = explored(n_trials=2000)
    other, _, _ = explored(n_trials=1000, seed=1)
    before = agent.action_coverage(np.arange(12))
    path = tmp_path / "agent.npz"
    agent.fit().save(path)
    again = SeminormLSTDAgent.load(path)
    assert_array_equal(again.action_values(np.arange(12)), agent.action_values(np.arange(12)))
    agent.merge(other)
    assert_array_equal(
        agent.action_coverage(np.arange(12)), before + other.action_coverage(np.arange(12))
    )
    with pytest.raises(NotFittedError, match="no trials yet"):
        agent.reset().action_values(0)


def as_vectors(name: str, num_envs: int = 500) -> VectorEnv:
    env = TabularVectorEnv(make_mdp(name), num_envs)
    n = int(env.single_observation_space.n)  # type: ignore[attr-defined]
    single = Box(0.0, float(n), (1,))
    return TransformObservation(
        env, lambda s: s[:, None].astype(np.float32), single_observation_space=single
    )


def one_hot(x: np.ndarray) -> np.ndarray:
    return np.eye(12)[np.asarray(x)[:, 0].astype(int)]


def of_vectors(policy: np.ndarray, n_trials: int = 2000, **options: Any) -> SeminormLSTDAgent:
    agent = SeminormLSTDAgent(one_hot, backup="one_step")
    agent.collect(
        as_vectors("h12c"), lambda x: policy[x[:, 0].astype(int)],
        n_trials=n_trials, t_max=60, seed=0, batched=True, **options,
    )  # fmt: skip
    return agent


@pytest.mark.slow
def test_lstdq_in_one_hot_features_of_vectors_is_right_too(tmp_path: Path) -> None:
    mdp = make_mdp("h12c")
    policy = mdp.random_policy(3)
    agent = of_vectors(policy, explore=2).fit()
    x = np.arange(12, dtype=np.float32)[:, None]
    chain = mdp.induce(policy)
    span = np.ptp(chain.bias)
    q = agent.action_values(x)
    assert np.abs(q - chain.action_bias).max() < 0.08 * span
    assert np.abs(agent.action_values(x, t=0) - chain.action_bias).max() < 0.1 * span
    assert np.abs(agent.predict(x) - chain.bias).max() < 0.05 * span
    by_pairs = agent.action_values(x, pair_features=lambda s, a: np.eye(24)[
        2 * s[:, 0].astype(int) + a
    ])  # fmt: skip
    assert_allclose(by_pairs, q, atol=1e-6 * span)
    agent.save(tmp_path / "a.npz")
    again = SeminormLSTDAgent.load(tmp_path / "a.npz", features=one_hot)
    assert_allclose(again.action_values(x), q)


def test_vectors_and_counts_of_the_same_trials_cover_the_same_pairs() -> None:
    mdp = make_mdp("h12c")
    policy = mdp.random_policy(3)
    counted = SeminormLSTDAgent(OneHot())
    counted.collect(TabularVectorEnv(mdp, 500), policy, n_trials=500, t_max=60, seed=0, explore=1)
    vectors = of_vectors(policy, 500, explore=1)
    n = vectors.action_coverage(np.arange(12, dtype=np.float32)[:, None])
    assert_allclose(n, counted.action_coverage(np.arange(12)), atol=1e-9)
    assert n.sum() == pytest.approx(500 * 61)
    explored = vectors.kept_trials.explored
    assert explored is not None
    assert_array_equal(500 - explored.sum(axis=0), counted.counts.trials_at)
    assert (500 - counted.counts.trials_at).sum() == 500


def logs(n: int, seed: int = 0, t_max: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Trials of h12c by a behaviour that mostly takes the other action than `TARGET`."""
    env, rng = TabularVectorEnv(make_mdp("h12c"), n), np.random.default_rng(seed + 1000)
    state, _ = env.reset(seed=seed)
    states, rewards, actions = [state], [], []
    for _ in range(t_max + 1):
        action = np.where(rng.random(n) < 0.3, rng.integers(2, size=n), 1 - TARGET[state])
        state, reward, *_ = env.step(action)
        states.append(state)
        rewards.append(reward)
        actions.append(action)
    return np.array(states).T, np.array(rewards).T, np.array(actions).T


TARGET: Any = make_mdp("h12c").random_policy(3)
TWELVE = np.arange(12, dtype=np.float32)[:, None]


def of_logs(kind: str, *parts: Any, **options: Any) -> tuple[SeminormLSTDAgent, Any, Any]:
    """An agent with logged trials, all states, and the policy to evaluate, as the kind has them."""
    if kind == "counts":
        agent = SeminormLSTDAgent(OneHot())
        return (
            agent.add_trials(*parts, observation_space=Discrete(12), **options),
            range(12),
            TARGET,
        )
    states, *rest = parts
    vectors = [np.asarray(trial, dtype=np.float32)[:, None] for trial in states]
    agent = SeminormLSTDAgent(one_hot).add_trials(vectors, *rest, **options)
    return agent, TWELVE, lambda x: TARGET[x[:, 0].astype(int)]


def test_logs_of_another_behaviour_give_the_bias_at_the_monte_carlo_rate() -> None:
    chain, typical = make_mdp("h12c").induce(TARGET), {}
    for n in (250, 2250):
        ratios = []
        for seed in range(3):
            agent, every, policy = of_logs("counts", *logs(n, seed))
            errors = agent.action_standard_errors(every, policy=policy)
            ratios.append((agent.action_values(every, policy=policy) - chain.action_bias) / errors)
        assert 0.4 < np.sqrt(np.mean(np.square(ratios))) < 2.0
        typical[n] = np.median(errors)
    assert 2.0 < typical[250] / typical[2250] < 4.5  # 3 is the root of 9
    assert typical[2250] < 0.05 * np.ptp(chain.bias)


def test_vectors_and_counts_of_cut_logs_have_the_same_action_values() -> None:
    states, rewards, actions = logs(300)
    lengths = np.random.default_rng(0).integers(1, 80, 300).clip(max=41)
    parts = [
        [row[: n + more] for row, n in zip(whole, lengths, strict=True)]
        for whole, more in ((states, 1), (rewards, 0), (actions, 0))
    ]
    counts, vectors = (of_logs(kind, *parts) for kind in ("counts", "vectors"))
    q, qv = (agent.action_values(x, policy=policy) for agent, x, policy in (counts, vectors))
    n, nv = (agent.action_coverage(x) for agent, x, _ in (counts, vectors))
    assert_allclose(qv, np.where(n < 10, np.nan, q), atol=1e-8)  # of so few, features tell nothing
    assert_allclose(nv, n)
    assert n.sum() == lengths.sum()


def test_the_form_of_a_policy_does_not_change_its_action_values() -> None:
    mdp, policy = make_mdp("h12c"), TARGET
    agent = SeminormLSTDAgent(OneHot(), backup="one_step")
    agent.collect(
        TabularVectorEnv(mdp, 500), policy, n_trials=2000, t_max=60, seed=0, explore=3
    ).fit()
    bias = agent.action_values(range(12), policy=policy)
    for same in (np.eye(2)[policy], lambda s: policy[s]):
        assert_array_equal(agent.action_values(range(12), policy=same), bias)
        errors = agent.action_standard_errors(range(12), policy=same)
        assert_array_equal(errors, agent.action_standard_errors(range(12), policy=policy))
    chain = mdp.induce(policy)
    errors = agent.action_standard_errors(range(12), policy=policy)
    assert (np.abs(bias - chain.action_bias) < 5 * errors).all()
    own, errors = agent.action_values(range(12)), agent.action_standard_errors(range(12))
    right = chain.action_bias - chain.bias[agent.main_reference_]
    assert (np.abs(own - right) < 5 * errors).all()
    assert np.median(errors) < 0.03 * np.ptp(chain.bias)


def test_any_behaviour_on_vectors_serves_a_policy() -> None:
    rng = np.random.default_rng(0)

    def epsilon_greedy(x: np.ndarray) -> np.ndarray:
        greedy = 1 - TARGET[x[:, 0].astype(int)]
        return np.where(rng.random(len(x)) < 0.3, rng.integers(2, size=len(x)), greedy)

    def policy(x: np.ndarray) -> np.ndarray:
        return TARGET[x[:, 0].astype(int)]

    agent = SeminormLSTDAgent(one_hot)
    env = as_vectors("h12c", 50)
    agent.collect(
        env, policy, n_trials=1000, t_max=60, seed=0, batched=True, explore=epsilon_greedy
    )
    q, errors = (
        of(TWELVE, policy=policy) for of in (agent.action_values, agent.action_standard_errors)
    )
    chain = make_mdp("h12c").induce(TARGET)
    assert (np.abs(q - chain.action_bias) < 5 * errors).all()
    assert np.median(errors) < 0.1 * np.ptp(chain.bias)


@pytest.mark.parametrize("kind", ["counts", "vectors"])
def test_pairs_that_a_log_lacks_have_no_value(kind: str) -> None:
    states, rewards, actions = logs(300)
    state = 11
    # Of each trial what comes before the first time that the policy's action is taken there.
    taken = (states[:, :-1] == state) & (actions == TARGET[state])
    lengths = np.where(taken.any(axis=1), taken.argmax(axis=1), 41)
    keep = lengths > 0
    lists = [
        [row[: n + more] for row, n in zip(whole[keep], lengths[keep], strict=True)]
        for whole, more in ((states, 1), (rewards, 0), (actions, 0))
    ]
    agent, every, policy = of_logs(kind, *lists, action_space=Discrete(2))
    other = 1 - TARGET
    avoided = other if kind == "counts" else lambda x: other[x[:, 0].astype(int)]
    q = agent.action_values(every, policy=avoided)
    assert np.isnan(q[state]).tolist() == (np.arange(2) == TARGET[state]).tolist()
    errors = agent.action_standard_errors(every, policy=avoided)
    assert np.isinf(errors[state, TARGET[state]])
    if kind == "counts":  # features of vectors may tell of pairs like it
        assert np.isnan(agent.action_values(every, policy=policy)).sum() > 1


def test_action_values_of_a_task_that_ends_are_total_rewards() -> None:
    """A walk 0, 1, 2 that ends on leaving 2; action 1 pays 1 and stays, action 0 goes on."""
    trials = [[0, 0, 1, 2, 2], [0, 1, 1, 2, 2], [0, 1, 2, 2]] * 40
    actions = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0]] * 40
    for kind in ("counts", "vectors"):
        features: Any = OneHot() if kind == "counts" else (lambda x: np.eye(3)[x[:, 0].astype(int)])
        agent = SeminormLSTDAgent(features, 1, gain=0.0, on_termination="absorb")
        x: Any = range(3) if kind == "counts" else np.arange(3.0)[:, None]
        observed = [np.array(t) if kind == "counts" else np.array(t)[:, None] * 1.0 for t in trials]
        agent.add_trials(
            observed, actions, actions, terminated=[True] * 120,
            observation_space=Discrete(3) if kind == "counts" else None,
        )  # fmt: skip
        q = agent.action_values(x, policy=lambda s: np.zeros(len(s), int))
        assert_allclose(q, [[0.0, 1.0], [0.0, 1.0], [0.0, np.nan]], atol=1e-9)


LOGGED = logs(20)
BAD_LOGS: list[tuple[Any, dict[str, Any], str]] = [
    (LOGGED[2] + 1, {"action_space": Discrete(2)}, r"actions are 0 to 1; trial 0 has .*2"),
    (LOGGED[2] - 1, {"action_space": Discrete(2)}, r"actions are 0 to 1; trial 0 has .*-1"),
    (LOGGED[2] + 0.5, {"action_space": Discrete(2)}, r"actions are 0 to 1; trial 0 has"),
    (LOGGED[2][..., None], {"action_space": Discrete(2)}, "actions are 0 to 1; trial 0 has"),
]


@pytest.mark.parametrize(("actions", "options", "message"), BAD_LOGS)
def test_invalid_logged_actions_are_refused(actions: Any, options: Any, message: str) -> None:
    agent = SeminormLSTDAgent(OneHot())
    with pytest.raises(InvalidInputError, match=message):
        agent.add_trials(*LOGGED[:2], actions, observation_space=Discrete(12), **options)
    assert agent.n_trials == 0
    agent.add_trials(*LOGGED, observation_space=Discrete(12))
    with pytest.raises(InvalidInputError, match="actions are 0 to 1; trial 0 has"):
        agent.add_trials(*LOGGED[:2], LOGGED[2] + 1)
    with pytest.raises(InvalidInputError, match=r"so far are 0 to 1; the log has Discrete\(3"):
        agent.add_trials(*LOGGED, action_space=Discrete(3))


def test_logs_without_numbered_actions_have_no_action_values() -> None:
    for actions in (None, LOGGED[2] - 1, LOGGED[2] + 0.5):
        agent = SeminormLSTDAgent(OneHot())
        agent.add_trials(*LOGGED[:2], actions, observation_space=Discrete(12))
        with pytest.raises(NotFittedError, match="numbered from 0 or by an action_space"):
            agent.action_values(0, policy=TARGET)


def test_an_invalid_policy_to_evaluate_is_refused() -> None:
    rng = np.random.default_rng(0)
    cases: list[tuple[str, Any, str]] = [
        ("counts", [2] * 12, "the policy takes action 2"),
        ("counts", [0] * 5, "a policy is 12 integer actions"),
        ("counts", lambda s: s * 0 + 2, "the policy takes action 2; actions are 0 to 1"),
        ("counts", lambda s: rng.integers(2, size=len(s)), "give its probabilities"),
        ("vectors", lambda x: np.full(len(x), 2), "the policy takes action 2; actions are 0 to 1"),
        ("vectors", TARGET, "is a function, not an array"),
    ]
    for kind, policy, message in cases:
        agent, x, _ = of_logs(kind, *LOGGED)
        with pytest.raises(InvalidInputError, match=message):
            agent.action_values(x, policy=policy)
    agent, x, policy = of_logs("counts", *LOGGED)
    with pytest.raises(InvalidInputError, match="leave t= or policy= out"):
        agent.action_values(x, 0, policy=policy)
    one = SeminormLSTDAgent(OneHot(), n_batches=1)
    one.add_trials(*LOGGED, observation_space=Discrete(12))
    with pytest.raises(NotFittedError, match="and there is one"):
        one.action_standard_errors(0, policy=TARGET)
    agent, x, policy = of_logs("vectors", *LOGGED)
    with pytest.raises(NotFittedError, match="must represent a constant"):
        agent.action_values(x, policy=policy, pair_features=lambda s, a: s + 1.0)
    single: list[Any] = [
        lambda s, a: [1.0, s[0] * a],
        lambda s, a: s @ s,
        lambda s, a: s - s.mean(),
    ]
    for wrong in single:
        with pytest.raises(InvalidInputError, match=r"pair_features take batches"):
            agent.action_values(x, policy=policy, pair_features=wrong)
    space = Dict({"x": Box(0.0, 12.0, (1,), np.float32)})
    mixed = SeminormLSTDAgent(one_hot)
    mixed.add_trials(
        [{"x": trial[:, None].astype(np.float32)} for trial in LOGGED[0]], *LOGGED[1:],
        observation_space=space,
    )  # fmt: skip
    with pytest.raises(InvalidInputError, match="need Box observations"):
        mixed.action_values({"x": np.zeros((2, 1), np.float32)}, policy=policy)


BAD_EXPLORE = [
    (-1, "half a trial has 10"),
    (11, "explore=11 actions need as many timesteps"),
    (1.5, "explore is a number of actions"),
    (float("nan"), "explore is a number of actions"),
    (True, "explore is a number of actions"),
    ("some", "explore is a number of actions"),
]


@pytest.mark.parametrize(("explore", "message"), BAD_EXPLORE)
def test_an_invalid_exploration_is_refused(explore: object, message: str) -> None:
    agent = SeminormLSTDAgent(OneHot())
    with pytest.raises(InvalidInputError, match=message):
        agent.collect(
            TabularEnv(make_mdp("h6")), [0] * 6, n_trials=5, t_max=20, explore=explore  # type: ignore[arg-type]
        )  # fmt: skip
    assert agent.n_trials == 0


def test_actions_outside_the_space_are_refused() -> None:
    agent = SeminormLSTDAgent(OneHot())
    with pytest.raises(InvalidInputError, match="takes action 7; actions are 0 to 1"):
        agent.collect(
            TabularVectorEnv(make_mdp("h6"), 4),
            [0] * 6,
            n_trials=5,
            t_max=20,
            explore=lambda s: s * 0 + 7,
        )


def test_continuous_actions_have_no_action_values() -> None:
    agent = SeminormLSTDAgent(RadialBasis.grid([-1, -1, -8], [1, 1, 8], 2))
    env = gym.make("Pendulum-v1")
    with pytest.raises(InvalidInputError, match="action values need Discrete actions"):
        agent.collect(
            env, lambda x: np.zeros(1, np.float32), n_trials=2, t_max=10, batched=False, explore=1
        )


def test_without_recorded_actions_the_remedy_is_named() -> None:
    mdp = make_mdp("h6")
    agent = SeminormLSTDAgent(OneHot())
    agent.collect(TabularVectorEnv(mdp, 50), np.full((6, 2), 0.5), n_trials=100, t_max=20, seed=0)
    with pytest.raises(NotFittedError, match=r"collect\(..., explore=k\) records them"):
        agent.action_values(0)
    with pytest.raises(InvalidInputError, match="t is one timestep, or one for each"):
        agent.action_values([0, 1], t=[1, 2, 3])


def test_an_invalid_timestep_is_refused_as_by_predict() -> None:
    agent, _, _ = explored(n_trials=500)
    agent.fit()
    message = r"a timestep is an integer from 0|t is one timestep|t must be an array"
    bad: list[Any] = [-1, [0, -2], 0.5, True, "x", [[0], [0, 1]]]
    for t in bad:
        with pytest.raises(InvalidInputError, match=message):
            agent.action_values([0, 1], t)


def test_standard_errors_need_the_fit_of_all_trials() -> None:
    agent, mdp, policy = explored(n_trials=1000)
    agent.fit().collect(
        TabularVectorEnv(mdp, 100), policy, n_trials=100, t_max=60, seed=9, explore=1
    )
    with pytest.raises(NotFittedError, match="call fit again"):
        agent.action_standard_errors(0)
    assert np.isfinite(agent.fit().action_standard_errors(0)).all()


def test_two_equal_samples_do_not_make_an_action_value_certain() -> None:
    # From state 0 each action leads to either state of a symmetric core, of biases -12.5 and 12.5.
    # Action 1 was taken twice, and led to state 1 both times. No batch can show the other outcome.
    rng, n, t_max = np.random.default_rng(0), 400, 200
    moves = np.cumsum(rng.random((n, t_max)) < 0.02, axis=1) + rng.integers(2, size=(n, 1))
    states, actions = np.zeros((n, t_max + 1), dtype=int), np.zeros((n, t_max), dtype=int)
    states[:, 1:], actions[:2, 0] = 1 + moves % 2, 1
    states[:2, 1:] = 1 + (moves[:2] - moves[:2, :1]) % 2
    agent = SeminormLSTDAgent(OneHot())
    agent.add_trials(states, states[:, :-1] == 2, actions, observation_space=Discrete(3))
    wrong = agent.action_values(0, policy=[0, 0, 0]) - [-0.5, -0.5]
    errors = agent.action_standard_errors(0, policy=[0, 0, 0])
    assert wrong[1] < -10.0
    assert (np.abs(wrong) < 3.0 * errors).all()
    assert errors[0] < 0.5 * errors[1]  # 398 samples, which show both outcomes


def test_an_advantage_in_one_state_has_the_error_of_two_means() -> None:
    rng = np.random.default_rng(0)
    action = rng.integers(2, size=900)
    reward = rng.normal(action, 1.0 + action)
    counts = ActionCounts.of(1, 2, action * 0, action, action * 0, reward)
    found = ActionValues(PolicyChain(counts, np.array([[1.0, 0.0]])), 0)
    means, variances = (
        [float(of(reward[action == a])) for a in (0, 1)] for of in (np.mean, np.var)
    )
    assert found.action_values[0, 1] == pytest.approx(means[1] - means[0])
    error = np.sqrt(variances[0] / (action == 0).sum() + variances[1] / (action == 1).sum())
    assert found.advantage_errors(np.array([0])).tolist() == [[0.0, pytest.approx(error, rel=0.01)]]


def test_many_states_have_nearly_the_errors_of_few(monkeypatch: Any) -> None:
    states, rewards, actions = logs(100)
    moves: Any = [part.astype(np.int64) for part in (states[:, :-1], actions, states[:, 1:])]
    of: Any = ActionCounts.of
    chain = PolicyChain(of(12, 2, *moves, rewards), np.eye(2)[TARGET])
    exact = ActionValues(chain, chain.main_state()).advantage_errors(TARGET)
    monkeypatch.setattr("lstd_agent.actions.chain_values._MOST_STATES", 2)
    drawn = ActionValues(chain, chain.main_state()).advantage_errors(TARGET)
    assert_allclose(drawn, exact, rtol=0.15)


def test_advantages_by_counts_have_the_errors_of_lstdq_in_one_hot_features() -> None:
    states, rewards, actions = logs(400)
    moves: Any = states[:, :-1], actions, states[:, 1:]
    parts: Any = [part.astype(np.int64) for part in moves]
    of: Any = ActionCounts.of
    counts = of(12, 2, *parts, rewards)
    chain = PolicyChain(counts, as_probabilities(TARGET, 2))
    found = ActionValues(chain, chain.main_state())
    q, every = found.action_values, np.arange(12)
    pairs = np.eye(24).reshape(12, 2, 24)
    trials = KeptTrials(states[..., None].astype(np.float64), rewards, actions=actions)
    policy = TARGET[states[:, 1:]]
    rows = list(pair_rows(trials, lambda s: pairs[s[:, 0].astype(int)], policy))
    fit = PairEquations(factor_of_pairs(rows)).fit(rows, found.gain)
    difference = pairs - pairs[every, TARGET][:, None]
    assert_allclose(difference @ fit.weights, q - q[every, TARGET][:, None], atol=1e-8)
    # The gain of the counts has an error too, and each pair has one more sample of mean variance.
    by_counts = found.advantage_errors(TARGET)[every, 1 - TARGET]
    by_rows = fit.standard_errors(difference)[every, 1 - TARGET]
    assert (by_counts > 0.99 * by_rows).all()
    assert_allclose(by_counts, by_rows, rtol=0.05, atol=0.01 * by_rows.max())
