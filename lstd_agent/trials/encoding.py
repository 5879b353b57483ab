"""What the observations of a task are, and so how its trials are counted.

A *domain* turns observations into states, one row each, and knows the recorder and the
statistics that belong to them: counts for Discrete observations, moments for all others. A
task that ends has one more state, *terminal*: absorbing, without reward, all features zero.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.tables import Features, feature_table, vector_features
from lstd_agent.trials.counting import CountRecorder
from lstd_agent.trials.moment_sums import MomentRecorder
from lstd_agent.trials.observations import as_batch, flatten_batch, is_batch

States: TypeAlias = NDArray[Any]
"""Encoded observations: (n,) state numbers, or (n, k) vectors."""

Sums: TypeAlias = Any
"""`TransitionCounts` or `MomentSums`, whichever the domain's recorder returns."""


class DiscreteDomain:
    """Discrete observations, counted.

    Parameters
    ----------
    space : Discrete
    features : Features
    ends : bool
        Whether the task terminates; the terminal state then comes after the others.
    """

    def __init__(self, space: spaces.Discrete, features: Features, ends: bool) -> None:
        self.space = space
        self.n = int(space.n)
        self.start = int(space.start)
        self.n_states = self.n + ends
        self.terminal: Any = self.n
        table = feature_table(features, self.n, self.start)
        self.table: FloatArray = np.vstack((table, np.zeros((int(ends), table.shape[1]))))
        self.dtype = np.min_scalar_type(self.n_states - 1)
        self.ends = ends

    def encode(self, observations: Any) -> States:
        """Return the state numbers (n,) of a batch of observations."""
        observed = np.asarray(observations)
        if observed.dtype.kind not in "iu":
            raise self._misfit(observations)
        # Converted first: small integers wrap around.
        state = observed.astype(np.int64, copy=False) - self.start
        # As unsigned numbers, negative states are huge: one pass finds both kinds.
        if state.size and state.view(np.uint64).max() >= self.n:
            raise self._misfit(observed[(state < 0) | (state >= self.n)][0])
        return state

    def encode_one(self, observation: Any) -> States:
        """Return a single observation as a batch of one state."""
        try:
            state = operator.index(observation) - self.start
        except TypeError:
            state = -1
        if not 0 <= state < self.n:
            raise self._misfit(observation)
        return np.array([state])

    def encode_any(self, observations: Any) -> tuple[States, tuple[int, ...]]:
        """Return the states (m,) of one observation or an array of them, and its shape."""
        states = self.encode(observations)
        return states.ravel(), states.shape

    def features(self, states: States) -> FloatArray:
        """Return the features (n, d) of states."""
        return self.table[states]

    def decode(self, state: Any) -> int:
        """Return the observation of a state."""
        return int(state) + self.start

    def recorder(self) -> CountRecorder:
        """Return a recorder of transitions."""
        return CountRecorder(self.n_states)

    def _misfit(self, observations: Any) -> InvalidInputError:
        return InvalidInputError(
            f"observations must be integers from {self.start} to {self.start + self.n - 1}; got "
            f"{observations!r}"
        )


class VectorDomain:
    """Observations of any other space, flattened, and represented by their moments.

    Parameters
    ----------
    space : Space
    features : Features
        A function or a transformer.
    ends : bool
        Whether the task terminates; the terminal state then is a vector of NaN.
    """

    def __init__(self, space: Space[Any], features: Features, ends: bool) -> None:
        self.space = space
        self.ends = ends
        self.terminal: Any = np.nan
        self.dtype = np.dtype(np.float64)
        self._features: Callable[[FloatArray], FloatArray] = vector_features(features)
        # Tells an impossible space or feature function before the first step is taken.
        probe = flatten_batch(space, as_batch(space.sample()))
        self.n_components = probe.shape[1]

    def encode(self, observations: Any) -> States:
        """Return the vectors (n, k) of a batch of observations."""
        try:
            vectors = flatten_batch(self.space, observations)
        except InvalidInputError:
            raise
        except (TypeError, ValueError, LookupError) as error:
            raise InvalidInputError(
                f"{observations!r} is not made of observations of {self.space}: {error}"
            ) from error
        return self._check(vectors)

    def encode_one(self, observation: Any) -> States:
        """Return a single observation as a batch of one vector."""
        return self.encode(as_batch(observation))

    def encode_any(self, observations: Any) -> tuple[States, tuple[int, ...]]:
        """Return the vectors (m, k) of one observation or a batch of m, and () or (m,)."""
        if is_batch(self.space, observations):
            states = self.encode(observations)
            return states, (len(states),)
        return self.encode_one(observations), ()

    def features(self, states: States) -> FloatArray:
        """Return the features (n, d) of vectors; those of the terminal state are zero."""
        if not self.ends:
            return self._features(states)
        ended = np.isnan(states[:, 0])
        if not ended.any():
            return self._features(states)
        living = states[~ended] if not ended.all() else np.zeros((1, self.n_components))
        features = self._features(living)
        filled = np.zeros((len(states), features.shape[1]))
        if not ended.all():
            filled[~ended] = features
        return filled

    def decode(self, state: Any) -> States:
        """Return the (flat) observation of a vector: the vector itself."""
        return np.asarray(state)

    def recorder(self) -> MomentRecorder:
        """Return a recorder of moments."""
        return MomentRecorder(self.features)

    def _check(self, vectors: FloatArray) -> FloatArray:
        if vectors.shape[1] != self.n_components:
            raise InvalidInputError(
                f"observations of {self.space} have {self.n_components} components; got "
                f"{vectors.shape[1]}"
            )
        if not np.isfinite(vectors).all():
            row = vectors[~np.isfinite(vectors).all(axis=1)][0]
            raise InvalidInputError(f"observations must be finite; got {row}")
        return vectors


Domain: TypeAlias = DiscreteDomain | VectorDomain


def make_domain(space: Space[Any], features: Features, ends: bool) -> Domain:
    """Return the domain of an observation space.

    Raises
    ------
    InvalidInputError
        If the features do not fit the space, or it cannot be flattened.
    """
    if isinstance(space, spaces.Discrete):
        return DiscreteDomain(space, features, ends)
    return VectorDomain(space, features, ends)
