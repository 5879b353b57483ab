"""Actions that are nearly tied: told apart for certain, or named as undecided."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from numpy.testing import assert_allclose

from unichain_gym import TabularMDP
from unichain_gym.errors import InvalidArgumentError, ModelTooLargeError

SLOW = pytest.mark.slow


def gambler(goal: int, p: float) -> TabularMDP:
    """Stake up to what there is, to reach a goal; a stake is won with p. Reward 1 at the goal."""
    stakes = [(s, a) for s in range(1, goal) for a in range(1, min(s, goal - s) + 1)]
    up = [(s, a, s + a, p, float(s + a == goal)) for s, a in stakes]
    down = [(s, a, s - a, 1 - p, 0.0) for s, a in stakes]
    ends = [(0, 0, 0, 1.0, 0.0), (goal, 0, goal, 1.0, 0.0)]
    return TabularMDP.from_transitions(up + down + ends, np.eye(goal + 1)[goal // 2])


def ladder(k: int, swapped: bool = False) -> TabularMDP:
    """Two streams of rewards that differ by (1 - discount)^k: one action is Blackwell optimal."""
    co, end = [(-1) ** i * comb(k, i) for i in range(k + 1)], 2 * k + 3
    starts = (k + 2, 1) if swapped else (1, k + 2)
    steps = [(0, a, start, 1.0, 0.0) for a, start in enumerate(starts)]
    steps.append((end, 0, end, 1.0, 0.0))
    for first, sign in ((1, -1), (k + 2, 1)):
        for i, c in enumerate(co):
            to = first + i + 1 if i < k else end
            steps.append((first + i, 0, to, 1.0, float(max(sign * c, 0))))
    return TabularMDP.from_transitions(steps, np.eye(end + 1)[0])


def slippery_grid(n: int, slip: float) -> TabularMDP:
    """An exit in a corner, -1 a step, and a chance to slip to either side."""
    y, x = np.divmod(np.arange(n * n), n)
    moves = [(-1, 0), (0, 1), (1, 0), (0, -1)]
    ahead = [np.clip(y + a, 0, n - 1) * n + np.clip(x + b, 0, n - 1) for a, b in moves]
    to = np.stack(ahead, axis=1)
    to = np.stack([to, np.roll(to, 1, axis=1), np.roll(to, -1, axis=1)], axis=2)
    p = np.broadcast_to([1 - 2 * slip, slip, slip], to.shape)
    reward = np.full(to.shape, -1.0)
    to[-1], reward[-1] = n * n - 1, 0.0
    return TabularMDP(to, p, reward, np.full(n * n, 1.0 / (n * n)))


def lake(size: int, seed: int) -> TabularMDP:
    env = gym.make("FrozenLake-v1", desc=generate_random_map(size, seed=seed))
    return TabularMDP.from_gymnasium(env)


def exact_values(mdp: TabularMDP, policy: Any) -> tuple[Any, Any]:
    """Total rewards of a policy until it rests, and of every action before it, in fractions."""
    numbers = np.vectorize(lambda x: Fraction(x).limit_denominator(10**6), otypes=[object])
    p, r = numbers(mdp.probability), numbers(mdp.reward)
    chain = mdp.induce(policy)
    T = chain.transient_states
    own = np.arange(mdp.n_states), policy
    A = np.zeros((T.size, T.size + 1), dtype=object)
    place = {int(s): i for i, s in enumerate(T)}
    for i, s in enumerate(T):
        A[i, i] = Fraction(1)
        for k, to in enumerate(mdp.next_state[s, policy[s]]):
            A[i, -1] += p[own][s, k] * r[own][s, k]
            if int(to) in place:
                A[i, place[int(to)]] -= p[own][s, k]
    for k in range(T.size):
        rows = [i for i in range(T.size) if i != k and A[i, k]]
        columns = np.flatnonzero(A[k])
        for i in rows:
            A[i, columns] = A[i, columns] - A[i, k] / A[k, k] * A[k, columns]
    v = np.array([Fraction(0)] * mdp.n_states, dtype=object)
    v[T] = A[:, -1] / A[np.arange(T.size), np.arange(T.size)]
    return v, (p * (r + v[mdp.next_state])).sum(axis=2)


def assert_nothing_is_better(mdp: TabularMDP, precision: Any) -> None:
    best = mdp.optimal_policy("bias", precision=precision)
    v, q = exact_values(mdp, best.policy)
    better = {(int(s), int(a)) for s, a in np.argwhere(q > v[:, None])}
    assert better <= {pair[:2] for pair in best.undecided}
    # Whoever is called optimal and not listed ties exactly.
    tied = np.argwhere(best.optimal_actions & (q < v[:, None]))
    assert {(int(s), int(a)) for s, a in tied} <= {pair[:2] for pair in best.undecided}


@pytest.mark.parametrize("p", [0.6, 0.7, 0.8, 0.9])
@pytest.mark.parametrize(
    "goal", [8, 32, *(pytest.param(g, marks=SLOW) for g in range(9, 101, 7)), 100]
)
def test_a_gambler_with_favorable_odds_wins_as_often_as_the_closed_form(
    goal: int, p: float
) -> None:
    best = gambler(goal, p).optimal_policy("gain")
    ratio, s = (1.0 - p) / p, np.arange(goal)
    expected = (1.0 - ratio**s) / (1.0 - ratio**goal)
    assert_allclose(best.bias[:goal], expected, rtol=0.0, atol=1e-12)
    assert {pair.state for pair in best.undecided} <= set(range(1, goal))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("k", [1, 5, 11, 20, *(pytest.param(k, marks=SLOW) for k in range(2, 20))])
def test_a_difference_of_any_order_decides(k: int, swapped: bool) -> None:
    mdp, right = ladder(k, swapped), [swapped, not swapped]
    assert mdp.optimal_policy("blackwell").optimal_actions[0].tolist() == right
    worst = mdp.worst_policy("blackwell")
    assert worst.optimal_actions[0].tolist() == right[::-1]
    in_doubles = mdp.optimal_policy("blackwell", precision="double")
    assert [pair.state for pair in in_doubles.undecided] == [0]


@pytest.mark.parametrize("n", [5, *(pytest.param(n, marks=SLOW) for n in (8, 11))])
@pytest.mark.parametrize("slip", [0.01, 0.05, 0.1, 0.2, 0.25])
def test_on_slippery_grids_no_unnamed_action_is_better(n: int, slip: float) -> None:
    assert_nothing_is_better(slippery_grid(n, slip), "double")
    assert_nothing_is_better(slippery_grid(n, slip), "auto")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(s, marks=SLOW) for s in range(2, 20))])
def test_on_frozen_lakes_no_unnamed_action_is_better(seed: int) -> None:
    assert_nothing_is_better(lake(4 + seed % 5, seed), "double")
    assert_nothing_is_better(lake(4 + seed % 5, seed), "auto")


def test_exact_fractions_decide_every_action() -> None:
    mdp = slippery_grid(8, 0.01)
    assert mdp.optimal_policy("bias", precision="double").undecided
    exact = mdp.optimal_policy("bias", precision="exact")
    assert (exact.precision, exact.undecided) == ("exact", ())
    v, q = exact_values(mdp, exact.policy)
    assert (q <= v[:, None]).all()
    assert (exact.optimal_actions == (q == v[:, None])).all()


@pytest.mark.parametrize("n_models", [20, pytest.param(300, marks=SLOW)])
def test_a_constant_that_all_rewards_share_changes_no_optimal_action(n_models: int) -> None:
    # Multiples of 1/1024, which doubles near 1e12 still hold.
    for seed in range(n_models):
        rng = np.random.default_rng(seed)
        S, A = int(rng.integers(2, 8)), int(rng.integers(2, 4))
        P = rng.dirichlet(np.ones(S), (S, A))
        P *= rng.random(P.shape) < 0.7
        P[:, :, 0] += P.sum(axis=2) == 0.0
        P /= P.sum(axis=2, keepdims=True)
        R = np.round(1024 * rng.normal(size=(S, A, S))) / 1024
        offset = float(np.round(rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(1, 12)))
        for criterion in ("gain", "bias", "blackwell"):
            plain, moved = (
                TabularMDP.from_arrays(P, reward, np.full(S, 1.0 / S)).optimal_policy(criterion)
                for reward in (R, R + offset)
            )
            assert (plain.optimal_actions == moved.optimal_actions).all(), (seed, offset)


def test_a_large_offset_of_rewards_causes_no_wrong_decision() -> None:
    for offset in (-1e12, -1e10, 1e10, 1e12):
        steps = [(0, 0, 1, 1.0, offset + 1), (0, 1, 2, 1.0, offset), (1, 0, 0, 1.0, offset)]
        steps.append((2, 0, 0, 1.0, offset + 1.1))
        best = TabularMDP.from_transitions(steps, [1, 0, 0]).optimal_policy()
        assert best.optimal_actions[0].tolist() == [False, True]
        assert best.undecided == ()


def test_decimal_probabilities_keep_their_ties() -> None:
    # .4 + .6 and .1 + .2 + .7 lead to states of values 3, 5 and 7: 4.2 and 5 ± rounding.
    ends = [(s, 0, 4, 1.0, r) for s, r in ((1, 3.0), (2, 5.0), (3, 7.0))]
    steps = [(0, 0, 1, 0.4, 0.0), (0, 0, 2, 0.6, 0.0), (0, 1, 1, 0.6, 0.0), (0, 1, 2, 0.2, 0.0)]
    steps += [(0, 1, 3, 0.2, 0.0), (4, 0, 4, 1.0, 0.0), *ends]
    mdp = TabularMDP.from_transitions(steps, np.eye(5)[0])
    auto, doubles = mdp.optimal_policy("bias"), mdp.optimal_policy("bias", precision="double")
    assert auto.optimal_actions[0].tolist() == doubles.optimal_actions[0].tolist() == [True, True]
    assert auto.undecided == ()
    assert [pair[:2] for pair in doubles.undecided] in ([(0, 0)], [(0, 1)])


def test_a_tolerance_that_is_asked_for_makes_ties_of_small_differences() -> None:
    mdp = TabularMDP.from_arrays(np.ones((1, 2, 1)), [[1.0, 1.001]], [1.0])
    assert mdp.optimal_policy("bias").optimal_actions.tolist() == [[False, True]]
    loose = mdp.optimal_policy("bias", tie_tolerance=0.01)
    assert loose.optimal_actions.tolist() == [[True, True]]
    assert loose.undecided == ()


def test_fractions_are_for_small_models() -> None:
    mdp = TabularMDP.from_arrays(np.ones((1, 1, 1)), [[1.0]], [1.0])
    with pytest.raises(InvalidArgumentError, match="precision must be one of 'auto', 'double', 'e"):
        mdp.optimal_policy(precision="high")
    with pytest.raises(ModelTooLargeError, match="up to 500 states; these are 529"):
        slippery_grid(23, 0.1).optimal_policy(precision="exact")
