"""`VectorEncoding`: observations that are kept as vectors; see `lstd_agent.trials.encoding`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray, States
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import Rows, dense, pad_rows
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import Features, vector_features
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.observations import (
    as_batch,
    flat_size,
    flatten_batch,
    one_or_many,
    where_ended,
)
from lstd_agent.trials.recorders import Round


class VectorEncoding:
    """Observations of any other space, flattened.

    Vectors keep the type of their numbers. The terminal state of a task that ends is a vector
    of NaN.

    Parameters
    ----------
    space : Space
    features : Features
        A function or a transformer of vectors (n, k).
    ends : bool
        Whether the task terminates.
    """

    table_rows = None  # there is no end of states

    def __init__(self, space: Space[Any], features: Features, ends: bool) -> None:
        self.space = space
        self.ends = ends
        self.terminal: Any = np.nan
        self.n_components = flat_size(space)
        self.given: Any = features
        self._compute = vector_features(features)
        # The shape of observations that need no flattening but of their own axes.
        self._shape = space.shape if isinstance(space, spaces.Box) else None
        self._members = _boxes_in(space)

    def with_features(self, features: Features) -> VectorEncoding:
        """Return the same encoding with other features."""
        return VectorEncoding(self.space, features, self.ends)

    @property
    def is_measured(self) -> bool:
        """Whether features are all known: standardized ones are once they are measured."""
        return not isinstance(self.given, Standardized) or self.given.is_measured

    def measure(self, observations: NDArray[Any]) -> None:
        """Measure standardized features on observations of trials (m, n, k), once."""
        if self.is_measured:
            return
        vectors = observations.reshape(-1, observations.shape[2]).astype(np.float64)
        self.given = self.given.measured(vectors[~np.isnan(vectors).any(axis=1)])
        self._compute = vector_features(self.given)

    def without_features(self) -> VectorEncoding:
        """Return a copy that only encodes, as workers do: functions need not be picklable."""
        slim = copy.copy(self)
        slim._compute, slim.given = no_features, no_features
        return slim

    def encode(self, observations: Any) -> NDArray[Any]:
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

    encode_table = encode  # numbers of any type are vectors

    def decode(self, state: Any) -> NDArray[Any]:
        """Return the (flat) observation of a vector: the vector itself."""
        return np.asarray(state)

    def hold(self, observation: Any) -> NDArray[Any]:
        """Return a single observation as a vector of its own (k,), to be checked when encoded.

        A copy, since an environment may write its next observation into the same array.
        """
        if type(observation) is np.ndarray and observation.shape == self._shape:
            return observation.flatten()
        parts = self._parts(observation) if self._members else []
        vector: NDArray[Any] = (
            np.concatenate(parts, axis=None) if parts else self.encode(as_batch(observation))[0]
        )
        return vector

    def _parts(self, observation: Any) -> list[NDArray[Any]]:
        """Return the arrays of an observation of Boxes; none where it needs a closer look."""
        try:
            if len(observation) != len(self._members):
                return []
            parts = [observation[name] for name in self._members]
        except (TypeError, LookupError):
            return []
        plain = (
            type(part) is np.ndarray and part.shape == shape and part.dtype.kind in "fiu"
            for part, shape in zip(parts, self._members.values(), strict=True)
        )
        return parts if all(plain) else []

    def is_held(self, held: NDArray[Any], observation: Any) -> bool:
        """Tell whether a single observation, to be checked, is the one that was held."""
        # Bytes compare faster than elements; zeros of either sign need the latter.
        alike = self.is_single(observation) and observation.dtype == held.dtype
        if alike and held.tobytes() == observation.tobytes():
            return True
        return np.array_equal(held, self.hold(observation))

    def is_single(self, observation: Any) -> bool:
        """Tell at a glance that this is a single observation; False may be wrong."""
        return type(observation) is np.ndarray and observation.shape == self._shape

    def encode_held(self, held: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the vectors (n, k) of observations that were held one by one, checked."""
        return self._check(np.array(held))

    def encode_any(self, observations: Any) -> tuple[NDArray[Any], tuple[int, ...]]:
        """Return the vectors (m, k) of one observation or a batch of m, and () or (m,).

        Of a Dict or Tuple space a list is a list of single observations.
        """
        batch, is_single = one_or_many(self.space, observations)
        states = self.encode(batch)
        return states, () if is_single else (len(states),)

    def rows(self, states: NDArray[Any]) -> Rows:
        """Return the features (n, d) of vectors, dense or CSR as they come.

        Those of the terminal state are zero.
        """
        # A copy: a function that computes in place must not change the trials.
        vectors: FloatArray = np.array(states, dtype=np.float64)
        if not self.ends:
            return self._compute(vectors)
        ended = np.isnan(vectors[:, 0])
        if not ended.any():
            return self._compute(vectors)
        if ended.all():
            # Features tell their number only when they are computed, of anything finite.
            return np.zeros((len(vectors), self._compute(np.zeros((1, vectors.shape[1]))).shape[1]))
        living = self._compute(vectors[~ended])
        place = np.where(ended, living.shape[0], np.cumsum(~ended) - 1)
        return pad_rows(living, 1)[place]

    def features(self, states: NDArray[Any]) -> FloatArray:
        """Return the features (n, d) of vectors."""
        return dense(self.rows(states))

    def n_features(self, states: NDArray[Any]) -> int:
        """Return the number of features d, found with some states (n, k) that are not terminal."""
        vectors: FloatArray = np.array(states, dtype=np.float64)
        if not self.is_measured:
            return int(vector_features(self.given.measured(vectors))(vectors).shape[1])
        return int(self._compute(vectors).shape[1])

    def compact(self, states: States) -> States:
        """Return a copy of vectors: a view would keep those around them too."""
        return states.copy()

    def action_recorder(self, n_actions: int) -> None:
        """Return nothing: trials that are kept have the actions themselves."""

    def round_of(self, trials: KeptTrials, n_stored: int, n_actions: int = 0) -> Round:
        """Return encoded trials as a round: themselves, whole and with their actions."""
        return Round(trials, np.empty(0))

    @property
    def box(self) -> spaces.Box | None:
        """The bounds of vectors, where the space has them."""
        flat = spaces.flatten_space(self.space)
        return flat if isinstance(flat, spaces.Box) else None

    def encode_logged(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return the states of logged observations (m, n, k); NaN marks the end of a trial."""
        ended = where_ended(observations, self.ends)
        states = observations.reshape(-1, observations.shape[2]).copy()
        if ended.any():
            states[ended.ravel()] = 0.0
        encoded = self._check(states)
        if ended.any():
            encoded[ended.ravel()] = np.nan
        return encoded.reshape(*observations.shape[:2], -1)

    def _check(self, vectors: NDArray[Any]) -> NDArray[Any]:
        if vectors.shape[1] != self.n_components:
            raise InvalidInputError(
                f"observations of {self.space} have {self.n_components} components; got "
                f"{vectors.shape[1]}"
            )
        if vectors.dtype.kind not in "fiu":
            raise InvalidInputError(f"observations must be real numbers; got {vectors[0]!r}")
        if vectors.dtype.kind == "f" and not np.isfinite(vectors).all():
            row = vectors[~np.isfinite(vectors).all(axis=1)][0]
            raise InvalidInputError(f"observations must be finite; got {row}")
        if self.ends:
            # The smallest floats that hold all of them: NaN marks the end.
            return vectors.astype(np.result_type(vectors.dtype, np.float16), copy=False)
        return vectors


def _boxes_in(space: Space[Any]) -> dict[Any, tuple[int, ...]]:
    """Return the shapes of the members of a Dict or Tuple of Boxes; of any other space, none."""
    members: list[tuple[Any, Space[Any]]] = []
    if isinstance(space, spaces.Dict):
        members = list(space.items())
    elif isinstance(space, spaces.Tuple):
        members = list(enumerate(space.spaces))
    if not all(isinstance(member, spaces.Box) for _, member in members):
        return {}
    return {name: member.shape or () for name, member in members}


def no_features(observations: FloatArray) -> Rows:
    """Stand for the features of an encoding that only encodes, and is asked for none."""
    raise AssertionError("an encoding without features was asked for some")
