"""Approximators of neighborhoods, and the system of them (Def ``general_lstd``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import Rows, dense
from lstd_agent.system.minimizer import Solved
from lstd_agent.system.neighborhoods import ReferenceStates, RuleName, calibrate_offsets


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """One timestep neighborhood and its approximator v(s) = f(s)·weights + offset.

    Attributes
    ----------
    anchor, stop, window : int, int, tuple of int
        It predicts for timesteps anchor to stop - 1, and is fitted to samples of the window (start,
        stop).
    reference : int
        An index into the candidate states; -1 for none.
    weights, offset : ndarray of shape (d,), float
    occupancy : ndarray, shape (M,)
        Mean probability of each candidate state over the window.
    n_samples, rank, condition : int, int, float
        Transitions in the window; numerical rank of Z^{†/2} X, with the intercept in linked
        systems; and the ratio of its largest to its smallest singular value kept.

    Examples
    --------
    >>> import unichain_gym
    >>> from lstd_agent import OneHot, SeminormLSTDAgent
    >>> chain = unichain_gym.make_mdp("h6").induce([0, 0, 0, 1, 1, 1])
    >>> agent = SeminormLSTDAgent(OneHot(), anchors=[0, 5])
    >>> agent.add(unichain_gym.simulate_counts(chain, 10_000, 40, 0)).fit()
    <SeminormLSTDAgent n_anchors=2, 10000 trials, 2 fitted>
    >>> [(each.anchor, each.stop, each.n_samples) for each in agent.neighborhoods_]
    [(0, 5, 50000), (5, 41, 360000)]
    """

    anchor: int
    stop: int
    window: tuple[int, int]
    reference: int
    weights: FloatArray
    offset: float
    occupancy: FloatArray
    n_samples: int
    rank: int
    condition: float


@dataclass(frozen=True, eq=False)
class System:
    """Fitted approximators, one a neighborhood, with a common offset.

    Attributes
    ----------
    weights, offsets : ndarray, shapes (n, d) and (n,)
    anchors, windows : ndarray of int, shapes (n,) and (n, 2)
    references : ReferenceStates
    occupancy : ndarray, shape (n, M)
    n_samples, rank, condition : ndarray, shape (n,)
    t_max, gain : int, float

    Examples
    --------
    >>> import unichain_gym
    >>> from lstd_agent import OneHot, SeminormLSTDAgent
    >>> chain = unichain_gym.make_mdp("h6").induce([0, 0, 0, 1, 1, 1])
    >>> agent = SeminormLSTDAgent(OneHot(), anchors=[0, 5])
    >>> system = agent.add(unichain_gym.simulate_counts(chain, 10_000, 40, 0)).fit().system_
    >>> system.neighborhood_at(np.array([4, 5])).tolist()
    [0, 1]
    """

    weights: FloatArray
    offsets: FloatArray
    anchors: IntArray
    windows: IntArray
    references: ReferenceStates
    occupancy: FloatArray
    n_samples: IntArray
    rank: IntArray
    condition: FloatArray
    t_max: int
    gain: float

    @property
    def neighborhoods(self) -> list[Neighborhood]:
        """The neighborhoods, in order of time."""
        stops = np.append(self.anchors[1:], self.t_max + 1)
        spans = self.anchors.tolist(), stops.tolist(), map(tuple, self.windows.tolist())
        weights = self.references.state.tolist(), self.weights, self.offsets.tolist()
        facts = self.occupancy, self.n_samples.tolist(), self.rank.tolist(), self.condition.tolist()
        return [Neighborhood(*each) for each in zip(*spans, *weights, *facts, strict=True)]

    def neighborhood_at(self, t: IntArray | int) -> IntArray:
        """Return the index of the neighborhood that predicts for timestep t, shape (...).

        Parameters
        ----------
        t : int or ndarray of int, shape (...)
            Beyond t_max the last neighborhood predicts.

        Raises
        ------
        InvalidInputError
            If a timestep is no integer from 0 on.
        """
        timestep = np.asarray(t)
        if not np.issubdtype(timestep.dtype, np.integer) or (timestep < 0).any():
            raise InvalidInputError(f"a timestep is an integer from 0; got {t!r}")
        return np.asarray(np.searchsorted(self.anchors, timestep, side="right") - 1)

    def values(self, features: Rows, neighborhood: IntArray) -> FloatArray:
        """Return calibrated relative values f(s)·w + o, in units of the reward, shape (m,).

        Parameters
        ----------
        features : ndarray or csr_array, shape (m, d)
        neighborhood : ndarray of int, shape (m,)
        """
        linear, several = np.empty(features.shape[0]), np.unique(neighborhood)
        for k in several:
            here = neighborhood == k if len(several) > 1 else slice(None)
            linear[here] = features[here] @ self.weights[k]
        return np.asarray(linear + self.offsets[neighborhood])


def in_features(source: Any, columns: FloatArray) -> FloatArray:
    """Return weights of features and offset (d + 1, q) from weights of coordinates."""
    return columns if source.is_sparse else source.coordinates.of_features(columns)


def values_in_features(source: Any, solved: Sequence[Solved]) -> FloatArray:
    """Return the weights of features and the offset (n, d + 1) of each window."""
    return np.stack([in_features(source, each.columns[:, :1])[:, 0] for each in solved])


# Windows, reference states and occupancies of neighborhoods.
Ties: TypeAlias = tuple[IntArray, ReferenceStates, FloatArray]


def system_of(
    source: Any, solved: Sequence[Solved], anchors: IntArray, ties: Ties, gain: float
) -> System:
    """Return the system of solved windows, in features."""
    columns = values_in_features(source, solved)
    return System(
        weights=columns[:, :-1],
        offsets=columns[:, -1],
        anchors=anchors,
        windows=ties[0],
        references=ties[1],
        occupancy=ties[2],
        n_samples=np.array([each.n_samples for each in solved], dtype=np.int64),
        rank=np.array([each.rank for each in solved]),
        condition=np.array([each.condition for each in solved]),
        t_max=source.t_max,
        gain=gain,
    )


def with_offsets(source: Any, solved: Sequence[Solved], ties: Ties, rule: RuleName) -> list[Solved]:
    """Return solved windows with the offsets that make values agree at reference states."""
    weights = values_in_features(source, solved)[:, :-1]
    features, threshold = dense(source.candidate_features), source.support_threshold
    offsets = calibrate_offsets(weights, features, *ties[1:], threshold, rule).tolist()
    return [
        each._replace(columns=np.vstack((each.columns[:-1], [[offset]])))
        for each, offset in zip(solved, offsets, strict=True)
    ]
