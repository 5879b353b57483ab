"""Chains with probabilities down to 1e-300, held to arithmetic of 500 digits."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Context, Decimal, localcontext

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from unichain_gym import MarkovChain
from unichain_gym.elimination import GthFactors, RangedFactors
from unichain_gym.errors import ConvergenceError

FloatArray = NDArray[np.float64]
Matrix = list[list[Decimal]]

N_CHAINS = 400
DIGITS = Context(prec=500, Emax=10**9, Emin=-(10**9))


def solve(N: Matrix, leave: list[Decimal], c: Matrix) -> Matrix:
    """Solve (diag(N 1 + leave) - N) x = c for several columns, by elimination."""
    n, N, leave, x = len(N), [row[:] for row in N], leave[:], [row[:] for row in c]
    pivot = []
    for k in range(n):
        pivot.append(sum(N[k][k + 1 :], leave[k]))
        for i in range(k + 1, n):
            if N[i][k]:
                weight = N[i][k] / pivot[k]
                for j in range(k + 1, n):
                    if N[k][j] and i != j:
                        N[i][j] += weight * N[k][j]
                leave[i] += weight * leave[k]
                x[i] = [a + weight * b for a, b in zip(x[i], x[k], strict=True)]
    for k in reversed(range(n)):
        for j in range(k + 1, n):
            if N[k][j]:
                x[k] = [a + N[k][j] * b for a, b in zip(x[k], x[j], strict=True)]
        x[k] = [a / pivot[k] for a in x[k]]
    return x


def among(N: Matrix, rows: list[int], columns: list[int]) -> Matrix:
    return [[N[i][j] for j in columns] for i in rows]


class Exact:
    """Long-run quantities of a chain, the diagonal taken from the rest of each row."""

    def __init__(self, chain: MarkovChain) -> None:
        P = chain.transition_matrix.toarray().tolist()
        self.N = N = [[Decimal(x) for x in row] for row in P]
        n = chain.n_states
        for s in range(n):
            N[s][s] = Decimal(0)
        reward = [Decimal(x) for x in chain.reward.tolist()]
        self.gain, self.bias = [Decimal(0)] * n, [Decimal(0)] * n
        self.stationary = [Decimal(0)] * n
        start = [Decimal(x) for x in chain.initial_distribution.tolist()]
        self.T = T = chain.transient_states.tolist()
        weights = {}
        for states in (c.tolist() for c in chain.recurrent_classes):
            ground, rest = states[0], states[1:]
            inside = among(N, rest, rest)
            to_ground = [N[s][ground] for s in rest]
            sums = solve(inside, to_ground, [[reward[s], Decimal(1)] for s in rest])
            u = reward[ground] + sum(N[ground][s] * x[0] for s, x in zip(rest, sums, strict=True))
            z = 1 + sum(N[ground][s] * x[1] for s, x in zip(rest, sums, strict=True))
            p = {ground: Decimal(1)}
            if rest:  # from the balance of flows, by the transposed system of the reversed chain
                p |= self._occupancy(ground, rest)
            total = sum(p.values())
            weights[ground] = {s: x / total for s, x in p.items()}
            gain = u / z
            for s, x in zip(rest, sums, strict=True):
                self.bias[s] = x[0] - gain * x[1]
            mean = sum(weights[ground][s] * self.bias[s] for s in states)
            for s in states:
                self.gain[s], self.bias[s] = gain, self.bias[s] - mean
        self.time = [Decimal(0)] * n
        if T:
            R = [s for s in range(n) if s not in set(T)]
            leave = [sum(N[s][k] for k in R) for s in T]
            first = [list(w) for w in weights.values()]
            into = [[*(sum(N[s][k] for k in states) for states in first), Decimal(1)] for s in T]
            rows = solve(among(N, T, T), leave, into)
            for s, row in zip(T, rows, strict=True):
                self.time[s] = row[-1]
                self.gain[s] = sum(
                    (q * self.gain[states[0]] for q, states in zip(row, first, strict=False)),
                    Decimal(0),
                )
            source = [
                [reward[s] - self.gain[s] + sum(N[s][k] * self.bias[k] for k in R)] for s in T
            ]
            for s, (b,) in zip(T, solve(among(N, T, T), leave, source), strict=True):
                self.bias[s] = b
            mass = {
                k: sum((start[s] * row[i] for s, row in zip(T, rows, strict=True)), Decimal(0))
                for i, k in enumerate(weights)
            }
        else:
            mass = dict.fromkeys(weights, Decimal(0))
        for k, w in weights.items():
            share = mass[k] + sum(start[s] for s in w)
            for s, x_s in w.items():
                self.stationary[s] = share * x_s

    def _occupancy(self, ground: int, rest: list[int]) -> dict[int, Decimal]:
        """Visits of each state between two of the ground: eliminate, then substitute back."""
        states = [ground, *rest]
        N = among(self.N, states, states)
        n = len(states)
        weight: dict[int, list[Decimal]] = {}
        for k in reversed(range(1, n)):
            pivot = sum(N[k][:k], Decimal(0))
            weight[k] = [N[i][k] / pivot for i in range(k)]
            for i in range(k):
                if weight[k][i]:
                    for j in range(k):
                        if i != j:
                            N[i][j] += weight[k][i] * N[k][j]
        p = [Decimal(1)]
        for k in range(1, n):
            p.append(sum((p[i] * weight[k][i] for i in range(k)), Decimal(0)))
        return dict(zip(states, p, strict=True))


def rare_chains() -> Iterator[MarkovChain]:
    """Chains of 1 to 40 states with few transitions, of probabilities 1 down to 1e-300."""
    rng = np.random.default_rng(0)
    for _ in range(N_CHAINS):
        n = 1 + int(40 * rng.random() ** 3)
        rarest = 300.0 * rng.random() ** 2
        N = 10.0 ** -(rarest * rng.random((n, n)))
        N *= rng.random((n, n)) < rng.choice((1.0, 2.0, 4.0)) / n
        np.fill_diagonal(N, 0.0)
        N /= np.maximum(1.0, N.sum(axis=1, keepdims=True) * 1.001)
        P = N + np.diag(1.0 - N.sum(axis=1))
        yield MarkovChain(P, rng.normal(size=n), rng.dirichlet(np.ones(n)), drop_below=0)


def is_near(ours: FloatArray, exact: list[Decimal], scale: FloatArray | float) -> bool:
    error = [abs(Decimal(a) - b) for a, b in zip(ours.tolist(), exact, strict=True)]
    bound = np.broadcast_to(scale, ours.shape).tolist()
    # Beyond doubles, the nearest of them is right.
    return all(
        e <= Decimal("1e-10") * Decimal(s) + Decimal("1e-307")
        for e, s in zip(error, bound, strict=True)
    )


@pytest.mark.slow
def test_rare_transitions_lose_no_digit_or_are_refused() -> None:
    refused = 0
    with localcontext(DIGITS):
        for chain in rare_chains():
            exact = Exact(chain)
            for what, expected, scale in (
                ("stationary_distribution", exact.stationary, as_floats(exact.stationary)),
                ("gain_vector", exact.gain, np.abs(chain.reward).max()),
                ("bias", exact.bias, np.abs(as_floats(exact.bias)).max()),
                ("mean_absorption_time", exact.time, as_floats(exact.time)),
            ):
                try:
                    ours = getattr(chain, what)
                except ConvergenceError as error:
                    assert "range of doubles" in str(error)  # noqa: PT017
                    refused += 1
                else:
                    assert is_near(ours, expected, scale), what
    assert refused < 4 * N_CHAINS // 100


def as_floats(values: list[Decimal]) -> FloatArray:
    return np.array([float(x) for x in values])


def test_ranged_elimination_equals_elimination() -> None:
    rng = np.random.default_rng(5)
    N, leave, c = rng.random((30, 30)), rng.random(30), rng.normal(size=(30, 3))
    ranged, plain = RangedFactors(sparse.csr_array(N), leave), GthFactors(N.copy(), leave)
    np.testing.assert_allclose(ranged.solve(c), plain.solve(c), rtol=1e-13, atol=1e-14)
    ours, theirs = ranged.solve(c[:, 0], transposed=True), plain.solve(c[:, 0], transposed=True)
    np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-14)


def test_a_path_with_a_probability_below_doubles_decides_a_frequency() -> None:
    P = np.eye(4)
    P[0, 1], P[1, 2], P[1, 3], P[2, 0] = 3.7e-40, 3e-36, 5.7e-188, 8.3e-258
    P[2, 1], P[3, 0] = 1.4e-188, 1.3e-256
    chain = MarkovChain(P, np.zeros(4), np.full(4, 0.25))
    # From 2 to 3 by way of 1: p3 1.3e-256 = 1.4e-188 (5.7e-188/3e-36).
    expected = 1.4e-188 / 1.3e-256 * (5.7e-188 / 3e-36)
    assert chain.stationary_distribution[3] == pytest.approx(expected, rel=1e-12)
