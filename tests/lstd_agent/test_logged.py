"""Logged trials: of one length what the user's own loop makes, of many held to brute force."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal

from lstd_agent import KeptTrials, LoggedTrials, OneHot, Polynomial, SeminormLSTDAgent
from lstd_agent.errors import InvalidInputError, NotFittedError, TerminationError
from lstd_agent.system.distances import MMD, sampled_distance
from unichain_gym import make_mdp

POLICY = np.array([0, 1, 0, 1, 0, 1])
SIX = spaces.Discrete(6)


def simulated(n: int, t_max: int, policy: Any = POLICY, name: str = "h6", seed: int = 0) -> Any:
    """Trials (n, t_max + 2), rewards and actions (n, t_max + 1)."""
    env = gym.make_vec(f"unichain_gym:Unichain-{name}-v0", num_envs=n)
    rng = np.random.default_rng(seed + 1000)  # not the stream of the environment
    observation, _ = env.reset(seed=seed)
    states, rewards, actions = [observation], [], []
    for _ in range(t_max + 1):
        action = policy[observation]
        if policy.ndim == 2:
            action = (rng.random(n)[:, None] >= np.cumsum(action, axis=1)).sum(axis=1)
        observation, reward, *_ = env.step(action)
        states.append(observation)
        rewards.append(reward)
        actions.append(action)
    return np.array(states).T, np.array(rewards).T, np.array(actions).T


def cut(n: int, t_max: int, seed: int = 0, name: str = "h6") -> tuple[list[Any], list[Any]]:
    """Trials of random lengths, some of them of all timesteps."""
    states, rewards, _ = simulated(n, t_max, np.resize(POLICY, make_mdp(name).n_states), name, seed)
    lengths = np.random.default_rng(seed).integers(1, 2 * t_max, n).clip(max=t_max + 1)
    return (
        [s[: length + 1] for s, length in zip(states, lengths, strict=True)],
        [r[:length] for r, length in zip(rewards, lengths, strict=True)],
    )


def observed_one_by_one(agent: Any, states: Any, rewards: Any) -> Any:
    for trial, paid in zip(states, rewards, strict=True):
        for t, reward in enumerate(paid):
            agent.observe(t, trial[t], float(reward), trial[t + 1])
        agent.end_trial()
    return agent


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # ten timesteps
@pytest.mark.parametrize("n", [1, 3, 130, 700])
def test_trials_of_one_length_equal_the_users_loop_to_the_last_bit(n: int) -> None:
    states, rewards, actions = simulated(n, 9)
    rewards = rewards + np.random.default_rng(0).normal(size=rewards.shape)
    logged = SeminormLSTDAgent(np.eye(6), 1, gain=0.0)
    logged.add_trials(states, rewards, actions, policy=POLICY)
    looped = observed_one_by_one(SeminormLSTDAgent(np.eye(6), 1, gain=0.0), states, rewards)
    assert logged.n_trials == looped.n_trials == n
    a, b = logged.counts, looped.counts
    assert (a.transition_counts != b.transition_counts).nnz == 0
    assert_array_equal(a.reward_sums.toarray(), b.reward_sums.toarray())
    sources: Any = [each._source[0] for each in (logged, looped)]
    some, others = (source.whole_trials for source in sources)
    assert_array_equal(some.observations, others.observations)
    assert_array_equal(some.rewards, others.rewards)
    if n == 700:
        for agent in (logged, looped):
            agent.fit()
        seen = np.arange(6)
        assert_array_equal(logged.predict(seen), looped.predict(seen))
        assert_array_equal(logged.standard_errors(seen), looped.standard_errors(seen))


def test_trials_of_vectors_equal_the_users_loop_to_the_last_bit() -> None:
    states, rewards, _ = simulated(60, 9)
    vectors = np.stack((states, states**2), axis=2).astype(np.float32)
    logged = SeminormLSTDAgent(Polynomial(2), 1).add_trials(vectors, rewards)
    env = gym.make("unichain_gym:Unichain-h6-v0")
    env = gym.wrappers.TransformObservation(
        env, lambda o: o, spaces.Box(-np.inf, np.inf, (2,), np.float32)
    )
    looped = SeminormLSTDAgent(Polynomial(2), 1).attach(env)
    observed_one_by_one(looped, vectors, rewards)
    assert_array_equal(logged.kept_trials.observations, looped.kept_trials.observations)
    assert_array_equal(logged.kept_trials.rewards, looped.kept_trials.rewards)
    assert [b.n_trials for b in logged.batches.sums] == [b.n_trials for b in looped.batches.sums]


def test_counts_of_cut_trials_agree_with_a_plain_loop() -> None:
    states, rewards = cut(80, 12)
    agent = SeminormLSTDAgent(np.eye(6)).add_trials(states, rewards)
    N, R, n_at = np.zeros((13, 6, 6)), np.zeros((13, 6)), np.zeros(13, dtype=int)
    for trial, paid in zip(states, rewards, strict=True):
        for t, r in enumerate(paid):
            N[t, trial[t], trial[t + 1]] += 1
            R[t, trial[t]] += r
            n_at[t] += 1
    counts = agent.counts
    assert_array_equal(counts.transition_counts.toarray().reshape(13, 6, 6), N)
    assert_array_equal(counts.reward_sums.toarray(), R)
    assert_array_equal(counts.trials_at, n_at)
    assert 0 < n_at[-1] < 80
    rows: Any = agent._source[0]
    assert_allclose(rows.mean_rewards, R.sum(axis=1) / n_at)
    p = N.sum(axis=2) / n_at[:, None]
    expected = (0.5 * np.abs(p[1:] - p[0]).sum(axis=1)) ** 2
    assert_allclose(sampled_distance("tv", rows)(0, 1, 13), expected)
    window = np.array([[3, 9]])
    assert_allclose(rows.occupancy(window)[0], N[3:9].sum(axis=(0, 2)) / n_at[3:9].sum())


def brute_force_values(states: Any, rewards: Any, gain: float) -> Any:
    """Average-reward TD over all transitions, each once, relative to state 4.

    Its equations do not quite agree with a gain that is given: they count by visits.
    """
    X, y, visits = np.zeros((6, 6)), np.zeros(6), np.zeros(6)
    for trial, paid in zip(states, rewards, strict=True):
        for s, r, following in zip(trial, paid, trial[1:], strict=False):
            X[s, s] += 1.0
            X[s, following] -= 1.0
            y[s] += r - gain
            visits[s] += 1.0
    root = np.sqrt(visits)
    values = np.linalg.lstsq(X / root[:, None], y / root, rcond=None)[0]
    return values - values[4]


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
@pytest.mark.parametrize("kind", ["counts", "vectors"])
def test_values_of_cut_trials_use_all_their_transitions(kind: str) -> None:
    states, rewards = cut(400, 60)
    agent = SeminormLSTDAgent(OneHot(), 1, gain=7.0, backup="one_step")
    observed: Any = states
    if kind == "vectors":
        one_hot = lambda x: np.eye(6)[x[:, 0].astype(int)]  # noqa: E731
        agent = SeminormLSTDAgent(one_hot, 1, gain=7.0, backup="one_step")
        observed = [trial[:, None].astype(float) for trial in states]
        agent.add_trials(observed, rewards).fit()
        found = agent.predict(np.arange(6.0)[:, None])
    else:
        found = (
            agent.add_trials(observed, rewards, observation_space=SIX).fit().predict(np.arange(6))
        )
    assert_allclose(found - found[4], brute_force_values(states, rewards, 7.0), atol=1e-8)


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
@pytest.mark.parametrize(("n_anchors", "max_bytes"), [(1, 2**30), (2, 250_000)])
def test_one_hot_features_of_vectors_give_the_values_of_counts(
    n_anchors: Any, max_bytes: int
) -> None:
    states, rewards = cut(300, 30, seed=2)
    one_hot = lambda x: np.eye(6)[x[:, 0].astype(int)]  # noqa: E731
    anchors = {1: [0], 2: [0, 7], None: list(range(31))}[n_anchors]
    counted = SeminormLSTDAgent(OneHot(), anchors=anchors, backup="one_step")
    counted.add_trials(states, rewards, observation_space=SIX)
    vectors = SeminormLSTDAgent(one_hot, anchors=anchors, backup="one_step", max_bytes=max_bytes)
    vectors.add_trials([trial[:, None].astype(float) for trial in states], rewards)
    for agent in (counted, vectors):
        agent.fit()
    assert vectors.gain_ == pytest.approx(counted.gain_, abs=1e-9)
    some, t = np.array([3, 4, 5]), 12
    a, b = counted.predict(some, t), vectors.predict(some[:, None].astype(float), t)
    assert_allclose(a - a[0], b - b[0], atol=1e-7)
    one, other = counted.diagnostics(), vectors.diagnostics()
    assert one.start_value - one.start_rewards == pytest.approx(
        other.start_value - other.start_rewards, abs=1e-7
    )
    assert one.tail_rewards == pytest.approx(other.tail_rewards)
    assert_array_equal(one.trials_at, counted.counts.trials_at)
    assert_array_equal(other.trials_at, counted.counts.trials_at)


@pytest.mark.filterwarnings("ignore:the tail has not settled")  # of those that were left
def test_cuts_that_depend_on_observations_do_not_bias_gain_and_values() -> None:
    """A trial is cut short as soon as it is in state 5, two times of three: then means over
    those that were left are not those of the chain, and equations of transitions still are."""
    states, rewards, _ = simulated(20_000, 60, seed=1)
    rng = np.random.default_rng(0)
    stops = (states[:, 1:-1] == 5) & (rng.random((20_000, 60)) < 2 / 3)
    length = np.where(stops.any(axis=1), 1 + stops.argmax(axis=1), 61)
    logged = [s[: n + 1] for s, n in zip(states, length, strict=True)]
    agent = SeminormLSTDAgent(OneHot(), 1).add_trials(
        logged,
        [r[:n] for r, n in zip(rewards, length, strict=True)],
        observation_space=SIX,
        t_max=30,
    )
    agent.fit()
    chain = make_mdp("h6").induce(POLICY)
    values = chain.relative_value(agent.main_reference_)
    error = agent.standard_errors(np.arange(6))
    assert (np.abs(agent.predict(np.arange(6)) - values) <= 4 * error + 1e-9).all()
    assert error.max() < 0.1 * np.ptp(values)
    assert agent.gain_ == pytest.approx(chain.gain, abs=0.1)
    counts = agent.counts
    mean = counts.reward_sums[15:].sum() / counts.trials_at[15:].sum()
    assert abs(mean - chain.gain) > 0.3  # of those that were left
    found = agent.diagnostics()
    assert found.start_agrees
    assert found.start_rewards == pytest.approx(found.start_value, abs=0.05 * np.ptp(values))


@pytest.mark.parametrize("name", ["mmd", "quadratic"])
def test_distances_compare_the_trials_that_are_there(name: str) -> None:
    """Cut at random, the estimates are close to those of all trials."""
    states, rewards, _ = simulated(2000, 20)
    lengths = np.random.default_rng(0).integers(5, 40, 2000).clip(max=21)
    whole = SeminormLSTDAgent(OneHot()).add_trials(states, rewards, observation_space=SIX)
    parts = [s[: n + 1] for s, n in zip(states, lengths, strict=True)]
    paid = [r[:n] for r, n in zip(rewards, lengths, strict=True)]
    short = SeminormLSTDAgent(OneHot()).add_trials(parts, paid, observation_space=SIX)
    vectors = SeminormLSTDAgent(lambda x: np.eye(6)[x[:, 0].astype(int)])
    vectors.add_trials([part[:, None].astype(float) for part in parts], paid)
    distance: Any = "mmd" if name == "mmd" else MMD("quadratic")
    expected = sampled_distance(distance, whole._source[0])(2, 3, 21)
    found = sampled_distance(distance, short._source[0])(2, 3, 21)
    assert_allclose(found, expected, atol=0.05)
    assert expected.max() > 0.2
    if name == "mmd":
        alike = sampled_distance(MMD("linear"), vectors._source[0])(2, 3, 21)
        assert_allclose(alike, found, atol=0.05)  # other pairs


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
def test_a_value_from_a_single_batch_has_an_infinite_standard_error() -> None:
    states, rewards = cut(60, 10)
    states = [trial[:6] for trial in states]
    rewards = [paid[:5] for paid in rewards]
    more, paid, _ = simulated(1, 40)
    agent = SeminormLSTDAgent(OneHot(), anchors=[0, 15], backup="one_step")
    agent.add_trials([*states, *more], [*rewards, *paid], observation_space=SIX).fit()
    assert np.isinf(agent.standard_errors([3, 4, 5])).all()
    text = str(agent.diagnostics())
    assert "1 of 61 trials have the last timestep" in text
    shorter = SeminormLSTDAgent(OneHot(), 1, backup="one_step")
    shorter.add_trials([*states, *more], [*rewards, *paid], observation_space=SIX, t_max=4).fit()
    assert np.isfinite(shorter.standard_errors([3, 4, 5])).all()
    assert shorter.diagnostics().trials_at[-1] == np.sum([len(paid) == 5 for paid in rewards]) + 1


def like(agent: SeminormLSTDAgent) -> Any:
    """An environment with the observations of an agent."""
    env = gym.make("unichain_gym:Unichain-h6-v0")
    assert agent.encoding is not None
    return gym.wrappers.TransformObservation(env, lambda o: o, agent.encoding.space)


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
@pytest.mark.parametrize("kind", ["counts", "kept", "in files"])
def test_cut_trials_are_saved_merged_and_added_like_others(kind: str, tmp_path: Any) -> None:
    states, rewards = cut(200, 15)
    options: dict[str, Any] = {
        "anchors": [0],
        "max_bytes": 20_000 if kind == "in files" else 2**30,
    }
    features = OneHot() if kind == "counts" else Polynomial(2)
    if kind != "counts":
        states = [trial[:, None].astype(float) for trial in states]
    x = np.array([3, 4]) if kind == "counts" else np.array([[3.0], [4.0]])

    def agent(*parts: slice) -> SeminormLSTDAgent:
        made = SeminormLSTDAgent(features, **options)
        for part in parts:
            space = SIX if kind == "counts" else None
            made.add_trials(states[part], rewards[part], observation_space=space, t_max=15)
        return made

    whole = agent(slice(None)).fit()
    pieces = agent(slice(120), slice(120, None)).fit()
    merged = agent(slice(120)).merge(agent(slice(120, None))).fit()
    # The second state is the main reference of the counts: its value is 0, but for rounding.
    atol = 1e-12 * np.abs(whole.predict(x)).max()
    assert_allclose(pieces.predict(x), whole.predict(x), rtol=1e-9, atol=atol)
    assert_allclose(merged.predict(x), whole.predict(x), rtol=1e-9, atol=atol)
    whole.save(tmp_path / "agent.npz")
    loaded = SeminormLSTDAgent.load(tmp_path / "agent.npz")
    assert_array_equal(loaded.predict(x), whole.predict(x))
    assert_array_equal(loaded.fit().standard_errors(x), whole.standard_errors(x))
    if kind == "counts":
        given = SeminormLSTDAgent(OneHot(), anchors=[0]).add(whole.counts).fit()
        assert_allclose(given.predict(x), whole.predict(x), rtol=1e-9, atol=atol)
    if kind == "kept":
        given = SeminormLSTDAgent(features, anchors=[0]).attach(like(whole))
        assert_allclose(given.add(whole.kept_trials).fit().predict(x), whole.predict(x), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:the tail, .* is too short")  # all ends within three timesteps
def test_truncation_is_not_termination() -> None:
    """A walk 0, 1, 2, 3 that ends on reaching 3, and trials cut short before."""
    options: dict[str, Any] = {"on_termination": "absorb", "gain": 0.0}
    trials = [[0, 1, 2, 3], [0, 1], [0, 1, 2]] * 20
    rewards = [[0.0, 1.0, 2.0], [0.0], [0.0, 1.0]] * 20
    agent = SeminormLSTDAgent(OneHot(), 1, **options)
    terminated = np.array([True, False, False] * 20)
    space = spaces.Discrete(4)
    agent.add_trials(trials, rewards, terminated=terminated, observation_space=space, t_max=2)
    agent.fit()
    assert_allclose(agent.predict([0, 1, 2]), [3.0, 3.0, 2.0], atol=1e-9)
    with pytest.raises(TerminationError, match="trial 0 terminated at timestep 2"):
        SeminormLSTDAgent(OneHot()).add_trials(
            trials, rewards, terminated=terminated, observation_space=space
        )


def table(states: Any, rewards: Any, actions: Any, first: int = 0) -> dict[str, Any]:
    """One row a timestep, shuffled; the last row of each trial has no reward."""
    rows = [
        (i, first + t, s, *((actions[i][t], rewards[i][t]) if t < len(rewards[i]) else (0, np.nan)))
        for i, trial in enumerate(states)
        for t, s in enumerate(trial)
    ]
    order = np.random.default_rng(0).permutation(len(rows))
    columns = np.array(rows)[order].T
    return dict(zip(("episode", "t", "state", "action", "reward"), columns, strict=True))


NAMES: dict[str, Any] = {
    "trial": "episode",
    "timestep": "t",
    "observation": "state",
    "action": "action",
    "reward": "reward",
}


@pytest.mark.parametrize("first", [0, 1])
def test_a_table_holds_the_same_trials(first: int) -> None:
    states, rewards, actions = simulated(30, 7)
    frame = table(states, rewards, actions, first)
    agent = SeminormLSTDAgent(np.eye(6))
    # Shuffled rows keep trials in the order in which they come, which does not matter to counts.
    agent.add_trials(LoggedTrials.from_frame(frame, **NAMES), policy=POLICY)
    expected = SeminormLSTDAgent(np.eye(6)).add_trials(states, rewards)
    ours, theirs = (each.counts.transition_counts.toarray() for each in (agent, expected))
    assert_array_equal(ours, theirs)
    assert_allclose(agent.counts.reward_sums.toarray(), expected.counts.reward_sums.toarray())


def test_a_pandas_frame_of_vectors_with_next_observations() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 2))
    frame = pandas.DataFrame(
        {
            "run": ["a", "a", "b", "b", "b"],
            "x": x[:, 0],
            "v": x[:, 1],
            "nx": [x[1, 0], 9.0, x[3, 0], x[4, 0], 8.0],
            "nv": [x[1, 1], 9.0, x[3, 1], x[4, 1], 8.0],
            "r": np.arange(5.0),
            "done": [False, True, False, False, False],
        }
    )
    trials = LoggedTrials.from_frame(
        frame,
        trial="run",
        observation=["x", "v"],
        next_observation=["nx", "nv"],
        reward="r",
        terminated="done",
    )
    assert trials.lengths.tolist() == [2, 3]
    assert trials.terminated.tolist() == [True, False]
    assert_array_equal(trials.observations[1], [*x[2:], [8.0, 8.0]])
    frame.loc[0, "nx"] = 7.0
    with pytest.raises(InvalidInputError, match="row 0 of trial 'a' is followed by"):
        LoggedTrials.from_frame(
            frame, trial="run", observation=["x", "v"], next_observation=["nx", "nv"], reward="r"
        )


def test_a_table_of_one_row_is_a_trial() -> None:
    frame = {"run": [0], "s": [1], "next": [2], "r": [3.0]}
    trials = LoggedTrials.from_frame(
        frame, trial="run", observation="s", next_observation="next", reward="r"
    )
    assert trials.observations[0].tolist() == [1, 2]


def changed(**columns: Any) -> Any:
    states, rewards, actions = simulated(3, 4)
    frame = table(states, rewards, actions)
    order = np.lexsort((frame["t"], frame["episode"]))
    frame = {name: column[order] for name, column in frame.items()}
    for name, change in columns.items():
        change(frame[name])
    return frame


def put(i: Any, value: Any) -> Any:
    return lambda column: column.__setitem__(i, value)


@pytest.mark.parametrize(
    ("frame", "names", "message"),
    [
        (changed(), {"reward": "paid"}, r"reward='paid' is no column; there are \['episode'"),
        ([(0, 0.0)], {}, "a table is a DataFrame, a structured array or a dict; got list"),
        (changed(), {"reward": None}, "reward= names a column of the table; got None"),
        (changed(), {"action": [1]}, r"action= names a column of the table; got \[1\]"),
        (changed(), {"trial": ["episode", "t"]}, "trial= names a column"),
        ({**changed(), "t": [0, 1]}, {}, r"one entry a row; got timestep \(2,\), reward"),
        ({**changed(), "episode": [None] * 18}, {}, "trials have numbers or names.*none is"),
        ({**changed(), "episode": [0.0] * 14 + [np.nan] * 4}, {}, "numbers or names.*none is"),
        (
            {**changed(), "episode": np.array([1] * 14 + ["NaT"] * 4, "m8[s]")},
            {},
            "numbers or names.*none is",
        ),
        (
            {**changed(), "episode": np.array([0] * 14 + [np.nan] * 4, object)},
            {},
            "numbers or names.*none is",
        ),
        ({**changed(), "end": ["False"] * 18}, {"terminated": "end"}, "true or false in each row"),
        ({**changed(), "end": [np.nan] * 18}, {"terminated": "end"}, "true or false in each row"),
        (
            {**changed(), "reward": changed()["reward"].astype(str)},
            {},
            "rewards are numbers; got .*convert",
        ),
        (changed(t=put(2, 7)), {}, "has timestep .*3.* where 2.* comes next"),
        (
            changed(reward=put(5, 1.0)),
            {},
            r"trial .*0.0.* has the reward 1\.0.*drop_last",
        ),
        (
            changed(reward=lambda c: c.__setitem__(slice(None), np.append(np.nan, c[:-1]))),
            {},
            "paid on entering a row's observation.*Shift",
        ),
        (changed(reward=put(2, np.nan)), {}, r"got nan in row 2 of trial .*0.*cut"),
        (changed(t=lambda c: c.__setitem__(slice(None), 0)), {}, "leave none out"),
        ({**changed(), "t": changed()["t"].astype(str)}, {}, "timesteps are integers; got .*count"),
        (
            {**changed(), "at": changed()["t"].astype(str)},
            {"time": "at", "drop_last": True},
            "got '0.0': use datetime64",
        ),
    ],
)
def test_an_invalid_table_is_refused(frame: Any, names: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        LoggedTrials.from_frame(frame, **{**NAMES, **names})


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8, object])
def test_times_of_small_or_unsigned_integers_do_not_wrap_around(dtype: Any) -> None:
    frame: Any = {"episode": [0, 0, 0], "state": [0, 1, 2], "reward": [1.0, 2.0, np.nan]}
    names: Any = {"trial": "episode", "observation": "state", "reward": "reward", "time": "at"}
    rising = np.array([-100 if dtype is np.int8 else 0, 100, 120]).astype(dtype)
    found = LoggedTrials.from_frame({**frame, "at": rising}, **names)
    assert found.durations is not None
    assert found.durations[0].tolist() == [200.0 if dtype is np.int8 else 100.0, 20.0]
    with pytest.raises(InvalidInputError, match="durations must be finite, from 0 to"):
        LoggedTrials.from_frame({**frame, "at": rising[[0, 2, 1]]}, **names)


def test_the_last_row_of_a_table_is_left_out_only_on_request() -> None:
    frame = changed(reward=lambda c: np.nan_to_num(c, copy=False, nan=99.0))
    trials = LoggedTrials.from_frame(frame, **NAMES, drop_last=True)
    assert trials.lengths.tolist() == [5, 5, 5]
    assert max(paid.max() for paid in trials.rewards) < 99.0


def with_nan(states: Any) -> Any:
    states = states.astype(float)
    states[2, 3] = np.nan
    return states


STATES, REWARDS, ACTIONS = simulated(5, 6)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((STATES, None), {}, "rewards are missing"),
        ((STATES, REWARDS[:, :-1]), {}, "8 observations, 6 rewards: give one more"),
        ((STATES[:, :-1], REWARDS), {}, "shifted by one: leave the first out"),
        ((STATES[:4], REWARDS), {}, "rewards are of 5 trials, observations of 4"),
        ((STATES, REWARDS, ACTIONS[:, :-1]), {}, "give one for each reward"),
        ((STATES, REWARDS, ACTIONS[:3]), {}, "actions of 3"),
        ((STATES, REWARDS), {"policy": POLICY}, "the log has none: give actions"),
        (
            (STATES, REWARDS, 1 - ACTIONS),
            {"policy": POLICY},
            "which the policy never",
        ),
        ((STATES, REWARDS, ACTIONS + 2), {"policy": np.full((6, 2), 0.5)}, "the policy never does"),
        ((STATES, REWARDS, 1 - ACTIONS), {"policy": lambda s: s % 2}, "the policy never does"),
        ((STATES, REWARDS, ACTIONS), {"policy": np.zeros(5, int)}, "a policy is 6 integer actions"),
        ((STATES + 3, REWARDS), {}, r"integers from 0 to 5; got .*6.* in trial 0, observation 2"),
        ((with_nan(STATES), REWARDS), {}, "in trial 2, observation 3"),
        ((STATES[..., None], REWARDS), {}, r"one number each; got \(8, 1\)"),
        ((STATES + 0.5, REWARDS), {}, "integers from 0 to 5.*in trial 0, observation 0"),
        ((STATES, np.full((5, 7), np.inf)), {}, "rewards must be finite.*got .* of trial 0"),
        ((STATES, REWARDS), {"terminated": [True]}, "a bool for each of 5 trials"),
        ((STATES, REWARDS), {"t_max": 7}, "no trial has timestep 7"),
        ((STATES, REWARDS), {"t_max": -1}, "t_max must be at least 0"),
        (([], []), {}, "there are no trials"),
        ((STATES, [[]] * 5), {}, "at least one; got"),
        ((STATES, [["a"] * 7] * 5), {}, "rewards of trial 0 must be real numbers"),
        ((LoggedTrials.of(STATES, REWARDS), REWARDS), {}, "leave rewards= out"),
    ],
)
def test_trials_of_another_task_are_refused_and_change_nothing(
    arguments: Any, options: Any, message: str
) -> None:
    agent = SeminormLSTDAgent(np.eye(6))
    with pytest.raises(InvalidInputError, match=message):
        agent.add_trials(*arguments, **options)
    assert agent.n_trials == 0
    assert agent.add_trials(STATES, REWARDS).n_trials == 5


def test_vectors_outside_their_space_are_refused() -> None:
    box = spaces.Box(0.0, 5.0, (1,), np.float64)
    vectors = STATES[:, :, None].astype(float)
    agent = SeminormLSTDAgent(Polynomial(1))
    for wrong, message in (
        (5.5, r"observation 3 of trial 2 is \[5\.5\]"),
        (np.nan, "in trial 2, observation 3"),
        (np.inf, "in trial 2, observation 3"),
    ):
        bad = vectors.copy()
        bad[2, 3] = wrong
        with pytest.raises(InvalidInputError, match=message):
            agent.add_trials(bad, REWARDS, observation_space=box)
    assert agent.add_trials(vectors, REWARDS, observation_space=box).n_trials == 5
    with pytest.raises(NotFittedError, match=r"attach\(env\)"):
        SeminormLSTDAgent(Polynomial(1)).add_trials(STATES, REWARDS)


def test_actions_drawn_with_other_probabilities_are_refused() -> None:
    fair, biased = np.full((6, 2), 0.5), np.full((6, 2), [0.65, 0.35])
    for seed in range(3):
        states, rewards, actions = simulated(50, 20, fair, seed=seed)
        agent = SeminormLSTDAgent(np.eye(6)).add_trials(states, rewards, actions, policy=fair)
        with pytest.raises(InvalidInputError, match="not drawn by the policy: in state"):
            SeminormLSTDAgent(np.eye(6)).add_trials(states, rewards, actions, policy=biased)
        with pytest.raises(InvalidInputError, match="of another policy"):
            agent.add_trials(states, rewards, actions, policy=POLICY)


def test_actions_after_a_trial_was_cut_short_are_not_counted() -> None:
    lengths = np.array([7, 3, 7, 1, 7])
    trials = KeptTrials.of(STATES, REWARDS, lengths, ACTIONS)
    counted: Any = SeminormLSTDAgent(np.eye(6)).add(trials).batches.counted
    assert sum(taken.count.sum() for _, taken in counted if taken is not None) == lengths.sum()


def test_whole_numbers_of_a_table_are_actions_of_a_policys_table() -> None:
    agent = SeminormLSTDAgent(np.eye(6))
    agent.add_trials(STATES, REWARDS, ACTIONS.astype(float), policy=POLICY)
    assert agent.action_coverage(np.arange(6)).sum() == ACTIONS.size
    with pytest.raises(InvalidInputError, match="integers from 0 to 5"):
        agent.add_trials(STATES + 3, REWARDS, ACTIONS, policy=POLICY)


def test_a_policys_table_checks_numbers_that_are_kept_as_vectors() -> None:
    agent = SeminormLSTDAgent(Polynomial(1), observations="vectors")
    how: dict[str, Any] = {"policy": POLICY, "observation_space": SIX}
    assert agent.add_trials(STATES, REWARDS, ACTIONS, **how).n_trials == 5
    with pytest.raises(InvalidInputError, match="which the policy never"):
        agent.add_trials(STATES, REWARDS, 1 - ACTIONS, **how)


def test_longer_trials_are_cut_only_on_request() -> None:
    agent = SeminormLSTDAgent(np.eye(6)).add_trials(STATES, REWARDS, t_max=3)
    assert agent.counts.t_max == 3
    with pytest.raises(InvalidInputError, match=r"goes on to timestep 6.*t_max=3"):
        agent.add_trials(STATES, REWARDS)
    agent.add_trials(STATES, REWARDS, t_max=3).add_trials(STATES[:, :3], REWARDS[:, :2])
    assert agent.counts.trials_at.tolist() == [15, 15, 10, 10]
    with pytest.raises(InvalidInputError, match="have t_max = 3; got 6"):
        agent.add_trials(STATES, REWARDS, t_max=6)
    env = gym.make("unichain_gym:Unichain-h6-v0")
    other = SeminormLSTDAgent(np.eye(6)).collect(env, POLICY, n_trials=5, t_max=3, seed=0)
    assert other.add(agent.counts).n_trials == 20


def test_dict_observations_come_trial_by_trial() -> None:
    space = spaces.Dict({"x": spaces.Box(0.0, 9.0, (1,), np.float64), "even": spaces.Discrete(2)})
    batches = [{"x": s[:, None].astype(float), "even": s % 2} for s in STATES]
    agent = SeminormLSTDAgent(Polynomial(1)).add_trials(batches, REWARDS, observation_space=space)
    assert agent.kept_trials.observations.shape == (5, 8, 3)


@pytest.mark.filterwarnings("ignore::UserWarning")  # that the data set names no author or code
def test_a_minari_dataset_that_was_written_is_read(tmp_path: Any, monkeypatch: Any) -> None:
    minari = pytest.importorskip("minari", reason='needs pip install "unichain-gym[minari]"')
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    lengths = [7, 5, 7, 2, 7]
    buffers = []
    for i, n in enumerate(lengths):
        ends = np.arange(n) == n - 1
        buffers.append(
            EpisodeBuffer(
                id=i,
                observations=STATES[i, : n + 1],
                actions=ACTIONS[i, :n],
                rewards=REWARDS[i, :n],
                terminations=ends & (i == 3),
                truncations=ends & (i != 3),
            )
        )
    dataset = minari.create_dataset_from_buffers(
        "h6/logged-v0", buffers, observation_space=SIX, action_space=spaces.Discrete(2)
    )
    parts = [(STATES[i, : n + 1], REWARDS[i, :n]) for i, n in enumerate(lengths)]
    ended = np.arange(5) == 3
    found, expected = (SeminormLSTDAgent(OneHot(), on_termination="absorb") for _ in range(2))
    found.add_trials(minari.load_dataset("h6/logged-v0"), policy=POLICY)
    observations, rewards = zip(*parts, strict=True)
    expected.add_trials(observations, rewards, terminated=ended, observation_space=SIX)
    ours, theirs = (each.counts.transition_counts.toarray() for each in (found, expected))
    assert_array_equal(ours, theirs)
    assert_array_equal(found.counts.trials_at, [5, 5, 5, 5, 5, 4, 4])
    assert_array_equal(found.counts.reward_sums.toarray(), expected.counts.reward_sums.toarray())
    with pytest.raises(InvalidInputError, match="which the policy never does"):
        SeminormLSTDAgent(OneHot(), on_termination="absorb").add_trials(dataset, policy=1 - POLICY)
    with pytest.raises(TerminationError, match="trial 3 terminated at timestep 1"):
        SeminormLSTDAgent(OneHot()).add_trials(dataset)


@pytest.mark.slow
def test_random_lengths_hold_the_rates_of_their_standard_errors() -> None:
    """Over 20 logs of random lengths, errors are within two standard errors as often as should."""
    chain = make_mdp("h6").induce(POLICY)
    inside = []
    for seed in range(20):
        states, rewards = cut(300, 60, seed=seed)
        agent = SeminormLSTDAgent(OneHot(), 1).add_trials(states, rewards, observation_space=SIX)
        agent.fit()
        found = agent.compare(0, 3)
        values = chain.relative_value(3)
        inside.append(abs(found.difference - values[0]) <= 2.0 * found.standard_error)
    assert np.mean(inside) >= 0.8


def test_observations_and_rewards_are_needed() -> None:
    """None is refused in words of our own."""
    with pytest.raises(InvalidInputError, match="rewards are given for each trial; got None"):
        LoggedTrials.of([[0, 1]], None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="observations are given for each trial; got None"):
        LoggedTrials.of(None, [[1.0]])  # type: ignore[arg-type]
