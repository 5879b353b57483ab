"""Many sparse features: the values that dense least squares and exact chains have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from lstd_agent import TileCoding
from lstd_agent.errors import EvaluationError
from lstd_agent.rows.factors import Layer
from lstd_agent.system import sparse as path
from lstd_agent.system.sparse import SparseRows
from lstd_agent.system.sparse_solvers import RidgeSolver

sparse_gain: Any = path.sparse_gain


class Solution:
    """A solved system, with its weights (K, d + 1) and windows."""

    def __init__(
        self, rows: Any, anchors: Any, gain: float, whole: Any = None, without: int = -1
    ) -> None:
        self.gain = gain
        self.solved = path.solve_sparse(
            rows, np.array(anchors), gain, whole and whole.solved, without
        )
        self.windows: list[Any] = [each.window for each in self.solved]
        self.weights = np.stack([each.columns[:, 0] for each in self.solved])

    def determined(self, features: Any, k: int) -> Any:
        return ~self.windows[k].are_open(features)

    def occupancy(self, features: Any, k: int) -> Any:
        return self.windows[k].occupancy(features)


def solve(source: Any, anchors: list[int], gain: float) -> Solution:
    return Solution(rows_of(source, anchors), anchors, gain)


def rows_of(source: Any, anchors: list[int], n_groups: int = 20) -> SparseRows:
    return SparseRows(source, np.array(anchors), source.groups(n_groups))


class Kept:
    """A source of trials: features (m, t_max + 2, d) and rewards (m, t_max + 1)."""

    def __init__(
        self, features: Any, rewards: Any, *, ends: bool = False, zero: Any = None
    ) -> None:
        self.m, self.t_max = rewards.shape[0], rewards.shape[1] - 1
        self.rewards, self.constant = rewards, float(not ends)
        self.features = sparse.csr_array(features)
        self._zero = np.zeros(self.features.shape[1]) if ends else zero

    def groups(self, n: int) -> list[Any]:
        return [np.arange(i, self.m, n) for i in range(n)]

    def zero(self, anchor: int) -> Any:
        return self._zero

    def merged(self, start: int, stop: int, group: Any = None) -> Layer:
        trials = np.arange(self.m) if group is None else group
        place = (trials[:, None] * (self.t_max + 2) + np.arange(start, stop)).ravel()
        f, one = self.features[place], np.ones(len(place))
        goes_on = np.diff(f.indptr) > 0  # a terminal state has no features
        rewards = self.rewards[trials, start:stop].ravel()
        return Layer(f, one, rewards, one, goes_on, self.features[place + 1], None)


class Counted(Kept):
    """The same trials of states, a row for each state."""

    def merged(self, start: int, stop: int, group: Any = None) -> Layer:
        layer = super().merged(start, stop, group)
        S = self.features.shape[1]
        state, following = layer.features.indices, layer.following.indices
        n, paid = np.bincount(state, minlength=S), np.bincount(state, layer.rewards, S)
        seen, pairs = np.flatnonzero(n), np.zeros((S, S))
        np.add.at(pairs, (state, following), 1.0)
        E, one = sparse.eye_array(S, format="csr"), np.ones(len(seen))
        P = sparse.csr_array(pairs[seen] / n[seen, None])
        return Layer(E[seen], n[seen] * one, paid[seen] / n[seen], one, one > 0.0, E, P)


def one_hot(states: Any, S: int) -> sparse.csr_array:
    flat = np.ravel(states)
    return sparse.csr_array(np.eye(S)[flat])


def walk(P: Any, r: Any, m: int, t_max: int, seed: int = 0, start: Any = None) -> Any:
    """Return states (m, t_max + 2) and rewards."""
    rng, S = np.random.default_rng(seed), len(P)
    states = [rng.integers(S, size=m) if start is None else np.full(m, start)]
    steps = P.cumsum(axis=1)
    for _ in range(t_max + 1):
        states.append((rng.random((m, 1)) > steps[states[-1]]).sum(axis=1))
    found = np.stack(states, axis=1)
    return found, r[found[:, :-1]]


def random_chain(S: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    P = rng.random((S, S)) * (rng.random((S, S)) < 0.3) + 0.2 * np.roll(np.eye(S), 1, axis=1)
    return P / P.sum(axis=1, keepdims=True), rng.normal(size=S)


def oscillator(n_trials: int, t_max: int, seed: int = 0) -> Any:
    """Return observations and rewards of an oscillator that is pushed about."""
    rng = np.random.default_rng(seed)
    x, v = rng.uniform(-1.0, 1.0, (2, n_trials))
    states = []
    for _ in range(t_max + 2):
        states.append(np.stack((x, v), axis=1))
        v = np.clip(0.97 * v - 0.1 * x + 0.1 * rng.normal(size=n_trials), -1.0, 1.0)
        x = np.clip(x + 0.1 * v, -1.0, 1.0)
    observed = np.stack(states, axis=1)
    return observed, -np.square(observed[:, :-1]).sum(axis=2)


def tiles(n_tiles: int, n_tilings: int = 8) -> TileCoding:
    return TileCoding([-1.0, -1.0], [1.0, 1.0], n_tiles=n_tiles, n_tilings=n_tilings)


def values_of(system: Any, features: Any, k: int) -> Any:
    return features @ system.weights[k, :-1] + system.weights[k, -1]


def tiled(features: Any, n_trials: int, t_max: int, seed: int = 0) -> tuple[Kept, Any]:
    observed, rewards = oscillator(n_trials, t_max, seed)
    return Kept(features(observed.reshape(-1, 2)), rewards), observed


def dense_values(source: Kept, anchors: list[int], gain: float, zero: Any = None) -> list[Any]:
    """Return weights (d + 1,) of each window, by pseudoinverses of dense sums.

    Every sample counts: there are none that lead to what no others determine.
    """
    n, found = source.t_max + 1, list[Any]()
    F = source.features.toarray().reshape(source.m, n + 1, -1)
    for start, stop in reversed(list(zip(anchors, [*anchors[1:], n], strict=True))):
        one = np.ones((source.m, n + 1, int(bool(found))))
        f = np.concatenate((F, one), axis=2) if found else F
        d = f.shape[2]
        ahead, y = np.array(f[:, start + 1 : stop + 1]), source.rewards[:, start:stop] - gain
        if found:
            y = y.copy()
            y[:, -1] += F[:, stop] @ found[-1][:-1] + found[-1][-1]
            ahead[:, -1] = 0.0
        own = f[:, start:stop].reshape(-1, d)
        U, size, _ = np.linalg.svd(own, full_matrices=False)
        L = U[:, size > 1e-9 * size[0]]
        B = L.T @ (own - ahead.reshape(-1, d))
        w = np.linalg.pinv(B, rcond=1e-10) @ (L.T @ y.ravel())
        if not found:
            tail = F[:, max(start, n // 2) : n].reshape(-1, F.shape[2]).mean(axis=0)
            w = np.append(w, -(tail if zero is None else zero) @ w)
        found.append(w)
    return found[::-1]


@pytest.mark.parametrize("anchors", [[0], [0, 1, 30]])
@pytest.mark.parametrize("kind", ["counted", "kept", "tiles", "weighted"])
def test_values_agree_with_dense_least_squares(kind: str, anchors: list[int]) -> None:
    zero = None
    if kind in ("counted", "kept"):
        P, r = random_chain(25)
        states, rewards = walk(P, r, 200, 60)
        zero = np.eye(25)[3]
        source = (Counted if kind == "counted" else Kept)(one_hot(states, 25), rewards, zero=zero)
    else:
        observed, rewards = oscillator(400, 60)
        x = observed.reshape(-1, 2)
        rows = tiles(3, 4)(x)
        scale = 1.0 + 0.3 * x[:, 0] if kind == "weighted" else np.ones(len(x))
        source = Kept(sparse.diags_array(scale) @ rows, rewards)
    rows_ = rows_of(source, anchors)
    assert rows_.has_constant == (kind != "weighted")
    found = Solution(rows_, anchors, -0.3)
    assert found.windows[0].left_out.number == 0
    expected = dense_values(source, anchors, -0.3, zero)
    F = source.features.toarray().reshape(source.m, -1, source.features.shape[1])
    for k, (start, w) in enumerate(zip(anchors, expected, strict=True)):
        x = F[:100, start]
        here = found.determined(x, k)
        assert here.all()
        values = x @ w[:-1] + w[-1]
        assert_allclose(values_of(found, x, k), values, atol=1e-6 * np.ptp(values))


def test_the_gain_is_the_observed_chains_and_uses_nearly_all_samples() -> None:
    P, r = random_chain(20)
    states, rewards = walk(P, r, 300, 80)
    rows = rows_of(Counted(one_hot(states, 20), rewards), [0])
    found = sparse_gain(rows)
    tail = states[:, 40:81]
    counts = np.zeros((20, 20))
    np.add.at(counts, (tail[:, :-1], tail[:, 1:]), 1.0)
    observed = counts / counts.sum(axis=1, keepdims=True)
    p = np.linalg.lstsq(
        np.vstack((observed.T - np.eye(20), np.ones(20))), np.eye(21)[20], rcond=None
    )[0]
    assert found.value == pytest.approx(p @ r, abs=1e-10)
    assert found.rows == "tail"
    n = counts.sum(axis=1)
    assert found.share == pytest.approx(1.0 / (n.sum() * (p**2 / n).sum()), rel=1e-8)


@pytest.mark.parametrize("kind", ["ring", "random", "line"])
def test_two_thousand_states_have_the_bias_of_their_chain(kind: str) -> None:
    """Each transition seen as often as the chain has it: the values are the chain's own."""
    S, rng = 2000, np.random.default_rng(0)
    i = np.arange(S)
    ring = np.stack(((i + 1) % S, (i + 2) % S), axis=1)
    line = np.stack((np.maximum(i - 1, 0),) * 2, axis=1)
    following = {"ring": ring, "line": line, "random": rng.integers(S, size=(S, 2))}[kind]
    following[:, 0] = following[:, 0] if kind == "line" else (i + 1) % S
    r = -(i > 0).astype(float) if kind == "line" else rng.normal(size=S)
    states = np.stack((np.repeat(i, 2), following.ravel()), axis=1)
    E = sparse.eye_array(S, format="csr")

    class Pairs(Kept):
        def merged(self, start: int, stop: int, group: Any = None) -> Layer:
            of = states[group]
            one = np.ones(len(of))
            return Layer(E[of[:, 0]], one, r[of[:, 0]], one, one > 0.0, E[of[:, 1]], None)

    source = Pairs(one_hot(states[:, :1], S), np.zeros((2 * S, 1)), zero=np.eye(S)[0])
    rows = rows_of(source, [0])
    P = sparse.csr_array(
        (np.full(2 * S, 0.5), (states[:, 0], states[:, 1])), shape=(S, S)
    ).toarray()
    if kind == "line":
        gain, expected = 0.0, -i.astype(float)
    else:
        A = np.block([[np.eye(S) - P, np.ones((S, 1))], [np.eye(S)[:1], np.zeros((1, 1))]])
        expected = np.linalg.solve(A, np.append(r, 0.0))
        gain, expected = expected[-1], expected[:-1]
    found = Solution(rows, [0], gain)
    assert found.determined(E, 0).all()
    assert_allclose(values_of(found, E, 0), expected, atol=1e-8 * np.ptp(expected))


