"""The population has the joint law of separate trials: moments, invariants, bad input.

Statistical tests use a fixed seed. Their limit of 6 standard errors is passed by chance with
probability 2e-9 per comparison, at most 1e-5 for all comparisons of a test together.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from unichain_gym import MarkovChain, TabularMDP, make_mdp
from unichain_gym.errors import InvalidArgumentError
from unichain_gym.population import TransitionCounts, simulate_counts

LIMIT = 6.0


def random_mdp(seed, n_states=3, n_actions=2):
    """An MDP whose rewards differ by action and outcome, and that never visits some pairs."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(n_states), size=(n_states, n_actions))
    P[0, :, 0] = 0.0
    P /= P.sum(axis=2, keepdims=True)
    R = rng.normal(size=(n_states, n_actions, n_states)).round(2)
    return TabularMDP.from_arrays(P, R, rng.dirichlet(np.ones(n_states)))


def simulate_several(chain, n_trials, t_max, rng, n):
    return [simulate_counts(chain, n_trials, t_max, rng) for _ in range(n)]


def stack(populations: list[TransitionCounts]):
    """Counts (R, T, S · S) and reward sums (R, T, S) of R populations, dense."""
    counts = np.array([p.transition_counts.toarray() for p in populations])
    rewards = np.array([p.reward_sums.toarray() for p in populations])
    return counts, rewards


def check_invariants(population: TransitionCounts, n_trials: int):
    S = population.n_states
    counts = population.transition_counts.toarray().reshape(-1, S, S)
    assert population.n_trials == n_trials
    assert population.transition_counts.dtype == np.int64
    assert population.transition_counts.indices.dtype == np.int64
    assert (population.transition_counts.data > 0).all()
    assert population.transition_counts.has_canonical_format
    assert population.reward_sums.has_canonical_format
    assert (counts.sum(axis=(1, 2)) == n_trials).all()
    assert (counts.sum(axis=1)[:-1] == counts.sum(axis=2)[1:]).all()


def simulate_trials(mdp, policy, n_trials, t_max, rng):
    """The same statistics from trials stepped one transition at a time."""
    S, T = mdp.n_states, t_max + 1
    counts, rewards = np.zeros((T, S * S)), np.zeros((T, S))
    state = rng.choice(S, size=n_trials, p=mdp.initial_distribution)
    for t in range(T):
        u, v = rng.random((2, n_trials))
        action = (u[:, None] >= policy[state].cumsum(axis=1)[:, :-1]).sum(axis=1)
        k = (v[:, None] >= mdp.outcome_thresholds[state, action]).sum(axis=1)
        after = mdp.next_state[state, action, k]
        np.add.at(counts[t], state * S + after, 1)
        np.add.at(rewards[t], state, mdp.reward[state, action, k])
        state = after
    return counts, rewards


@pytest.mark.first(2)
@pytest.mark.parametrize("n_trials", [2, 10**6, 1, 50])
def test_first_and_second_moments_of_counts_agree_with_independent_trials(n_trials):
    """Covariances between all pairs of transitions, at equal and at different timesteps."""
    mdp, policy = random_mdp(1), np.array([[0.3, 0.7], [1.0, 0.0], [0.5, 0.5]])
    chain = mdp.induce(policy)
    P, S, T, R = chain.transition_matrix.toarray(), 3, 4, 1000
    populations = simulate_several(chain, n_trials, T - 1, np.random.default_rng(2), R)
    counts = stack(populations)[0].reshape(R, T * S * S)

    q = chain.stepwise_distributions(T - 1)[:, :, None] * P  # (T, S, S): one trial's law
    law = np.zeros((T, S * S, T, S * S))
    for t in range(T):
        law[t, :, t] = np.diag(q[t].ravel())
        for u in range(t + 1, T):
            between = np.linalg.matrix_power(P, u - t - 1)
            both = np.einsum("ij,jk,kl->ijkl", q[t], between, P).reshape(S * S, S * S)
            law[t, :, u], law[u, :, t] = both, both.T
    joint = law.reshape(T * S * S, -1)
    q = q.ravel()
    mean, variance = n_trials * q, q * (1 - q)
    covariance = joint - np.outer(q, q)

    centered = counts - mean
    assert (counts[:, q == 0.0] == 0).all()
    possible = q > 0.0
    z = centered.mean(axis=0)[possible] / np.sqrt(n_trials * variance[possible] / R)
    assert np.abs(z).max() < LIMIT

    # Mean of the squared product of two centered indicators, from their joint law.
    x, y = q[:, None], q[None, :]
    m22 = (
        joint * ((1 - x) * (1 - y)) ** 2
        + (x - joint) * ((1 - x) * y) ** 2
        + (y - joint) * (x * (1 - y)) ** 2
        + (1 - x - y + joint) * (x * y) ** 2
    )
    product_variance = n_trials * m22 + n_trials * (n_trials - 1) * (
        np.outer(variance, variance) + 2 * covariance**2
    )
    product_variance -= (n_trials * covariance) ** 2
    error = centered.T @ centered / R - n_trials * covariance
    both = np.outer(possible, possible)
    assert np.abs(error[both] / np.sqrt(product_variance[both] / R)).max() < LIMIT


