"""Policies from samples: best in gain and from the start on, on any task, kept and resumed."""

from __future__ import annotations

import dataclasses
import pickle
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import TransformObservation
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import expon

from lstd_agent import PolicyIteration, Polynomial, RadialBasis, Restart, Standardized
from lstd_agent.errors import InvalidInputError, NotFittedError, TerminationError
from unichain_gym import TabularEnv, TabularMDP, TabularVectorEnv, make_mdp

# Timesteps in which the task has settled, whatever the policy.
T_MAX = {"h36": 400, "h36c": 300, "c10": 200, "c35c": 300, "r6": 400, "m16": 300, "r20b": 400}


def shortfall(mdp: TabularMDP, policy: Any) -> tuple[float, float]:
    """By how much gain and start value, as a share of the span, fall short of the optimum."""
    best, chain = mdp.optimal_policy("bias"), mdp.induce(policy)
    start = mdp.initial_distribution @ (best.bias - chain.bias)
    return float(best.gain.max() - chain.gain), float(start / np.ptp(best.bias))


@pytest.mark.first(4)
@pytest.mark.parametrize("name", T_MAX)
def test_the_optimum_is_found_in_gain_and_from_the_start_on(name: str) -> None:
    mdp = make_mdp(name)
    search = PolicyIteration(
        TabularVectorEnv(mdp, 1000), t_max=T_MAX[name], n_trials=1000, seed=1
    ).run()
    assert search.converged
    gain, start = shortfall(mdp, search.policy_)
    assert gain < 1e-9
    assert start < 0.01
    last = search.iterations[-1]
    assert last.n_changes == 0
    assert isinstance(search.policy_, np.ndarray)
    assert last.gain == pytest.approx(mdp.induce(search.policy_).gain, rel=0.02)
    assert abs(last.tail_reward - last.gain) < 5 * last.tail_error + 0.02 * abs(last.gain)


def test_a_given_first_policy_is_improved() -> None:
    mdp = make_mdp("c10")
    env = TabularVectorEnv(mdp, 1000)
    worst = mdp.worst_policy("bias").policy
    search = PolicyIteration(env, t_max=200, n_trials=1000, policy=worst, explore=3, seed=0).run()
    assert search.iterations[0].gain == pytest.approx(mdp.induce(worst).gain, abs=0.1)
    assert len(search.iterations) >= 2
    assert shortfall(mdp, search.policy_)[0] < 1e-9


def test_an_optimal_policy_is_left_alone() -> None:
    mdp = make_mdp("h9b")
    search = PolicyIteration(
        TabularVectorEnv(mdp, 1000),
        t_max=100,
        n_trials=2000,
        policy=[1] * 9,
        n_errors=3.0,
        explore=2,
        seed=0,
    ).run()
    assert [each.n_changes for each in search.iterations] == [0]
    assert_array_equal(search.policy_, [1] * 9)


@pytest.mark.slow
def test_a_task_in_which_a_policy_can_get_stuck_is_solved() -> None:
    """Most policies bump into walls for ever, in classes of their own."""
    search = PolicyIteration(
        _restarting("CliffWalking-v1"), t_max=300, n_trials=64, explore=0.2, seed=0
    ).run()
    mdp = TabularMDP.from_gymnasium(gym.make("CliffWalking-v1"), on_termination="restart")
    gain, start = shortfall(mdp, search.policy_)
    assert gain == pytest.approx(0.0, abs=1e-9)
    assert start == pytest.approx(0.0, abs=1e-9)


def _restarting(name: str) -> VectorEnv:
    from lstd_agent import Restart

    return gym.make_vec(
        name, num_envs=32, vectorization_mode="sync", wrappers=[Restart], max_episode_steps=10**6
    )


def ring(n_actions: int = 2) -> TabularMDP:
    """Three states in a ring, round and round by all actions, which pay alike."""
    return TabularMDP.from_transitions(
        [(s, a, (s + 1) % 3, 1.0, float(s == 0)) for s in range(3) for a in range(n_actions)],
        [1.0, 0.0, 0.0],
    )


