"""Rows of probabilities that rounding has changed: single precision, residues of zero, axes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from unichain_gym import MarkovChain, TabularMDP, make_mdp
from unichain_gym.errors import InvalidArgumentError, InvalidModelError, RoundingWarning

RESIDUE = float(1 - np.array([0.7, 0.1, 0.1, 0.1]).sum())
"""1.1e-16, where 0 is meant."""


def softmax(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    """Rows of a softmax as a network computes them, in single precision throughout."""
    x = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True, dtype=dtype)


@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.sampled_from([np.float32, np.float16]))
@settings(max_examples=20)
def test_rows_in_lower_precision_are_normalized_in_double(seed: int, n: int, dtype: Any):
    P = softmax(seed, n, 1, n, dtype=dtype)
    start = softmax(seed, n, dtype=dtype)
    mdp = TabularMDP.from_arrays(P, np.zeros(n), start)
    np.testing.assert_allclose(mdp.probability.sum(axis=2), 1.0, rtol=1e-15)
    assert mdp.initial_distribution.sum() == pytest.approx(1.0, rel=1e-15)
    exact = P[:, 0].astype(float)
    exact /= exact.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(mdp.to_arrays()[0][:, 0], exact, rtol=1e-14)
    chain = MarkovChain(P[:, 0], np.zeros(n), start)
    np.testing.assert_allclose(chain.transition_matrix.toarray(), exact, rtol=1e-14)


def test_every_way_in_takes_single_precision():
    P, reward, start = softmax(0, 3, 2, 3), np.zeros((3, 2)), softmax(1, 3)
    exact = TabularMDP.from_arrays(P, reward, start)
    by_action = [sparse.csr_array(P[:, a]) for a in range(2)]
    triples = np.argwhere(P > 0)
    rows: Any = np.column_stack([triples, P[P > 0], np.zeros(len(triples))]).astype(np.float32)
    table = TabularMDP(np.broadcast_to(np.arange(3), (3, 2, 3)), P, np.zeros((3, 2, 3)), start)
    for mdp in (
        TabularMDP.from_arrays(by_action, reward, start),
        TabularMDP.from_transitions(rows, start),
        TabularMDP.from_transitions(list(rows), start),
        table,
    ):
        np.testing.assert_allclose(mdp.to_arrays()[0], exact.to_arrays()[0], rtol=1e-15)
        np.testing.assert_array_equal(mdp.initial_distribution, exact.initial_distribution)
    pi = softmax(2, 3, 2)
    np.testing.assert_allclose(exact.check_policy(pi).sum(axis=1), 1.0, rtol=1e-15)
    chain = MarkovChain(sparse.csr_matrix(P[:, 0]), np.zeros(3), start)
    np.testing.assert_allclose(chain.transition_matrix.sum(axis=1), 1.0, rtol=1e-15)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.float32, np.longdouble])
def test_matrices_of_any_real_dtype_are_read_dense_or_sparse(dtype: Any):
    P = np.roll(np.eye(3), 1, axis=1).astype(dtype)
    for matrix in (P, sparse.csr_array(P), sparse.coo_matrix(P)):
        chain = MarkovChain(matrix, [1.0, 0.0, 0.0], [1, 0, 0])
        assert chain.transition_matrix.dtype == np.float64
        assert chain.gain == pytest.approx(1 / 3, rel=1e-15)
        mdp = TabularMDP.from_arrays(P[:, None], np.zeros(3, dtype=int), [1, 0, 0])
        assert mdp.probability.dtype == np.float64


def test_a_row_that_single_precision_does_not_explain_is_refused():
    P = softmax(0, 3, 1, 3)
    P[1] *= np.float32(1.00001)
    with pytest.raises(InvalidModelError, match=r"state 1, action 0 sum to 1\.0000.* normalize"):
        TabularMDP.from_arrays(P, np.zeros(3), [1, 0, 0])
    with pytest.raises(InvalidModelError, match="of state 1 sum to"):
        MarkovChain(P[:, 0], np.zeros(3), [1, 0, 0])
    with pytest.raises(InvalidModelError, match="of state 1 sum to"):
        make_mdp("h3").induce(
            P[:, 0, :2] / P[:, 0, :2].sum(axis=1, keepdims=True) * [[1], [1.1], [1]]
        )
    # The same numbers as doubles: nothing says that they were computed in single precision.
    with pytest.raises(InvalidModelError, match="sum to"):
        TabularMDP.from_arrays(softmax(3, 9, 1, 9).astype(float), np.zeros(9), np.eye(9)[0])


def meant_to_stay_below_four(edge: float) -> tuple[Any, Any, Any]:
    """Four states that mix, the first with an edge to an absorbing one."""
    P = np.full((5, 5), 0.0)
    P[:4, :4] = 0.25
    P[0] = [0.7, 0.1, 0.1, 0.1, edge]
    P[4, 4] = 1.0
    return P, [1.0, 1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("edge", [RESIDUE, -2.8e-17])
def test_residues_are_named_and_dropped_on_request(edge: float):
    P, reward, start = meant_to_stay_below_four(edge)
    named = f"from state 0 to 4 \\({edge!r}" + (", taken as 0" if edge < 0 else "") + "\\)"
    with pytest.warns(RoundingWarning, match=f"{named}.*drop_below=1e-15"):
        chain = MarkovChain(P, reward, start)
    assert chain.transition_matrix[0, 4] == max(edge, 0.0)
    chain = MarkovChain(P, reward, start, drop_below=1e-15)
    assert chain.recurrent_classes[0].tolist() == [0, 1, 2, 3]
    assert chain.stationary_distribution @ chain.reward == pytest.approx(1.0, rel=1e-15)
    named = f"state 0, action 0, to state 4 \\({edge!r}"
    with pytest.warns(RoundingWarning, match=named):
        TabularMDP.from_arrays(P[:, None], reward, start)
    transitions = [(s, 0, n, P[s, n], reward[s]) for s in range(5) for n in range(5)]
    with pytest.warns(RoundingWarning, match=named):
        TabularMDP.from_transitions(transitions, start)
    for mdp in (
        TabularMDP.from_arrays(P[:, None], reward, start, drop_below=1e-15),
        TabularMDP.from_transitions(transitions, start, drop_below=1e-15),
    ):
        assert not mdp.to_arrays()[0][0, 0, 4]


def test_with_drop_below_zero_nothing_changes():
    P, reward, start = meant_to_stay_below_four(RESIDUE)
    assert MarkovChain(P, reward, start, drop_below=0.0).recurrent_states.tolist() == [4]
    P[0, 4] = -2.8e-17
    with pytest.raises(InvalidModelError, match=r"from state 0 to 4 is -2\.8e-17"):
        MarkovChain(P, reward, start, drop_below=0.0)


def test_a_dropped_probability_goes_to_the_rest_of_its_row():
    mdp = TabularMDP.from_arrays(
        [[[0.9, 0.06, 0.04]], [[0.0, 1.0, 0.0]], [[0.5, 0.5, 0.0]]],
        np.zeros(3),
        [0.96, 0.04, 0.0],
        drop_below=0.05,
    )
    np.testing.assert_allclose(mdp.to_arrays()[0][0, 0], [0.9375, 0.0625, 0.0], rtol=1e-15)
    assert mdp.initial_distribution.tolist() == [1.0, 0.0, 0.0]
    # A wrong sum stays wrong.
    with pytest.raises(InvalidModelError, match=r"sum to 0\.8"):
        MarkovChain([[0.8, 1e-9], [0.0, 1.0]], [0, 0], [1, 0], drop_below=1e-6)


def test_residues_in_a_start_and_in_a_policy_are_named_too():
    mdp = make_mdp("h3")
    P, R, _ = mdp.to_arrays()
    with pytest.warns(RoundingWarning, match=r"initial_distribution of state 2 \(-2\.8e-17, taken"):
        chain = MarkovChain(P[:, 0], np.zeros(3), [0.5, 0.5, -2.8e-17])
    assert chain.initial_distribution.tolist() == [0.5, 0.5, 0.0]
    with pytest.warns(RoundingWarning, match="initial_distribution of state 0"):
        TabularMDP.from_arrays(P, R, [RESIDUE, 0.0, 1.0])
    with pytest.warns(RoundingWarning, match=r"action 1 in state 2 \(-2\.8e-17, taken as 0"):
        pi = mdp.check_policy([[0.5, 0.5], [0.0, 1.0], [1.0, -2.8e-17]])
    assert pi.tolist() == [[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]]
    with pytest.raises(InvalidModelError, match="not negative; state 2 has"):
        mdp.check_policy([[0.5, 0.5], [0.0, 1.0], [1.0 + 1e-14, -1e-14]])


@pytest.mark.parametrize("small", [1e-14, 1e-25, 1e-160, 1e-310])
def test_small_probabilities_that_are_not_rounding_raise_no_warning(small: float):
    chain = MarkovChain([[1.0, small], [1.0, 0.0]], [0.0, 1.0], [1.0, small])
    assert chain.transition_matrix[0, 1] == small


def test_the_tail_of_a_softmax_policy_and_its_chain_raise_no_warning():
    mdp = make_mdp("h3")
    chain = mdp.induce([[1.0, 1e-17], [1.0, RESIDUE], [0.5, 0.5]])
    assert chain.policy is not None
    assert chain.policy[0, 1] == 1e-17


def test_a_stored_mdp_was_warned_about_when_it_was_made(tmp_path: Any):
    P, reward, start = meant_to_stay_below_four(RESIDUE)
    with pytest.warns(RoundingWarning):
        mdp = TabularMDP.from_arrays(P[:, None], reward, start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mdp.save(tmp_path / "mdp.npz")
        assert TabularMDP.load(tmp_path / "mdp.npz").to_arrays()[0][0, 0, 4] == RESIDUE
        mdp.induce([0] * 5)


@pytest.mark.parametrize("drop_below", [-1e-3, 1.0, np.nan])
def test_a_share_to_drop_is_from_0_to_1(drop_below: float):
    with pytest.raises(InvalidArgumentError, match=r"drop_below is a share .*, from 0 to 1; got"):
        MarkovChain([[1.0]], [0.0], [1.0], drop_below=drop_below)


def cyclic(A: int, S: int) -> Any:
    """P (A, S, S) whose rows are distributions and whose columns are not."""
    P = np.zeros((A, S, S))
    for a in range(A):
        P[a, np.arange(S), np.minimum(np.arange(S) + a, S - 1)] = 1.0
    return P


@pytest.mark.parametrize(("A", "S"), [(2, 3), (3, 3), (3, 2), (1, 4)])
def test_arrays_with_the_action_first_are_read_in_that_order(A: int, S: int):
    P = cyclic(A, S)
    R = np.arange(float(A * S * S)).reshape(A, S, S)
    ass = TabularMDP.from_arrays(P, R, np.eye(S)[0], order="ass")
    sas = TabularMDP.from_arrays(
        P.transpose(1, 0, 2), R.transpose(1, 0, 2), np.eye(S)[0], order="sas"
    )
    for ours, theirs in zip(ass.to_arrays(), sas.to_arrays(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    by_action = [sparse.csr_array(matrix) for matrix in P]
    mixed = TabularMDP.from_arrays(by_action, R, np.eye(S)[0], order="ass")
    np.testing.assert_array_equal(mixed.to_arrays()[1], ass.to_arrays()[1])


@pytest.mark.parametrize(
    ("P", "order", "message"),
    [
        (cyclic(2, 3), "sas", r"got shape \(2, 3, 3\), which fits order='ass'"),
        (cyclic(2, 3).transpose(1, 0, 2), "ass", r"got shape \(3, 2, 3\), which fits order='sas'"),
        (
            np.moveaxis(cyclic(3, 3), 2, 0),
            "sas",
            r"over axis 0, .*\(P, 0, 2\), of order 'sas' or 'ass'",
        ),
        (np.moveaxis(cyclic(3, 3), 2, 1), "sas", r"over axis 1, .* np.moveaxis\(P, 1, 2\)"),
        (np.moveaxis(cyclic(2, 3), 2, 1), "ass", r"over axis 1, .*\(P, 1, 2\), of order 'ass'$"),
        (
            [sparse.csr_array(matrix.T) for matrix in cyclic(3, 3)],
            "sas",
            r"columns of P sum to 1 and its rows do not: pass \[matrix\.T for matrix in P\]",
        ),
    ],
)
def test_other_axes_are_recognized_by_their_sums(P: Any, order: Any, message: str):
    with pytest.raises(InvalidModelError, match=message):
        TabularMDP.from_arrays(P, np.zeros(3), np.eye(3)[0], order=order)


def test_a_transposed_matrix_is_to_be_transposed_and_not_normalized():
    P = cyclic(2, 3)[1].T
    for matrix in (P, sparse.csc_matrix(P)):
        with pytest.raises(InvalidModelError, match=r"columns .* sum to 1 instead: .* transpose"):
            MarkovChain(matrix, np.zeros(3), np.eye(3)[0])


def test_a_wrong_sum_is_not_taken_for_another_axis():
    with pytest.raises(InvalidModelError, match=r"state 0, action 0 sum to 0\.5 .*normalize"):
        TabularMDP.from_arrays([[[0.5], [0.5]]], [0.0], [1.0])


def test_the_warning_points_to_the_caller():
    P, reward, start = meant_to_stay_below_four(RESIDUE)
    for build in (
        lambda: MarkovChain(P, reward, start),
        lambda: TabularMDP.from_arrays(P[:, None], reward, start),
    ):
        with pytest.warns(RoundingWarning) as seen:
            build()
        assert [warning.filename for warning in seen] == [__file__]


def test_an_unknown_order_and_transposed_rewards_are_refused():
    with pytest.raises(InvalidArgumentError, match="order must be 'sas' or 'ass'; got 'ssa'"):
        TabularMDP.from_arrays(cyclic(3, 3), np.zeros(3), np.eye(3)[0], order="ssa")  # type: ignore[arg-type]
    with pytest.raises(InvalidModelError, match=r"got \(2, 3\); pass R\.T"):
        TabularMDP.from_arrays(cyclic(2, 3), np.zeros((2, 3)), np.eye(3)[0], order="ass")


def test_complex_matrices_are_refused_dense_or_sparse():
    P = np.eye(2) + 0j
    for matrix in (P, sparse.csr_array(P)):
        with pytest.raises(InvalidModelError, match=r"transition_matrix must be .* got complex"):
            MarkovChain(matrix, [0, 0], [1, 0])
    with pytest.raises(InvalidModelError, match=r"P must be .* got complex"):
        TabularMDP.from_arrays([sparse.csr_array(P)], [0, 0], [1, 0])