def test_errors_agree_with_separate_fits() -> None:
    P, r = random_chain(25)
    states, rewards = walk(P, r, 200, 30)
    for source in (
        tiled(tiles(4), 200, 30)[0],
        Counted(one_hot(states, 25), rewards),
    ):
        anchors = [0, 5]
        rows = rows_of(source, anchors, 10)
        gain = sparse_gain(rows)
        whole = Solution(rows, anchors, gain.value)
        gains = [each.value for each in path.gains_without_each(rows, gain.rows)]
        others = [Solution(rows, anchors, each, whole, i) for i, each in enumerate(gains)]
        for i in (0, 7):
            rest = np.delete(np.arange(source.m), np.arange(i, source.m, 10))
            F = source.features.toarray().reshape(source.m, -1, source.features.shape[1])
            part = type(source)(F[rest].reshape(-1, F.shape[2]), source.rewards[rest])
            separate = rows_of(part, anchors)
            assert gains[i] == pytest.approx(sparse_gain(separate).value, abs=1e-5)
            expected = Solution(separate, anchors, gains[i])
            for k in range(2):
                x = F[:60, anchors[k]]
                here = expected.determined(x, k)
                assert here.sum() > 40
                assert_array_equal(others[i].determined(x, k), here)
                change = values_of(whole, x, k) - values_of(expected, x, k)
                off = values_of(others[i], x, k) - values_of(expected, x, k)
                assert np.abs(off[here]).max() < 0.02 * np.abs(change[here]).max()


