"""Trials kept as they are: what vector observations leave behind while there is room for them.

Most simulators are slow and most collections small: 400 trials are a megabyte where their
moments are gigabytes. Kept trials add up by standing side by side, and give the moments of any
features, kernel or window, also of such as were thought of after collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import RowsOf
from lstd_agent.trials.lengths import checked_by_timestep, checked_lengths
from lstd_agent.trials.moment_sums import MomentSums, moments_of


@dataclass(frozen=True, eq=False)
class KeptTrials:
    """Whole trials of vector observations.

    Attributes
    ----------
    observations : ndarray, shape (m, t_max + 2, k)
        Of m trials, what followed the last timestep included, in whatever type they came. From
        the end of a trial that terminates on they are NaN.
    rewards : ndarray, shape (m, t_max + 1)
    lengths : ndarray of int, shape (m,), optional
        How many timesteps each trial has, where some were cut short; what is said of them at
        later ones does not matter, but is finite. None where all have all.
    actions : ndarray of int, shape (m, t_max + 1), optional
        Which actions were taken, from 0, -1 where that is not known; None where it never is.
    explored : ndarray of bool, shape (m, t_max + 1), optional
        Which of them were exploratory: such transitions are none of the policy's, and only serve
        action values. None where none were.
    own : ndarray of bool, shape (m, t_max + 1), or None
        Which transitions are the policy's.
    reward_sums : ndarray, shape (t_max + 1,)
        Sums of their rewards at each timestep.
    n_trials, t_max : int
        Number of trials m, and their last timestep.
    all_lengths : ndarray of int, shape (m,)
        How many timesteps each trial has.
    n_at : ndarray of int, shape (t_max + 1,), or None
        How many trials have each timestep, where some were cut short.
    trials_at : ndarray of int, shape (t_max + 1,)
        How many trials have each timestep.
    nbytes : int
        Memory that they take.
    counts, kept : None, KeptTrials
        What there is of each kind of sums: no counts, and these trials.

    Methods
    -------
    of(observations, rewards)
        Logged trials, checked.
    together(portions)
        The trials of all portions.
    every(n, first)
        Every n-th trial.
    states(n)
        The states of the first n trials, or of all.
    condense(features)
        Their moments of features.
    check_adds(other)
        Raise unless the other's trials are like these.

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
    counts = None

    @classmethod
    def of(
        cls,
        observations: ArrayLike,
        rewards: ArrayLike,
        lengths: ArrayLike | None = None,
        actions: ArrayLike | None = None,
        explored: ArrayLike | None = None,
    ) -> KeptTrials:
        """Return logged trials, checked.

        Parameters
        ----------
        observations : array_like, shape (m, t_max + 2, ...)
            Of m trials at timesteps 0 to t_max + 1; axes after the second are flattened. NaN
            marks what follows the end of a trial that terminates.
        rewards : array_like, shape (m, t_max + 1)
        lengths : array_like of int, shape (m,), optional
            How many timesteps each trial has, where not all have all of them.
        actions, explored : array_like, shape (m, t_max + 1), optional
            Which actions were taken, and which of them were exploratory.

        Returns
        -------
        KeptTrials

        Raises
        ------
        InvalidInputError
            If shapes do not fit, or a number is not finite.
        """
        states, paid = np.asarray(observations), np.asarray(rewards, dtype=np.float64)
        if states.ndim < 2 or paid.ndim != 2 or not paid.size:
            raise InvalidInputError(
                "logged trials are observations (m, t_max + 2, ...) and rewards (m, t_max + 1); "
                f"got shapes {states.shape} and {paid.shape}"
            )
        m, n = paid.shape
        if states.shape[:2] != (m, n + 1):
            raise InvalidInputError(
                f"rewards of {m} trials over {n} timesteps need observations of shape ({m}, "
                f"{n + 1}, ...), what followed the last one included; got {states.shape}"
            )
        if states.dtype.kind not in "fiub":
            raise InvalidInputError(f"observations must be real numbers; got {states.dtype}")
        if states.dtype.kind == "f" and np.isinf(states).any():
            trial, t = np.argwhere(np.isinf(states))[0][:2]
            raise InvalidInputError(
                f"observations must be finite; one of trial {trial} at timestep {t} is not"
            )
        if not np.isfinite(paid).all():
            trial, t = np.argwhere(~np.isfinite(paid))[0]
            raise InvalidInputError(
                f"rewards must be finite; got {paid[trial, t]} at timestep {t} of trial {trial}"
            )
        were_explored = checked_by_timestep("explored", explored, "b", paid.shape)
        return cls(
            states.reshape(m, n + 1, -1),
            paid,
            checked_lengths(lengths, m, n),
            checked_by_timestep("actions", actions, "iu", paid.shape),
            were_explored if np.any(were_explored) else None,
        )

    @property
    def kept(self) -> KeptTrials:
        """These trials, where other kinds of sums have none as they came."""
        return self

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
        return int(self.observations.nbytes) + int(self.rewards.nbytes)

    def check_adds(self, other: KeptTrials) -> None:
        """Raise `InvalidInputError` unless the other has such observations and timesteps.

        Parameters
        ----------
        other : KeptTrials

        Raises
        ------
        InvalidInputError
        """
        if not isinstance(other, KeptTrials):
            raise InvalidInputError(f"kept trials do not add to {type(other).__name__}")
        if other.observations.shape[1:] != self.observations.shape[1:]:
            raise InvalidInputError(
                f"trials of shape {self.observations.shape[1:]} (timesteps, components) do not "
                f"add to trials of shape {other.observations.shape[1:]}"
            )

    def __add__(self, other: KeptTrials) -> KeptTrials:
        self.check_adds(other)
        return self.together([self, other])

    @classmethod
    def together(cls, portions: Sequence[KeptTrials]) -> KeptTrials:
        """Return the trials of all portions, at least one.

        Parameters
        ----------
        portions : sequence of KeptTrials

        Returns
        -------
        KeptTrials
        """
        if len(portions) == 1:
            return portions[0]
        return cls(
            np.concatenate([portion.observations for portion in portions]),
            np.concatenate([portion.rewards for portion in portions]),
            _of_all(portions, "lengths", portions[0].t_max + 1),
            _of_all(portions, "actions", -1),
            _of_all(portions, "explored", False),
        )

    def every(self, n: int, first: int) -> KeptTrials:
        """Return every n-th trial from the first on.

        Parameters
        ----------
        n, first : int

        Returns
        -------
        KeptTrials
        """
        parts = vars(self).items()
        some: dict[str, Any] = {
            name: None if part is None else part[first::n] for name, part in parts
        }
        return KeptTrials(**some)

    @property
    def own(self) -> BoolArray | None:
        """Which transitions are the policy's, shape (m, t_max + 1); None where all are."""
        if self.lengths is None:
            return None if self.explored is None else ~self.explored
        has: BoolArray = np.arange(self.t_max + 1) < self.lengths[:, None]
        return has if self.explored is None else has & ~self.explored

    @property
    def all_lengths(self) -> IntArray:
        """How many timesteps each trial has, shape (m,)."""
        full = np.full(self.n_trials, self.t_max + 1)
        return full if self.lengths is None else self.lengths

    @property
    def n_at(self) -> IntArray | None:
        """How many trials have each timestep, where some were cut short."""
        return None if (own := self.own) is None else np.asarray(own.sum(axis=0))

    @property
    def trials_at(self) -> IntArray:
        """Number of trials that have each timestep, shape (t_max + 1,)."""
        return np.full(self.t_max + 1, self.n_trials) if (n_at := self.n_at) is None else n_at

    def states(self, n: int | None = None) -> NDArray[Any]:
        """Return the states (n, t_max + 1, k) of the first n trials, or of all, as they came.

        They are infinite at timesteps that a trial does not have.

        Parameters
        ----------
        n : int, optional

        Returns
        -------
        ndarray, shape (n, t_max + 1, k)
        """
        states = self.observations[:n, :-1]
        if self.lengths is not None:
            # The smallest floats that hold all of them.
            states = states.astype(np.result_type(states.dtype, np.float16))
            states[np.arange(self.t_max + 1) >= self.lengths[:n, None]] = np.inf
        return states

    @property
    def reward_sums(self) -> FloatArray:
        """Sums of rewards of the policy's own transitions at each timestep, shape (t_max + 1,)."""
        own = True if self.own is None else self.own
        return np.asarray(self.rewards.sum(axis=0, where=own))

    def condense(self, features: RowsOf, windows: IntArray | None = None) -> MomentSums:
        """Return the moments of features, summed over trials and each window of timesteps.

        Parameters
        ----------
        features : callable
            Encoded observations (n, k) to features (n, d), dense or CSR.
        windows : ndarray of int, shape (n, 2), optional
            Timesteps ``start`` up to, not including, ``stop``; by default each timestep is one.

        Returns
        -------
        MomentSums
            With one entry a window in place of one a timestep.
        """
        if windows is None:
            windows = np.arange(self.t_max + 1)[:, None] + np.arange(2)
        return moments_of(self.observations, self.rewards, self.own, features, windows)


def _of_all(portions: Sequence[KeptTrials], name: str, missing: Any) -> Any:
    """Return an optional array of all portions, filled up where one has none; None without any."""
    parts = [getattr(portion, name) for portion in portions]
    if all(part is None for part in parts):
        return None
    n_axes = next(part.ndim for part in parts if part is not None)
    filled = (
        np.full(portion.rewards.shape[:n_axes], missing) if part is None else part
        for portion, part in zip(portions, parts, strict=True)
    )
    return np.concatenate(list(filled))