def test_reward_sums_have_the_mean_and_variance_of_action_and_outcome_rewards():
    mdp, policy = random_mdp(3), np.array([[0.2, 0.8], [0.6, 0.4], [0.0, 1.0]])
    n, T, R = 40, 5, 1000
    chain = mdp.induce(policy)
    populations = simulate_several(chain, n, T - 1, np.random.default_rng(4), R)
    rewards = stack(populations)[1]
    p = chain.stepwise_distributions(T - 1)
    first = p * chain.reward
    second = p * np.einsum("sa,sak,sak->s", policy, mdp.probability, mdp.reward**2)
    variance = n * (second - first**2)
    z = (rewards.mean(axis=0) - n * first) / np.sqrt(variance / R)
    assert np.abs(z).max() < LIMIT
    squares = (rewards - n * first) ** 2
    z = (squares.mean(axis=0) - variance) / (squares.std(axis=0) / np.sqrt(R))
    assert np.abs(z).max() < LIMIT


def test_population_agrees_with_trials_stepped_one_by_one():
    mdp, policy = random_mdp(5), np.array([[0.4, 0.6], [0.9, 0.1], [0.5, 0.5]])
    n, t_max, R = 20, 3, 1500
    rng = np.random.default_rng(6)
    ours = stack(simulate_several(mdp.induce(policy), n, t_max, rng, R))
    theirs = [simulate_trials(mdp, policy, n, t_max, rng) for _ in range(R)]
    theirs = [np.array(statistic) for statistic in zip(*theirs, strict=True)]
    for a, b in zip(ours, theirs, strict=True):
        a, b = a.reshape(R, -1), b.reshape(R, -1)
        seen = b.any(axis=0)
        assert not a[:, ~seen].any()
        a, b = a[:, seen], b[:, seen]
        # First and second moments, mixed ones (hence between timesteps) included.
        center = b.mean(axis=0)
        products = [np.einsum("ri,rj->rij", x - center, x - center) for x in (a, b)]
        for x, y in ((a, b), products):
            error = np.sqrt((x.var(axis=0) + y.var(axis=0)) / R)
            assert np.abs((x.mean(axis=0) - y.mean(axis=0)) / error).max() < LIMIT


