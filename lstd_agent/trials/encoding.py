"""What the observations of a task are, and so how its trials are kept.

An *encoding* turns observations into states: numbers where observations are *counted* (a
Discrete space, or any other finite one of few elements), *vectors* otherwise, one row each. It
also knows the features of states. A task that ends has one more state, *terminal*: absorbing,
without reward, all features zero.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, check_choice
from lstd_agent.features.rows import Rows, dense, pad_rows
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import Features, feature_table, vector_features
from lstd_agent.trials.numbering import Numbering
from lstd_agent.trials.observations import as_batch, flat_size, flatten_batch, is_batch, stack

States: TypeAlias = NDArray[Any]
"""Encoded observations: (n,) state numbers, or (n, k) vectors."""

ObservationKind = Literal["auto", "counted", "vectors"]
"""How observations are kept; ``"auto"`` counts those of small finite spaces."""

MAX_COUNTED = 10_000
"""Of this many elements at most, a finite space is counted without being asked to be.

Discrete spaces always are."""


class CountedEncoding:
    """Observations of a finite space, by numbers.

    Parameters
    ----------
    space : Space
    features : Features
        A table, a builder, or a function or transformer of observations: (n,) numbers of a
        Discrete space, the parts (n, k) of any other (see `lstd_agent.trials.numbering`).
    ends : bool
        Whether the task terminates; the terminal state then comes after the others.
    """

    def __init__(self, space: Space[Any], features: Features, ends: bool) -> None:
        numbering = Numbering.of(space)
        if numbering is None:
            raise InvalidInputError(
                f"observations of {space} cannot be counted, since there is no end of them: give "
                "observations='vectors'"
            )
        self.space = space
        self.numbering = numbering
        self.is_discrete = isinstance(space, spaces.Discrete)
        self.n = numbering.n
        self.start = int(numbering.low[0])
        self.ends = ends
        self.n_states = self.n + ends
        self.terminal: Any = self.n
        self.dtype = np.min_scalar_type(self.n_states - 1)
        observed = self.observed(np.arange(self.n))
        if isinstance(features, Standardized) and not features.is_measured:
            features = features.measured(observed)
        self.given: Any = features
        table = feature_table(features, observed)
        self._table: Rows | None = pad_rows(table, int(ends))

    @property
    def table_rows(self) -> Rows:
        """Features of all states, shape (n_states, d), dense or CSR as they were given."""
        assert self._table is not None
        return self._table

    @cached_property
    def table(self) -> FloatArray:
        """Features of all states, shape (n_states, d)."""
        return dense(self.table_rows)

    def without_features(self) -> CountedEncoding:
        """Return a copy that only counts, as workers do: a table may be large."""
        slim = copy.copy(self)
        slim.__dict__.pop("table", None)
        slim._table, slim.given = None, _no_features
        return slim

    def with_features(self, features: Features) -> CountedEncoding:
        """Return the same encoding with other features."""
        return CountedEncoding(self.space, features, self.ends)

    def observed(self, states: IntArray) -> NDArray[Any]:
        """Return the observations of states (n,): themselves, or their parts (n, k)."""
        if self.is_discrete:
            return np.asarray(states) + self.start
        return self.numbering.parts_of(states)

    def decode(self, state: Any) -> Any:
        """Return the observation of a state: a number, or its parts (k,)."""
        observed = self.observed(np.array([int(state)]))[0]
        return int(observed) if self.is_discrete else observed

    def encode(self, observations: Any) -> States:
        """Return the state numbers (n,) of a batch of observations."""
        if not self.is_discrete:
            return self.numbering.numbers(observations)
        observed = np.asarray(observations)
        if observed.dtype.kind not in "iu":
            raise self._misfit(observations)
        # Converted first: small integers wrap around.
        state = observed.astype(np.int64, copy=False) - self.start
        # As unsigned numbers, negative states are huge: one pass finds both kinds.
        if state.size and state.view(np.uint64).max() >= self.n:
            raise self._misfit(observed[(state < 0) | (state >= self.n)][0])
        return state

    def hold(self, observation: Any) -> int:
        """Return the state of a single observation, checked."""
        if not self.is_discrete:
            return int(self.encode(as_batch(observation))[0])
        try:
            state = operator.index(observation) - self.start
        except TypeError:
            state = -1
        if not 0 <= state < self.n:
            raise self._misfit(observation)
        return state

    def is_held(self, held: int, observation: Any) -> bool:
        """Tell whether a single observation, to be checked, is the one that was held."""
        return held == self.hold(observation)

    def is_single(self, observation: Any) -> bool:
        """Tell at a glance that this is a single observation; False may be wrong."""
        return (
            self.is_discrete
            and type(observation) is int
            and (0 <= observation - self.start < self.n)
        )

    def encode_held(self, held: Sequence[int]) -> States:
        """Return the states (n,) of observations that were held one by one."""
        return np.array(held, dtype=np.int64)

    def encode_any(self, observations: Any) -> tuple[States, tuple[int, ...]]:
        """Return the states (m,) of one observation or an array of them, and its shape.

        Of a Dict or Tuple space a list is a list of single observations.
        """
        if not self.is_discrete:
            return _encode_any(self, observations)
        states = self.encode(observations)
        return states.ravel(), states.shape

    def rows(self, states: States) -> Rows:
        """Return the features (n, d) of states, dense or CSR as they were given."""
        return self.table_rows[states]

    def features(self, states: States) -> FloatArray:
        """Return the features (n, d) of states."""
        return dense(self.rows(states))

    def encode_logged(self, observations: NDArray[Any]) -> States:
        """Return the states (m, n) of logged observations or parts (m, n, k).

        NaN marks the end of a trial.
        """
        ended = _ended(observations, self.ends).ravel()
        flat = observations.reshape(-1, observations.shape[2])
        parts = np.where(ended[:, None], self.numbering.low, flat)
        whole = parts.astype(np.int64)
        if (whole != parts).any():
            wrong = parts[(whole != parts).any(axis=1)][0]
            raise InvalidInputError(f"counted observations are integers; got {wrong.tolist()}")
        states = self.numbering.numbers_of_parts(whole)
        states[ended] = self.terminal
        return states.reshape(observations.shape[:2])

    def _misfit(self, observations: Any) -> InvalidInputError:
        return InvalidInputError(
            f"observations must be integers from {self.start} to {self.start + self.n - 1}; got "
            f"{observations!r}"
        )


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

    def __init__(self, space: Space[Any], features: Features, ends: bool) -> None:
        self.space = space
        self.ends = ends
        self.terminal: Any = np.nan
        self.n_components = flat_size(space)
        self.given: Any = features
        self._compute = vector_features(features)
        # The shape of observations that need no flattening but of their own axes.
        self._shape = space.shape if isinstance(space, spaces.Box) else None

    def with_features(self, features: Features) -> VectorEncoding:
        """Return the same encoding with other features."""
        return VectorEncoding(self.space, features, self.ends)

    @property
    def is_measured(self) -> bool:
        """Whether features are all known: standardized ones are once they are measured."""
        return not isinstance(self.given, Standardized) or self.given.is_measured

    def measure(self, observations: States) -> None:
        """Measure standardized features on observations of trials (m, n, k), once."""
        if self.is_measured:
            return
        vectors = observations.reshape(-1, observations.shape[2]).astype(np.float64)
        self.given = self.given.measured(vectors[~np.isnan(vectors).any(axis=1)])
        self._compute = vector_features(self.given)

    def without_features(self) -> VectorEncoding:
        """Return a copy that only encodes, as workers do: functions need not be picklable."""
        slim = copy.copy(self)
        slim._compute, slim.given = _no_features, _no_features
        return slim

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

    def decode(self, state: Any) -> States:
        """Return the (flat) observation of a vector: the vector itself."""
        return np.asarray(state)

    def hold(self, observation: Any) -> NDArray[Any]:
        """Return a single observation as a vector of its own (k,), to be checked when encoded.

        A copy, since an environment may write its next observation into the same array.
        """
        if type(observation) is np.ndarray and observation.shape == self._shape:
            return observation.flatten()
        vector: NDArray[Any] = self.encode(as_batch(observation))[0]
        return vector

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

    def encode_held(self, held: Sequence[NDArray[Any]]) -> States:
        """Return the vectors (n, k) of observations that were held one by one, checked."""
        return self._check(np.array(held))

    def encode_any(self, observations: Any) -> tuple[States, tuple[int, ...]]:
        """Return the vectors (m, k) of one observation or a batch of m, and () or (m,).

        Of a Dict or Tuple space a list is a list of single observations.
        """
        return _encode_any(self, observations)

    def rows(self, states: States) -> Rows:
        """Return the features (n, d) of vectors, dense or CSR as they come.

        Those of the terminal state are zero.
        """
        vectors: FloatArray = np.asarray(states, dtype=np.float64)
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

    def features(self, states: States) -> FloatArray:
        """Return the features (n, d) of vectors."""
        return dense(self.rows(states))

    def n_features(self, states: States) -> int:
        """Return the number of features d, found with some states (n, k) that are not terminal."""
        vectors: FloatArray = np.asarray(states, dtype=np.float64)
        if not self.is_measured:
            return int(vector_features(self.given.measured(vectors))(vectors).shape[1])
        return int(self._compute(vectors).shape[1])

    def encode_logged(self, observations: NDArray[Any]) -> States:
        """Return the states of logged observations (m, n, k); NaN marks the end of a trial."""
        ended = _ended(observations, self.ends)
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


Encoding: TypeAlias = CountedEncoding | VectorEncoding


def make_encoding(
    space: Space[Any], features: Features, ends: bool, observations: ObservationKind = "auto"
) -> Encoding:
    """Return the encoding of an observation space.

    Parameters
    ----------
    space : Space
    features : Features
    ends : bool
        Whether the task terminates.
    observations : {"auto", "counted", "vectors"}
        ``"auto"`` counts those of Discrete spaces, and of other finite ones of at most
        `MAX_COUNTED` elements.

    Raises
    ------
    InvalidInputError
        If the features do not fit the space, or it has no flat form.
    """
    check_choice("observations", observations, get_args(ObservationKind))
    if observations == "auto":
        numbering = Numbering.of(space)
        is_small = numbering is not None and numbering.n <= MAX_COUNTED
        observations = "counted" if is_small or isinstance(space, spaces.Discrete) else "vectors"
    if observations == "counted":
        return CountedEncoding(space, features, ends)
    return VectorEncoding(space, features, ends)


def _ended(observations: NDArray[Any], ends: bool) -> BoolArray:
    """Tell where logged trials (m, n, k) have ended; once ended they stay so."""
    if observations.dtype.kind != "f":
        return np.zeros(observations.shape[:2], dtype=bool)
    ended: BoolArray = np.isnan(observations).any(axis=2)
    if ended.any() and not ends:
        trial, t = np.argwhere(ended)[0]
        raise InvalidInputError(
            f"observation {t} of trial {trial} is NaN, which marks the end of a trial: with "
            "on_termination='absorb' trials may end"
        )
    if (ended[:, :-1] & ~ended[:, 1:]).any() or ended[:, 0].any():
        raise InvalidInputError("a trial does not start at its end, and goes not on after it")
    return ended


def _encode_any(encoding: Encoding, observations: Any) -> tuple[States, tuple[int, ...]]:
    """Return the states of one observation or a batch of m, and () or (m,)."""
    space = encoding.space
    if isinstance(observations, list) and isinstance(space, spaces.Dict | spaces.Tuple):
        try:
            observations = stack(space, observations)
        except (TypeError, ValueError, LookupError) as error:
            raise InvalidInputError(
                f"a list of observations of {space} has one of them in each place: {error}"
            ) from error
    if is_batch(space, observations):
        states = encoding.encode(observations)
        return states, (len(states),)
    return encoding.encode(as_batch(observations)), ()


def _no_features(observations: FloatArray) -> Rows:
    raise AssertionError("an encoding without features was asked for some")
