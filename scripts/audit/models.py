"""Processes with known answers, for audits: a finite chain and a linear Gaussian process.

Both compute, for each full state s, the reward above the gain from step h on,

    v_h(s) = Σ_{t ≥ h} E[r_t - g | s_0 = s],

so that v_0 is the bias, and simulate trials. Observations may show only a part of the state. For a
periodic chain, v_h is the average over one period of h.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_lyapunov

from unichain_gym import MarkovChain

FloatArray = NDArray[np.float64]
Trials = tuple[NDArray[Any], NDArray[Any], FloatArray]
"""Full states (n, t_max + 2[, k]), observations (n, t_max + 2[, k]), rewards (n, t_max + 1)."""


@dataclass(frozen=True, eq=False)
class Finite:
    """A finite chain; observations are a number (S,) or a vector (S, k) for each state.

    ``noise`` is the standard deviation of the noise of rewards. States may have consecutive copies
    with different rewards; ``odds`` are their probabilities. ``duration`` (S,) are mean times of
    steps, with a ``law`` "deterministic", "exponential" or "lognormal"; then gains are per unit of
    time.
    """

    P: FloatArray
    reward: FloatArray
    start: FloatArray
    shown: NDArray[Any]
    noise: float = 0.0
    odds: tuple[float, ...] = (1.0,)
    duration: FloatArray | None = None
    law: str = "deterministic"

    @cached_property
    def chain(self) -> MarkovChain:
        """The exact side."""
        parts = self.P, self.reward, self.start
        return MarkovChain(*parts, drop_below=1e-13, durations=self.duration)

    @cached_property
    def gains(self) -> FloatArray:
        """Gain of each state; all are the same unless there are several recurrent classes."""
        return np.asarray(self.chain.gain_vector)

    @property
    def gain(self) -> float:
        """Mean over the start."""
        return float(self.start @ self.gains)

    @property
    def starts(self) -> NDArray[np.int64]:
        """The full states in which trials may start."""
        return np.flatnonzero(self.start)

    @property
    def weights(self) -> FloatArray:
        """How likely each of `starts` is."""
        return self.start[self.starts]

    @cached_property
    def period(self) -> int:
        """The period of the chain, of all its recurrent classes."""
        return int(np.lcm.reduce([int(period) for period in self.chain.class_periods]))

    @cached_property
    def _to_come(self) -> list[FloatArray]:
        total, later = np.zeros(len(self.reward)), np.asarray(self.chain.bias)
        for _ in range(self.period):
            total, later = total + later / self.period, self.P @ later
        return [np.asarray(self.chain.bias), total]

    def shows(self, states: NDArray[Any]) -> NDArray[Any]:
        """Return what is observed in full states."""
        return np.asarray(self.shown[states])

    def to_come(self, h: int, states: NDArray[Any]) -> FloatArray:
        """Return v_h of full states; v_0 is the bias, and later v_h are means over a period."""
        if h == 0:
            return np.asarray(self._to_come[0][states])
        while len(self._to_come) < h + 2:
            self._to_come.append(self.P @ self._to_come[-1])
        return np.asarray(self._to_come[h + 1][states])

    def values(self, states: NDArray[Any]) -> FloatArray:
        """Return the bias of full states, for any copy of a state."""
        mean = np.asarray(self.odds) @ self._to_come[0].reshape(len(self.odds), -1)
        return np.asarray(mean[states % len(mean)])

    @cached_property
    def reached(self) -> NDArray[np.int64]:
        """The states that trials can reach."""
        found = self.start > 0.0
        while (more := found | ((found @ self.P) > 0.0)).sum() > found.sum():
            found = more
        return np.flatnonzero(found)

    def value_of(self, observation: Any, anywhere: bool = False) -> tuple[float, float]:
        """Return mean bias and gain where an observation is made: at starts, or in any state."""
        weight = np.ones(len(self.P)) if anywhere else self.start
        same = self.shown == observation
        weight = weight * (same if same.ndim == 1 else same.all(axis=1))
        if not weight.any():
            return np.nan, np.nan
        share = weight / weight.sum()
        return float(share @ self.to_come(0, np.arange(len(share)))), float(share @ self.gains)

    def simulate(self, n: int, t_max: int, rng: np.random.Generator) -> Trials:
        """Run n trials over timesteps 0 to t_max."""
        cumulative = np.cumsum(self.P, axis=1)
        cumulative[:, -1] = 1.0
        states = np.empty((n, t_max + 2), dtype=np.int64)
        states[:, 0] = rng.choice(len(self.start), n, p=self.start / self.start.sum())
        for t in range(t_max + 1):
            states[:, t + 1] = (cumulative[states[:, t]] <= rng.random((n, 1))).sum(axis=1)
        rewards = self.reward[states[:, :-1]]
        return states, self.shown[states], rewards + self.noise * rng.standard_normal(rewards.shape)

    def times(self, states: NDArray[Any], rng: np.random.Generator) -> FloatArray | None:
        """Draw how long the steps of trials take; None where each takes 1."""
        if self.duration is None:
            return None
        shape = states[:, :-1].shape
        drawn: FloatArray = np.ones(shape)
        if self.law == "exponential":
            drawn = rng.exponential(size=shape)
        elif self.law == "lognormal":
            drawn = rng.lognormal(-0.5, 1.0, shape)
        return np.asarray(drawn * self.duration[states[:, :-1]])

    def as_seen(self, states: NDArray[Any], lengths: NDArray[np.int64]) -> Finite:
        """Return the chain without the starts, transitions and events that no trial has.

        An event that no trial has in an observed state is removed from this state.
        """
        has = np.arange(states.shape[1] - 1) < lengths[:, None]
        m, S = len(self.odds), len(self.P) // len(self.odds)
        seen = np.zeros((S, S), dtype=bool)
        seen[states[:, :-1][has] % S, states[:, 1:][has] % S] = True
        seen[~seen.any(axis=1)] = True  # keep all transitions of states without data
        copies = np.zeros((m, S), dtype=bool)
        copies.flat[states[:, :-1][has]] = True
        copies[:, ~copies.any(axis=0)] = True
        P = np.where(np.tile(seen, (m, m)) & copies.ravel(), self.P, 0.0)
        P = np.where(P.any(axis=1, keepdims=True), P, self.P)
        begun = copies & np.isin(np.arange(S), states[:, 0] % S)
        start = np.where(begun.ravel(), self.start, 0.0)
        return replace(self, P=P / P.sum(axis=1, keepdims=True), start=start / start.sum())


@dataclass(frozen=True, eq=False)
class Gaussian:
    """x' = A x + N(0, Σ) with reward f(c·x); only the first components are observed.

    ``pay`` names f(z): z, -z², -|z| or exp(-z²/2). The starts (m, k) are equally likely.
    """

    A: FloatArray
    covariance: FloatArray
    c: FloatArray
    pay: Literal["linear", "square", "absolute", "bump"]
    starts: FloatArray
    visible: int
    period = 1

    @property
    def weights(self) -> FloatArray:
        """How likely each of `starts` is."""
        return np.full(len(self.starts), 1.0 / len(self.starts))

    def mean_reward(self, mean: FloatArray, variance: Any) -> FloatArray:
        """Return E f(z) of Gaussian z."""
        s = np.sqrt(np.maximum(variance, 0.0))
        if self.pay == "linear":
            return np.asarray(mean + 0.0 * s)
        if self.pay == "square":
            return np.asarray(-(mean**2) - s**2)
        if self.pay == "bump":
            return np.asarray(np.exp(-(mean**2) / (2.0 * (1.0 + s**2))) / np.sqrt(1.0 + s**2))
        from scipy.special import erf

        ratio = mean / np.maximum(s, 1e-12)
        folded = s * sqrt(2.0 / np.pi) * np.exp(-(ratio**2) / 2.0) + mean * erf(ratio / sqrt(2.0))
        return np.asarray(-np.where(s > 1e-12, folded, np.abs(mean)))

    @cached_property
    def _settled(self) -> float:
        stationary = solve_discrete_lyapunov(self.A, self.covariance)
        return float(self.c @ stationary @ self.c)

    @cached_property
    def gain(self) -> float:
        """Mean reward in the long run."""
        return float(self.mean_reward(np.zeros(1), np.array([self._settled]))[0])

    @cached_property
    def _ahead(self) -> tuple[FloatArray, FloatArray]:
        """c A^t (H, k), and the variance of c·x_t (H,), until both have converged."""
        rows, variances = [self.c], [0.0]
        while np.abs(rows[-1]).max() > 1e-10:
            variances.append(variances[-1] + float(rows[-1] @ self.covariance @ rows[-1]))
            rows.append(rows[-1] @ self.A)
        return np.array(rows), np.array(variances)

    def shows(self, states: NDArray[Any]) -> NDArray[Any]:
        """Return what is observed in full states (..., k)."""
        return np.asarray(states[..., : self.visible])

    def to_come(self, h: int, states: NDArray[Any]) -> FloatArray:
        """Return v_h of full states (n, k)."""
        rows, variances = self._ahead
        rewards = self.mean_reward(states @ rows[h:].T, variances[h:])
        return np.asarray((rewards - self.gain).sum(axis=1))

    def values(self, states: NDArray[Any]) -> FloatArray:
        """Return the bias of full states (n, k)."""
        return self.to_come(0, states)

    @property
    def reached(self) -> FloatArray:
        """The starts, although trials reach the whole space."""
        return self.starts

    def value_of(self, observation: Any, anywhere: bool = False) -> tuple[float, float]:
        """Return mean bias and gain of the starts that show an observation, or of a full state."""
        same = (self.starts[:, : self.visible] == observation).all(axis=1)
        states = np.atleast_2d(observation) if anywhere else self.starts[same]
        return float(self.to_come(0, states).mean()), self.gain

    def simulate(self, n: int, t_max: int, rng: np.random.Generator) -> Trials:
        """Run n trials over timesteps 0 to t_max."""
        x = np.empty((n, t_max + 2, len(self.c)))
        x[:, 0] = self.starts[rng.integers(len(self.starts), size=n)]
        spread = np.linalg.cholesky(self.covariance)
        for t in range(t_max + 1):
            x[:, t + 1] = x[:, t] @ self.A.T + rng.standard_normal((n, len(self.c))) @ spread.T
        z = x[:, :-1] @ self.c
        return x, x[..., : self.visible], self.mean_reward(z, np.zeros_like(z))


Model = Finite | Gaussian


def start_bias(model: Model) -> float:
    """Return the mean total reward of a trial above the gain."""
    return float(model.weights @ model.to_come(0, model.starts))


def mixing_time(model: Model, share: float = 0.05, most: int = 400) -> int:
    """Return the first h with max v_h - min v_h <= share (max v_0 - min v_0).

    The extremes are over reachable states; for a Gaussian process over its starts.
    """
    at_first = np.ptp(model.values(model.reached))
    for h in range(1, most):
        if np.ptp(model.to_come(h, model.reached)) <= share * at_first:
            return h
    return most


def moves(n: int, steps: dict[int, float]) -> FloatArray:
    """Return P (n, n) of a walk on 0 ... n - 1 that stays instead of leaving an end."""
    P = np.zeros((n, n))
    for step, probability in steps.items():
        np.add.at(P, (np.arange(n), np.clip(np.arange(n) + step, 0, n - 1)), probability)
    return P


def at(n: int, *where: int) -> FloatArray:
    """Return the initial distribution that is uniform over some of n states."""
    return np.asarray(np.isin(np.arange(n), where) / len(where))


def with_mode(one: Finite, other: Finite, stay: float, start: FloatArray) -> Finite:
    """Return a chain with a hidden mode: the first or the other, which changes with 1 - stay.

    ``start`` (2, S) is the joint initial distribution of modes and states.
    """
    turn = np.array([[stay, 1.0 - stay], [1.0 - stay, stay]])
    P = np.block([[turn[i, j] * each.P for j in range(2)] for i, each in enumerate((one, other))])
    reward = np.concatenate([one.reward, other.reward])
    return Finite(P, reward, start.ravel(), np.concatenate([one.shown] * 2), one.noise)


def with_event(base: Finite, chance: float, pays: FloatArray) -> Finite:
    """Return a chain in which each step pays ``pays`` (S,) more with a small chance."""
    odds = np.array([1.0 - chance, chance])
    P = np.kron(np.tile(odds, (2, 1)), base.P)
    reward = np.concatenate([base.reward, base.reward + pays])
    shown = np.concatenate([base.shown] * 2)
    return Finite(P, reward, np.kron(odds, base.start), shown, base.noise, tuple(odds))
