"""Kept trials, of vector observations, and trials drawn from counts.

Features, kernels and windows may be chosen after collection. Trials beyond ``max_bytes`` are held
in temporary files.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.spaces import MAX_REWARD, plain_array, real_array

NO_TIME = (
    "the steps of the second half of all timesteps take no time (their durations are 0), so that "
    "there is no gain per unit of time: give durations in a smaller unit, or none"
)

_WHERE = "at timestep {1} of trial {0}"

# Numbers of different halves and wholes of trials agree from this ratio on; so few different trials
# may be all that a nearly deterministic task has, in all or for each start.
_ALIKE, _FEW_KINDS, _FEW_FOR_A_START = 0.95, 40, 8

# Default entries of missing arrays.
_MISSING: dict[str, Any] = {"actions": np.int8(-1), "explored": np.bool_(False), "durations": 1.0}


@dataclass(frozen=True, eq=False)
class KeptTrials:
    """Whole trials.

    Attributes
    ----------
    observations : ndarray, shape (m, t_max + 2, k)
        Includes the observation after the last timestep; NaN after a trial terminated. Numbers keep
        their type. Counted observations are numbers of states (m, t_max + 2).
    rewards : ndarray, shape (m, t_max + 1)
    lengths : ndarray of int, shape (m,), optional
        Number of timesteps of each trial, if some were cut short: later entries are not used.
    actions : ndarray of int, shape (m, t_max + 1), optional
        From 0; -1 where an action is not known.
    explored : ndarray of bool, shape (m, t_max + 1), optional
        Exploratory actions: these transitions only serve action values.
    durations : ndarray, shape (m, t_max + 1), optional
        How long each step takes; None if each takes 1 unit of time.

    Examples
    --------
    >>> from lstd_agent import KeptTrials
    >>> logged = KeptTrials.of([[[0.0], [1.0], [2.0]]], [[5.0, 6.0]])  # a trial of two steps
    >>> logged.n_trials, logged.t_max
    (1, 1)
    """

    observations: NDArray[Any]
    rewards: FloatArray
    lengths: IntArray | None = None
    actions: IntArray | None = None
    explored: BoolArray | None = None
    durations: FloatArray | None = None

    @classmethod
    def of(
        cls,
        observations: ArrayLike,
        rewards: ArrayLike,
        lengths: ArrayLike | None = None,
        actions: ArrayLike | None = None,
        explored: ArrayLike | None = None,
        durations: ArrayLike | None = None,
    ) -> KeptTrials:
        """Return logged trials, checked.

        Parameters
        ----------
        observations, rewards, lengths, actions, explored, durations : array_like
            As the attributes; axes of observations after the second are flattened.

        Raises
        ------
        InvalidInputError
            If shapes do not fit, or a number is not finite.
        """
        states, paid = plain_array(observations, "observations"), real_array(rewards, "rewards")
        m, n = paid.shape if paid.ndim == 2 else (0, 0)
        if not paid.size or states.shape[:2] != (m, n + 1):
            raise InvalidInputError(
                "trials are observations (m, t_max + 2, ...), what followed the last timestep "
                f"included, and rewards (m, t_max + 1); got shapes {states.shape} and {paid.shape}"
            )
        if states.dtype.kind not in "fiub":
            raise InvalidInputError(f"observations must be real numbers; got {states.dtype}")
        if states.dtype.kind == "f" and np.isinf(states).any():
            trial, t = np.argwhere(np.isinf(states))[0][:2]
            told = f"observations must be finite; one of trial {trial} at timestep {t} is not"
            raise InvalidInputError(told)
        check_range("rewards", paid, _WHERE)
        were_explored = _checked("explored", explored, "b", paid.shape)
        sizes = _checked("lengths", lengths, "iu", (m,))
        if sizes is not None and not 1 <= sizes.min() <= sizes.max() <= n:
            raise InvalidInputError(f"lengths of trials are from 1 to {n}; got {lengths!r}")
        return cls(
            states.reshape(m, n + 1, -1),
            paid,
            None if sizes is None or (sizes == n).all() else sizes.astype(np.int64),
            _checked("actions", actions, "iu", paid.shape),
            were_explored if np.any(were_explored) else None,
            None if durations is None else checked_durations(durations, paid.shape, _WHERE),
        )

    @property
    def n_copies(self) -> int:
        """How many trials repeat others; 0 if chance, or a deterministic task, explains it.

        By chance, trials agree in one half of their timesteps; copies agree in both.
        """
        h, each = self.rewards.shape[1] // 2, range(self.n_trials)
        halves = slice(None, h + 1), slice(h + 1, None)
        whole = self.observations, self.rewards
        parts = [[tuple(x[i, half].tobytes() for x in whole) for i in each] for half in halves]
        first, second, n = map(len, map(set, [*parts, zip(*parts, strict=True)]))
        few = min(_FEW_KINDS, _FEW_FOR_A_START * len(np.unique(self.observations[:, 0], axis=0)))
        if min(first, second) < _ALIKE * n or not few < n < _ALIKE * self.n_trials:
            return 0
        return self.n_trials - n

    @property
    def n_trials(self) -> int:
        """Number of trials m."""
        return len(self.rewards)

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return int(self.rewards.shape[1]) - 1

    @property
    def nbytes(self) -> int:
        """Memory that the trials take, in bytes."""
        parts = self.observations, self.rewards, self.durations
        return sum(int(part.nbytes) for part in parts if part is not None)

    def __add__(self, other: KeptTrials) -> KeptTrials:
        if not isinstance(other, KeptTrials):
            raise InvalidInputError(f"kept trials do not add to {type(other).__name__}")
        ours, theirs = self.observations.shape[1:], other.observations.shape[1:]
        if ours != theirs:
            told = f"trials of shape {ours} (timesteps, components) do not add to {theirs}"
            raise InvalidInputError(told)
        check_timed(self.durations is not None, other.durations)
        return together([self, other])

    def part(self, name: str) -> NDArray[Any]:
        """Return the array ``name``, shape (m, ...); default values if it is None."""
        held: NDArray[Any] | None = self.all_lengths if name == "lengths" else getattr(self, name)
        return np.full(self.rewards.shape, _MISSING[name]) if held is None else held

    def take(self, index: Any) -> KeptTrials:
        """Return the trials at ``index``, a slice or an array of integers."""
        parts = {name: part[index] for name, part in vars(self).items() if part is not None}
        return KeptTrials(**parts)

    @property
    def own(self) -> BoolArray | None:
        """Which transitions are the policy's, shape (m, t_max + 1); None if all are."""
        if self.lengths is None and self.explored is None:
            return None
        has: BoolArray = np.arange(self.t_max + 1) < self.all_lengths[:, None]
        return has if self.explored is None else has & ~self.explored

    @property
    def all_lengths(self) -> IntArray:
        """How many timesteps each trial has, shape (m,)."""
        full = np.full(self.n_trials, self.t_max + 1)
        return full if self.lengths is None else self.lengths

    def states(self, n: int | None = None) -> NDArray[Any]:
        """Return states of the first ``n`` trials, shape (n, t_max + 1, k); infinite once cut."""
        states = self.observations[:n, :-1]
        if self.lengths is not None:
            # The smallest floats that hold all of them.
            states = states.astype(np.result_type(states.dtype, np.float16))
            states[np.arange(self.t_max + 1) >= self.lengths[:n, None]] = np.inf
        return states


