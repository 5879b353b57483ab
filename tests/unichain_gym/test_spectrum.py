"""Cyclic classes and spectral gaps, against closed forms, NumPy and networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from unichain_gym import MarkovChain, make_mdp
from unichain_gym.errors import ConvergenceError


def of_matrix(P: object) -> MarkovChain:
    n = P.shape[0]  # type: ignore[attr-defined]
    return MarkovChain(P, np.zeros(n), np.full(n, 1.0 / n), drop_below=0)  # type: ignore[arg-type]


def cycle(n: int, stay: float, on: float, back: float) -> np.ndarray:
    """A circulant matrix, whose eigenvalues are stay + on ω + back/ω with ω^n = 1."""
    P = np.zeros((n, n))
    s = np.arange(n)
    np.add.at(P, (s, s), stay)
    np.add.at(P, (s, (s + 1) % n), on)
    np.add.at(P, (s, (s - 1) % n), back)
    return P


def path(n: int) -> sparse.csr_array:
    """A fair walk on n states that stays at an end where it would leave; λ_k = cos(πk/n)."""
    P = sparse.diags_array([0.5, 0.5], offsets=[1, -1], shape=(n, n)).tolil()
    P[0, 0] = P[n - 1, n - 1] = 0.5
    return P.tocsr()


def test_cyclic_classes_partition_the_recurrent_classes_and_follow_each_other(
    chain: MarkovChain,
) -> None:
    P = chain.transition_matrix
    for states, period, parts in zip(
        chain.recurrent_classes, chain.class_periods, chain.cyclic_classes, strict=True
    ):
        assert len(parts) == period
        assert parts[0][0] == states[0]
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), states)
        for part, following in zip(parts, [*parts[1:], parts[0]], strict=True):
            assert (np.diff(part) > 0).all()
            assert set(P[part].indices.tolist()) == set(following.tolist())
        # After a whole period the parts do not mix, and each is one aperiodic class of its own.
        power = of_matrix(np.linalg.matrix_power(P.toarray()[np.ix_(states, states)], int(period)))
        assert len(power.recurrent_classes) == period
        assert power.period == 1


def test_cyclic_classes_of_several_periods() -> None:
    rings = [cycle(n, 0.0, 1.0, 0.0) for n in (3, 2, 1)]
    chain = of_matrix(sparse.csr_array(sparse.block_diag(rings)))
    expected = [[[0], [1], [2]], [[3], [4]], [[5]]]
    assert [[part.tolist() for part in parts] for parts in chain.cyclic_classes] == expected


def test_gap_of_two_states_is_the_sum_of_their_rates() -> None:
    for a, b in ((0.3, 0.1), (0.9, 0.7), (1e-9, 3e-9), (1e-13, 1e-13)):
        chain = of_matrix(np.array([[1 - a, a], [b, 1 - b]]))
        expected = min(a + b, 2.0 - a - b)
        assert chain.spectral_gap == pytest.approx(expected, rel=1e-6)
        assert chain.relaxation_time == pytest.approx(1.0 / expected, rel=1e-6)


@pytest.mark.parametrize(
    ("stay", "on", "back"), [(0.5, 0.25, 0.25), (0.2, 0.7, 0.1), (0, 0.9, 0.1)]
)
@pytest.mark.parametrize("n", [3, 7, 25])
def test_gap_of_a_cycle_follows_from_roots_of_unity(
    n: int, stay: float, on: float, back: float
) -> None:
    omega = np.exp(2j * np.pi * np.arange(1, n) / n)
    expected = 1.0 - np.abs(stay + on * omega + back / omega).max()
    assert of_matrix(cycle(n, stay, on, back)).spectral_gap == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [2, 50, 1_000, 1_010])
def test_gap_of_a_path_has_its_closed_form(n: int) -> None:
    # 1,010 states are more than are solved densely. The smallest eigenvalue is as near to -1.
    expected = 2.0 * np.sin(np.pi / n / 2.0) ** 2
    assert of_matrix(path(n)).spectral_gap == pytest.approx(expected, rel=1e-6)


def test_gap_of_a_large_chain_that_is_not_reversible() -> None:
    # Three biased cycles at once: the eigenvalues are the products.
    one = cycle(11, 0.1, 0.7, 0.2)
    P = sparse.csr_array(sparse.kron(sparse.kron(one, one), sparse.csr_array(one)))
    omega = np.exp(2j * np.pi / 11 * np.arange(1, 11))
    expected = 1.0 - np.abs(0.1 + 0.7 * omega + 0.2 / omega).max()
    assert P.shape == (1_331, 1_331)
    assert of_matrix(P).spectral_gap == pytest.approx(expected, rel=1e-6)


def test_gap_of_a_large_component_of_transient_states() -> None:
    n, leave = 1_010, 0.25
    block = (1.0 - leave) * path(n)
    exit_column = sparse.csr_array(np.full((n, 1), leave))
    P = sparse.vstack((sparse.hstack((block, exit_column)), sparse.eye_array(n + 1).tocsr()[-1:]))
    assert of_matrix(sparse.csr_array(P)).spectral_gap == pytest.approx(leave, rel=1e-6)


def test_gap_of_a_stream_is_the_rate_of_its_slowest_state() -> None:
    # Eleven states in a row with one eigenvalue: numpy.linalg.eigvals is off by some percent.
    mdp = make_mdp("x34c")
    for action, rate in ((0, 0.3), (1, 0.6)):
        chain = mdp.induce(np.full(34, action))
        assert chain.spectral_gap == pytest.approx(rate, rel=1e-15)


@pytest.mark.parametrize("up", [0.45, 0.6])
def test_gap_of_a_drifting_line_is_right_where_plain_eigenvalues_are_not(up: float) -> None:
    # λ = 2 √(up down) cos(πk/n) for a walk that stays at an end where it would leave.
    n, down = 400, 0.9 - up
    P = sparse.diags_array([up, down], offsets=[1, -1], shape=(n, n)).toarray()
    P += np.diag(1.0 - P.sum(axis=1))
    expected = 1.0 - (0.1 + 2.0 * np.sqrt(up * down) * np.cos(np.pi / n))
    assert of_matrix(P).spectral_gap == pytest.approx(expected, rel=1e-9)


def test_gaps_follow_from_eigenvalues(chain: MarkovChain) -> None:
    if chain.period > 1:
        assert chain.spectral_gap == 0.0
        assert chain.relaxation_time == np.inf
        return
    graph = nx.from_scipy_sparse_array(chain.transition_matrix, create_using=nx.DiGraph)
    P, moduli = chain.transition_matrix.toarray(), [0.0]
    recurrent = {int(s) for s in chain.recurrent_states}
    for component in nx.strongly_connected_components(graph):
        states = sorted(component)
        values = np.linalg.eigvals(P[np.ix_(states, states)])
        if component <= recurrent:
            values = np.delete(values, np.abs(values - 1.0).argmin())
        moduli.extend(np.abs(values))
    assert chain.spectral_gap == pytest.approx(1.0 - max(moduli), rel=2e-6, abs=1e-9)


def test_a_chain_that_forgets_its_start_at_once_has_gap_one() -> None:
    assert of_matrix(np.full((4, 4), 0.25)).spectral_gap == pytest.approx(1.0, rel=1e-12)
    assert of_matrix(np.eye(1)).spectral_gap == 1.0
    assert of_matrix(np.eye(3)).spectral_gap == 1.0


def test_a_chain_that_forgets_its_start_after_some_steps_has_gap_one() -> None:
    # The eigenvalue 0 is multiple: numpy.linalg.eigvals makes numbers up to 0.01 of it. The last
    # six bits of a sequence of fair ones; and a line that falls back to its start.
    n = 64
    bits = np.zeros((n, n))
    bits[np.arange(n), 2 * np.arange(n) % n] = 0.5
    bits[np.arange(n), (2 * np.arange(n) + 1) % n] = 0.5
    assert of_matrix(bits).spectral_gap == pytest.approx(1.0, rel=1e-12)
    mdp = make_mdp("c5")
    for action in (0, 1):
        assert mdp.induce(np.full(5, action)).spectral_gap == pytest.approx(1.0, rel=1e-12)
    # With a part of its own that is slow, the gap is that part's.
    slow = sparse.block_diag((bits, [[0.75, 0.25], [0.25, 0.75]]))
    assert of_matrix(sparse.csr_array(slow)).spectral_gap == pytest.approx(0.5, rel=1e-12)


def test_a_gap_near_zero_keeps_its_digits_without_symmetry() -> None:
    # Two halves of three states that exchange with e each way: λ is 1 - e (p + q) to first order,
    # p and q the stationary probabilities, in their halves, of the states that are left.
    e = 1e-10
    P = np.zeros((6, 6))
    P[:3, :3] = P[3:, 3:] = cycle(3, 0.0, 0.75, 0.25)
    P[[0, 0, 3, 3], [1, 3, 4, 0]] = 0.75 - e, e, 0.75 - e, e
    assert of_matrix(P).spectral_gap == pytest.approx(2.0 * e / 3.0, rel=1e-6)


def test_an_eigenvalue_that_rounding_leaves_open_is_refused() -> None:
    # Two halves that exchange with 1e-16, without symmetry.
    e = 1e-16
    P = np.array([[0.5, 0.5 - e, 0, e], [0.1, 0.9, 0, 0], [e, 0, 0.4, 0.6 - e], [0, 0, 0.3, 0.7]])
    with pytest.raises(ConvergenceError, match=r"of 4 states is between 0 and 5e-17.*mixing_time"):
        _ = of_matrix(P).spectral_gap


def test_a_gap_that_is_not_found_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unichain_gym.spectrum.ARPACK_WORK", 1.0)
    with pytest.raises(ConvergenceError, match=r"component of 3000 states is not found within 10"):
        _ = of_matrix(path(3_000)).spectral_gap


@pytest.mark.parametrize(
    ("eigenvalue", "steps"), [(0.9, -1 / np.log(0.9)), (-0.5, 1 / np.log(2.0)), (0.0, 0.0)]
)
def test_the_implied_timescale_follows_from_the_slowest_eigenvalue(
    eigenvalue: float, steps: float
) -> None:
    move = (1.0 - eigenvalue) / 2
    chain = MarkovChain([[1 - move, move], [move, 1 - move]], [0.0, 1.0], [1.0, 0.0])
    assert chain.implied_timescale == pytest.approx(steps, rel=1e-9)
    assert MarkovChain([[0, 1], [1, 0]], [0, 1], [1, 0]).implied_timescale == np.inf
