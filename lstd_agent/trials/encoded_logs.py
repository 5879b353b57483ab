r"""Logged trials as encoded ones: all over the same timesteps, with their actions checked.

Trials of another policy tell another one's values. Actions that a policy never takes show in a
single one. That a stochastic policy takes its actions as often as the log does is told by
Pearson's statistic over all states visited,

.. math:: X = \sum_s \sum_a \frac{(n_{sa} - n_s \pi_a)^2}{n_s \pi_a},

whose mean and variance are known whatever the numbers, however small (Haldane 1937): with k_s
actions possible in s,

.. math:: E X = \sum_s (k_s - 1), \quad \mathrm{Var}\, X = \sum_s
          \left( 2 (k_s - 1) + \frac{1}{n_s} \Big( \sum_a \frac{1}{\pi_a} - k_s^2 - 2 k_s + 2
          \Big) \right).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, TerminationError, check_integer
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.exploration import ActionNumbers, are_none, discrete_actions, in_words
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.logged import LoggedTrials
from lstd_agent.trials.policies import Actor, Policy, check_probabilities, make_actor
from lstd_agent.trials.spaces import batch_size, take

# Frequencies are of another policy if their statistic is so many standard deviations too large:
# by Chebyshev's inequality that is so in one log of a hundred at most, and hardly in any.
_DEVIATIONS = 10.0

# Actions that are not whole numbers may have been rounded where they were written.
_RELATIVE, _ABSOLUTE = 1e-4, 1e-6


def encoded_trials(
    encoding: Encoding,
    trials: LoggedTrials,
    t_max: int | None,
    known: int | None,
    numbers: ActionNumbers | None = None,
) -> KeptTrials:
    """Return logged trials, encoded and as long as the others of an agent.

    Parameters
    ----------
    encoding : Encoding
    trials : LoggedTrials
    t_max : int or None
        What is logged beyond is left out; None goes to the end of the longest trial.
    known : int or None
        The last timestep of the agent's trials so far, which must be the same.
    numbers : (int, int) or None
        How many Discrete actions there are, and the first of them; None leaves them out.

    Raises
    ------
    InvalidInputError
        If an observation or an action does not fit, or a trial is longer than those so far.
    TerminationError
        If a trial terminated, and the task is one that does not.
    """
    T, m = _last_timestep(trials, t_max, known) + 1, trials.n_trials
    lengths = np.minimum(trials.lengths, T)
    ended = trials.terminated & (trials.lengths <= T)
    if ended.any() and not encoding.ends:
        i = int(np.argmax(ended))
        raise TerminationError(
            f"trial {i} terminated at timestep {lengths[i] - 1}: the evaluator is for "
            "continuing tasks, which never terminate. Take the end for an absorbing state "
            'without reward with on_termination="absorb", or, where the trial only was cut '
            "short, do not call it terminated"
        )
    encoded = list(_encoded(encoding, trials))
    encoding.check_features(encoded[0])
    dtype = np.result_type(*{each.dtype for each in encoded})
    states: States = np.empty((m, T + 1, *encoded[0].shape[1:]), dtype)
    rewards, durations = np.zeros((m, T)), None if trials.durations is None else np.ones((m, T))
    for i, n in enumerate(lengths.tolist()):
        states[i, :n] = encoded[i][:n]
        states[i, n:] = encoding.terminal if ended[i] else encoded[i][n]
        rewards[i, :n] = trials.rewards[i][:n]
        if trials.durations is not None and durations is not None:
            durations[i, :n] = trials.durations[i][:n]
    states = encoding.compact(states)
    actions = None
    if numbers is not None and trials.actions is not None:
        has = np.concatenate([np.arange(n) < T for n in trials.lengths])
        actions = np.full((m, T), -1, np.min_scalar_type(-numbers[0]))
        actions[np.arange(T) < lengths[:, None]] = as_numbers(trials, numbers)[has]
    # A trial that ended stays where it ended, and so has all timesteps.
    lengths = np.where(ended, T, lengths)
    cut = lengths if (lengths < T).any() else None
    return KeptTrials(states, rewards, cut, actions, durations=durations)


def _last_timestep(trials: LoggedTrials, t_max: int | None, known: int | None) -> int:
    """Return the last timestep of trials to be added to others, or raise if they do not fit."""
    longest = int(trials.lengths.max()) - 1
    if t_max is None:
        t_max = longest if known is None else known
        if longest > t_max:
            raise InvalidInputError(
                f"trial {int(np.argmax(trials.lengths))} goes on to timestep {longest}, and "
                f"the trials so far have t_max = {t_max}: leave out what comes after with "
                f"t_max={t_max}, or forget the others with reset()"
            )
    t_max = check_integer("t_max", t_max, 0)
    if t_max > longest and known is None:
        raise InvalidInputError(
            f"no trial has timestep {t_max}: the longest goes to {longest}, so give a "
            "t_max of at most that"
        )
    return t_max


def _encoded(encoding: Encoding, trials: LoggedTrials) -> Iterator[States]:
    """Yield the states of one trial after the other, with errors that say where."""
    box = encoding.box
    for i, observed in enumerate(trials.observations):
        try:
            states = encoding.encode_table(observed)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{error} in trial {i}{_observation_of(encoding, observed)}"
            ) from None
        if box is not None:
            outside = ((states < box.low) | (states > box.high)).any(axis=1)
            if outside.any():
                t = int(np.argmax(outside))
                raise InvalidInputError(
                    f"observation {t} of trial {i} is {states[t]}, which "
                    f"{encoding.space} does not hold: name the space that it is of"
                )
        yield states


def _observation_of(encoding: Encoding, observed: Any) -> str:
    """Return at which observation an array is wrong, as far as that is easy to tell."""
    for t in range(len(observed) if isinstance(observed, np.ndarray) else 0):
        try:
            encoding.encode_table(observed[t : t + 1])
        except InvalidInputError:
            return f", observation {t}"
    return ""


def implied_space(trials: LoggedTrials) -> gym.Space[Any] | None:
    """Return the space that a log tells: named, or unbounded for vectors of floats."""
    if trials.observation_space is not None:
        return trials.observation_space
    observed: NDArray[Any] | Any = trials.observations[0]
    if isinstance(observed, np.ndarray) and observed.dtype.kind == "f" and observed.ndim > 1:
        dtype: Any = observed.dtype.type
        return spaces.Box(-np.inf, np.inf, observed.shape[1:], dtype)
    return None


def action_numbers(
    trials: LoggedTrials, known: ActionNumbers | None, policy: Any
) -> ActionNumbers | None:
    """Return how many Discrete actions there are, and the first of them; None if that is not told.

    Parameters
    ----------
    trials : LoggedTrials
        Whose space of actions tells. Without one, integers are actions from 0 to the largest.
    known : (int, int) or None
        Of the trials so far.
    policy : policy, optional
        Probabilities (S, A) tell how many actions there are.

    Raises
    ------
    InvalidInputError
        If a space of actions is not that of the trials so far.
    """
    actions, space = trials.actions, trials.action_space
    if actions is None:
        return known
    if isinstance(space, spaces.Discrete):
        told = discrete_actions(space)
        if known not in (None, told):
            raise InvalidInputError(
                f"actions of the trials so far are {in_words(known)}; the log has {space}"
            )
        return told
    if space is not None or known is not None:
        return known
    are_numbers = all(each.ndim == 1 and each.dtype.kind in "biu" for each in actions)
    is_table = not callable(policy) and np.ndim(policy) == 2
    if is_table or (are_numbers and min(int(each.min()) for each in actions) >= 0):
        return _n_actions(actions, policy), 0
    return None


def _n_actions(actions: list[NDArray[Any]], policy: Any) -> int:
    """Return how many actions from 0 on a table of probabilities has, or the log and a table."""
    if policy is None or callable(policy):
        policy = np.zeros(0, dtype=np.int64)
    if np.ndim(policy) == 2:
        return int(np.shape(policy)[1])
    return 1 + max(int(np.max(policy, initial=0)), *(int(each.max()) for each in actions))


def as_numbers(trials: LoggedTrials, numbers: ActionNumbers) -> IntArray:
    """Return the actions of all trials, one trial after the other, from 0.

    Raises
    ------
    InvalidInputError
        If one is none of the actions.
    """
    assert trials.actions is not None
    for i, actions in enumerate(trials.actions):
        if actions.ndim != 1 or actions.dtype.kind not in "biuf":
            raise _misfit(numbers, i, actions[0])
    number = np.concatenate(trials.actions)
    wrong = are_none(number, numbers)
    if wrong.any():
        place = int(np.argmax(wrong))
        raise _misfit(numbers, _place(trials, place)[0], number[place])
    found: IntArray = number.astype(np.int64) - numbers[1]
    return found


def _misfit(numbers: ActionNumbers, trial: int, action: Any) -> InvalidInputError:
    return InvalidInputError(
        f"actions are {in_words(numbers)}; trial {trial} has {action}: name all of them with "
        "action_space= when the first trials are added"
    )


def _place(trials: LoggedTrials, place: int) -> tuple[int, int]:
    """Return trial and timestep of the place-th of all transitions."""
    stop = np.cumsum(trials.lengths)
    trial = int(np.searchsorted(stop, place, side="right"))
    return trial, place - int(stop[trial] - trials.lengths[trial])


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
        implied: gym.Space[Any] = spaces.Box(
            -np.inf, np.inf, trials.actions[0].shape[1:], np.float64
        )
        if trials.actions[0].ndim == 1 and trials.actions[0].dtype.kind in "iu":
            implied = spaces.Discrete(_n_actions(trials.actions, None))
        _check_calls(make_actor(policy, space, trials.action_space or implied, batched), trials)
        return
    table = np.asarray(policy)
    actions = np.concatenate(trials.actions)
    if actions.ndim != 1 or actions.dtype.kind not in "iuf" or (actions % 1 != 0).any():
        raise InvalidInputError(f"actions of a table are integers; got {trials.actions[0][:3]!r}")
    states = np.concatenate([observed[:-1] for observed in trials.observations]) - space.start
    action_space = trials.action_space or spaces.Discrete(_n_actions([actions], table))
    make_actor(policy, space, action_space, None)
    assert isinstance(action_space, spaces.Discrete)
    if table.ndim == 1:
        table = np.eye(int(action_space.n))[table - int(action_space.start)]
    probabilities = check_probabilities(table)
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
    i, t = _place(trials, place)
    return InvalidInputError(
        f"trial {i} takes action {trials.actions[i][t]} on observing "
        f"{take(trials.observations[i], t)} at timestep {t}, which the policy never does: trials "
        "of another policy tell that one's values. Without policy= they are taken for what they "
        "are"
    )