def padded(
    states: NDArray[Any],
    lengths: IntArray,
    ended: BoolArray,
    t_max: int,
    terminal: Any,
    **flat: Any,
) -> KeptTrials:
    """Return trials over timesteps 0 to t_max that are given one after the other.

    Trial i has ``lengths[i]`` timesteps and one more state; ``flat`` are other parts. If it is
    shorter, it stays in the terminal state if it ended, and was cut short otherwise.
    """
    T, before = t_max + 1, np.cumsum(lengths) - lengths
    n, t = np.minimum(lengths, T), np.arange(T + 1)
    found = states[(before + np.arange(len(lengths)))[:, None] + np.minimum(t, n[:, None])]
    over = ended & (lengths <= T)
    if over.any():
        found[over[:, None] & (t >= n[:, None])] = terminal
    has = t[:-1] < n[:, None]
    is_used = np.arange(lengths.sum()) - np.repeat(before, lengths) < T
    parts: dict[str, Any] = {}
    for name, numbers in flat.items():
        is_action = name == "actions"
        dtype = np.min_scalar_type(-1 - int(numbers.max())) if is_action else numbers.dtype
        parts[name] = np.full(has.shape, _MISSING.get(name, 0.0), dtype)
        parts[name][has] = numbers[is_used]
    n = np.where(over, T, n)  # a trial that has ended has all timesteps
    return KeptTrials(found, lengths=n if (n < T).any() else None, **parts)


def together(
    portions: list[KeptTrials], *, in_file: bool = False, order: IntArray | None = None
) -> KeptTrials:
    """Return the trials of all portions, by an order if given, in temporary files if told so."""
    if len(portions) == 1 and not in_file:
        return portions[0] if order is None else portions[0].take(order)
    parts: dict[str, Any] = {}
    for name in vars(portions[0]):
        if any(getattr(portion, name) is not None for portion in portions):
            pieces = [portion.part(name) for portion in portions]
            shape = (sum(map(len, pieces)), *pieces[0].shape[1:])
            whole = parts[name] = _allocated(shape, np.result_type(*pieces), in_file)
            if order is None:
                np.concatenate(pieces, out=whole)
            else:
                np.take(pieces[0], order, axis=0, out=whole, mode="clip")  # other modes buffer
    return KeptTrials(**parts)