def test_reward_sums_add_up_the_rewards_of_single_outcomes():
    """One state whose four outcomes pay 0, 1, 10^3 and 10^6: the digits are the counts."""
    probability, reward = [[[0.25, 0.75], [0.5, 0.5]]], [[[0.0, 1.0], [1e3, 1e6]]]
    mdp = TabularMDP(np.zeros((1, 2, 2), int), np.array(probability), np.array(reward), np.ones(1))
    chain = mdp.induce([[0.5, 0.5]])
    n, R = 999, 500
    populations = simulate_several(chain, n, 9, np.random.default_rng(7), R)
    total = stack(populations)[1].ravel()
    digits = np.array([total % 1e3, total // 1e3 % 1e3, total // 1e6])
    assert (digits == digits.round()).all()
    assert (digits.sum(axis=0) <= n).all()
    q = np.array([0.375, 0.25, 0.25])
    z = (digits.mean(axis=1) - n * q) / np.sqrt(n * q * (1 - q) / total.size)
    assert np.abs(z).max() < LIMIT


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_states=st.integers(1, 6),
    n_trials=st.one_of(st.integers(1, 20), st.integers(1, 2**53)),
    t_max=st.integers(0, 12),
)
def test_counts_add_up_to_the_trials_and_arrivals_depart(seed, n_states, n_trials, t_max):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(n_states, 0.3), size=(n_states, 2))
    r, start = rng.normal(size=(n_states, 2)), np.eye(n_states)[0]
    mdp = TabularMDP.from_arrays(P, r, start, drop_below=0)  # some probabilities are tiny
    chain = mdp.induce(rng.dirichlet(np.ones(2), size=n_states))
    for population in simulate_several(chain, n_trials, t_max, rng, 2):
        assert population.transition_counts.shape == (t_max + 1, n_states**2)
        assert population.reward_sums.shape == (t_max + 1, n_states)
        check_invariants(population, n_trials)


def test_a_billion_trials_follow_the_stepwise_distributions():
    mdp = make_mdp("h36c")
    chain = mdp.induce(np.arange(mdp.n_states) % 2)
    n = 10**9
    population = simulate_counts(chain, n, 200, np.random.default_rng(8))
    check_invariants(population, n)
    frequency = population.transition_counts.toarray().reshape(201, 36, 36).sum(axis=2) / n
    p = chain.stepwise_distributions(200)
    error = np.sqrt(np.maximum(p * (1 - p) / n, 1e-18))  # at least one trial's frequency
    assert np.abs((frequency - p) / error).max() < LIMIT


def test_every_trial_of_a_deterministic_cycle_goes_the_same_way():
    cycle = sparse.csr_array(np.roll(np.eye(3), 1, axis=1))
    chain = MarkovChain(cycle, [1.0, 2.0, 4.0], [1.0, 0.0, 0.0])
    population = simulate_counts(chain, 7, 4, np.random.default_rng(0))
    expected = np.zeros((5, 9))
    expected[range(5), [1, 5, 6, 1, 5]] = 7
    assert (population.transition_counts.toarray() == expected).all()
    paid = [[7, 0, 0], [0, 14, 0], [0, 0, 28], [7, 0, 0], [0, 14, 0]]
    assert (population.reward_sums.toarray() == paid).all()


def test_one_trial_walks_along_possible_transitions():
    mdp = make_mdp("c10")
    chain = mdp.induce(np.full((10, 2), 0.5))
    population = simulate_counts(chain, 1, 300, np.random.default_rng(9))
    check_invariants(population, 1)
    assert (population.transition_counts.data == 1).all()
    s, after = np.divmod(population.transition_counts.indices, 10)
    assert (chain.transition_matrix.toarray()[s, after] > 0.0).all()


def test_an_absorbing_state_keeps_all_trials():
    chain = make_mdp("x1").induce([0])
    population = simulate_counts(chain, 5, 3, np.random.default_rng(0))
    assert population.transition_counts.toarray().tolist() == [[5]] * 4
    assert population.reward_sums.toarray().tolist() == [[0.0]] * 4


def test_rounding_never_sends_a_trial_to_an_outcome_of_probability_zero():
    """Taking 0.1 from 1 nine times leaves 0.1 + 2.8e-17, which 2^53 trials would notice.

    States 0 to 10 lead to each other but not to themselves. State 11, never visited, has more
    outcomes, so that their rows of outcomes are padded.
    """
    P = np.full((12, 1, 12), 0.1)
    P[:, :, 11] = 0.0
    P[range(11), 0, range(11)] = 0.0
    P[11, 0, :11] = 1 / 11
    mdp = TabularMDP.from_arrays(P, np.zeros((12, 1)), [0.1] * 10 + [0.0, 0.0])
    chain = mdp.induce(np.zeros(12, dtype=int))
    for seed in range(20):
        population = simulate_counts(chain, 2**53, 50, np.random.default_rng(seed))
        check_invariants(population, 2**53)
        state, after = np.divmod(population.transition_counts.indices, 12)
        assert (state != after).all()
        assert (state != 11).all()
        assert (after != 11).all()
        assert 10 not in population.transition_counts[[0]].indices // 12


