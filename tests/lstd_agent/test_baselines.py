"""Baselines, held to closed forms, independent figures and each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from lstd_agent import KeptTrials, LambdaReturn, SeminormLSTDAgent, TransitionCounts
from lstd_agent.baselines import (
    average_reward_lstd,
    certainty_equivalence,
    differential_td,
    discounted_lstd,
    monte_carlo,
)
from lstd_agent.errors import EvaluationError, InvalidInputError
from lstd_agent.problems import random_chain, random_features
from unichain_gym import MarkovChain, simulate_counts


def exact_counts(chain: MarkovChain, t_max: int, start: np.ndarray | None = None) -> Any:
    """Counts with probabilities in place of numbers: those of infinitely many trials."""
    P, S = chain.transition_matrix.toarray(), chain.n_states
    p = chain.initial_distribution if start is None else start
    counts, rewards = [], []
    for _ in range(t_max + 1):
        moves = p[:, None] * P
        moves[:, moves.sum(axis=0) < 1e-25] = 0.0
        counts.append(moves.ravel())
        rewards.append(moves.sum(axis=1) * chain.reward)
        p = moves.sum(axis=0)
    return TransitionCounts(
        S, 1, sparse.csr_array(np.array(counts)), sparse.csr_array(np.array(rewards))
    )


@pytest.mark.parametrize("env", ["h6", "c10", "h36c", "m4"])
def test_certainty_equivalence_of_exact_counts_is_the_bias(env: str) -> None:
    chain = random_chain(env, 0)
    found = certainty_equivalence(exact_counts(chain, 20 * chain.mixing_time()), chain.gain)
    assert_allclose(found, chain.bias, atol=1e-10 * np.abs(chain.bias).max())


def test_certainty_equivalence_is_nan_for_states_without_a_way_back() -> None:
    trials = KeptTrials.of([[0, 0, 0], [0, 0, 2]], np.ones((2, 2)))
    found = certainty_equivalence(SeminormLSTDAgent(np.eye(3)).add(trials).counts)
    assert_allclose(found, [0.0, np.nan, np.nan])


@pytest.mark.parametrize("decay", [0.0, 0.6, 1.0])
def test_lstd_of_a_settled_chain_is_the_closed_form(decay: float) -> None:
    """A = Σ_k (T - k) λ^k Φᵀ D P^k over the T timesteps; A (I - P) Φ w = A (r - g)."""
    chain, F = random_chain("h3", 1), np.array([[1.0], [0.5], [-1.0]])
    p = chain.stationary_distribution
    found = average_reward_lstd(exact_counts(chain, 49, p), F, chain.gain, decay=decay)
    P = chain.transition_matrix.toarray()
    power, traced = np.diag(p), np.zeros((3, 3))
    for k in range(50):
        traced += (50 - k) * decay**k * power
        power = power @ P
    A = F.T @ traced
    w = np.linalg.solve(A @ (np.eye(3) - P) @ F, A @ (chain.reward - chain.gain))
    assert_allclose(found.weights, w, rtol=1e-10)


@pytest.mark.parametrize("way", ["trials", "counts"])
def test_lstd_equals_the_reference_figures(reference: Any, way: str) -> None:
    sample = reference("multistep")["sample"]
    states, rewards = np.array(sample["states"]), np.array(sample["rewards"])
    F = np.array(sample["features"])
    cases = [c for c in sample["cases"] if c["way"] == way and "lambda" in c]
    cases = [c for c in cases if c["window"][1] == rewards.shape[1]]
    assert len(cases) == 8
    for case in cases:
        first = case["window"][0]
        trials = states[:, first:], rewards[:, first:]
        if way == "trials":
            kept = KeptTrials.of(trials[0][:, :, None], trials[1])
            samples: tuple[Any, Any] = (kept, lambda x: F[x[:, 0].astype(int)])
        else:
            samples = (SeminormLSTDAgent(F).add(KeptTrials.of(*trials)).counts, F)
        found = average_reward_lstd(*samples, sample["gain"], decay=case["lambda"])
        assert_allclose(found.weights, case["w"], atol=1e-8 * np.abs(case["w"]).max())


def sampled(env: str, d: int, n_trials: int = 2_000) -> tuple[MarkovChain, Any, np.ndarray]:
    chain = random_chain(env, 0)
    drawn = simulate_counts(chain, n_trials, 3 * chain.mixing_time(), np.random.default_rng(0))
    return chain, TransitionCounts.of(drawn), random_features(chain.n_states, d, 0)


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")  # random features do not fit
@pytest.mark.parametrize("d", [17, *(pytest.param(d, marks=pytest.mark.slow) for d in (3, 36))])
@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_lstd_is_one_neighborhood_of_a_linked_system(d: int, decay: float) -> None:
    chain, counts, F = sampled("h36c", d)
    agent = SeminormLSTDAgent(F, anchors=[0], gain=chain.gain, backup=LambdaReturn(decay))
    system = agent.add(counts).fit().system_
    found = average_reward_lstd(counts, F, chain.gain, decay=decay)(F)
    expected = F @ system.weights[0]
    seen = np.flatnonzero(system.occupancy[0])
    assert_allclose(np.ptp(found[seen]), np.ptp(expected[seen]), rtol=1e-6)
    difference = (found - expected)[seen]
    assert np.ptp(difference) <= 1e-6 * np.ptp(expected[seen])


@pytest.mark.parametrize("decay", [0.0, 0.8])
@pytest.mark.parametrize("gain_is_known", [True, False])
def test_differential_td_converges_to_lstd(decay: float, gain_is_known: bool) -> None:
    chain, _, F = sampled("h6", 2)
    # In the long run the gain that TD learns is the chain's: starts play no part.
    counts = exact_counts(chain, 200, chain.stationary_distribution)
    gain = chain.gain if gain_is_known else None
    td = differential_td(counts, F, gain, decay=decay, n_updates=10**9)
    lstd = average_reward_lstd(counts, F, chain.gain, decay=decay)
    assert_allclose(td(F), lstd(F), rtol=1e-6)


def test_differential_td_starts_at_0_and_reports_divergence() -> None:
    chain, counts, F = sampled("h6", 2)
    assert not differential_td(counts, F, chain.gain, n_updates=0)(F).any()
    one = differential_td(counts, F, chain.gain, step_size=0.1, n_updates=1)
    two = differential_td(counts, F, chain.gain, step_size=0.2, n_updates=1)
    assert_allclose(two.weights, 2.0 * one.weights)
    with pytest.raises(EvaluationError, match="updates with step_size=1000"):
        differential_td(counts, F, chain.gain, step_size=1000.0)


def test_monte_carlo_is_the_regression_of_returns_along_trials() -> None:
    rng = np.random.default_rng(0)
    states, rewards = rng.normal(size=(50, 12, 2)), rng.normal(size=(50, 11))
    found = monte_carlo(KeptTrials.of(states, rewards), lambda x: x, 0.3)
    returns = np.cumsum((rewards - 0.3)[:, ::-1], axis=1)[:, ::-1]
    F = np.concatenate((states, np.ones((50, 12, 1))), axis=2)[:, :6].reshape(-1, 3)
    w = np.linalg.lstsq(F, returns[:, :6].ravel(), rcond=None)[0]
    assert_allclose(found.weights, w[:2], rtol=1e-9)


def test_monte_carlo_and_small_discount_rates_tend_to_the_bias() -> None:
    chain = random_chain("h6", 0)
    counts, one_hot = exact_counts(chain, 20 * chain.mixing_time()), np.eye(6)
    scale = 1e-8 * np.ptp(chain.bias)
    assert_allclose(monte_carlo(counts, one_hot, chain.gain)(one_hot), chain.bias, atol=scale)
    found = [discounted_lstd(counts, one_hot, gamma)(one_hot) for gamma in (0.99, 0.999, 0.9999)]
    error = [np.abs(each - chain.bias).max() for each in found]
    assert_allclose(np.divide(error[:-1], error[1:]), 10.0, rtol=0.1)  # O(1 - γ)


@pytest.mark.parametrize("discount", [0.0, 0.9])
def test_discounted_lstd_is_the_discounted_value(discount: float) -> None:
    chain = random_chain("c10", 0)
    counts = exact_counts(chain, 30)
    found = discounted_lstd(counts, np.eye(10), discount)(np.eye(10))
    value = np.linalg.solve(np.eye(10) - discount * chain.transition_matrix.toarray(), chain.reward)
    assert_allclose(found - found[9], value - value[9], atol=1e-9 * np.abs(value).max())


def test_without_a_gain_the_mean_reward_of_the_tail_is_taken() -> None:
    _, counts, F = sampled("h36c", 5)
    tail = (counts.t_max + 1) // 2
    gain = counts.reward_sums[tail:].sum() / counts.transition_counts[tail:].sum()
    for estimate in (average_reward_lstd, monte_carlo):
        assert_allclose(estimate(counts, F)(F), estimate(counts, F, gain)(F), rtol=1e-12)
    assert_allclose(certainty_equivalence(counts), certainty_equivalence(counts, gain))


def test_steps_that_take_time_earn_above_the_gain_times_it() -> None:
    rng = np.random.default_rng(0)
    states, rewards = rng.normal(size=(50, 12, 2)), rng.normal(size=(50, 11))
    times = rng.integers(1, 4, size=(50, 11)).astype(float)
    timed = KeptTrials(states, rewards, durations=times)
    gain = rewards[:, 5:].sum() / times[:, 5:].sum()
    plain = KeptTrials(states, rewards - gain * (times - 1.0))
    for estimate in (average_reward_lstd, monte_carlo):
        found = estimate(timed, lambda x: x)
        assert_allclose(found.weights, estimate(plain, lambda x: x, gain).weights, rtol=1e-9)
    with pytest.raises(InvalidInputError, match="these have durations"):
        discounted_lstd(timed, lambda x: x, 0.9)


def test_features_that_do_not_fit_the_samples_are_refused() -> None:
    _, counts, F = sampled("h6", 2)
    trials = KeptTrials.of(np.array([[[0.0], [1.0], [np.nan]]]), np.zeros((1, 2)))
    whole = KeptTrials.of(np.zeros((1, 3, 1)), np.zeros((1, 2)))
    with pytest.raises(InvalidInputError, match="table \\(S, d\\) of the states"):
        monte_carlo(counts, lambda x: x)
    with pytest.raises(InvalidInputError, match="function of the observations \\(n, k\\)"):
        monte_carlo(whole, F)
    with pytest.raises(InvalidInputError, match="some trials terminate"):
        monte_carlo(trials, lambda x: x)
    with pytest.raises(InvalidInputError, match="must have shape \\(6, d\\)"):
        monte_carlo(counts, F[:5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, F: average_reward_lstd(c, F, decay=1.5), "decay must be from 0 to 1; got 1.5"),
        (lambda c, F: discounted_lstd(c, F, 1.0), "discount must be from 0 up to, not 1; got 1.0"),
        (lambda c, F: differential_td(c, F, step_size=0.0), "step_size must be above 0"),
    ],
)
def test_numbers_out_of_range_are_refused(call: Any, message: str) -> None:
    _, counts, F = sampled("h6", 2)
    with pytest.raises(InvalidInputError, match=message):
        call(counts, F)
