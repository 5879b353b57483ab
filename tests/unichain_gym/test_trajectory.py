"""Single paths, and the asymptotic variance of the rewards seen along them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats

from unichain_gym import MarkovChain, TabularMDP, make_mdp
from unichain_gym.errors import (
    ConvergenceError,
    InvalidArgumentError,
    InvalidModelError,
    MulticlassError,
)
from unichain_gym.trajectory import Runs


def coin(low: float, high: float) -> MarkovChain:
    """One state, whose reward is either of two with probability ½."""
    transitions = [(0, 0, 0, 0.5, low), (0, 0, 0, 0.5, high)]
    return TabularMDP.from_transitions(transitions, [1.0]).induce([0])


def variances_of_sums(chain: MarkovChain, n_steps: int) -> np.ndarray:
    """Var(Σ_{t<n} R_t) for n = 0 … n_steps from the stationary distribution, by recursion."""
    assert chain.mdp is not None
    assert chain.policy is not None
    weight = chain.policy[:, :, None] * chain.mdp.probability
    reward = chain.mdp.reward - chain.gain
    P = np.zeros((chain.n_states, chain.n_states))
    mixed = np.zeros_like(P)  # Σ p R over the outcomes that lead from s to s'
    state = np.broadcast_to(np.arange(chain.n_states)[:, None, None], weight.shape)
    np.add.at(P, (state, chain.mdp.next_state), weight)
    np.add.at(mixed, (state, chain.mdp.next_state), weight * reward)
    first, second = np.zeros(chain.n_states), np.zeros(chain.n_states)
    sums = [0.0]
    for _ in range(n_steps):
        second = (weight * reward**2).sum(axis=(1, 2)) + 2.0 * mixed @ first + P @ second
        first = mixed.sum(axis=1) + P @ first
        p = chain.stationary_distribution
        sums.append(float(p @ second - (p @ first) ** 2))
    return np.array(sums)


@pytest.mark.parametrize("mnemonic", ["h3", "h36c", "c11b", "x10"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_variance_of_observed_rewards_agrees_with_long_sums(
    mnemonic: str, deterministic: bool
) -> None:
    mdp = make_mdp(mnemonic)
    chain = mdp.induce(mdp.random_policy(5, deterministic=deterministic))
    sums = variances_of_sums(chain, 4_000)
    expected = (sums[-1] - sums[2_000]) / 2_000
    assert chain.asymptotic_variance() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_noise_counts_only_with_the_observed_reward() -> None:
    chain = coin(-1.0, 3.0)
    assert chain.variance == 0.0
    assert chain.asymptotic_variance("state_reward") == 0.0
    assert chain.asymptotic_variance() == pytest.approx(4.0, rel=1e-15)


def test_a_reward_that_goes_with_the_next_state_may_cancel_or_double() -> None:
    # From either state to either with ½. The reward of a step is ±1 by where it leads, so two
    # in a row agree or not by chance; with r(s) = ∓1 as well, each ±1 is taken back or doubled.
    P = np.full((2, 1, 2), 0.5)
    ahead = np.array([[[1.0, -1.0]], [[1.0, -1.0]]])
    back = np.array([-1.0, 1.0])[:, None, None]
    for R, expected in ((ahead, 1.0), (ahead + back, 0.0), (ahead - back, 4.0)):
        chain = TabularMDP.from_arrays(P, R, [0.5, 0.5]).induce([0, 0])
        assert chain.asymptotic_variance() == pytest.approx(expected, abs=1e-14)


def test_a_periodic_chain_without_chance_has_no_variance() -> None:
    P = np.roll(np.eye(5), 1, axis=1)
    chain = MarkovChain(P, np.arange(5), np.eye(5)[0])
    assert chain.asymptotic_variance() == pytest.approx(0.0, abs=1e-25)


def test_without_an_mdp_the_observed_reward_is_the_states_reward(chain: MarkovChain) -> None:
    if chain.is_unichain:
        assert chain.asymptotic_variance() == chain.variance
    else:
        with pytest.raises(MulticlassError, match="not one variance"):
            chain.asymptotic_variance()


def test_variance_of_rare_switches_is_right_or_refused() -> None:
    # Two states that exchange with e pay 1 and 0: p (1 - p) (2/e - 2)/2 … = (1 - e)/(4 e).
    for e in (1e-3, 1e-9, 1e-200):
        chain = MarkovChain([[1 - e, e], [e, 1 - e]], [1, 0], [1, 0], drop_below=0)
        assert chain.variance == pytest.approx((1.0 - e) / (4.0 * e), rel=1e-7)
    hidden = MarkovChain([[1.0, 1e-160], [0.0, 1.0]], [1, 0], [1, 0], drop_below=0)
    assert hidden.variance == 0.0
    with pytest.raises(ConvergenceError, match="exceed the range of doubles"):
        coin(-1e200, 1e200).asymptotic_variance()


def test_error_bars_of_a_simulated_mean_cover_the_gain() -> None:
    mdp = make_mdp("h3")
    chain = mdp.induce(mdp.random_policy(2, deterministic=False))
    n_batches, n_steps = 400, 1_000
    rewards = chain.simulate(n_batches * n_steps, seed=7).rewards.reshape(n_batches, n_steps)
    error = np.sqrt(chain.asymptotic_variance() / n_steps)
    # Means of batches scatter by the error bar, to within 5 of its own standard errors.
    assert rewards.mean(axis=1).std() == pytest.approx(error, rel=5.0 / np.sqrt(2 * n_batches))
    assert rewards.mean() == pytest.approx(chain.gain, abs=5.0 * error / np.sqrt(n_batches))
    # The states' expected rewards alone would give another error bar: the noise goes against them.
    assert chain.variance > 1.2 * chain.asymptotic_variance()


def test_the_argument_of_has_two_choices() -> None:
    with pytest.raises(InvalidArgumentError, match="'reward' or 'state_reward'; got 'rewards'"):
        coin(0, 1).asymptotic_variance("rewards")  # type: ignore[arg-type]


def test_a_path_takes_only_steps_that_are_possible(chain: MarkovChain) -> None:
    path = chain.simulate(500, seed=1)
    assert path.states.shape == (501,)
    assert path.actions is None
    P = chain.transition_matrix.toarray()
    assert chain.initial_distribution[path.states[0]] > 0.0
    assert (P[path.states[:-1], path.states[1:]] > 0.0).all()
    np.testing.assert_array_equal(path.rewards, chain.reward[path.states[:-1]])


def test_a_path_of_an_mdp_shows_actions_and_the_rewards_of_its_outcomes() -> None:
    transitions = [
        (0, 0, 0, 0.5, 1.0),
        (0, 0, 1, 0.5, 2.0),
        (0, 2, 1, 1.0, 3.0),
        (1, 1, 0, 0.25, 4.0),
        (1, 1, 0, 0.75, 5.0),
    ]
    mdp = TabularMDP.from_transitions(transitions, [0.0, 1.0])
    policy = [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]
    chain = mdp.induce(policy)
    n = 40_000
    path = chain.simulate(n, seed=3)
    assert path.states[0] == 1
    assert path.actions is not None
    seen: dict[Any, int] = {}
    columns = path.states[:-1], path.actions, path.states[1:], path.rewards
    for step in zip(*(c.tolist() for c in columns), strict=True):
        seen[step] = seen.get(step, 0) + 1
    expected = {(s, a, s2, r): p for s, a, s2, p, r in transitions}
    assert seen.keys() == expected.keys()
    for (s, a, s2, r), count in seen.items():
        p = policy[s][a] * expected[s, a, s2, r]
        visits = int(np.count_nonzero(path.states[:-1] == s))
        assert abs(count - visits * p) <= 5.0 * np.sqrt(visits * p * (1.0 - p))


def test_a_seed_decides_a_path_and_a_generator_continues_it() -> None:
    mdp = make_mdp("h36c")
    chain = mdp.induce(mdp.random_policy(0, deterministic=False))
    one, same = chain.simulate(100, 5), chain.simulate(100, np.random.default_rng(5))
    np.testing.assert_array_equal(one.states, same.states)
    np.testing.assert_array_equal(one.rewards, same.rewards)
    rng = np.random.default_rng(5)
    first, second = chain.simulate(100, rng), chain.simulate(100, rng)
    assert (first.states != second.states).any()
    assert repr(one) == "Trajectory(n_steps=100)"


def test_a_path_starts_where_it_is_told_to() -> None:
    transitions = [(0, 0, 1, 1.0, 0.0), (1, 0, 2, 1.0, 0.0), (2, 0, 2, 1.0, 0.0)]
    mdp = TabularMDP.from_transitions(transitions, [1.0, 0.0, 0.0], state_names=["a", "b", "c"])
    chain = mdp.induce([0, 0, 0])
    assert chain.simulate(3, 0).states.tolist() == [0, 1, 2, 2]
    for start in (1, "b"):
        assert chain.simulate(3, 0, start).states.tolist() == [1, 2, 2, 2]
    with pytest.raises(InvalidModelError, match="state 3 does not exist"):
        chain.simulate(3, 0, start=3)


def test_the_shortest_path_is_one_state() -> None:
    path = coin(0, 1).simulate(0, 0)
    assert path.states.tolist() == [0]
    assert path.rewards.size == 0
    assert path.actions is not None
    assert path.actions.size == 0


def test_a_long_path_of_a_cycle_never_uses_a_piece() -> None:
    n, n_steps = 50_000, 20_000
    s = np.arange(n)
    P = sparse.csr_array((np.ones(n), (s, (s + 1) % n)), shape=(n, n))
    path = MarkovChain(P, s, s == 7).simulate(n_steps, 0)
    np.testing.assert_array_equal(path.states, 7 + np.arange(n_steps + 1))


def test_pieces_do_not_change_the_law_of_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unichain_gym.trajectory.SHORT", 10)
    monkeypatch.setattr("unichain_gym.trajectory.FIRST_RUNS", 6)
    mdp = make_mdp("h6")
    chain = mdp.induce(mdp.random_policy(3, deterministic=False))
    P, n_paths = chain.transition_matrix.toarray(), 5_000
    ends = np.array([chain.simulate(60, seed).states[[25, 59, 60]] for seed in range(n_paths)])
    seen = np.bincount(np.ravel_multi_index(tuple(ends.T), (6, 6, 6)), minlength=216)
    early = chain.initial_distribution @ np.linalg.matrix_power(P, 25)
    joint = early[:, None, None] * np.linalg.matrix_power(P, 34)[:, :, None] * P
    expected = n_paths * joint.ravel()
    assert (seen[expected == 0.0] == 0).all()
    is_often = expected > 3.0
    squares = (seen - expected)[is_often] ** 2 / expected[is_often]
    assert squares.sum() < stats.chi2.isf(1e-4, np.count_nonzero(is_often) - 1)


@pytest.mark.parametrize("n_successors", [3, 200])
def test_a_long_path_in_pieces_has_the_frequencies_of_the_chain(n_successors: int) -> None:
    rng, n, n_steps = np.random.default_rng(1), 200, 300_000
    P = np.zeros((n, n))
    for s in range(n):
        P[s, rng.choice(n, n_successors, replace=False)] = rng.dirichlet(np.ones(n_successors))
    chain = MarkovChain(P, rng.random(n), np.eye(n)[0])
    path = chain.simulate(n_steps, seed=2)
    assert (P[path.states[:-1], path.states[1:]] > 0.0).all()
    error = np.sqrt(chain.variance / n_steps)
    assert path.rewards.mean() == pytest.approx(chain.gain, abs=4.0 * error)
    visits = np.bincount(path.states[:-1], minlength=n)
    steps = np.bincount(path.states[:-1] * n + path.states[1:], minlength=n * n).reshape(n, n)
    spread = np.sqrt(np.maximum(visits[:, None] * P * (1.0 - P), 1.0))
    assert (np.abs(steps - visits[:, None] * P) / spread).max() < 6.5


ROWS = {
    "one state": [[1.0]],
    "a cycle": np.roll(np.eye(5), 1, axis=1),
    "absorbing": [[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    "a rare outcome": [[0.5, 0.5, 1e-300], [0.3, 0.7, 0.0], [1.0, 0.0, 0.0]],
    "a sum below 1": [[0.1] * 10] * 9 + [[1.0 - 1e-16] + [0.0] * 9],
    "tenths": [[0.1, 0.2, 0.7], [0.7, 0.2, 0.1], [0.3, 0.3, 0.4]],
    "many outcomes": np.random.default_rng(0).dirichlet(np.full(100, 0.3), 100),
}


@pytest.mark.parametrize("P", ROWS.values(), ids=ROWS)
def test_cells_have_the_probabilities_of_their_runs(P: Any) -> None:
    chain = MarkovChain(P, np.zeros(len(P)), np.eye(len(P))[0], drop_below=0)
    table = chain._outcomes
    runs = Runs(table)
    cut = np.clip(runs.cut, 0.0, 1.0)
    drawn = np.bincount(runs.run, np.concatenate((cut, 1.0 - cut)) / runs.width, len(runs.steps))
    expected = table.p[runs.steps].prod(axis=1)
    np.testing.assert_allclose(drawn, expected, rtol=0.0, atol=2e-15)
    # Each run is a path, and each of its cells leads to the state after it.
    np.testing.assert_array_equal(table.after[runs.steps[:, :-1]], table.state[runs.steps[:, 1:]])
    first, last = runs.steps[runs.run, 0], runs.steps[runs.run, -1]
    n_cells = np.arange(runs.run.size) % runs.cut.size
    np.testing.assert_array_equal(table.state[first], n_cells // runs.width)
    np.testing.assert_array_equal(runs.following, runs.width * table.after[last])


@pytest.mark.parametrize("P", ROWS.values(), ids=ROWS)
def test_a_long_path_takes_only_steps_that_are_possible(P: Any) -> None:
    P = np.asarray(P)
    chain = MarkovChain(P, np.arange(len(P)), np.eye(len(P))[0], drop_below=0)
    path = chain.simulate(30_001, seed=4)
    assert path.states.shape == (30_002,)
    assert (P[path.states[:-1], path.states[1:]] > 1e-200).all()
    np.testing.assert_array_equal(path.rewards, path.states[:-1])


@pytest.mark.parametrize("n_steps", [1_000, 3_000, 100_000])
@pytest.mark.parametrize("n_states", [4, 3_000])
def test_a_path_depends_on_its_seed_alone(n_states: int, n_steps: int) -> None:
    rng = np.random.default_rng(0)
    to, p = rng.integers(n_states, size=(n_states, 1, 3)), rng.dirichlet(np.ones(3), (n_states, 1))
    mdp = TabularMDP(to, p, rng.random(to.shape), np.full(n_states, 1 / n_states))
    policy = np.zeros(n_states, dtype=int)
    expected = mdp.induce(policy).simulate(n_steps, seed=2)
    used = mdp.induce(policy)
    used.simulate(50_000, seed=1)
    for _ in range(2):
        path = used.simulate(n_steps, seed=2)
        np.testing.assert_array_equal(path.states, expected.states)
        np.testing.assert_array_equal(path.rewards, expected.rewards)


def test_numbers_of_steps_and_seeds_that_do_not_fit_are_refused() -> None:
    chain = coin(0, 1)
    with pytest.raises(InvalidArgumentError, match="n_steps must not be negative; got -3"):
        chain.simulate(-3, 0)
    with pytest.raises(InvalidArgumentError, match=r"n_steps must be an integer; got 2\.0"):
        chain.simulate(2.0, 0)  # type: ignore[arg-type]
    for seed in (-1, "0", 0.5):
        with pytest.raises(InvalidArgumentError, match="seed must be a generator"):
            chain.simulate(1, seed)  # type: ignore[arg-type]
