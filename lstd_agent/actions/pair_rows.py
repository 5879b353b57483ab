"""Rows of pairs: transitions of trials, with features of an observation and an action."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.features.rows import with_ones
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.policies import are_none, in_words

NO_ACTIONS = (
    "the trials do not tell which actions were taken: collect(..., explore=k) records them, and "
    "takes k exploratory ones in each trial; so does add_trials(..., actions=...) of Discrete "
    "ones, numbered from 0 or by an action_space"
)

PairFeatures = Callable[[Any, Any], ArrayLike]
"""Features (n, d) of vectors (n, k) and actions (n,) from 0."""

AllPairs = Callable[[Any], FloatArray]
"""Features (n, A, D) of n encoded observations with each action; 0 where trials are over."""

SuccessorValues = Callable[[States], tuple[FloatArray, BoolArray]]
"""Values (n,) of encoded observations, and which of them are determined."""

Rows: TypeAlias = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Of some transitions: features f (n, D), f less what follows, rewards (n,), durations (n,)."""

# Features of about this many numbers are held at a time.
_CHUNK_SIZE = 2**21


def checked_actions(chosen: Any, n_actions: int, first: int) -> IntArray:
    """Return a policy's actions from 0, or raise `InvalidInputError` if one of them is none."""
    taken = np.asarray(chosen)
    wrong = are_none(taken, (n_actions, first))
    if wrong.any():
        raise InvalidInputError(
            f"the policy takes action {taken[wrong][0]}; actions are {in_words((n_actions, first))}"
        )
    return (taken - first).astype(np.int64)


class PairFeatureRows:
    """Features of observations with each of A actions.

    By default the encoding's features and a constant, apart for each action.
    """

    def __init__(self, encoding: Any, n_actions: int, features: PairFeatures | None) -> None:
        self._encoding = encoding
        self._n_actions = n_actions
        self._features = features

    def __call__(self, states: States) -> FloatArray:
        """Return features (n, A, D) of encoded observations (n, k)."""
        n, A = len(states), self._n_actions
        living = ~ended(states)
        if self._features is None:
            f = with_ones(self._encoding.features(states))
            d = f.shape[1]
            apart = np.zeros((n, A, A, d))
            apart[:, np.arange(A), np.arange(A)] = f[:, None]
            rows: FloatArray = apart.reshape(n, A, A * d)
        else:
            finite = np.where(living[:, None], states, 0.0)
            rows = np.stack([self._of_action(finite, a) for a in range(A)], axis=1)
        rows[~living] = 0.0
        return rows

    def _of_action(self, states: FloatArray, action: int) -> FloatArray:
        assert self._features is not None
        # Copies: a function may compute in place, and return the same array for each action.
        rows = np.array(self._features(states.copy(), np.full(len(states), action)), np.float64)
        if rows.ndim != 2 or len(rows) != len(states) or not np.isfinite(rows).all():
            raise InvalidInputError(
                f"pair_features of {len(states)} observations and actions must be {len(states)} "
                f"rows of finite numbers; got shape {rows.shape}"
            )
        return rows


def ended(states: Any) -> BoolArray:
    """Return which encoded observations (..., k) are the end of a trial."""
    if states.dtype.kind != "f":
        return np.zeros(states.shape[:-1], dtype=bool)
    return np.asarray(np.isnan(states).any(axis=-1))


def parts_of(trials: KeptTrials, pairs: AllPairs) -> Iterator[tuple[slice, KeptTrials]]:
    """Yield slices of trials, and these, whose features fit in bounded memory."""
    size = pairs(trials.observations[:1, 0])[0].size * trials.observations.shape[1]
    step = max(1, _CHUNK_SIZE // size)
    for start in range(0, trials.n_trials, step):
        part = slice(start, start + step)
        yield part, trials.take(part)


def have_actions(trials: KeptTrials, *, own: bool = False) -> BoolArray:
    """Return which transitions (m, t_max + 1) have known actions, or the policy's own.

    Raises
    ------
    NotFittedError
        If no action is known.
    """
    if trials.actions is None:
        raise NotFittedError(NO_ACTIONS)
    known: BoolArray = (trials.actions >= 0) & ~ended(trials.observations[:, :-1])
    known &= np.arange(trials.t_max + 1) < trials.all_lengths[:, None]
    return known if not own or trials.explored is None else known & ~trials.explored


def pairs_and_next(
    trials: KeptTrials, pairs: AllPairs, policy: IntArray | None = None
) -> Iterator[Rows]:
    """Yield f(s, a), f(s, a) - f(s', π(s')), r and τ, of some transitions at a time.

    The policy has actions (m, t_max + 1) in the states that follow. Where it has none, -1, the one
    that was taken next stands for it, unless that was exploratory.
    """
    for block, part in parts_of(trials, pairs):
        use, actions = have_actions(part), part.part("actions").astype(np.int64)
        chosen = np.full(actions.shape, -1)
        chosen[:, :-1] = np.where(have_actions(part, own=True), actions, -1)[:, 1:]
        if policy is not None:
            chosen = np.where(policy[block] < 0, chosen, policy[block])
        chosen[ended(part.observations[:, 1:])] = 0  # no action matters there
        use &= chosen >= 0
        m, n, k = part.observations.shape
        every = pairs(part.observations.reshape(m * n, k))
        every = every.reshape(m, n, *every.shape[1:])
        trial, t = np.nonzero(use)
        f = every[trial, t, actions[use]]
        yield (
            f,
            f - every[trial, t + 1, chosen[use]],
            part.rewards[use],
            part.part("durations")[use],
        )


def pairs_alone(
    trials: KeptTrials, pairs: AllPairs
) -> Iterator[tuple[FloatArray, Any, FloatArray, Any]]:
    """Yield f(s, a), s', r and τ of some transitions at a time."""
    for _, part in parts_of(trials, pairs):
        use = have_actions(part)
        every = pairs(part.observations[:, :-1][use])
        f = every[np.arange(len(every)), part.part("actions")[use].astype(np.int64)]
        yield f, part.observations[:, 1:][use], part.rewards[use], part.part("durations")[use]
