"""Encodings: observations become states, which have features.

Observations of a small finite space are *counted*: states are numbers. Others are *vectors*. A task
that ends has one more state, *terminal*: absorbing, without reward, with all features 0.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, check_choice
from lstd_agent.features.rows import Rows, dense, pad_rows
from lstd_agent.features.tables import Features, Standardized, feature_table, vector_features
from lstd_agent.trials.spaces import (
    Numbering,
    as_batch,
    each_array,
    flat_size,
    flatten_batch,
    is_batch,
    members,
    plain_array,
)

ObservationKind = Literal["auto", "counted", "vectors"]
"""How observations are kept; ``"auto"`` counts observations of small finite spaces."""

MAX_COUNTED = 10_000
"""``"auto"`` counts a finite space of at most this many elements; Discrete spaces always."""

# Equal numbers of these types stand for the same observation; equal floats might not.
_INTEGERS = {int, np.int32, np.int64}


class _Shared:
    """The common part of both encodings."""

    is_counted = is_discrete = False
    n_states = 0  # none is numbered
    table_rows: Any = None
    dtype: Any = None
    terminal: Any
    end: States

    def __init__(self, space: Space[Any], features: Features, ends: bool) -> None:
        self.space, self.ends = space, ends
        self.given: Any = features

    def without_features(self) -> Any:
        """Return a copy that only encodes, as workers do: features may be large, or functions."""
        slim = copy.copy(self)
        slim.given = slim.table_rows = slim._compute = None
        return slim

    @property
    def is_measured(self) -> bool:
        """Whether features are known; standardized ones have to be measured first."""
        return not isinstance(self.given, Standardized) or self.given.is_measured

    def measure(self, observations: NDArray[Any]) -> None:
        """Measure standardized features on observations of trials (m, n, k), once."""
        if not self.is_measured:
            vectors = observations.reshape(-1, observations.shape[2]).astype(np.float64)
            self.given = self.given.measured(vectors[~np.isnan(vectors).any(axis=1)])
            self._compute = vector_features(self.given)

    def check_features(self, states: States) -> None:
        """Raise `InvalidInputError` unless features can be computed of the first, living state."""
        if self.given is not None:
            measured = copy.copy(self)
            measured.measure(states[None, :1])
            measured.rows(states[:1])

    def features(self, states: States) -> FloatArray:
        """Return the features (n, d) of states."""
        return dense(self.rows(states))

    def compact(self, states: States) -> States:
        """Return states in the smallest type that holds them; vectors as they are."""
        return states if self.dtype is None else states.astype(self.dtype)

    def encode_any(self, observations: Any) -> tuple[States, tuple[int, ...]]:
        """Return the states of one observation or a batch of m, and its shape, () or (m,).

        Discrete ones may have any shape; of a Dict or Tuple space a list holds single ones. None is
        the end of a task.
        """
        if observations is None and self.ends:
            return self.end.copy(), ()
        if self.is_discrete:
            states = self.encode(observations)
            return states.ravel(), states.shape
        if isinstance(observations, list) and members(self.space) is not None:
            try:
                observations = each_array(lambda *parts: np.stack(parts), *observations)
            except (TypeError, ValueError, LookupError) as error:
                told = f"a list of observations of {self.space} has one in each place: {error}"
                raise InvalidInputError(told) from error
        if is_batch(self.space, observations):
            states = self.encode(observations)
            return states, (len(states),)
        return self.encode(as_batch(observations)), ()

    def encode_logged(self, observations: NDArray[Any]) -> States:
        """Return the states of logged observations (m, n, k); NaN marks the end of a trial."""
        living = np.ones(observations.shape[:2], dtype=bool)
        if observations.dtype.kind == "f":
            living = ~np.isnan(observations).any(axis=2)
        wrong = ~living
        if self.ends:
            wrong[:, 1:] = living[:, 1:] & ~living[:, :-1]
        if wrong.any():
            trial, t = np.argwhere(wrong)[0]
            raise InvalidInputError(
                f"at observation {t} of trial {trial}: NaN marks the end of a trial, which needs "
                "on_termination='absorb', and a trial does not start at its end or go on after it"
            )
        found = self._states_of(observations[living])
        states = np.empty((*living.shape, *found.shape[1:]), found.dtype)
        states[living] = found
        if not living.all():
            states[~living] = self.terminal
        return states

    # Each kind defines its own.
    encode: Callable[[Any], States]
    rows: Callable[[States], Rows]
    _states_of: Callable[[NDArray[Any]], States]
    _compute: Any


class CountedEncoding(_Shared):
    """Observations of a finite space, as numbers; the terminal state, if any, is the last one.

    Features are of numbers (n,) of a Discrete space, and of the parts (n, k) of any other.
    """

    is_counted = True

    def __init__(self, space: Space[Any], features: Features, ends: bool) -> None:
        super().__init__(space, features, ends)
        numbering = Numbering.of(space)
        if numbering is None:
            told = f"{space} has too many observations to count: give observations='vectors'"
            raise InvalidInputError(told)
        self.numbering, self.n, self.terminal = numbering, numbering.n, numbering.n
        self.is_discrete = isinstance(space, spaces.Discrete)
        self.start = int(numbering.low[0])
        self.n_states, self.end = self.n + ends, np.array([self.n])
        self.dtype = np.min_scalar_type(self.n_states - 1)
        self._numbers: dict[Any, int] = {}  # of observations of several parts that came before
        observed = self.observed(np.arange(self.n))
        if not self.is_measured:
            self.given = self.given.measured(observed)
        self.table_rows = pad_rows(feature_table(self.given, observed), int(ends))

    def observed(self, states: IntArray) -> NDArray[Any]:
        """Return the observations of states (n,): numbers, or parts (n, k)."""
        return states + self.start if self.is_discrete else self.numbering.parts_of(states)

    def decode(self, state: Any) -> Any:
        """Return the observation of a state: a number, or its parts (k,)."""
        observed = self.observed(np.array([int(state)]))[0]
        return int(observed) if self.is_discrete else observed

    def encode(self, observations: Any) -> States:
        """Return the state numbers (n,) of a batch of observations, as a new array."""
        if not self.is_discrete:
            return self.numbering.numbers(observations)
        observed = plain_array(observations, "a batch of observations")
        if observed.dtype.kind not in "iu":
            raise self._misfit(observations)
        # Convert first: small integers wrap around.
        state = observed.astype(np.int64, copy=False) - self.start
        # As unsigned numbers, negative states are huge: one pass finds both errors.
        if state.size and state.view(np.uint64).max() >= self.n:
            raise self._misfit(observed[(state < 0) | (state >= self.n)][0])
        return state

    def encode_table(self, observations: Any) -> States:
        """Return the states (n,) of logged observations, which may be floats in a table."""
        is_float = isinstance(observations, np.ndarray) and observations.dtype.kind == "f"
        if is_float and np.isfinite(observations).all():
            whole = observations.astype(np.int64)
            observations = whole if (whole == observations).all() else observations
        if self.is_discrete and np.ndim(observations) != 1:
            told = f"observations of {self.space} are one number each; got {np.shape(observations)}"
            raise InvalidInputError(told)
        return self.encode(observations)

    def hold(self, observation: Any) -> int:
        """Return the state of a single observation, checked."""
        if not self.is_discrete:
            key = _key(observation)
            number = self._numbers.get(key)
            if number is None:
                number = int(self.encode(as_batch(observation))[0])
                if key is not None:
                    self._numbers[key] = number
            return number
        try:
            state = operator.index(observation) - self.start
        except TypeError:
            state = -1
        if not 0 <= state < self.n or observation is True or observation is False:
            raise self._misfit(observation)
        return state

    def is_held(self, held: int, observation: Any) -> bool:
        """Return whether a single observation equals the held one, and check it."""
        return held == self.hold(observation)

    def is_single(self, observation: Any) -> bool:
        """Return quickly whether this is a single observation; False may be wrong."""
        is_number = self.is_discrete and type(observation) is int
        return is_number and 0 <= observation - self.start < self.n

    def encode_held(self, held: Sequence[int]) -> States:
        """Return the states (n,) of observations that were held one by one."""
        return np.array(held, dtype=np.int64)

    def rows(self, states: States) -> Rows:
        """Return the features (n, d) of states, dense or CSR as they were given."""
        return self.table_rows[states]

    def _states_of(self, parts: NDArray[Any]) -> States:
        """Return the states (m,) of logged parts (m, k)."""
        whole = parts.astype(np.int64)
        if (whole != parts).any():
            wrong = parts[(whole != parts).any(axis=1)][0]
            raise InvalidInputError(f"counted observations are integers; got {wrong.tolist()}")
        return self.numbering.numbers_of_parts(whole)

    def _misfit(self, observations: Any) -> InvalidInputError:
        told = f"observations must be integers from {self.start} to {self.start + self.n - 1}"
        shown = observations.item() if isinstance(observations, np.generic) else observations
        return InvalidInputError(f"{told}; got {shown!r}")


def _key(observation: Any) -> Any:
    """Return a key of an observation of simple integers; None of any other."""
    if type(observation) is np.ndarray and observation.dtype.kind in "iu":
        return observation.dtype.str, observation.shape, observation.tobytes()
    if type(observation) is tuple and all(type(part) in _INTEGERS for part in observation):
        return observation
    return None


class VectorEncoding(_Shared):
    """Observations of any other space, flattened, in the type of their numbers; NaN is the end."""

    terminal = np.nan

    def __init__(self, space: Space[Any], features: Features, ends: bool) -> None:
        super().__init__(space, features, ends)
        self.n_components = flat_size(space)
        self.end = np.full((1, self.n_components), np.nan)
        self._compute = vector_features(features)
        # The shape of observations that only need their own axes flattened.
        self._shape = space.shape if isinstance(space, spaces.Box) else None
        found = members(space) or []
        are_boxes = all(isinstance(member, spaces.Box) for _, member in found)
        self._members = {name: member.shape or () for name, member in found if are_boxes}

    def encode(self, observations: Any) -> NDArray[Any]:
        """Return the vectors (n, k) of a batch of observations, as a new array."""
        return self._states_of(flatten_batch(self.space, observations))

    encode_table = encode  # numbers of any type are vectors

    def decode(self, state: Any) -> NDArray[Any]:
        """Return the (flat) observation of a vector: itself."""
        return np.asarray(state)

    def hold(self, observation: Any) -> NDArray[Any]:
        """Return a copy of a single observation as a vector (k,), to be checked when encoded."""
        if self.is_single(observation):
            vector: NDArray[Any] = observation.flatten()
            return vector
        if self._members and (parts := self._parts(observation)):
            return np.concatenate(parts, axis=None)
        alone: NDArray[Any] = self.encode(as_batch(observation))[0]
        return alone

    def _parts(self, observation: Any) -> list[NDArray[Any]]:
        """Return the arrays of an observation of Boxes; none if `encode` has to check it."""
        try:
            parts = [observation[name] for name in self._members]
            plain = len(observation) == len(parts) and all(
                type(part) is np.ndarray and part.shape == shape and part.dtype.kind in "fiu"
                for part, shape in zip(parts, self._members.values(), strict=True)
            )
        except (TypeError, LookupError):
            return []
        return parts if plain else []

    def is_held(self, held: NDArray[Any], observation: Any) -> bool:
        """Return whether a single observation equals the held one, and check it."""
        # Bytes compare faster than elements; zeros of either sign need the latter.
        alike = self.is_single(observation) and observation.dtype == held.dtype
        if alike and held.tobytes() == observation.tobytes():
            return True
        return np.array_equal(held, self.hold(observation))

    def is_single(self, observation: Any) -> bool:
        """Return quickly whether this is a single observation; False may be wrong."""
        return type(observation) is np.ndarray and observation.shape == self._shape

    def encode_held(self, held: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the vectors (n, k) of observations that were held one by one, checked."""
        return self._states_of(np.array(held))

    def rows(self, states: NDArray[Any]) -> Rows:
        """Return the features (n, d) of vectors, dense or CSR as they come; zero at the end."""
        # A copy: a function that computes in place must not change the trials.
        vectors: FloatArray = np.array(states, dtype=np.float64)
        ended = np.isnan(vectors[:, 0]) if self.ends else np.zeros(len(vectors), dtype=bool)
        if not ended.any():
            return self._compute(vectors)
        # Features of anything finite show their number.
        living = self._compute(np.zeros_like(vectors[:1]) if ended.all() else vectors[~ended])
        place = np.where(ended, living.shape[0], np.cumsum(~ended) - 1)
        return pad_rows(living, 1)[place]

    def _states_of(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return vectors (n, k), checked."""
        k, n = self.n_components, vectors.shape[1]
        if n != k:
            raise InvalidInputError(f"observations of {self.space} have {k} components; got {n}")
        if vectors.dtype.kind not in "fiu":
            raise InvalidInputError(f"observations must be real numbers; got {vectors[0]!r}")
        if vectors.dtype.kind == "f" and not np.isfinite(vectors).all():
            row = vectors[~np.isfinite(vectors).all(axis=1)][0]
            raise InvalidInputError(f"observations must be finite; got {row}")
        # Of a task that ends, the smallest floats that hold all of them: NaN marks the end.
        dtype = np.result_type(vectors.dtype, np.float16) if self.ends else vectors.dtype
        return vectors.astype(dtype, copy=False)


def first_refused(encode: Callable[[Any], Any], parts: Iterable[Any]) -> int | None:
    """Return the number of the first part that cannot be encoded, if there is one."""
    for i, part in enumerate(parts):
        try:
            encode(part)
        except InvalidInputError:
            return i
    return None


Encoding: TypeAlias = CountedEncoding | VectorEncoding
"""Either kind: both have the same interface, and ``is_counted`` distinguishes them."""


def make_encoding(
    space: Space[Any], features: Features, ends: bool, observations: ObservationKind = "auto"
) -> Encoding:
    """Return the encoding of an observation space."""
    check_choice("observations", observations, get_args(ObservationKind))
    is_counted = observations == "counted"
    if observations == "auto":
        numbering = Numbering.of(space)
        is_small = numbering is not None and numbering.n <= MAX_COUNTED
        is_counted = is_small or isinstance(space, spaces.Discrete)
    return (CountedEncoding if is_counted else VectorEncoding)(space, features, ends)