@pytest.mark.parametrize("n_actions", [1, 2])
def test_equal_actions_change_nothing_after_the_first_iteration(n_actions: int) -> None:
    search = PolicyIteration(
        TabularVectorEnv(ring(n_actions), 10), t_max=20, n_trials=50, seed=0
    ).run()
    assert [each.n_changes for each in search.iterations] == [3, 0]
    assert search.iterations[-1].gain == pytest.approx(1 / 3)
    assert search.iterations[-1].start_value == pytest.approx(1 / 3)
    q = search.action_values([0, 1, 2])
    assert_allclose(q - q[0, 0], [[0.0] * n_actions, [-2 / 3] * n_actions, [-1 / 3] * n_actions])


def test_a_state_never_met_has_no_values() -> None:
    apart = TabularMDP.from_transitions(
        [(0, 0, 0, 1, 1), (0, 1, 0, 1, 2), (1, 0, 0, 1, 9), (1, 1, 0, 1, 0)], [1.0, 0.0]
    )
    search = PolicyIteration(TabularVectorEnv(apart, 5), t_max=9, n_trials=20, seed=0).run()
    assert np.isnan(search.action_values(1)).all()
    assert_array_equal(search.policy_, [1, 0])


def test_only_available_actions_are_taken() -> None:
    masked = TabularMDP.from_transitions(
        [(0, 1, 1, 1, 0), (0, 2, 2, 1, 1), (1, 0, 0, 1, 0), (1, 2, 1, 1, 1.5), (2, 1, 0, 1, 1),
         (2, 0, 2, 0.5, 0), (2, 0, 0, 0.5, 0)],
        [1.0, 0.0, 0.0],
    )  # fmt: skip
    for env in (TabularEnv(masked), TabularVectorEnv(masked, 20)):
        search = PolicyIteration(env, t_max=30, n_trials=40, seed=0).run()
        assert_array_equal(search.policy_, masked.optimal_policy("bias").policy)


def test_actions_and_observations_may_start_anywhere() -> None:
    mdp = make_mdp("h6")

    class Shifted(gym.Wrapper):
        observation_space: Any = Discrete(6, start=-3)
        action_space: Any = Discrete(2, start=5)

        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
            state, info = self.env.reset(**options)
            return state - 3, info

        def step(self, action: Any) -> Any:
            state, *rest = self.env.step(action - 5)
            return state - 3, *rest

    search = PolicyIteration(Shifted(TabularEnv(mdp)), t_max=40, n_trials=80, seed=0).run()
    assert_array_equal(search.policy_, [6] * 6)
    assert search.action_values(-3).shape == (2,)
    with pytest.raises(InvalidInputError, match="from -3 to 2"):
        search.action_values(3)