def test_samples_with_undetermined_successors_are_left_out_with_a_warning() -> None:
    """State 5 is entered by some trials at their last step, and never left."""
    P, r = random_chain(5)
    states, rewards = walk(P, r, 100, 40)
    states[:7, -1] = 5
    found = solve(Counted(one_hot(states, 6), rewards), [0], 0.1)
    assert found.windows[0].left_out == (0, 41, 7, 4100)
    left_out = found.windows[0].left_out
    assert (left_out.number, left_out.of) == (7, 4100)
    assert_array_equal(found.determined(np.eye(6), 0), [True] * 5 + [False])
    assert found.occupancy(np.eye(6), 0)[5] == 0.0
    assert str(found.windows[0].left_out).startswith(
        "7 of the 4100 samples of timesteps 0 to 40 lead"
    )


@pytest.mark.parametrize("kind", [Counted, Kept])
def test_states_without_a_way_back_are_not_determined(kind: Any) -> None:
    """Three trials fall into a state that keeps them, of a chain that goes on for all others."""
    P, r = random_chain(6)
    states, rewards = walk(P, r, 400, 50)
    whole = solve(kind(one_hot(states, 7), rewards), [0], 0.1)
    states[:3, -3:], rewards[:3, -2:] = 6, 100.0
    found = solve(kind(one_hot(states, 7), rewards), [0], 0.1)
    assert_array_equal(found.determined(np.eye(7), 0), [True] * 6 + [False])
    v, w = values_of(found, np.eye(6, 7), 0), values_of(whole, np.eye(6, 7), 0)
    assert_allclose(v - v.mean(), w - w.mean(), atol=0.05 * np.ptp(w))
    assert found.windows[0].left_out.number == 9


