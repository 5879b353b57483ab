"""Mnemonics and streams: the reference chains, one small case by hand, and bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest

from unichain_gym.cores import CORES, absorbing_state, taxicab
from unichain_gym.errors import InvalidMnemonicError, InvalidModelError, ModelTooLargeError
from unichain_gym.mdp import TabularMDP
from unichain_gym.suite import MNEMONICS, Mnemonic, attach_streams, make_mdp


def test_mdps_by_mnemonic_have_the_reference_rewards_and_stepwise_distributions(reference):
    for case in reference("chains")["cases"]:
        chain = make_mdp(case["env"]).induce(case["policy"])
        np.testing.assert_allclose(chain.reward, case["reward"], rtol=1e-12)
        p = chain.initial_distribution
        for t in range(max(t for t in map(int, case["stepwise"]) if t <= 100) + 1):
            if str(t) in case["stepwise"]:
                np.testing.assert_allclose(p, case["stepwise"][str(t)], rtol=1e-9, atol=1e-15)
            p = chain.transition_matrix.T @ p


def test_a_listed_mnemonic_reads_and_writes_itself_and_has_its_number_of_states():
    assert len(set(MNEMONICS)) == len(MNEMONICS)
    assert {mnemonic[0] for mnemonic in MNEMONICS} == set(CORES)
    for mnemonic in MNEMONICS:
        parsed, mdp = Mnemonic.parse(mnemonic), make_mdp(mnemonic)
        assert (str(parsed), mdp.name, parsed.n_states) == (mnemonic, mnemonic, mdp.n_states)


def test_states_are_numbered_stream_by_stream_with_the_core_last():
    mdp = make_mdp("x9d")
    advance = mdp.next_state[:8, 0, 1]
    np.testing.assert_array_equal(advance, [1, 8, 3, 8, 5, 8, 7, 8])
    np.testing.assert_allclose(mdp.probability[:8, :, 1], [[0.3, 0.6]] * 8)
    np.testing.assert_array_equal(mdp.expected_reward[:8], [[0.0, 1.0]] * 8)
    np.testing.assert_allclose(mdp.initial_distribution, [1 / 8] * 8 + [0])


def test_streams_may_differ_in_length_dynamics_rewards_and_entry_state():
    mdp = attach_streams(
        taxicab(),
        n_streams=2,
        length=(1, 3),
        advance_probs=[[0.1, 0.2], [1.0, 0.5]],
        stream_rewards=[[5.0, 6.0], [7.0, 8.0]],
        entry_state=(2, 1),
    )
    assert mdp.n_states == 7
    np.testing.assert_array_equal(mdp.next_state[:4, 1, 1], [4 + 2, 2, 3, 4 + 1])
    np.testing.assert_allclose(
        mdp.probability[:4, :, 1], [[0.1, 0.2], [1.0, 0.5], [1.0, 0.5], [1.0, 0.5]]
    )
    np.testing.assert_allclose(mdp.expected_reward[:4], [[5, 6], [7, 8], [7, 8], [7, 8]])


@pytest.mark.parametrize(
    ("n_actions", "advance", "pay"),
    [
        (1, [0.3], [0.0]),
        (2, [0.3, 0.6], [0.0, 1.0]),
        (4, [0.3, 0.4, 0.5, 0.6], [0.0, 1 / 3, 2 / 3, 1.0]),
    ],
)
def test_default_stream_numbers_are_evenly_spaced_for_any_number_of_actions(
    n_actions, advance, pay
):
    core = TabularMDP.from_arrays(np.ones((1, n_actions, 1)), np.zeros((1, n_actions)), [1.0])
    mdp = attach_streams(core, 1, 1)
    np.testing.assert_allclose(mdp.probability[0, :, 1], advance, rtol=1e-15)
    np.testing.assert_allclose(mdp.expected_reward[0], pay, rtol=1e-15)


def test_core_options_reach_the_core_and_survive_json():
    options = json.loads(json.dumps({"n_states": 6, "branching": 2, "n_actions": 3, "seed": 4}))
    mdp = make_mdp("g10b", core_options=options)
    core = CORES["g"](**options)
    assert (mdp.n_states, mdp.n_actions) == (10, 3)
    for name in ("probability", "reward"):
        np.testing.assert_array_equal(getattr(mdp, name)[4:, :, :2], getattr(core, name))
    np.testing.assert_array_equal(mdp.next_state[4:, :, :2] - 4, core.next_state)


@pytest.mark.parametrize(
    ("mnemonic", "message"),
    [
        ("k12", r"unknown core letter 'k' in 'k12'; known cores: h, c, x, r, q, m, g"),
        ("k36c", "known cores: .*; the nearest valid ones: .*h36c"),
        ("h4b", r"'h4b' leaves 1 for transient states, .* 2 streams; the nearest valid ones: h5b$"),
        ("h35c", "the nearest valid ones: h33c, h36c$"),
        ("h2", "'h2' has 2 states, but core 'h' alone has 3; the nearest valid ones: h3$"),
        ("h2b", "'h2b' has 2 states, but core 'h' alone has 3; the nearest valid ones: h5b$"),
        ("h3b", "leaves 0 for transient states, .*: h5b$"),
        ("H36c", "'H36c' is not a mnemonic.*; the nearest valid ones: h36c"),
        ("h036", "'h036' is not a mnemonic.*the nearest valid ones: h36"),
        ("", "'' is not a mnemonic: write a core letter"),
    ],
)
def test_a_wrong_mnemonic_is_an_error_that_suggests_the_nearest(mnemonic, message):
    with pytest.raises(InvalidMnemonicError, match=message):
        make_mdp(mnemonic)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"advance_probs": (0.0, 0.6)}, r"above 0 and at most 1 .*; got \[0.0, 0.6\]"),
        ({"advance_probs": (0.3, 1.1)}, r"above 0 and at most 1 .*; got \[0.3, 1.1\]"),
        ({"advance_probs": (0.3, float("nan"))}, "advance_probs must be finite"),
        ({"advance_probs": (0.3,)}, r"advance_probs needs one number .* got shape \(1,\)"),
        ({"advance_probs": [[0.3, 0.6]] * 2}, r"shape \(3, 2\); got shape \(2, 2\)"),
        ({"stream_rewards": (0.0, 1.0, 2.0)}, r"stream_rewards needs one .* shape \(3,\)"),
        ({"stream_rewards": (0.0, np.inf)}, "stream_rewards must be finite"),
        ({"entry_state": 3}, "entry_state must be 0 to 2; got 3"),
        ({"entry_state": (0, 1)}, "one for each of the 3 streams; got"),
        ({"entry_state": 0.5}, "entry_state must be one integer"),
        ({"core_options": {"seed": 1}}, "core 'h' has no option 'seed'; it has: none"),
    ],
)
def test_stream_numbers_that_do_not_fit_are_errors(options, message):
    with pytest.raises(InvalidModelError, match=message):
        make_mdp("h36c", **options)


def test_stream_numbers_are_checked_even_without_streams():
    with pytest.raises(InvalidModelError, match="advance_probs must be above 0"):
        make_mdp("h3", advance_probs=(0.0, 1.0))


@pytest.mark.parametrize(
    ("n_streams", "length", "message"),
    [
        (0, 1, "n_streams must be at least 1; got 0"),
        (2, 0, "length must be at least 1; got 0"),
        (2, (1, 2, 3), "length must be one integer or one for each of the 2 streams"),
    ],
)
def test_streams_need_a_number_and_lengths(n_streams, length, message):
    with pytest.raises(InvalidModelError, match=message):
        attach_streams(absorbing_state(), n_streams, length)


@pytest.mark.parametrize("mnemonic", ["h99999999999", "h999999999", f"x{10**30}", "c9999999995d"])
def test_too_many_states_for_a_table_are_refused_with_the_limit(mnemonic):
    with pytest.raises(ModelTooLargeError, match="the table of outcomes would be an array of"):
        make_mdp(mnemonic)


@pytest.mark.parametrize(("n_streams", "length"), [(10**12, 1), (2, 10**9)])
def test_streams_too_long_or_too_many_for_a_table_are_refused(n_streams, length):
    with pytest.raises(ModelTooLargeError, match="the limit is 1000000000 in all"):
        attach_streams(taxicab(), n_streams, length)
