"""The fitted agent: gain, predictions, coverage, standard errors, summary and figure."""

from __future__ import annotations

import builtins
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from lstd_agent import GaussianFeatures, OneHot, SeminormLSTDAgent
from lstd_agent.errors import FitWarning, InvalidInputError, MissingDependencyError, NotFittedError
from lstd_agent.trials.counts import TransitionCounts
from unichain_gym import make_mdp, simulate_counts

POLICY = np.array([0, 1, 0, 1, 0, 1])


@pytest.fixture(scope="module")
def agent() -> SeminormLSTDAgent:
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=500)
    return SeminormLSTDAgent(OneHot()).collect(env, POLICY, n_trials=3000, t_max=60, seed=0).fit()


@pytest.fixture(scope="module")
def chain() -> Any:
    return make_mdp("h6").induce(POLICY)


def test_values_are_relative_biases_within_their_errors(agent: Any, chain: Any) -> None:
    states = np.arange(6)
    exact = chain.bias - chain.bias[agent.main_reference_]
    error = np.abs(agent.predict(states) - exact)
    assert (error <= 5 * agent.standard_errors(states)).all()
    assert agent.gain_ == pytest.approx(chain.gain, rel=0.01)
    assert agent.predict(agent.main_reference_) == pytest.approx(0.0, abs=1e-12)


def test_the_bias_of_the_start_does_not_depend_on_the_main_reference(
    agent: Any, chain: Any
) -> None:
    exact = make_mdp("h6").initial_distribution @ chain.bias
    assert abs(agent.start_bias_ - exact) < 4.0 * agent.start_bias_error_


def test_predictions_take_the_shape_of_the_observations(agent: Any) -> None:
    assert agent.predict(3).shape == ()
    assert agent.predict([[3, 4], [5, 0]]).shape == (2, 2)
    assert agent.predict(3, [0, 50, 1000]).shape == (3,)
    assert_array_equal(agent.predict([3, 4], [0, 99]), [agent.predict(3, 0), agent.predict(4, 99)])
    table = agent.predict([[3], [4]], [[0, 50, 99]])
    assert_array_equal(table[1], agent.predict(4, [0, 50, 99]))
    with pytest.raises(InvalidInputError, match=r"must broadcast; got \(2,\) observations"):
        agent.predict([3, 4], [0, 1, 2])
    assert agent.coverage([3, 4], 0).shape == agent.standard_errors([3, 4], 0).shape == (2,)


def test_without_a_timestep_the_neighborhood_with_most_visits_answers(agent: Any) -> None:
    visits = agent.system_.occupancy * agent.system_.n_samples[:, None]
    for state in range(6):
        k = int(np.argmax(visits[:, state]))
        anchor = agent.neighborhoods_[k].anchor
        assert agent.predict(state) == agent.predict(state, anchor)


def test_visits_decide_and_not_their_share() -> None:
    # Twenty trials are in state 0 at t = 0 (all of 20 samples), and ten of them stay until the
    # last timestep (90 of 180).
    agent = SeminormLSTDAgent(np.eye(2), anchors=[0, 1], gain=0.0)
    states = np.array([[0] * 20] + [[0] * 10 + [1] * 10] * 9 + [[1] * 20])
    for t in range(10):
        agent.observe(t, states[t], np.zeros(20), states[t + 1])
    agent.end_trial()
    agent.fit()
    assert agent.coverage(0) == 0.5
    assert agent.coverage(0, 0) == 1.0


def visits(agent: SeminormLSTDAgent) -> Any:
    """Visits (t_max + 1, S) of states."""
    counts = agent.counts
    moves = counts.transition_counts.toarray().reshape(-1, counts.n_states, counts.n_states)
    return moves.sum(axis=2)


def test_coverage_is_the_share_of_the_windows_visits(agent: Any) -> None:
    first = agent.neighborhoods_[0]
    counts = visits(agent)[slice(*first.window)].sum(axis=0)
    assert_allclose(agent.coverage(np.arange(6), 0), counts / counts.sum(), rtol=1e-12)
    late = agent.coverage(np.arange(6), 100)
    last = agent.neighborhoods_[-1]
    counts = visits(agent)[slice(*last.window)].sum(axis=0)
    assert_allclose(late, counts / counts.sum(), rtol=1e-12)


def test_unseen_states_are_predicted_by_generalization() -> None:
    env = gym.make_vec("unichain_gym:Unichain-h36-v0", num_envs=10)
    agent = SeminormLSTDAgent(GaussianFeatures(3), 1)
    agent.collect(env, np.zeros(36, dtype=int), n_trials=10, t_max=0, seed=0)
    with pytest.warns(FitWarning, match="fewer than 10 samples"):
        agent.fit()
    unseen = np.flatnonzero(agent.coverage(np.arange(36)) == 0)
    assert unseen.size > 0
    assert np.isfinite(agent.predict(unseen)).all()


@pytest.mark.parametrize("observation", [6, -1, 1.0, "a", [0, 6]])
def test_impossible_observations_are_refused(agent: Any, observation: Any) -> None:
    with pytest.raises(InvalidInputError, match="integers from 0 to 5"):
        agent.predict(observation)