def test_states_that_lead_only_to_open_ones_are_open_in_earlier_windows() -> None:
    """Seen at the first step only, they lead to a state that is never left."""
    P, r = random_chain(4)
    states, rewards = walk(P, r, 60, 20)
    states = np.vstack((states, np.full((5, 22), 6)))
    states[60:, 0], rewards = 5, np.vstack((rewards, np.ones((5, 21))))
    found = solve(Counted(one_hot(states, 7), rewards), [0, 1, 9], 0.1)
    assert_array_equal(found.determined(np.eye(7), 0), [True] * 4 + [False] * 3)
    assert found.windows[0].left_out.number == 5


def test_tiles_that_few_samples_stay_in_do_not_decide_on_the_last_window() -> None:
    source, observed = tiled(tiles(10), 300, 199)
    rows = rows_of(source, [0, 173])
    found = Solution(rows, [0, 173], sparse_gain(rows).value)
    assert 0 < found.windows[1].left_out.number < 100
    x = tiles(10)(observed[:100, 0])
    longer = solve(source, [0], found.gain)
    here = found.determined(x, 0) & longer.determined(x, 0)
    assert here.mean() > 0.9
    off = (values_of(found, x, 0) - values_of(longer, x, 0))[here]
    assert np.std(off) < 0.5 * np.std(values_of(longer, x, 0)[here])


def test_a_window_without_useful_samples_is_refused() -> None:
    source, _ = tiled(tiles(59), 4, 20)
    message = r"^44 of the 44 samples of timesteps 10 to 20 lead"
    with pytest.raises(EvaluationError, match=message):
        solve(source, [0, 10], 0.0)


def test_combinations_of_features_that_no_samples_have_are_open() -> None:
    """Features 0 and 1 always come together: half of each alone is nobody's."""
    rng = np.random.default_rng(0)
    base = np.array([[1, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 2]]) / 2.0
    states = rng.integers(3, size=(60, 22))
    source = Kept(base[states.ravel()], rng.normal(size=(60, 21)))
    found = solve(source, [0, 4], 0.0)
    x = np.vstack((base, [[1, 0, 0, 0], [0.5, 0.5, 0.5, 0]]))
    for k in range(2):
        assert_array_equal(found.determined(x, k), [True, True, True, False, True])
    assert found.occupancy(x, 1)[3] == 0.0


