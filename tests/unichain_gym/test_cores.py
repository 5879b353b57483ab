"""Each core against figures from its source, a closed form or another solver."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from unichain_gym.cores import (
    CORES,
    access_control,
    garnet,
    machine_replacement,
    queue_admission,
    random_repair,
    river_swim,
    strens_chain,
    taxicab,
)
from unichain_gym.errors import InvalidModelError
from unichain_gym.mdp import TabularMDP


def gains(mdp: TabularMDP) -> dict[tuple[int, ...], float]:
    """The gain of every deterministic policy."""
    return {tuple(policy.tolist()): mdp.induce(policy).gain for policy in mdp.policies()}


def test_every_deterministic_policy_of_a_core_has_one_recurrent_class():
    for core in CORES.values():
        assert core().is_unichain()


def test_taxicab_is_solved_by_the_second_action_everywhere_at_howards_gain():
    value = gains(taxicab())
    assert max(value, key=value.__getitem__) == (1, 1, 1)
    assert round(value[1, 1, 1], 2) == 13.34  # Howard (1960)


def test_strens_chain_is_solved_by_going_forward_for_3677_in_a_thousand_steps():
    value = gains(strens_chain())
    assert max(value, key=value.__getitem__) == (0,) * 5
    assert round(1000 * value[(0,) * 5]) == 3677  # the optimum that Strens (2000) states


def test_river_swim_is_solved_by_swimming_up_at_the_gain_of_detailed_balance():
    up = [Fraction(60, 100), *[Fraction(35, 100)] * 4]
    down = [*[Fraction(5, 100)] * 4, Fraction(40, 100)]
    weight = [Fraction(1)]
    for p, q in zip(up, down, strict=True):
        weight.append(weight[-1] * p / q)
    value = gains(river_swim())
    assert max(value, key=value.__getitem__) == (1,) * 6
    assert value[(1,) * 6] == pytest.approx(float(weight[-1] / sum(weight)), rel=1e-12)
    assert value[(0,) * 6] == pytest.approx(0.005, rel=1e-12)


def test_machine_replacement_has_the_cost_that_hillier_and_lieberman_publish():
    published = {  # dollars a week, by policy, in their table of four policies
        (0, 0, 0, 2): 1923,
        (0, 0, 1, 2): 1667,
        (0, 0, 2, 2): 1727,
        (0, 2, 2, 2): 3000,
    }
    value = gains(machine_replacement())
    assert {p: round(-1000 * value[p]) for p in published} == published
    assert max(value.values()) == pytest.approx(-5 / 3, rel=1e-12)


def test_access_control_has_the_gain_and_values_of_value_iteration():
    mdp = access_control()
    P = mdp.to_arrays()[0]
    value, gain = np.zeros(44), 0.0
    for _ in range(5_000):  # relative value iteration: the chain is aperiodic
        updated = (mdp.expected_reward + P @ value).max(axis=1)
        gain, value = updated[0], updated - updated[0]
    policy = (mdp.expected_reward + P @ value).argmax(axis=1)
    chain = mdp.induce(policy)
    assert chain.gain == pytest.approx(gain, rel=1e-12)
    np.testing.assert_allclose(chain.bias - chain.bias[0], value, atol=1e-9)
    # Example 10.2 is solved by others' dynamic programming too, at 2.748; the book's figures,
    # about 2.31 and (first edition) 2.73, are of learning agents and stay below.
    assert round(gain, 3) == 2.748
    # As in the book's figure: more free servers and higher priorities are accepted first.
    accepts = policy.reshape(11, 4)[1:]
    assert (np.diff(accepts, axis=0) >= 0).all()
    assert (np.diff(accepts, axis=1) >= 0).all()
    assert accepts[:, 3].all()


def test_access_control_frees_each_busy_server_independently():
    P = access_control(n_servers=4, free_prob=0.3, priorities=(1, 5)).to_arrays()[0]
    row = P[2 * 2 + 1, 1].reshape(5, 2)  # two free, one taken: three busy
    expected = stats.binom.pmf(np.arange(-1, 4), 3, 0.3)
    np.testing.assert_allclose(row, np.column_stack((expected, expected)) / 2, rtol=1e-12)


def test_garnet_has_distinct_successors_uniform_spacings_and_normal_rewards():
    mdp = garnet(n_states=60, n_actions=5, branching=4, seed=7)
    successors = np.sort(mdp.next_state, axis=2)
    assert (np.diff(successors, axis=2) > 0).all()
    # A spacing of three uniform points is Beta(1, 3). False alarms: 1e-6 a test over seeds.
    spacing = stats.kstest(mdp.probability[:, :, 0].ravel(), stats.beta(1, 3).cdf)
    rewards = stats.kstest(mdp.reward.ravel(), stats.norm.cdf)
    visits = stats.chisquare(np.bincount(mdp.next_state.ravel(), minlength=60))
    assert min(spacing.pvalue, rewards.pvalue, visits.pvalue) > 1e-6


def test_garnet_is_decided_by_its_seed():
    first, same, other = garnet(seed=1), garnet(seed=1), garnet(seed=2)
    np.testing.assert_array_equal(first.probability, same.probability)
    np.testing.assert_array_equal(first.reward, same.reward)
    assert not np.array_equal(first.reward, other.reward)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: river_swim(1), "n_states of at least 2; got 1"),
        (lambda: access_control(free_prob=0.0), "free_prob above 0 and at most 1"),
        (lambda: access_control(n_servers=0), "n_servers of at least 1"),
        (lambda: access_control(priorities=()), "and a priority; got 10, 0.06 and"),
        (lambda: garnet(branching=11), "branching 11 and n_states 10"),
        (lambda: garnet(n_actions=0), "n_actions 0"),
    ],
)
def test_a_core_refuses_numbers_out_of_range(build, message):
    with pytest.raises(InvalidModelError, match=message):
        build()


def test_a_queue_admits_naors_number_of_customers():
    """Below the largest n with (n (1 - ρ) - ρ (1 - ρ^n))/(1 - ρ)² at most fee rate/cost."""
    rho, worth, n = 0.8, 6.0, 1
    while ((n + 1) * (1 - rho) - rho * (1 - rho ** (n + 1))) / (1 - rho) ** 2 <= worth:
        n += 1
    best = queue_admission().optimal_policy()
    assert best.policy[: n + 1].tolist() == [1] * n + [0]
    share = rho ** np.arange(n + 1) / (rho ** np.arange(n + 1)).sum()
    gain = 0.8 * 6.0 * (1 - share[-1]) - share @ np.arange(n + 1)
    assert best.gain[0] == pytest.approx(gain, rel=1e-12)


def test_a_machine_repaired_in_random_time_earns_its_cycle_over_its_length():
    value = gains(random_repair())
    serviced = 0.8 * (100 - 5) + 0.2 * (50 - 21), 0.8 * 11 + 0.2 * (5 + 4.2)
    worn_out = 0.8 * (100 + 32) + 0.2 * 50 - 21, 0.8 * 14 + 0.2 * 5 + 4.2
    assert value[0, 1, 0] == pytest.approx(serviced[0] / serviced[1], rel=1e-12)
    assert value[0, 0, 0] == pytest.approx(worn_out[0] / worn_out[1], rel=1e-12)
    assert value[0, 1, 0] == max(value.values())
