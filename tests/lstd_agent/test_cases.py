"""Trials on which estimators err without a word: answers are right, or a warning says how not.

Right values are closed forms, exact equations of the model, or means of 100,000 trials and more.
Each function of a task returns observations (trials, timesteps + 1, ...) and rewards.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from numpy.testing import assert_allclose

from lstd_agent import LambdaReturn, OneHot, Polynomial, RadialBasis, SeminormLSTDAgent
from lstd_agent.errors import EvaluationError, FitWarning, InvalidInputError, NotFittedError

MOST_ERRORS = 5.0
"""How many of its standard errors an answer may be away."""


def rolled(x: Any, step: Callable[[Any], Any], pays: Callable[[Any], Any], t_max: int) -> Any:
    """Trials from x on: (observations, rewards) with the trial as the first axis."""
    seen, paid = [x], []
    for _ in range(t_max + 1):
        paid.append(pays(x))
        x = step(x)
        seen.append(x)
    return np.stack(seen, axis=1), np.stack(paid, axis=1).astype(float)


def line_log(number: int) -> Any:
    """The log with this number of a line of jobs: 200 trials of 60 to 239 minutes.

    A job comes with probability .45 and goes with .6 a minute. A minute costs the jobs in line, and
    2.5 more above 8.
    """
    rng = np.random.default_rng(11)
    for _ in range(number + 1):
        seen, paid = [], []
        for k in range(200):
            line = [int(rng.poisson(4 if k % 2 else 12))]
            for _ in range(int(rng.integers(60, 240))):
                comes = int(rng.random() < 0.45)
                goes = int(rng.random() < 0.6 and line[-1] > 0)
                line.append(line[-1] + comes - goes)
            seen.append(np.array(line))
            paid.append(-(seen[-1][:-1] + np.where(seen[-1][:-1] > 8, 2.5, 0.0)))
    return seen, paid


def circles() -> Any:
    """Points turn for ever, each on a circle of its own, and pay -x²."""
    a = 0.1
    turn = np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]])
    start = np.random.default_rng(0).normal(size=(200, 2))
    return rolled(start, lambda x: x @ turn, lambda x: -(x[:, 0] ** 2), 150)


def plateau() -> Any:
    """A line of 110 or 140 jobs loses half a job a step, and pays 1 until it is empty."""
    rng = np.random.default_rng(0)
    start = rng.choice([110, 140], 400)
    return rolled(
        start, lambda q: np.maximum(q - 1, 0) + (rng.random(400) < 0.5), lambda q: q > 0, 100
    )


def short_line(seed: int = 0, t_max: int = 150) -> Any:
    """A line of at most 20 jobs from 0 or 20 costs its length; gain -.75, start bias -479.1."""
    rng = np.random.default_rng(seed)
    start = rng.choice([0, 20], 400)

    def step(q: Any) -> Any:
        comes = (rng.random(400) < 0.5).astype(int)
        return np.clip(q + comes - (rng.random(400) < 0.7), 0, 20)

    q, paid = rolled(start, step, lambda q: -q, t_max)
    return q[..., None].astype(float), paid


def with_clock(data: Any) -> Any:
    """The same trials with the time among the observations."""
    seen, paid = data
    time = np.broadcast_to(np.arange(seen.shape[1])[:, None], seen.shape)
    return np.concatenate((seen, time), axis=2), paid


def ring(t_max: int) -> Any:
    """State 0 stays with .95 and pays 5, before a ring of six that pays nothing: 0 is worth 100."""
    rng = np.random.default_rng(0)

    def step(s: Any) -> Any:
        stays = rng.random(2000) < 0.95
        return np.where(s == 0, np.where(stays, 0, 1), s % 6 + 1)

    return rolled(np.zeros(2000, int), step, lambda s: 5.0 * (s == 0), t_max)


def hidden_pay() -> Any:
    """From 0 or 1 to 2, which pays 5 after 0 and -5 after 1, until it is left with .2."""
    rng = np.random.default_rng(0)
    start = rng.integers(0, 2, 1000)

    def pays(s: Any) -> Any:
        return np.where(s == 2, np.where(start == 0, 5.0, -5.0), 1.0 * (s == 4))

    def step(s: Any) -> Any:
        u = rng.random(1000)
        core = 3 + (rng.random(1000) < 0.5)
        return np.where(s < 2, 2, np.where(s == 2, np.where(u < 0.2, 3, 2), core))

    return rolled(start, step, pays, 60)


def far_start(t_max: int) -> Any:
    """x → .9 x + noise of unit variance in the end, from 0 to 10, pays -|x|: 10 is worth -77.8."""
    rng = np.random.default_rng(0)
    x, paid = rolled(
        10 * rng.random(400),
        lambda x: 0.9 * x + np.sqrt(0.19) * rng.standard_normal(400),
        lambda x: -np.abs(x),
        t_max,
    )
    return x[..., None], paid


def backlog(seed: int, n: int = 100, t_max: int = 150) -> Any:
    """Work of 20 units; a step brings up to 1.4, does 1, and costs what waits.

    The gain is -.1038; 20 is worth -688 beside 0, and 5 -46.9.
    """
    streams = [np.random.default_rng(1000 * seed + k) for k in range(n)]
    more = np.array([each.uniform(0.0, 1.4, t_max + 1) for each in streams]).T[::-1]
    left = list(more)
    x, paid = rolled(
        np.full(n, 20.0), lambda w: np.maximum(0.0, w + left.pop() - 1.0), lambda w: -w, t_max
    )
    return x[..., None], paid


def decaying(seed: int, power: int) -> Any:
    """x → .8 x + noise, from 0 to 10, pays x to a power."""
    rng = np.random.default_rng(seed)
    x, paid = rolled(
        np.round(10 * rng.random(200), 1),
        lambda x: 0.8 * x + 0.5 * rng.standard_normal(200),
        lambda x: x**power,
        60,
    )
    return x[..., None], paid


def fitted(
    features: Any, data: Any, n_anchors: Any = 2, **options: Any
) -> tuple[SeminormLSTDAgent, str]:
    """Return an agent and what it warned of; any other warning fails."""
    names = "t_max", "terminated"
    added: dict[str, Any] = {name: options.pop(name) for name in names if name in options}
    seen, paid = data
    agent = SeminormLSTDAgent(features, n_anchors, **options)
    if seen[0].dtype.kind == "i":
        added["observation_space"] = Discrete(1 + max(int(each.max()) for each in seen))
    agent.add_trials(seen, paid, **added)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        agent.fit()
    assert all(each.category is FitWarning for each in caught), [str(w.message) for w in caught]
    return agent, " ".join(str(each.message) for each in caught)


def bumps(n: int, high: float = 25.0) -> RadialBasis:
    return RadialBasis.grid([0.0], [high], n)


def is_near(found: Any, error: float, right: float, most: float) -> bool:
    """Whether an answer is within its errors, which are small enough to be of use."""
    return bool(abs(found - right) <= MOST_ERRORS * error and error <= most)


# The gain, and whether the tail has settled


@pytest.mark.slow
def test_a_few_trials_that_stay_for_long_do_not_decide_the_gain() -> None:
    """In the tail 84 samples of 9,117 are a closed class of states, whose reward is -23."""
    agent, _ = fitted(OneHot(), line_log(26), t_max=100)
    assert is_near(agent.gain_, agent.gain_error_, -1.665, 0.2)
    found = agent.compare([12], [4])
    assert is_near(found.difference, found.standard_error, -513.4, 60.0)
    assert agent.diagnostics().gain_rows == "all"  # by the tail's rows it would be a few samples'


@pytest.mark.parametrize("seed", [0, 3, 12])
def test_the_gain_of_a_backlog_is_right_by_its_error(seed: int) -> None:
    agent, _ = fitted(bumps(8), backlog(seed))
    assert is_near(agent.gain_, agent.gain_error_, -0.1038, 0.01)
    assert agent.diagnostics().gain_rows == "tail"
    found = agent.compare([[20.0]], [[0.0]])
    assert is_near(found.difference, found.standard_error, -688.0, 60.0)


@pytest.mark.parametrize(
    ("features", "data", "options", "least"),
    [
        (bumps(24), lambda: backlog(0), {}, 0.9),
        (bumps(60), lambda: backlog(0), {}, 0.9),
        pytest.param(OneHot(), lambda: line_log(13), {"t_max": 100}, 0.8, marks=pytest.mark.slow),
        (Polynomial(2), short_line, {}, 0.8),
        (OneHot(), lambda: ring(20), {}, 0.4),
    ],
)
def test_the_tail_determines_the_gain_by_many_samples(
    features: Any, data: Any, options: Any, least: float
) -> None:
    agent, _ = fitted(features, data(), **options)
    found = agent.diagnostics()
    assert least < found.gain_share < 1.01
    assert found.gain_rows == "tail"


@pytest.mark.parametrize(
    ("features", "data"),
    [
        pytest.param(OneHot(), plateau, marks=pytest.mark.slow),
        (Polynomial(3), lambda: with_clock(short_line())),
        (bumps(8), lambda: backlog(0, t_max=12)),
    ],
)
def test_a_gain_with_few_effective_samples_is_rejected(features: Any, data: Any) -> None:
    agent, said = fitted(features, data())
    found = agent.diagnostics()
    assert found.gain_share < 0.2
    assert found.gain_rows != "tail"
    assert "the tail does not determine the gain" in said or "not settled" in said
    assert f"{agent.gain_:.6g}" in said


def test_a_tail_shorter_than_a_period_leaves_the_gain_to_all_timesteps() -> None:
    """0 → 1 → 2 → 3 → 0 pays 0, 1, 2, 0. Of the tail's equations 5/6 is the smallest solution."""
    states = np.tile(np.arange(9) % 4, (12, 1))
    agent, _ = fitted(OneHot(), (states, np.array([0.0, 1.0, 2.0, 0.0])[states[:, :-1]]))
    assert agent.gain_ == pytest.approx(0.75)
    assert agent.diagnostics().gain_rows == "all"