@settings(max_examples=40)
@given(
    mnemonic=st.sampled_from(["h6", "c10", "x1", "x10", "r16", "q64b", "m16", "g10"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_stochastic_policy_of_every_core_is_simulated(mnemonic, seed):
    """Averaged over actions, the rows of many a policy sum to a little more than 1."""
    mdp = make_mdp(mnemonic)
    chain = mdp.induce(mdp.random_policy(seed, deterministic=False))
    population = simulate_counts(chain, 2**53, 5, seed)
    check_invariants(population, 2**53)
    row = np.unique(population.transition_counts.indices)
    state, after = np.divmod(row, mdp.n_states)
    assert (chain.transition_matrix.toarray()[state, after] > 0.0).all()


@pytest.mark.parametrize("excess", [-1e-12, -1e-16, 1e-13, 1e-12])
def test_rows_that_miss_one_by_rounding_are_simulated(excess):
    """A row may be off by 2e-12, the start too; a point mass may exceed 1."""
    P = np.array([[0.0, 1.0 + excess], [0.5, 0.5 + excess]])
    chain = MarkovChain(P, [0.0, 1.0], [1.0 + excess, 0.0])
    population = simulate_counts(chain, 1000, 20, 0)
    check_invariants(population, 1000)
    assert population.transition_counts[[0]].toarray().tolist() == [[0, 1000, 0, 0]]


def test_actions_of_probability_zero_are_never_taken():
    mdp = TabularMDP.from_arrays(
        [[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]], [[1.0, 5.0]] * 2, [0.5, 0.5]
    )
    chain = mdp.induce([[0.0, 1.0], [0.0, 1.0]])
    population = simulate_counts(chain, 10**6, 5, np.random.default_rng(11))
    assert (population.transition_counts.indices % 2 == 0).all()
    assert (population.reward_sums.toarray().sum(axis=1) == 5e6).all()


def test_the_same_seed_gives_the_same_counts():
    chain = make_mdp("h10").induce(np.ones(10, dtype=int))
    draws = [simulate_counts(chain, 100, 20, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    a, b, c = (d.transition_counts.toarray() for d in draws)
    assert (a == b).all()
    assert (draws[0].reward_sums.toarray() == draws[1].reward_sums.toarray()).all()
    assert (a != c).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5), "n_trials must be from 1 to 9007199254740992; got 0"),
        ((2**53 + 1, 5), "n_trials must be from 1 to .*; got 9007199254740993"),
        ((10, -1), "t_max must be at least 0; got -1"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments, message):
    chain = make_mdp("x1").induce([0])
    with pytest.raises(InvalidArgumentError, match=message):
        simulate_counts(chain, arguments[0], arguments[1], 0)


def test_a_seed_is_as_good_as_a_generator_and_a_model_is_no_chain():
    mdp = make_mdp("h6")
    chain = mdp.induce([1] * 6)
    seeded, drawn = (
        simulate_counts(chain, 100, 5, rng).transition_counts
        for rng in (3, np.random.default_rng(3))
    )
    np.testing.assert_array_equal(seeded.toarray(), drawn.toarray())
    with pytest.raises(
        InvalidArgumentError, match=r"a chain, such as mdp.induce\(policy\); got Tab"
    ):
        simulate_counts(mdp, 100, 5, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("rng", ["0", -1, 0.5])
def test_an_invalid_seed_is_refused(rng):
    chain = make_mdp("x1").induce([0])
    with pytest.raises(InvalidArgumentError, match=f"rng must be a generator.*got {rng!r}"):
        simulate_counts(chain, 1, 1, rng)
    with pytest.raises(InvalidArgumentError, match=f"rng must be a generator.*got {rng!r}"):
        make_mdp("h6").random_policy(rng)