def test_occupancy_is_the_visiting_frequency_or_the_christoffel_function() -> None:
    P, r = random_chain(12)
    states, rewards = walk(P, r, 50, 30)
    found = solve(Counted(one_hot(states, 12), rewards), [0, 4], 0.0)
    visits = np.bincount(states[:, 4:31].ravel(), minlength=12)
    assert_allclose(found.occupancy(np.eye(12), 1), visits / visits.sum())
    source, _ = tiled(tiles(3, 4), 300, 30)
    tiled_fit = solve(source, [0, 4], 0.0)
    F = source.features.toarray().reshape(300, 32, -1)
    window, x = F[:, 4:31].reshape(-1, F.shape[2]), F[:40, 10]
    leverage = np.einsum("md,de,me->m", x, np.linalg.pinv(window.T @ window, rcond=1e-9), x)
    expected = np.where(leverage <= 0.1, 1.0 / (leverage * len(window)), 0.0)
    assert_allclose(tiled_fit.occupancy(x, 1), expected, rtol=1e-5)


def test_values_of_tasks_that_end_are_total_rewards() -> None:
    """A line to the end: -s at state s, of which the end, a row of zeros, is worth 0."""
    S, m = 30, 90
    states = np.maximum(np.arange(m)[:, None] % S - np.arange(S + 2), -1)
    features = np.vstack((np.eye(S), np.zeros(S)))[states.ravel()]
    rewards = -np.where(states[:, :-1] >= 0, 1.0, 0.0)
    for anchors in ([0], [0, 3, 7]):
        found = solve(Kept(features, rewards, ends=True), anchors, 0.0)
        here = found.determined(np.eye(S), 0)
        assert here.all()
        assert_allclose(values_of(found, np.eye(S), 0), -1.0 - np.arange(S), atol=1e-8)


def test_the_gain_of_a_moving_tail_is_rejected() -> None:
    """A backlog that is drained a step at a time has no state twice."""
    m, t_max = 40, 30
    states = np.arange(t_max + 2) + np.zeros((m, 1), dtype=np.int64)
    rewards = np.broadcast_to(-np.arange(t_max + 1.0), (m, t_max + 1))
    assert sparse_gain(rows_of(Kept(one_hot(states, t_max + 2), rewards), [0])) is None


def test_values_of_tiles_are_near_simulated_ones() -> None:
    source, _ = tiled(tiles(6), 300, 199)
    rows = rows_of(source, [0])
    found = Solution(rows, [0], sparse_gain(rows).value)
    starts = np.random.default_rng(3).uniform(-0.7, 0.7, (20, 2))
    rng = np.random.default_rng(4)
    x, v = (np.repeat(starts[:, i], 400) for i in (0, 1))
    total = np.zeros(len(x))
    for _ in range(300):
        total -= x**2 + v**2 + found.gain
        v = np.clip(0.97 * v - 0.1 * x + 0.1 * rng.normal(size=len(x)), -1.0, 1.0)
        x = np.clip(x + 0.1 * v, -1.0, 1.0)
    truth = total.reshape(20, -1).mean(axis=1)
    values = values_of(found, tiles(6)(starts), 0)
    off = values - truth
    assert np.std(off) < 0.35 * np.std(truth)


def test_a_system_without_a_solution_is_refused() -> None:
    M = sparse.csc_array(np.array([[1.0, 1.0], [1.0, 1.0]]))
    with pytest.raises(EvaluationError, match="the equations of 2 sparse features are not solved"):
        RidgeSolver(M, None, eager=False).solve(np.array([1.0, -1.0]), None, False)


def test_a_system_reports_its_numbers_of_features_and_samples() -> None:
    P, r = random_chain(9)
    states, rewards = walk(P, r, 30, 20)
    found = solve(Counted(one_hot(states, 10), rewards), [0, 5], 0.0)
    assert [(each.rank, each.n_samples) for each in found.solved] == [(9, 150), (9, 480)]