@pytest.mark.parametrize("features", [RadialBasis.grid([-2.5] * 2, [2.5] * 2, 6), Polynomial(1)])
def test_trials_that_keep_mean_rewards_of_their_own_are_named(features: Any) -> None:
    """Of half the squared radius, whose standard deviation over trials is 1."""
    agent, said = fitted(features, circles())
    assert "trials keep mean rewards of their own" in said
    assert agent.diagnostics().own_means == pytest.approx(1.0, abs=0.2)


def test_states_that_move_under_flat_rewards_are_named() -> None:
    data = plateau()
    for features, seen in ((OneHot(), data[0]), (bumps(8, 150.0), data[0][..., None] * 1.0)):
        agent, said = fitted(features, (seen, data[1]))
        assert "observations still move in timesteps 50 to 100" in said
        assert not agent.diagnostics().settled


@pytest.mark.first(1)
@pytest.mark.parametrize(
    "features",
    [Polynomial(1), Polynomial(3), RadialBasis.grid([0.0] * 2, [20.0, 151.0], 6)],
)
def test_a_clock_among_observations_is_named(features: Any) -> None:
    _, said = fitted(features, with_clock(short_line()))
    assert "if time itself is among the observations, leave it out" in said


def test_without_the_clock_the_same_trials_have_right_values() -> None:
    agent, _ = fitted(Polynomial(2), short_line())
    assert is_near(agent.gain_, agent.gain_error_, -0.75, 0.1)
    assert is_near(agent.start_bias_, agent.start_bias_error_, -479.1, 40.0)


