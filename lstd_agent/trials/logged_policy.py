r"""Whether logged actions are those of a policy: trials of another one tell another one's values.

Actions that a policy never takes show in a single one. That a stochastic policy takes its actions
as often as the log does is told by Pearson's statistic over all states visited,

.. math:: X = \sum_s \sum_a \frac{(n_{sa} - n_s \pi_a)^2}{n_s \pi_a},

whose mean and variance are known whatever the numbers, however small (Haldane 1937): with k_s
actions possible in s,

.. math:: E X = \sum_s (k_s - 1), \quad \mathrm{Var}\, X = \sum_s
          \left( 2 (k_s - 1) + \frac{1}{n_s} \Big( \sum_a \frac{1}{\pi_a} - k_s^2 - 2 k_s + 2
          \Big) \right).
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.logged import LoggedTrials
from lstd_agent.trials.observations import batch_size, take
from lstd_agent.trials.policies import Actor, Policy, check_probabilities, make_actor

# Frequencies are of another policy if their statistic is so many standard deviations too large:
# by Chebyshev's inequality that is so in one log of a hundred at most, and hardly in any.
_DEVIATIONS = 10.0

# Actions that are not whole numbers may have been rounded where they were written.
_RELATIVE, _ABSOLUTE = 1e-4, 1e-6


def check_actions(
    policy: Policy, trials: LoggedTrials, space: gym.Space[Any], batched: bool | None = None
) -> None:
    """Raise unless the logged actions may be those of a policy.

    Parameters
    ----------
    policy : array_like or callable
        Of a function whose answers differ from one call to the next nothing can be told.
    trials : LoggedTrials
    space : Space
        Of the observations.
    batched : bool or None
        Whether a function takes batches.

    Raises
    ------
    InvalidInputError
        If there are no actions, one of them is never taken by the policy, or a table's
        probabilities are not those by which they were drawn.
    """
    if trials.actions is None:
        raise InvalidInputError(
            "whether trials are of a policy is told by their actions, and the log has none: give "
            "actions, or leave policy= out, which takes the trials for those of the policy that "
            "is evaluated"
        )
    if callable(policy) or not isinstance(space, spaces.Discrete):
        action_space = trials.action_space or _space_of(trials.actions)
        _check_calls(make_actor(policy, space, action_space, batched), trials)
        return
    table = np.asarray(policy)
    actions = np.concatenate(trials.actions)
    if actions.ndim != 1 or actions.dtype.kind not in "iuf" or (actions % 1 != 0).any():
        raise InvalidInputError(f"actions of a table are integers; got {trials.actions[0][:3]!r}")
    states = np.concatenate([observed[:-1] for observed in trials.observations]) - space.start
    action_space = trials.action_space or _discrete(table, actions)
    make_actor(policy, space, action_space, None)
    assert isinstance(action_space, spaces.Discrete)
    probabilities = _as_probabilities(table, action_space)
    _check_frequencies(states.astype(np.int64), actions, probabilities, action_space, trials)


def _check_frequencies(
    states: IntArray,
    actions: NDArray[Any],
    probabilities: FloatArray,
    action_space: spaces.Discrete,
    trials: LoggedTrials,
) -> None:
    """Raise unless actions may be drawn with a table's probabilities (S, A)."""
    S, A = probabilities.shape
    number = actions.astype(np.int64) - int(action_space.start)
    possible = (number >= 0) & (number < A)
    possible[possible] = probabilities[states[possible], number[possible]] > 0.0
    if not possible.all():
        raise _never(trials, int(np.argmin(possible)))
    counts = np.bincount(states * A + number, minlength=S * A).reshape(S, A)
    seen = np.flatnonzero(counts.any(axis=1))
    n, observed, pi = counts[seen].sum(axis=1), counts[seen], probabilities[seen]
    taken = pi > 0.0
    with np.errstate(divide="ignore"):
        inverse = np.where(taken, 1.0 / pi, 0.0)
    k = taken.sum(axis=1)
    terms = ((observed - n[:, None] * pi) ** 2 * inverse).sum(axis=1) / n
    variance = 2.0 * (k - 1) + (inverse.sum(axis=1) - k**2 - 2.0 * k + 2.0) / n
    excess = terms.sum() - (k - 1).sum()
    if excess > _DEVIATIONS * np.sqrt(max(float(variance.sum()), 0.0)) and excess > 1.0:
        worst = int(np.argmax(terms - (k - 1)))
        raise InvalidInputError(
            f"the log's actions are not drawn by the policy: in state {seen[worst]} they are "
            f"{observed[worst].tolist()}, by {pi[worst].tolist()}. Are they of another policy? "
            "Without policy= they are taken for what they are"
        )


def _check_calls(actor: Actor, trials: LoggedTrials) -> None:
    """Raise unless a function of observations answers as the log says."""
    assert trials.actions is not None
    rng = np.random.default_rng(0)  # for the interface: a function draws from its own
    place = 0
    for observed, actions in zip(trials.observations, trials.actions, strict=True):
        leaving = take(observed, np.arange(batch_size(observed) - 1))
        answers = actor(leaving, rng)
        close = np.isclose(answers, actions, rtol=_RELATIVE, atol=_ABSOLUTE)
        same = np.asarray(close.reshape(len(actions), -1).all(axis=1))
        if not same.all():
            if not np.array_equal(actor(leaving, rng), answers):
                return
            raise _never(trials, place + int(np.argmin(same)))
        place += len(actions)


def _never(trials: LoggedTrials, place: int) -> InvalidInputError:
    """Return the error of an action that a policy never takes, the place-th of all."""
    assert trials.actions is not None
    stop = np.cumsum(trials.lengths)
    i = int(np.searchsorted(stop, place, side="right"))
    t = place - int(stop[i] - trials.lengths[i])
    return InvalidInputError(
        f"trial {i} takes action {trials.actions[i][t]} on observing "
        f"{take(trials.observations[i], t)} at timestep {t}, which the policy never does: trials "
        "of another policy tell that one's values. Without policy= they are taken for what they "
        "are"
    )


def _as_probabilities(table: NDArray[Any], action_space: spaces.Discrete) -> FloatArray:
    """Return a table of actions or probabilities as the latter, shape (S, A)."""
    if table.ndim == 1:
        taken: FloatArray = np.eye(int(action_space.n))[table - int(action_space.start)]
        return taken
    return check_probabilities(table)


def _discrete(table: NDArray[Any], actions: NDArray[Any]) -> spaces.Discrete:
    """Return the actions of a table, from 0, where the log does not say."""
    if table.ndim == 2:
        return spaces.Discrete(table.shape[1])
    highest = max(int(actions.max()), int(table.max(initial=0)))
    return spaces.Discrete(max(highest, 0) + 1)


def _space_of(actions: list[NDArray[Any]]) -> gym.Space[Any]:
    """Return a space of such actions, where the log does not say."""
    if actions[0].ndim == 1 and actions[0].dtype.kind in "iu":
        return spaces.Discrete(max(1, 1 + max(int(each.max()) for each in actions)))
    return spaces.Box(-np.inf, np.inf, actions[0].shape[1:], np.float64)
