"""The paper's ten schemes on exact statistics: the one module of the study that needs the core.

Everything else in the study uses what `lstd_agent` offers publicly. `ExactSchemes.fit` takes a
scheme and features, and returns values by neighbourhood.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import check_choice
from lstd_agent.features.kernels import Kernel
from lstd_agent.problems import PiecewiseValues, full_distributions, settled_time
from lstd_agent.statistics.blocks import Block
from lstd_agent.statistics.equations import (
    Equations,
    Factors,
    FeatureBasis,
    Moments,
    window_chunks,
)
from lstd_agent.statistics.interface import SquaredDistance
from lstd_agent.statistics.pooled import PooledModel, pooled_model
from lstd_agent.statistics.walks import StateWalk
from lstd_agent.system.approximators import System
from lstd_agent.system.distances import mean_discrepancy, optimal_transport, total_variation
from lstd_agent.system.fit_system import fit_system
from lstd_agent.system.neighborhoods import AnchorSearch
from unichain_gym import MarkovChain

SCHEMES = ("buw", "p01", "p02am", "p02tv", "p02ot", "p02md", "paxtv", "paxot", "paxmd", "pinf")
Tail = Literal["window", "settled", "stationary"]
Rule = Literal["occupancy", "most_common"]

EXACT_RCOND = 1e-13
"""Relative rank cutoff for exact statistics, whose only error is rounding."""


class ExactStatistics:
    """Statistics from the chain's own distributions p^t instead of samples.

    Parameters
    ----------
    chain : MarkovChain
    features : ndarray, shape (S, d)
    distributions : ndarray, shape (t_max + 1, S)
        p^t. The stationary distribution p* stands for timestep t_max + 1, which
        ``tail="stationary"`` asks for.
    terminal : int, optional
        The terminal state of a task that ends.
    """

    support_threshold = 1e-8
    sparse_counts = None
    sparse_trials = reduction = None

    def __init__(
        self,
        chain: MarkovChain,
        features: FloatArray,
        distributions: FloatArray,
        terminal: int | None = None,
    ) -> None:
        self.chain = chain
        self.features = self.candidate_features = features
        self.distributions = distributions
        self.t_max = len(distributions) - 1
        self.terminal = terminal
        self.intercept = float(terminal is None)
        self._living = np.flatnonzero(np.arange(len(features)) != terminal)
        self._increments: FloatArray = features - chain.transition_matrix @ features

    def moments(self, windows: IntArray, gain: float) -> Moments:
        """X, Z, y of the mean distribution of each window."""
        return self.moments_of(self.occupancy(windows), gain)

    def moments_of(self, distributions: FloatArray, gain: float) -> Moments:
        """X, Z, y of each state distribution (n, S)."""
        F = self.features
        n, d = len(distributions), F.shape[1]
        X, Z = np.empty((n, d, d)), np.empty((n, d, d))
        for chunk in window_chunks(n, F.size):
            weight = distributions[chunk, :, None]
            X[chunk] = F.T @ (weight * self._increments)
            Z[chunk] = F.T @ (weight * F)
        y = (distributions * (self.chain.reward - gain)) @ F
        return Moments(X, Z, y, np.zeros(n, dtype=np.int64))

    def numbers_per_window(self, rcond: float) -> int:
        """1, since `moments_of` takes windows in pieces by itself."""
        return 1

    def equations(self, windows: IntArray, gain: float | None, rcond: float) -> Equations:
        """Equations of windows by themselves; two right-hand sides where the gain is unknown."""
        p = self.occupancy(windows)
        if gain is not None:
            return self.moments_of(p, gain)
        return self._factors(p, np.zeros_like(p), self.features, rcond)

    def linked_equations(self, windows: IntArray, rcond: float) -> Factors:
        """Factors with open ends; see `Statistics.linked_equations`."""
        one = np.full((len(self.features), 1), self.intercept)
        length = windows[:, 1:] - windows[:, :1]
        leaving = self.distributions[windows[:, 1] - 1] / length
        features = np.hstack((self.features, one))
        factors = self._factors(self.occupancy(windows), leaving, features, rcond)
        following = self.chain.transition_matrix @ features
        share = _ratio(leaving, np.sqrt(self.occupancy(windows)))[:, :, None]
        return replace(factors, c=np.concatenate((factors.c, share * following), axis=2))

    def basis(self, rcond: float, *, intercept: bool) -> FeatureBasis:
        """Return an orthonormal basis of features f or (f, 1) of states that are ever visited."""
        one = np.full((len(self.features), int(intercept)), self.intercept)
        seen = np.asarray(self.distributions.any(axis=0))[:, None]
        while not (seen | self._reached(seen) == seen).all():
            seen = seen | self._reached(seen)
        return FeatureBasis.of(np.where(seen, np.hstack((self.features, one)), 0.0), rcond)

    def counted(self, refusal: str = "") -> ExactStatistics:
        """Return these: states are known."""
        return self

    def block(self, start: int, stop: int) -> Block:
        """Probabilities of the last timestep before ``stop``."""
        return self._block(stop - 1, self.distributions[stop - 1])

    @property
    def forever(self) -> Block:
        """Probabilities of p*."""
        return self._block(self.t_max + 1, self.chain.stationary_distribution)

    def _block(self, t: int, p: FloatArray) -> Block:
        states = self._living
        P, r = self.chain.transition_matrix, self.chain.reward
        if self.terminal is None:
            return Block.single(t, states, p, r, P, 0)
        return Block.single(t, states, p[states], r[states], P[states], 0)

    def walk(self, rcond: float) -> StateWalk:
        """Return the walk over states."""
        return StateWalk(self, rcond)

    def pooled(self, gain: float, main: int) -> PooledModel:
        """Return the chain's own values, 0 at the main reference state."""
        return pooled_model(self.chain.transition_matrix, self.chain.reward, gain, main, 0)

    def _factors(
        self, p: FloatArray, leaving: FloatArray, features: FloatArray, rcond: float
    ) -> Factors:
        """Return the factors of distributions (n, S), of which a part leaves the window."""
        seen = np.asarray(p.any(axis=0))[:, None]
        basis = FeatureBasis.of(np.where(seen | self._reached(seen), features, 0.0), rcond)
        root = np.sqrt(p)[:, :, None]
        staying = _ratio(p - leaving, root[:, :, 0])[:, :, None]
        B = root * basis.U - staying * (self.chain.transition_matrix @ basis.U)
        c = root * np.stack((self.chain.reward, np.ones(len(features))), axis=1)
        return Factors(root * basis.U, B, c, basis, np.zeros(len(p), dtype=np.int64))

    def _reached(self, seen: BoolArray) -> BoolArray:
        """Return which states follow others in one step, shape (S, 1)."""
        return np.asarray(self.chain.transition_matrix.T @ seen.astype(float) > 0.0)

    @cached_property
    def feature_scale(self) -> FloatArray:
        """Root mean squares of the features (f, 1) over all timesteps, none 0, shape (d + 1,)."""
        scale = np.sqrt(self.distributions.mean(axis=0) @ self.features**2)
        return np.append(np.where(scale > 0.0, scale, 1.0), 1.0)

    @cached_property
    def settled(self) -> int:
        """The first timestep from which p^t moves by rounding alone."""
        return settled_time(self.chain, self.distributions)

    @property
    def visits(self) -> sparse.csr_array:
        """The distribution of each timestep, CSR (t_max + 1, S)."""
        return sparse.csr_array(self.distributions)

    def occupancy(self, windows: IntArray) -> FloatArray:
        """Mean distribution of each window, shape (n, S)."""
        return np.stack([self._average(int(start), int(stop)) for start, stop in windows])

    def zero(self, window: IntArray) -> tuple[int, FloatArray]:
        """Return the terminal state, or else the state that the window visits most."""
        state = self.terminal
        if state is None:
            state = int(np.argmax(self.occupancy(window[None])[0]))
        return state, np.asarray(self.features[state])

    def mean_features(self, t: int) -> FloatArray:
        """Mean features (d,) at a timestep."""
        return np.asarray(self.distributions[t] @ self.features)

    def mean_reward(self, start: int, stop: int) -> float:
        """Mean reward over the timesteps from start up to stop."""
        return float(self._average(start, stop) @ self.chain.reward)

    def _average(self, start: int, stop: int) -> FloatArray:
        if start > self.t_max:
            return self.chain.stationary_distribution
        return np.asarray(self.distributions[start:stop].mean(axis=0))


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Return part / whole, 0 where there is no whole."""
    return np.asarray(part / np.where(whole > 0.0, whole, 1.0))


class ExactSchemes:
    """Fits the schemes to one chain, for any features, and computes nothing twice.

    Parameters
    ----------
    chain : MarkovChain
        Followed for ten times its mixing time.
    """

    def __init__(self, chain: MarkovChain) -> None:
        self.chain = chain
        self.t_max = 10 * chain.mixing_time()
        self.distributions = full_distributions(chain, self.t_max)
        self._settled = settled_time(chain, self.distributions)
        self._searches: dict[str, AnchorSearch] = {}

    def fit(
        self,
        scheme: str,
        features: FloatArray,
        n_anchors_max: int,
        *,
        tail: Tail = "window",
        reference: Rule = "most_common",
        rcond: float = EXACT_RCOND,
    ) -> PiecewiseValues:
        """Return the values of one scheme (one of `SCHEMES`)."""
        system = self.system(scheme, features, n_anchors_max, tail, reference, rcond)
        return values_of(system, features)

    def system(
        self,
        scheme: str,
        features: FloatArray,
        n_anchors_max: int,
        tail: Tail = "window",
        reference: Rule = "most_common",
        rcond: float = EXACT_RCOND,
    ) -> System:
        """Return the system of one scheme."""
        distributions = self.distributions
        if scheme == "buw":
            distributions = np.full((1, self.chain.n_states), 1.0 / self.chain.n_states)
            tail = "window"
        return fit_system(
            ExactStatistics(self.chain, features, distributions),
            self.anchors(scheme, features, n_anchors_max),
            self.chain.gain,
            calibration="references",
            reference=reference,
            tail=tail,
            rcond=rcond,
        )

    def anchors(self, scheme: str, features: FloatArray, n_anchors_max: int) -> IntArray:
        """Return the anchors of a scheme."""
        check_choice("scheme", scheme, SCHEMES)
        if scheme in ("buw", "p01"):
            return np.zeros(1, dtype=np.int64)
        if scheme == "p02am":
            return np.unique([0, min(self.chain.max_absorption_time(), self.t_max)])
        if scheme == "pinf":
            return np.arange(self.t_max + 1)
        n_anchors = 2 if scheme.startswith("p02") else n_anchors_max
        return self._search(scheme[-2:], features).doubling(n_anchors)

    def _search(self, metric: str, features: FloatArray) -> AnchorSearch:
        if metric in self._searches:
            return self._searches[metric]
        if metric == "md":
            squared = mean_discrepancy(self.distributions, Kernel()(features, features))
        elif metric == "tv":
            squared = total_variation(self.distributions)
        else:
            squared = optimal_transport(self.distributions, self.chain.bisimulation_distance())
        search = AnchorSearch(until_settled(squared, self._settled), self.t_max)
        if metric != "md":  # the others do not depend on the features
            self._searches[metric] = search
        return search


def values_of(system: System, features: FloatArray) -> PiecewiseValues:
    """Return the values (n, S) of a system's neighbourhoods."""
    values = system.weights @ features.T + system.offsets[:, None]
    return PiecewiseValues(np.asarray(system.anchors), values, system.references.main)


def until_settled(squared_distance: SquaredDistance, settled: int) -> SquaredDistance:
    """Return the same distances, computed up to the settled timestep only.

    The distributions are equal from there on, and so are their distances to any other.
    """

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        anchor, last = min(anchor, settled), min(stop, settled + 1)
        first = min(start, settled)
        distances = squared_distance(anchor, first, max(last, first + 1))
        repeated = stop - start - len(distances)
        return np.concatenate((distances, np.full(repeated, distances[-1])))

    return squared
