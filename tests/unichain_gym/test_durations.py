"""Steps that take time: gains per unit of time, against exact fractions and closed forms."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from unichain_gym import (
    MarkovChain,
    TabularEnv,
    TabularMDP,
    TabularVectorEnv,
    make_mdp,
    simulate_counts,
)
from unichain_gym.errors import InvalidArgumentError, InvalidModelError


def mdp_of(figures: dict[str, Any]) -> TabularMDP:
    n = len(figures["P"])
    start = np.full(n, 1 / n)
    times = figures["durations"]
    return TabularMDP.from_arrays(figures["P"], figures["rewards"], start, durations=times)


def machine() -> TabularMDP:
    """It runs for 8 hours at 10 an hour; a repair takes 1 or 5 hours, at 4 an hour."""
    return TabularMDP.from_transitions(
        [(0, 0, 1, 1.0, 80.0, 8.0), (1, 0, 0, 0.75, -4.0, 1.0), (1, 0, 0, 0.25, -20.0, 5.0)],
        [1.0, 0.0],
    )


@pytest.mark.parametrize("i", range(16))
def test_gain_and_bias_of_a_chain_equal_those_in_fractions(i: int, reference: Any) -> None:
    case = reference("semi_markov")["chains"][i]
    n = len(case["rewards"])
    start = np.full(n, 1 / n)
    chain = MarkovChain(case["P"], case["rewards"], start, durations=case["durations"])
    assert_allclose(chain.gain_vector, case["gain"], rtol=0, atol=1e-10)
    assert_allclose(chain.bias, case["bias"], rtol=0, atol=1e-10)
    assert len(chain.recurrent_classes) == case["n_classes"]


@pytest.mark.parametrize("precision", ["double", "exact"])
@pytest.mark.parametrize("i", range(12))
def test_optimal_gain_and_policies_equal_the_best_of_all_policies(
    i: int, precision: Any, reference: Any
) -> None:
    case = reference("semi_markov")["mdps"][i]
    mdp = mdp_of(case)
    best = mdp.optimal_policy("gain", precision=precision)
    assert_allclose(best.gain, case["gain"], rtol=0, atol=1e-10)
    assert best.policy.tolist() in case["optimal_policies"]
    taken = np.zeros_like(best.optimal_actions)
    for policy in case["optimal_policies"]:
        taken[np.arange(len(policy)), policy] = True
    assert best.optimal_actions.tolist() == taken.tolist()
    for policy, gain in case["gains"]:
        assert mdp.induce(policy).gain == pytest.approx(gain, abs=1e-10)
    assert_allclose(mdp.worst_policy("gain").gain, min(gain for _, gain in case["gains"]))


@pytest.mark.parametrize("seed", range(10))
def test_no_policy_of_a_sparse_multichain_system_gains_more_from_any_state(seed: int) -> None:
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(4, 0.2), size=(4, 2)) * (rng.random((4, 2, 4)) < 0.5)
    P[..., 0] += P.sum(axis=2) == 0.0
    P /= P.sum(axis=2, keepdims=True)
    times = rng.exponential(size=(4, 2, 4))
    R = rng.normal(size=(4, 2, 4))
    mdp = TabularMDP.from_arrays(P, R, np.full(4, 0.25), durations=times)
    best = mdp.optimal_policy("gain").gain
    assert_allclose(best, np.max([mdp.induce(p).gain_vector for p in mdp.policies()], axis=0))
    chain = mdp.induce(mdp.random_policy(rng, deterministic=False))
    assert chain.policy is not None
    assert_allclose((chain.policy * chain.action_bias).sum(axis=1), chain.bias, atol=1e-9)
    assert all(entry.error_bound < 1e-8 for entry in chain.solver_report.entries)


@pytest.mark.parametrize("seed", range(5))
def test_the_data_transformation_has_the_same_optimal_actions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    S, A = 8, 3
    P = rng.dirichlet(np.ones(S), size=(S, A))
    R, times = rng.normal(size=(S, A)), rng.uniform(0.1, 5.0, size=(S, A))
    start = np.full(S, 1 / S)
    best = TabularMDP.from_arrays(P, R, start, durations=times, drop_below=0).optimal_policy()
    # Schweitzer (1971): steps of one length eta that stay where a longer one would.
    eta = times.min() / 2
    stay = np.eye(S)[:, None]
    same = stay + eta * (P - stay) / times[:, :, None]
    plain = TabularMDP.from_arrays(same, eta * R / times, start, drop_below=0).optimal_policy()
    assert_allclose(best.gain, plain.gain / eta, rtol=1e-10, atol=1e-12)
    assert best.optimal_actions.tolist() == plain.optimal_actions.tolist()


def test_a_renewal_reward_machine_earns_its_cycle_over_its_length() -> None:
    chain = machine().induce([0, 0])
    assert chain.mean_duration == 5.0  # 8 and 2 hours
    assert chain.gain == pytest.approx((80 - 8) / 10)
    assert_allclose(chain.relative_value(0), [0.0, -8 - 7.2 * 2])
    # A cycle's reward less gain times length has variance (4 + 7.2)² Var(repair), over 10 hours.
    assert chain.asymptotic_variance() == pytest.approx((4 + 7.2) ** 2 * 3.0 / 10)
    assert_allclose(chain.hitting_time(0, in_time=True), [0.0, 2.0])
    path = chain.simulate(40_000, 0)
    assert path.durations is not None
    assert path.rewards.sum() / path.durations.sum() == pytest.approx(7.2, abs=0.2)


def test_a_queue_has_the_gain_and_the_relative_values_of_m_m_1() -> None:
    arrive, serve, room, pay, hold = 0.8, 1.0, 10, 6.0, 1.0
    mdp = make_mdp("a11")
    chain = mdp.induce(np.ones(room + 1, dtype=int))
    share = (arrive / serve) ** np.arange(room + 1)
    share /= share.sum()
    gain = arrive * pay * (1 - share[-1]) - hold * share @ np.arange(room + 1)
    assert chain.gain == pytest.approx(gain, abs=1e-12)
    # h(n + 1) - h(n) from the generator: arrive (pay + up) - serve down = gain + hold n.
    up, values = 0.0, [0.0]
    for n in range(room):
        up = (gain + hold * n + serve * up) / arrive - pay
        values.append(values[-1] + up)
    assert_allclose(chain.relative_value(0), values, atol=1e-10)


def test_durations_of_one_give_the_same_bits_as_no_durations(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    P, R = rng.dirichlet(np.ones(5), size=(5, 2)), rng.normal(size=(5, 2))
    one = TabularMDP.from_arrays(P, R, np.full(5, 0.2), durations=np.ones((5, 2)))
    assert one.durations is None
    for copy in (pickle.loads(pickle.dumps(machine())), machine()):
        copy.save(tmp_path / "mdp.npz")
        loaded = TabularMDP.load(tmp_path / "mdp.npz")
        np.testing.assert_array_equal(loaded.durations, machine().durations)


def test_environments_and_counts_report_durations() -> None:
    mdp = machine()
    env, envs = TabularEnv(mdp), TabularVectorEnv(mdp, 3, max_episode_steps=2)
    env.reset(seed=0)
    envs.reset(seed=0)
    assert [env.step(0)[4]["duration"], env.step(0)[4]["duration"] in (1.0, 5.0)] == [8.0, True]
    assert envs.step([0, 0, 0])[4]["duration"].tolist() == [8.0] * 3
    envs.step([0, 0, 0])
    restarted = envs.step([0, 0, 0])[4]
    assert restarted["duration"].tolist() == [0.0] * 3
    assert not restarted["_duration"].any()
    counts = simulate_counts(mdp.induce([0, 0]), 100, 3, 0)
    assert counts.duration_sums is not None
    assert counts.duration_sums.toarray()[0].tolist() == [800.0, 0.0]
    same = TabularVectorEnv(mdp, 1, max_episode_steps=1, autoreset_mode="SameStep")
    same.reset(seed=0)
    infos = same.step([0])[4]
    assert infos["final_info"]["duration"].tolist() == [8.0]


@pytest.mark.parametrize(
    ("time", "message"),
    [(-1.0, "is -1.0"), (np.nan, "is nan"), (np.inf, "is inf"), (0.0, "no time passes")],
)
def test_invalid_durations_are_refused(time: float, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message):
        TabularMDP.from_arrays(np.eye(2)[:, None], [0, 1], [1, 0], durations=[1.0, time])
    with pytest.raises(InvalidModelError, match=message):
        MarkovChain(np.eye(2), [0, 1], [1, 0], durations=[1.0, time])


@pytest.mark.parametrize("criterion", ["bias", "blackwell", "discounted"])
def test_criteria_that_need_more_than_means_are_refused(criterion: Any) -> None:
    discount = 0.9 if criterion == "discounted" else None
    with pytest.raises(InvalidArgumentError, match="use criterion='gain'"):
        machine().optimal_policy(criterion, discount)


def test_a_picture_shows_the_mean_duration() -> None:
    drawn = [text.get_text() for text in machine().plot().axes[0].texts]
    assert {"8", "2"} <= set(drawn)


def test_streams_and_restrictions_keep_durations_and_a_toy_text_table_is_refused() -> None:
    mdp = make_mdp("f18c")
    assert mdp.durations is not None
    assert mdp.expected_duration[0].tolist() == [1.0, 1.0]
    whole = mdp.optimal_policy().gain[0]
    assert mdp.reachable([15]).optimal_policy().gain[0] == pytest.approx(whole, rel=1e-12)
    chain = mdp.induce(np.zeros(18, dtype=int))
    assert chain.reachable([15]).gain == pytest.approx(chain.gain, rel=1e-12)
    with pytest.raises(InvalidModelError, match=r"env\.unwrapped\.mdp"):
        TabularMDP.from_gymnasium(TabularEnv(mdp))


@pytest.mark.parametrize("n", [10, 10**6])
def test_total_rewards_do_not_depend_on_durations(n: int) -> None:
    timed = make_mdp("a11").induce(np.ones(11, dtype=int))
    plain = MarkovChain(timed.transition_matrix, timed.reward, timed.initial_distribution)
    assert_allclose(timed.finite_horizon_value(n), plain.finite_horizon_value(n))
    assert_allclose(timed.discounted_value(0.9), plain.discounted_value(0.9))