def check_range(what: str, numbers: FloatArray, where: str, least: float = -MAX_REWARD) -> None:
    """Raise unless numbers are not huge; ``where`` formats the index of one that is."""
    fine = (numbers >= least) & (numbers <= MAX_REWARD)
    if not fine.all():
        index = np.argwhere(~fine)[0]
        raise InvalidInputError(
            f"{what} must be finite, from {least:g} to {MAX_REWARD:g}; got {numbers[tuple(index)]} "
            + where.format(*index)
        )


def drawn_trials(
    transition_counts: Any, reward_sums: Any, n: int, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Return n trials drawn from counts: states (n, T + 1) and mean rewards (n, T).

    Transitions (T, S²) are dealt out to the trials in their state: each once if n is the number of
    counted trials, otherwise at random. After a trial is cut short, states are -1, rewards NaN.
    """
    T, S = reward_sums.shape
    states, rewards = np.full((n, T + 1), -1), np.full((n, T), np.nan)
    for t in range(T):
        row = slice(transition_counts.indptr[t], transition_counts.indptr[t + 1])
        pairs = transition_counts.indices[row].astype(np.int64)
        order = np.argsort(pairs, kind="stable")
        source, reached = np.divmod(pairs[order], S)
        # Transitions are numbered by state, and never written out: there may be 10^8 of them.
        upto = np.cumsum(transition_counts.data[row][order], dtype=np.int64)
        first = np.append(0, upto)[np.searchsorted(source, np.arange(S + 1))]
        visits = np.diff(first)
        if t == 0:
            is_all = n == first[-1]
            if is_all:
                states[:, 0] = rng.permutation(np.repeat(np.arange(S), visits))
            else:
                states[:, 0] = rng.choice(S, n, p=visits / first[-1])
        here = states[:, t]
        rank, mixed = np.zeros(n, dtype=np.int64), rng.permutation(n)
        mixed = mixed[np.argsort(here[mixed], kind="stable")]
        place = np.arange(n) - np.searchsorted(here[mixed], here[mixed])
        rank[mixed] = place if is_all else rng.random(n) * visits[here[mixed]]
        on = (here >= 0) & (rank < visits[here])
        number = first[here[on]] + rank[on]
        states[on, t + 1] = reached[np.searchsorted(upto, number, side="right")]
        paid = reward_sums[[t]].toarray()[0]
        rewards[on, t] = paid[here[on]] / visits[here[on]]
    return states, rewards


def checked_durations(durations: ArrayLike, shape: tuple[int, ...], where: str) -> FloatArray:
    """Return durations as an array of a shape, checked."""
    times = real_array(durations, "durations")
    if times.shape not in ((), shape):
        raise InvalidInputError(f"durations have the shape {shape}; got {durations!r}")
    times = np.broadcast_to(times, shape)
    check_range("durations", times, where, 0.0)
    return times


def check_timed(is_timed: bool | None, durations: Any) -> None:
    """Raise unless durations are given if trials are timed; None if that is not known yet."""
    if is_timed not in (None, durations is not None):
        told = "some trials or steps have durations and others do not: give all durations, or none"
        raise InvalidInputError(told)


def _allocated(shape: tuple[int, ...], dtype: Any, in_file: bool) -> NDArray[Any]:
    """Return an array in memory, or in a temporary file without a name, which vanishes with it."""
    if not in_file:
        return np.empty(shape, dtype)
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile(prefix="lstd_agent") as file:
        try:
            if hasattr(os, "posix_fallocate"):  # else a full disk would kill the process
                os.posix_fallocate(file.fileno(), 0, n_bytes)
        except OSError as error:
            raise InvalidInputError(
                f"trials beyond max_bytes go to files, and {tempfile.gettempdir()} has no room for "
                f"{in_words(n_bytes)} ({error.strerror}): raise max_bytes, or set TMPDIR"
            ) from error
        # A plain array: the map is closed with the last array that views it.
        return np.asarray(np.memmap(file, dtype, "r+", shape=shape))


def in_words(n_bytes: int) -> str:
    """Return an amount of memory as text."""
    power = max(0, min(4, (len(str(n_bytes)) - 1) // 3))
    return f"{n_bytes / 1000**power:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"


def _checked(name: str, given: ArrayLike | None, kinds: str, shape: tuple[int, ...]) -> Any:
    """Return an optional array of a shape, checked."""
    if given is None:
        return None
    checked = plain_array(given, name)
    if checked.shape != shape or checked.dtype.kind not in kinds:
        told = f"{name} of these trials have shape {shape}; got {checked.shape}, {checked.dtype}"
        raise InvalidInputError(told)
    return checked