@pytest.mark.parametrize("t_max", [18, 20, 60])
def test_a_ring_that_pays_nothing_has_gain_0_at_any_length_of_trials(t_max: int) -> None:
    """The start is worth 100; after 20 steps a third of the trials have not left it."""
    agent, said = fitted(OneHot(), ring(t_max))
    assert is_near(agent.gain_, agent.gain_error_, 0.0, 1e-6) or "settled" in said
    right = is_near(agent.start_bias_, agent.start_bias_error_, 100.0, 10.0)
    assert right or "of the start's value may be missing" in said


def test_missing_rewards_are_printed_with_their_error_and_unit() -> None:
    for data in (short_line(), short_line(t_max=30)):
        agent, _ = fitted(Polynomial(2), data)
        found = agent.diagnostics()
        tail = found.tail
        line = f"may be missing: {tail.missing:.3g} ± {tail.missing_error:.2g} (in reward"
        assert line in str(found)
        assert f"changes the total reward by {tail.unit:.3g}" in str(found)
    assert not found.settled
    assert abs(tail.missing) > 2 * tail.missing_error


@pytest.mark.slow
def test_errors_of_gain_and_start_bias_are_as_large_as_they_are_wrong() -> None:
    """Over a dozen logs: root mean squares of errors in their standard errors."""
    off = []
    for seed in range(12):
        agent, _ = fitted(Polynomial(2), short_line(seed))
        gain = (agent.gain_ + 0.75) / agent.gain_error_
        off.append([gain, (agent.start_bias_ + 479.1) / agent.start_bias_error_])
    size = np.sqrt(np.mean(np.square(off), axis=0))
    assert (size > 0.4).all()
    assert (size < 1.8).all()


def test_a_rare_switch_is_right_by_its_error_or_named() -> None:
    """A step pays -1 until a switch with probability 1/337: the start is worth -337, gain 0."""
    rng = np.random.default_rng(0)
    data = rolled(
        np.zeros(400, int), lambda s: s | (rng.random(400) < 1 / 337), lambda s: s - 1.0, 60
    )
    agent, said = fitted(OneHot(), data)
    right = is_near(agent.start_bias_, agent.start_bias_error_, -337.0, 60.0)
    assert right or "of the start's value may be missing" in said