@pytest.mark.parametrize("t", [-1, 0.5, [0, -2]])
def test_impossible_timesteps_are_refused(agent: Any, t: Any) -> None:
    with pytest.raises(InvalidInputError, match="a timestep is an integer from 0"):
        agent.predict([0, 1], t)


def test_results_before_a_fit_are_refused() -> None:
    agent = SeminormLSTDAgent(OneHot())
    for ask in (lambda: agent.predict(0), agent.summary, lambda: agent.coverage(0)):
        with pytest.raises(NotFittedError, match="not fitted yet: call fit first"):
            ask()
    assert repr(agent) == "<SeminormLSTDAgent n_anchors=2, 0 trials, not fitted>"


@pytest.mark.parametrize(
    ("option", "values", "message"),
    [
        ("n_anchors", [2.5, True, np.nan, "2", np.array([2])], "n_anchors must be an integer"),
        ("n_batches", [2.5, True, None], "n_batches must be an integer"),
        ("n_batches", [0], "n_batches must be at least 1; got 0"),
        ("n_stored_trials", [2.5, False, None], "n_stored_trials must be an integer"),
        ("n_stored_trials", [-1], "n_stored_trials must be at least 0; got -1"),
        ("rcond", [-1.0, 0.0, 1.0, np.nan, True, "small"], "rcond must be above 0 and below 1"),
    ],
)
def test_impossible_options_are_refused(option: str, values: list[Any], message: str) -> None:
    for value in values:
        with pytest.raises(InvalidInputError, match=message):
            SeminormLSTDAgent(OneHot(), **{option: value})


def test_a_gain_is_a_finite_number() -> None:
    for gain in (np.nan, np.inf, "mean", [1.0, 2.0], 1e308, -1e101, 10**400):
        with pytest.raises(InvalidInputError, match="gain must be a finite number or None"):
            SeminormLSTDAgent(OneHot(), gain=gain)  # type: ignore[arg-type]


# The values of the paper's rules are off, which is said.
@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
def test_with_references_the_estimated_gain_is_the_mean_reward_of_the_second_half() -> None:
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=500)
    agent = (
        SeminormLSTDAgent.paper(OneHot())
        .collect(env, POLICY, n_trials=1000, t_max=100, seed=0)
        .fit()
    )
    rewards = agent.counts.reward_sums.toarray().sum(axis=1)
    assert agent.gain_ == pytest.approx(rewards[50:].sum() / (51 * 1000), rel=1e-12)


def fitted_to(batches: Any, anchors: list[int], gain: float) -> SeminormLSTDAgent:
    """An agent whose batches are simulated populations of h6."""
    agent = SeminormLSTDAgent(np.eye(6), anchors=anchors, gain=gain)
    agent.attach(gym.make("unichain_gym:Unichain-h6-v0"))
    for drawn in batches:
        counts = TransitionCounts(
            drawn.n_states, drawn.n_trials, drawn.transition_counts, drawn.reward_sums
        )
        agent.batches.add_counts([(counts, None)])
    return agent.fit()


@pytest.mark.slow
def test_errors_of_rarely_seen_states_are_not_underestimated() -> None:
    """Batches one by one hardly ever see a transient state late; all trials together do.

    Where state 2 was seen 4 to 30 times, an error is no Student's t, but under two standard
    errors in some 80 % of the collections. Errors by fits to single batches say 45 %.
    """
    n_batches, rng = 20, np.random.default_rng(0)
    chain = make_mdp("h6").induce(np.full((6, 2), 0.5))
    batches = [simulate_counts(chain, 50, 24, rng) for _ in range(60 * n_batches)]
    covered = []
    for i in range(60):
        agent = fitted_to(batches[i * n_batches : (i + 1) * n_batches], [0, 16], chain.gain)
        last = agent.neighborhoods_[-1]
        if 4 <= last.occupancy[2] * last.n_samples <= 30:
            error = agent.predict(2, 24) - chain.relative_value(agent.main_reference_)[2]
            covered.append(abs(error) < 2 * agent.standard_errors(2, 24))
    assert len(covered) > 30
    assert np.mean(covered) > 0.65


@pytest.mark.slow
def test_intervals_of_two_standard_errors_cover_the_truth_as_often_as_they_should(
    chain: Any,
) -> None:
    """Over 90 agents of 20 batches: two sides of Student's t with 19 degrees, 94.0 %.

    A state's number of covering intervals is then binomial, 84.6 ± 2.3 of 90. Five standard
    deviations are 74: six states fall below with a chance under 1e-3 (binomial tail).
    """
    n_agents, n_batches, t_max = 90, 20, 40
    rng = np.random.default_rng(1)
    batches = [simulate_counts(chain, 200, t_max, rng) for _ in range(n_agents * n_batches)]
    covered = np.zeros(6)
    for i in range(n_agents):
        agent = fitted_to(batches[i * n_batches : (i + 1) * n_batches], [0, 12], chain.gain)
        exact = chain.bias - chain.bias[agent.main_reference_]
        error = np.abs(agent.predict(np.arange(6)) - exact)
        covered += error <= 2 * agent.standard_errors(np.arange(6))
    # The main reference has value and error zero, and is always covered.
    assert (covered >= 74).all()
    assert covered.min() < 90


