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
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, check_choice
from lstd_agent.features.rows import Rows, dense, pad_rows
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import Features, feature_table
from lstd_agent.trials.action_counts import ActionCountRecorder, ActionCounts
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.numbering import Numbering
from lstd_agent.trials.observations import as_batch, one_or_many, where_ended
from lstd_agent.trials.recorders import CountRecorder, Round
from lstd_agent.trials.vector_encoding import VectorEncoding, no_features

ObservationKind = Literal["auto", "counted", "vectors"]
"""How observations are kept; ``"auto"`` counts those of small finite spaces."""

MAX_COUNTED = 10_000
"""Of this many elements at most, a finite space is counted without being asked to be.

Discrete spaces always are."""

# Of these, unlike of floats, those that are equal are alike.
_INTEGERS = {int, np.int32, np.int64}

MISSING = -1
"""Stored states of counted trials, and actions, at timesteps that a trial does not have."""


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

    is_measured = True  # all observations are known
    box = None  # states are numbers

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
        self._numbers: dict[Any, int] = {}
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

    def without_features(self) -> CountedEncoding:
        """Return a copy that only counts, as workers do: a table may be large."""
        slim = copy.copy(self)
        slim._table, slim.given = None, no_features
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

    def encode_table(self, observations: Any) -> States:
        """Return the states (n,) of logged observations, which a table may hold as floats."""
        is_float = isinstance(observations, np.ndarray) and observations.dtype.kind == "f"
        if is_float and np.isfinite(observations).all():
            whole = observations.astype(np.int64)
            observations = whole if (whole == observations).all() else observations
        return self.encode(observations)

    def hold(self, observation: Any) -> int:
        """Return the state of a single observation, checked."""
        if not self.is_discrete:
            return self._number_of(observation)
        try:
            state = operator.index(observation) - self.start
        except TypeError:
            state = -1
        if not 0 <= state < self.n:
            raise self._misfit(observation)
        return state

    def _number_of(self, observation: Any) -> int:
        """Return the number of a single observation of several parts: looked up, once seen."""
        key = _key(observation)
        number = self._numbers.get(key)
        if number is None:
            number = int(self.encode(as_batch(observation))[0])
            if key is not None:
                self._numbers[key] = number
        return number

    def is_held(self, held: int, observation: Any) -> bool:
        """Tell whether a single observation, to be checked, is the one that was held."""
        return held == self.hold(observation)

    def is_single(self, observation: Any) -> bool:
        """Tell at a glance that this is a single observation; False may be wrong."""
        is_number = self.is_discrete and type(observation) is int
        return is_number and 0 <= observation - self.start < self.n

    def encode_held(self, held: Sequence[int]) -> States:
        """Return the states (n,) of observations that were held one by one."""
        return np.array(held, dtype=np.int64)

    def encode_any(self, observations: Any) -> tuple[States, tuple[int, ...]]:
        """Return the states (m,) of one observation or an array of them, and its shape.

        Of a Dict or Tuple space a list is a list of single observations.
        """
        if not self.is_discrete:
            batch, is_single = one_or_many(self.space, observations)
            states = self.encode(batch)
            return states, () if is_single else (len(states),)
        states = self.encode(observations)
        return states.ravel(), states.shape

    def rows(self, states: States) -> Rows:
        """Return the features (n, d) of states, dense or CSR as they were given."""
        return self.table_rows[states]

    def features(self, states: States) -> FloatArray:
        """Return the features (n, d) of states."""
        return dense(self.rows(states))

    def n_features(self, states: States) -> int:
        """Return the number of features d."""
        return int(self.table_rows.shape[1])

    def measure(self, observations: States) -> None:
        """Do nothing: standardized features were measured on all states."""

    def compact(self, states: States) -> States:
        """Return a copy of states, in the smallest type that holds them."""
        return states.astype(self.dtype)

    def action_recorder(self, n_actions: int) -> ActionCountRecorder:
        """Return what counts what the actions of trials lead to."""
        terminal = self.terminal if self.ends else None
        return ActionCountRecorder(self.n_states, n_actions, terminal)

    def round_of(self, trials: KeptTrials, n_stored: int, n_actions: int = 0) -> Round:
        """Return encoded trials, of states (m, t_max + 2), as a round: their counts.

        The states of the first ``n_stored`` stay beside them. Where the number of actions is
        given, what they led to is counted too.
        """
        states, rewards, own = trials.observations, trials.rewards, trials.own
        recorder = CountRecorder(self.n_states)
        sums = recorder.of_whole(states.T, rewards.T, own=None if own is None else own.T)
        stored = states[:n_stored, :-1]
        if trials.lengths is None:
            stored = self.compact(stored)
        else:
            has = np.arange(trials.t_max + 1) < trials.lengths[:n_stored, None]
            stored = np.where(has, stored, MISSING)
        if not n_actions or trials.actions is None:
            return Round(sums, stored)
        action = trials.actions.T
        known = action != MISSING
        state, following, reward = states.T[:-1][known], states.T[1:][known], rewards.T[known]
        chosen = action[known].astype(np.int64)
        taken = ActionCounts.of(self.n_states, n_actions, state, chosen, following, reward)
        return Round(sums, stored, taken)

    def encode_logged(self, observations: NDArray[Any]) -> States:
        """Return the states (m, n) of logged observations or parts (m, n, k).

        NaN marks the end of a trial.
        """
        ended = where_ended(observations, self.ends).ravel()
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


def _key(observation: Any) -> Any:
    """Return what stands for an observation, and for no other; None where nothing simple does."""
    if type(observation) is np.ndarray and observation.dtype.kind in "iu":
        return observation.dtype.str, observation.shape, observation.tobytes()
    if type(observation) is tuple and all(type(part) in _INTEGERS for part in observation):
        return observation
    return None


Encoding: TypeAlias = CountedEncoding | VectorEncoding
"""Either kind: both answer to the same names, so that hardly anybody has to ask which it is."""


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