def cut(data: Any, length: Callable[[Any, int], int]) -> Any:
    """The same trials cut short after ``length(observations, number)`` steps."""
    n = [length(seen, k) for k, seen in enumerate(data[0])]
    return (
        [seen[: m + 1] for seen, m in zip(data[0], n, strict=True)],
        [paid[:m] for paid, m in zip(data[1], n, strict=True)],
    )


def test_a_log_with_few_long_trials_is_named() -> None:
    data = cut(short_line(), lambda seen, k: 20 if k < 370 else 151)
    agent, said = fitted(Polynomial(2), data, t_max=150)
    assert "30 of 400 trials have the last timestep, 150" in said
    assert np.isfinite(agent.gain_)


def test_a_log_that_ends_when_the_line_is_empty_is_named() -> None:
    """What is left in the end are the longest lines, whose mean is no gain."""

    def until_empty(seen: Any, k: int) -> int:
        empty = np.flatnonzero(seen[1:, 0] == 0)
        return int(empty[0]) + 1 if len(empty) else len(seen) - 1

    for as_counts in (False, True):
        data = cut(short_line(), until_empty)
        if as_counts:
            data = [seen[:, 0].astype(int) for seen in data[0]], data[1]
        agent, said = fitted(OneHot() if as_counts else Polynomial(2), data, t_max=150)
        right = is_near(agent.gain_, agent.gain_error_, -0.75, 0.1)
        assert right or "end in states from which" in said or "has not settled" in said


# Values, errors and choices


@pytest.mark.parametrize("as_vectors", [False, True])
def test_a_hidden_state_that_pays_is_named_and_returns_give_the_difference(
    as_vectors: bool,
) -> None:
    seen, paid = hidden_pay()
    if as_vectors:
        agent, said = fitted(bumps(5, 4.0), (seen[..., None] * 1.0, paid))
        found = agent.compare([[0.0]], [[1.0]], by="returns")
    else:
        agent, said = fitted(OneHot(), (seen, paid))
        found = agent.compare([0], [1], by="returns")
    assert agent.diagnostics().misfits
    assert 'use compare(a, b, by="returns")' in said
    assert is_near(found.difference, found.standard_error, 50.0, 3.0)
    some, none = ([[0.0]], [[4.0]]) if as_vectors else ([0], [4])
    with pytest.raises(NotFittedError, match=r"there are fewer for b = .*4"):
        agent.compare(some, none, by="returns")


@pytest.mark.first(1)
@pytest.mark.parametrize(("n_anchors", "t_max"), [("auto", 140), (2, 300)])
def test_a_window_with_similar_samples_predicts_an_observation(n_anchors: Any, t_max: int) -> None:
    agent, _ = fitted(Polynomial(1), far_start(t_max), n_anchors)
    found = agent.compare([[10.0]], [[0.0]])
    # A straight line bends where |x| does.
    assert abs(found.difference + 77.8) < MOST_ERRORS * found.standard_error + 0.1 * 77.8
    assert found.standard_error < 10.0


def in_another_order(data: Any, seed: int) -> Any:
    order = np.random.default_rng(seed).permutation(len(data[0]))
    return data[0][order], data[1][order]