def test_countable_observations_of_other_spaces_get_a_function() -> None:
    env = TransformObservation(
        TabularEnv(make_mdp("h6")), lambda s: np.array([s // 3, s % 3]), MultiDiscrete([2, 3])
    )
    search = PolicyIteration(env, t_max=40, n_trials=80, seed=0).run()
    policy: Any = search.policy_
    assert_array_equal(policy(np.array([[0, 0], [1, 2]])), [1, 1])


def small(**options: Any) -> PolicyIteration:
    return PolicyIteration("Unichain-c10-v0", t_max=100, n_trials=20, seed=3, **options)


def test_a_search_in_pieces_is_the_same_search(tmp_path: Path) -> None:
    whole = small().run(6)
    first = small()
    first.iterate()
    first.iterate()
    first.save(tmp_path / "search.npz")
    again = PolicyIteration.load(tmp_path / "search.npz", "Unichain-c10-v0").run(6)
    assert again.iterations == whole.iterations
    assert_array_equal(again.policy_, whole.policy_)
    assert_array_equal(again.action_values(range(10)), whole.action_values(range(10)))


def made_backlog() -> Backlog:
    return Backlog(20)


class Pickling(Executor):
    """Runs tasks here and at once, but sends them and their results as to another process."""

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Any:
        done: Future[Any] = Future()
        call, args, options = pickle.loads(pickle.dumps((function, args, options)))
        done.set_result(pickle.loads(pickle.dumps(call(*args, **options))))
        return done


@pytest.mark.parametrize("kind", ["a vector environment by its id", "one by one", "vectors"])
def test_any_number_of_workers_gives_the_same_search(kind: str) -> None:
    made: dict[str, Any] = {
        "a vector environment by its id": lambda: PolicyIteration(
            "Unichain-h6-v0", t_max=9, n_trials=1500, seed=0
        ),
        "one by one": lambda: PolicyIteration(made_plain, t_max=9, n_trials=40, seed=0),
        "vectors": lambda: PolicyIteration(
            made_backlog, t_max=9, n_trials=40, seed=0, features=BUMPS
        ),
    }
    alone, shared = made[kind](), made[kind]()
    alone.run(2), shared.run(2, executor=Pickling())
    assert shared.iterations == alone.iterations
    assert alone.iterations[-1].n_trials in (3000, 80)


def made_plain() -> gym.Env:
    return TabularEnv(make_mdp("c10"))


def test_an_environment_is_not_shared_among_workers() -> None:
    search = PolicyIteration(TabularEnv(ring()), t_max=9, n_trials=10, seed=0)
    with pytest.raises(InvalidInputError, match="workers make their own environments"):
        search.run(workers=2)
    assert search.iterations == []


class Interrupting(gym.Wrapper):
    """Stops everything after so many steps, once."""

    def __init__(self, env: gym.Env, n_steps: int) -> None:
        super().__init__(env)
        self.left = n_steps

    def step(self, action: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return self.env.step(action)


def test_an_interrupt_keeps_the_iterations_and_changes_no_later_one() -> None:
    def made(n_steps: int) -> PolicyIteration:
        env = Interrupting(TabularEnv(make_mdp("c10")), n_steps)
        return PolicyIteration(env, t_max=50, n_trials=40, seed=3)

    whole, broken = made(-1).run(4), made(40 * 51 + 700)
    with pytest.raises(KeyboardInterrupt):
        broken.run(4)
    assert broken.iterations == whole.iterations[:1]
    assert isinstance(broken.policy_, np.ndarray)
    assert broken.policy_.size == 10
    broken.run(4)
    assert broken.iterations == whole.iterations
    assert_array_equal(broken.policy_, whole.policy_)


def test_a_policy_with_lower_rewards_than_an_earlier_one_is_not_the_best() -> None:
    search = small(policy=[0] * 10).run()
    assert search.converged
    assert search.policy_.tolist() != [0] * 10  # type: ignore[union-attr]
    for i in range(1, len(search.iterations)):
        search.iterations[i] = dataclasses.replace(search.iterations[i], reward=-99.0)
    assert_array_equal(search.policy_, [0] * 10)


def test_trying_all_actions_uniformly_is_not_a_result() -> None:
    search = small().run(3)
    assert isinstance(search.policy_, np.ndarray)
    best = search.policy_.copy()
    search.iterations[0] = dataclasses.replace(search.iterations[0], reward=99.0)
    assert_array_equal(search.policy_, best)


class Backlog(VectorEnv):
    """A queue's backlog in continuous quantity, and three speeds that cost.

    x' = x - speed + arrivals within [0, 20], arrivals exponential of mean 0.8; reward -x - cost.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    speed, cost = np.array([0.5, 1.0, 2.0]), np.array([0.0, 1.0, 6.0])
    mean = 0.8

    def __init__(self, n: int) -> None:
        self.num_envs = n
        self.single_observation_space = Box(0.0, 20.0, (1,))
        self.single_action_space = Discrete(3)
        self.observation_space = Box(0.0, 20.0, (n, 1))
        self.action_space = MultiDiscrete([3] * n)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.x = self.rng.uniform(5.0, 20.0, self.num_envs)
        return self.x[:, None].astype(np.float32), {}

    def step(self, actions: Any) -> Any:
        reward = -self.x - self.cost[actions]
        arrivals = self.rng.exponential(self.mean, self.num_envs)
        self.x = np.clip(self.x - self.speed[actions] + arrivals, 0.0, 20.0)
        never = np.zeros(self.num_envs, dtype=bool)
        return self.x[:, None].astype(np.float32), reward, never, never, {}

    @classmethod
    def on_grid(cls, n: int) -> TabularMDP:
        """The same task on a fine grid, of cells as wide as its spacing."""
        x = np.linspace(0.0, 20.0, n)
        edges = np.concatenate(([-np.inf], (x[1:] + x[:-1]) / 2, [np.inf]))
        P = np.stack(
            [np.diff(expon.cdf(edges - (x - s)[:, None], scale=cls.mean)) for s in cls.speed], 1
        )
        P /= P.sum(axis=2, keepdims=True)
        start = (x >= 5.0) / (x >= 5.0).sum()
        return TabularMDP.from_arrays(P, -x[:, None] - cls.cost, start)


class Noting(Backlog):
    """Notes the actions that are taken."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.taken: list[Any] = []

    def step(self, actions: Any) -> Any:
        self.taken.append(actions)
        return super().step(actions)


BUMPS = RadialBasis.grid(0.0, 20.0, 10)


@pytest.fixture(scope="module")
def backlog() -> TabularMDP:
    return Backlog.on_grid(201)


def test_the_chosen_speed_is_as_good_as_on_a_fine_grid(backlog: TabularMDP, tmp_path: Path) -> None:
    search = PolicyIteration(Backlog(100), t_max=80, n_trials=200, features=BUMPS, seed=0).run(8)
    policy: Any = search.policy_
    x = np.linspace(0.0, 20.0, 201, dtype=np.float32)[:, None]
    best, chain = backlog.optimal_policy("bias"), backlog.induce(policy(x))
    assert chain.gain > best.gain.max() * 1.02
    _, start = shortfall(backlog, policy(x))
    assert abs(start) < 0.02
    last = search.iterations[-1]
    assert last.gain == pytest.approx(best.gain.max(), rel=0.1)
    assert last.start_value == pytest.approx(backlog.initial_distribution @ best.bias, rel=0.1)
    search.save(tmp_path / "search.npz")
    again = PolicyIteration.load(tmp_path / "search.npz", Backlog(100), features=BUMPS)
    assert_array_equal(again.policy_(x), policy(x))  # type: ignore[operator]
    assert_allclose(again.action_values(x), search.action_values(x))
    assert np.isnan(search.action_values(np.array([9999.0], np.float32))).all()
    # What is undecided is near where the fine grid's best policy changes its action.
    undecided = [each for each in again.undecided if np.isfinite(each.standard_error)]
    assert 0 < len(undecided) < 500
    assert all(each.difference < 3.0 * each.standard_error for each in undecided)
    assert all(each.observation.shape == (1,) for each in undecided)


def test_vectors_in_pieces_are_the_same_search(tmp_path: Path) -> None:
    def made() -> PolicyIteration:
        features = Standardized(lambda x: np.hstack((x, x**2)))
        return PolicyIteration(Backlog(20), t_max=20, n_trials=40, features=features, seed=2)

    whole, first = made().run(3), made()
    first.iterate()
    first.save(tmp_path / "search.npz")
    again = PolicyIteration.load(
        tmp_path / "search.npz", Backlog(20), features=Standardized(lambda x: np.hstack((x, x**2)))
    ).run(3)
    assert again.iterations == whole.iterations


def test_vectors_are_explored_by_any_behaviour() -> None:
    rng = np.random.default_rng(0)
    explore = lambda x: np.where(rng.random(len(x)) < 0.5, 2, rng.integers(3, size=len(x)))  # noqa: E731
    env = Noting(50)
    search = PolicyIteration(
        env, t_max=40, n_trials=50, features=BUMPS, explore=explore, seed=0
    ).run(2)
    taken = np.array(env.taken[-41:-21])
    assert np.bincount(taken.ravel(), minlength=3) / taken.size == pytest.approx(
        [1 / 6, 1 / 6, 2 / 3], abs=0.05
    )
    assert not np.isnan(search.action_values(np.linspace(0.0, 15.0, 9)[:, None])).any()


def test_features_of_pairs_may_be_given() -> None:
    def pairs(x: Any, a: Any) -> Any:
        f = np.hstack((BUMPS(x), np.ones((len(x), 1))))
        return np.hstack([f * (a == k)[:, None] for k in range(3)])

    searches = [
        PolicyIteration(Backlog(50), t_max=40, n_trials=50, seed=0, **options).run(2)
        for options in ({"features": BUMPS}, {"pair_features": pairs})
    ]
    x = np.linspace(0, 15, 9)[:, None]
    one, other = (search.action_values(x) for search in searches)
    assert_allclose(one, other, atol=1e-6)


def random_task(seed: int) -> TabularMDP:
    """5 to 30 states with 2 or 3 actions, each of which leads to a few others, or back to 0."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(5, 31)), int(rng.integers(2, 4))
    P = np.zeros((n, k, n))
    for s, a in np.ndindex(n, k):
        P[s, a, rng.choice(n, 3, replace=False)] = rng.dirichlet(np.ones(3))
    P = 0.97 * P
    P[:, :, 0] += 0.03
    return TabularMDP.from_arrays(P, rng.normal(size=(n, k)), rng.dirichlet(np.ones(n)))


def test_better_actions_are_undecided_and_errors_are_right() -> None:
    ratios, n_better = [], 0
    for seed in range(10):
        mdp = random_task(seed)
        search = PolicyIteration(TabularVectorEnv(mdp, 60), t_max=100, n_trials=60, seed=seed).run()
        policy, every = np.asarray(search.policy_), np.arange(mdp.n_states)
        values = mdp.induce(policy).action_bias
        right = values - values[every, policy][:, None]
        found = search.action_values(every)
        found = found - found[every, policy][:, None]
        undecided = {(each.observation, each.action): each for each in search.undecided}
        better = {(int(s), int(a)) for s, a in np.argwhere(right > 1e-9)}
        assert better <= undecided.keys()
        n_better += len(better)
        for (s, a), each in undecided.items():
            assert each.instead_of == policy[s]
            if np.isfinite(each.standard_error):
                assert each.difference == pytest.approx(found[s, a])
                ratios.append((each.difference - right[s, a]) / each.standard_error)
    assert n_better > 5
    assert 0.5 < np.sqrt(np.mean(np.square(ratios))) < 1.5


def test_more_trials_decide_more() -> None:
    n_undecided = []
    for n_trials in (20, 2000):
        tasks = [TabularVectorEnv(random_task(seed), n_trials) for seed in range(4)]
        searches = [
            PolicyIteration(env, t_max=100, n_trials=n_trials, seed=0).run() for env in tasks
        ]
        n_undecided.append(sum(len(search.undecided) for search in searches))
    assert n_undecided[1] < 0.5 * n_undecided[0]


def test_an_account_counts_decided_states_and_untried_actions() -> None:
    search = PolicyIteration(TabularVectorEnv(ring(), 10), t_max=20, n_trials=50, seed=0).run()
    assert search.undecided == []  # actions that are alike in every sample
    assert "best actions decided in 3 of 3 states" in str(search)
    masked = TabularMDP.from_transitions(
        [(0, 0, 1, 1, 0), (0, 1, 1, 1, 1), (1, 0, 0, 1, 0)], [1.0, 0.0]
    )
    search = PolicyIteration(TabularVectorEnv(masked, 20), t_max=30, n_trials=40, seed=0).run()
    assert "never tried, or do not exist: 1" in search.summary()
    assert [(each.observation, each.action) for each in search.undecided] == [(1, 1)]
    assert np.isnan(search.undecided[0].difference)
    with pytest.raises(NotFittedError, match="call run first"):
        small().summary()


BAD_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"t_max": 0}, "t_max must be at least 1"),
    ({"n_trials": 1}, "n_trials must be at least 2"),
    ({"n_errors": -1.0}, "n_errors must be a number of at least 0; got -1.0"),
    ({"n_errors": float("nan")}, "n_errors must be a number"),
    ({"explore": 99}, "explore=99 actions need as many timesteps"),
    ({"policy": [0] * 5}, "a policy is 6 integer actions"),
    ({"policy": [2] * 6}, "the policy takes action 2"),
    ({"features": np.eye(6)}, "need no features"),
    ({"seed": -1}, "seed must be at least 0"),
    ({"on_termination": "restart"}, "on_termination must be one of .*; got 'restart'"),
    ({"observations": "pixels"}, "observations must be one of .*; got 'pixels'"),
]


@pytest.mark.parametrize(("options", "message"), BAD_ARGUMENTS)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"env": TabularEnv(make_mdp("h6")), "t_max": 20, "n_trials": 10}
    with pytest.raises(InvalidInputError, match=message):
        PolicyIteration(**{**arguments, **options})


def test_tasks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="give features= of them"):
        PolicyIteration(Backlog(4), t_max=20, n_trials=10)
    with pytest.raises(InvalidInputError, match="action values need Discrete actions"):
        PolicyIteration(gym.make("Pendulum-v1"), t_max=20, n_trials=10, features=BUMPS)
    with pytest.raises(TerminationError, match="terminated"):
        PolicyIteration(gym.make("FrozenLake-v1"), t_max=60, n_trials=5, seed=0).run(3)
    search = small()
    with pytest.raises(NotFittedError, match="call run first"):
        search.policy_  # noqa: B018
    with pytest.raises(NotFittedError, match="call run first"):
        search.action_values(0)


def test_a_task_that_ends_is_one_of_total_reward() -> None:
    search = PolicyIteration(
        gym.make("CliffWalking-v1", max_episode_steps=10**6), t_max=200, n_trials=60, explore=0.3,
        on_termination="absorb", seed=0,
    ).run(6)  # fmt: skip
    assert search.iterations[-1].gain == 0.0
    assert search.iterations[-1].start_value == pytest.approx(-13.0)


def test_files_of_other_things_are_refused(tmp_path: Path) -> None:
    from lstd_agent import OneHot, SeminormLSTDAgent

    SeminormLSTDAgent(OneHot()).save(tmp_path / "agent.npz")
    with pytest.raises(InvalidInputError, match="not a saved policy iteration"):
        PolicyIteration.load(tmp_path / "agent.npz", "Unichain-c10-v0")
    small().run(1).save(tmp_path / "search.npz")
    with pytest.raises(InvalidInputError, match=r"observations of Discrete\(10\)"):
        PolicyIteration.load(tmp_path / "search.npz", "Unichain-h6-v0")
    PolicyIteration(TabularEnv(ring(2)), t_max=9, n_trials=10).run(1).save(tmp_path / "search.npz")
    with pytest.raises(InvalidInputError, match=r"and actions 0 to 1; .* and 0 to 2"):
        PolicyIteration.load(tmp_path / "search.npz", TabularEnv(ring(3)))


def test_learning_is_drawn() -> None:
    figure = small().run(2).plot(optimum=(3.0, -1.0))
    gain, start, changes = figure.axes
    assert_array_equal(gain.lines[0].get_xdata(), [2020, 4040])
    assert np.asarray(gain.lines[1].get_ydata())[0] == 3.0
    assert start.get_ylabel().startswith("start value")
    assert len(changes.lines) == 1


@pytest.mark.parametrize("policy", [np.full((10, 2), 0.5), lambda states: states])
def test_a_search_begins_with_actions_alone(policy: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"policy= is an array of actions"):
        small(policy=policy)


def test_an_account_lists_no_better_action_as_undecided() -> None:
    search = PolicyIteration(Backlog(20), t_max=60, n_trials=60, seed=0, features=Polynomial(2))
    search.run(1)  # whose better actions the next iteration takes
    better = [x for x in search.undecided if x.difference > 3.0 * x.standard_error]
    text = search.summary()
    assert f"better than the policy's, to be taken: {len(better)}" in text
    assert better
    assert not any(f"  {each}" in text for each in better)


def test_rounding_of_large_squares_is_no_noise() -> None:
    cliff = Restart(gym.make("CliffWalking-v1", max_episode_steps=10**9))
    search = PolicyIteration(cliff, t_max=200, n_trials=200, seed=0).run()
    assert [each for each in search.undecided if np.isfinite(each.standard_error)] == []