def test_an_estimated_gain_has_its_share_in_the_errors() -> None:
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=100)
    errors = []
    for gain in (None, make_mdp("h6").induce(POLICY).gain):
        agent = SeminormLSTDAgent(OneHot(), gain=gain, backup="one_step")
        agent.collect(env, POLICY, n_trials=2000, t_max=30, seed=0)
        errors.append(agent.fit().standard_errors(0))
    # It may make them smaller: its error and that of the weights are correlated.
    assert min(errors) > 0
    assert errors[0] != pytest.approx(errors[1], rel=1e-2)


def test_standard_errors_need_batches() -> None:
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=100)
    counts = SeminormLSTDAgent(OneHot()).collect(env, POLICY, n_trials=100, t_max=20, seed=0).counts
    agent = SeminormLSTDAgent(OneHot()).add(counts).fit()
    with pytest.raises(NotFittedError, match=r"there is 1: .* add counts in several portions"):
        agent.standard_errors(0)
    agent.collect(env, POLICY, n_trials=100, t_max=20, seed=1).fit()
    assert np.isfinite(agent.standard_errors(0))


@pytest.mark.parametrize("num_envs", [0, 10, 100])
def test_trials_not_rounds_are_dealt_into_batches(num_envs: int) -> None:
    name = "unichain_gym:Unichain-h6-v0"
    env = gym.make_vec(name, num_envs=num_envs) if num_envs else gym.make(name)
    agent = SeminormLSTDAgent(OneHot()).collect(env, POLICY, n_trials=95, t_max=5, seed=0)
    assert [sums.n_trials for sums in agent.batches.sums] == [5] * 15 + [4] * 5
    agent.collect(env, POLICY, n_trials=5, t_max=5, seed=1)
    assert [sums.n_trials for sums in agent.batches.sums] == [5] * 20


def test_the_summary_lists_every_neighborhood(agent: Any) -> None:
    text = agent.summary()
    assert "trials      3000, timesteps 0 to 60" in text
    assert "(estimated)" in text
    assert text.splitlines()[-len(agent.neighborhoods_) - 1].split()[0] == "anchor"
    assert str(agent.diagnostics()) in text
    for n in agent.neighborhoods_:
        assert f"{n.rank}/6" in text
    assert repr(agent) == "<SeminormLSTDAgent n_anchors=2, 3000 trials, 2 fitted>"


def test_the_figure_shows_values_occupancies_and_distances(agent: Any) -> None:
    figure = agent.plot()
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:3] == [
        "Relative values where they were seen, ± 2 standard errors",
        "Occupancy",
        "Neighborhoods: squared distance from the anchor",
    ]
    first = agent.neighborhoods_[0]
    points = figure.axes[0].lines[0].get_xydata()
    seen = np.flatnonzero(first.occupancy > 0)
    assert_allclose(points, np.stack((seen, agent.predict(seen, 0)), axis=1))
    bars = figure.axes[0].collections[0].get_segments()
    lengths = [bar[1, 1] - bar[0, 1] for bar in bars]
    assert_allclose(lengths, 4.0 * agent.standard_errors(seen, 0), rtol=1e-9)
    shares = np.asarray(figure.axes[1].collections[0].get_array()).reshape(6, -1)
    assert_allclose(np.nan_to_num(shares[:, 0]), visits(agent)[0] / agent.n_trials)
    assert figure.axes[2].lines[0].get_xdata()[-1] == first.stop - 1


def test_a_figure_without_matplotlib_names_the_extra(agent: Any, monkeypatch: Any) -> None:
    real = builtins.__import__

    def without_matplotlib(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(MissingDependencyError, match=r'pip install "unichain-gym\[plot\]"'):
        agent.plot()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("features", np.eye(6)),
        ("on_termination", "absorb"),
        ("n_stored_trials", 5),
        ("n_batches", 50),
        ("observations", "vectors"),
        ("max_bytes", 10),
        ("standardize", True),
        ("encoding", None),
        ("actions", None),
    ],
)
def test_options_of_kept_trials_cannot_be_set(agent: Any, name: str, value: Any) -> None:
    before = getattr(agent, name)
    with pytest.raises(AttributeError, match=f"{name} decides how trials are kept"):
        setattr(agent, name, value)
    assert getattr(agent, name) is before


def test_arrays_are_no_names_of_options(agent: Any) -> None:
    with pytest.raises(InvalidInputError, match="standardize must be True or False"):
        SeminormLSTDAgent(OneHot(), standardize=np.ones(2))  # type: ignore[arg-type]
    other = SeminormLSTDAgent(OneHot(), distance=np.ones(2)).add(agent)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="distance must be"):
        other.fit()