@pytest.mark.first(1)
@pytest.mark.parametrize("kind", ["vectors", "counts"])
def test_the_same_trials_in_another_order_or_merged_have_the_same_values(kind: str) -> None:
    seen, paid = far_start(80)
    options: dict[str, Any] = {"features": Polynomial(2)}
    at: Any = np.linspace(0.0, 10.0, 9)[:, None]
    if kind == "counts":
        seen, at = np.rint(seen[..., 0]).astype(int) + 6, np.arange(6, 17)
        options = {"features": OneHot(), "backup": LambdaReturn(0.9)}
    first, _ = fitted(data=(seen, paid), **options)
    others = [fitted(data=in_another_order((seen, paid), seed), **options)[0] for seed in (1, 2)]
    halves = [
        SeminormLSTDAgent(**options).add_trials(
            seen[half], paid[half],
            observation_space=Discrete(int(seen.max()) + 1) if kind == "counts" else None,
        )
        for half in (slice(0, 150), slice(150, None))
    ]  # fmt: skip
    merged = halves[1].merge(halves[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        others.append(merged.fit())
    for agent in others:
        assert agent.system_.anchors.tolist() == first.system_.anchors.tolist()
        assert agent.backup_.backup == first.backup_.backup
        for t in (0, 40, None):
            expected = first.predict(at, t)
            size = np.ptp(expected)
            assert_allclose(agent.predict(at, t), expected, rtol=0, atol=1e-9 * size)
        assert agent.gain_ == pytest.approx(first.gain_, abs=1e-9 * np.ptp(paid))


def cold_wall(seed: int) -> Any:
    """A room of 10 or 16 degrees, whose wall is as cold, costs its distance from 20, squared.

    The wall is hidden. Means are linear in the start, and variances alike, so that the difference
    of the starts' values is known.
    """
    rng = np.random.default_rng(seed)
    start = np.repeat(rng.choice([10.0, 16.0], 300)[:, None], 2, axis=1)
    A = np.array([[0.5, 0.3], [0.15, 0.85]])
    heating = np.array([0.2 * 20.0, 0.0])

    def step(x: Any) -> Any:
        noise = np.stack((0.3 * rng.standard_normal(300), np.zeros(300)), axis=1)
        return x @ A.T + heating + noise

    x, paid = rolled(start, step, lambda x: -((x[:, 0] - 20.0) ** 2), 120)
    right, means = 0.0, np.array([[10.0, 10.0], [16.0, 16.0]])
    for _ in range(121):
        costs = (means[:, 0] - 20.0) ** 2
        right += costs[1] - costs[0]
        means = means @ A.T + heating
    return (x[..., :1], paid), right


@pytest.mark.parametrize("seed", range(3))
def test_a_hidden_cold_wall_is_right_or_named_and_returns_give_the_difference(seed: int) -> None:
    data, right = cold_wall(seed)
    agent, said = fitted(Polynomial(2), data)
    a, b = [[10.0]], [[16.0]]
    by_fit = agent.compare(a, b, 0)
    assert is_near(by_fit.difference, by_fit.standard_error, right, 30.0) or "returns" in said
    found = agent.compare(a, b, by="returns")
    assert is_near(found.difference, found.standard_error, right, 0.05 * abs(right))


@pytest.mark.slow
def test_exact_features_raise_no_alarm() -> None:
    """Values of x² are x² / .36, less a constant."""
    alarms = [fitted(Polynomial(2), decaying(seed, 2))[1] for seed in range(10)]
    assert sum(map(bool, alarms)) <= 1


@pytest.mark.slow
def test_rare_large_rewards_raise_no_alarm_for_features() -> None:
    """5,000 with a chance of .001, whatever the state."""
    alarms = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, paid = decaying(seed, 1)
        paid += 5000.0 * (rng.random(paid.shape) < 0.001)
        alarms.append("distinguish more states" in fitted(Polynomial(1), (x, paid))[1])
    assert sum(alarms) <= 1


@pytest.mark.parametrize("n_anchors", [2, pytest.param(61, marks=pytest.mark.slow), 100])
def test_there_are_no_more_neighborhoods_than_wanted(n_anchors: int) -> None:
    agent, _ = fitted(Polynomial(2), decaying(0, 2), n_anchors)
    anchors = agent.system_.anchors
    assert len(anchors) <= min(n_anchors, 61)
    assert anchors[0] == 0


def test_anchors_of_a_slow_task_leave_the_last_window_a_tail() -> None:
    rng = np.random.default_rng(0)
    data = rolled(np.zeros(200, int), lambda s: s + (rng.random(200) < 0.5), lambda s: -s, 100)
    agent, _ = fitted(Polynomial(1), (data[0][..., None] * 1.0, data[1]))
    assert agent.system_.anchors[-1] <= 51


def test_invalid_anchors_are_named() -> None:
    with pytest.raises(InvalidInputError, match=r"anchors.*240"):
        fitted(Polynomial(1), decaying(0, 1), anchors=[0, 240])


def test_cut_logs_with_the_pooled_model_have_no_other_warning() -> None:
    data = cut(line_log(0), lambda seen, k: 5 + k % 60)
    agent, _ = fitted(OneHot(), data, t_max=63, backup="model")
    assert np.isfinite(agent.gain_)


@pytest.mark.parametrize("as_vectors", [False, True])
@pytest.mark.parametrize("reward", [1e300, 1.7e308])
def test_enormous_rewards_are_fitted_or_refused_by_name(reward: float, as_vectors: bool) -> None:
    seen, paid = hidden_pay()
    paid[0, 0] = reward
    features: Any = bumps(5, 4.0) if as_vectors else OneHot()
    said = ""
    try:
        agent, _ = fitted(features, (seen[..., None] * 1.0 if as_vectors else seen, paid))
    except EvaluationError as error:
        said = str(error)
    if said:
        assert "reward" in said
    else:
        assert np.isfinite(agent.predict([[2.0]] if as_vectors else [2])).all()
