r"""Encoded logged trials: all over the same timesteps, with their actions checked.

Trials of another policy have other values. One action that the policy never takes reveals such
trials. For a stochastic policy, Pearson's statistic over all visited states compares its
probabilities with the log's frequencies,

.. math:: X = \sum_s \sum_a \frac{(n_{sa} - n_s \pi_a)^2}{n_s \pi_a},

whose mean and variance are known for any numbers of visits (Haldane 1937): with k_s possible
actions in s,

.. math:: E X = \sum_s (k_s - 1), \quad \mathrm{Var}\, X = \sum_s
          \left( 2 (k_s - 1) + \frac{1}{n_s} \Big( \sum_a \frac{1}{\pi_a} - k_s^2 - 2 k_s + 2
          \Big) \right).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lstd_agent.arrays import IntArray, States
from lstd_agent.errors import InvalidInputError, TerminationError, check_integer
from lstd_agent.trials.encoding import Encoding, first_refused
from lstd_agent.trials.kept import KeptTrials, padded
from lstd_agent.trials.logged import LoggedTrials
from lstd_agent.trials.policies import (
    ActionNumbers,
    Policy,
    are_none,
    check_probabilities,
    discrete_actions,
    in_words,
    make_actor,
)
from lstd_agent.trials.recording import NEVER
from lstd_agent.trials.spaces import batch_size, each_array, take

# Frequencies belong to another policy if the statistic is this many standard deviations too large.
# By Chebyshev's inequality at most one of a hundred correct logs is refused. Actions that are not
# whole numbers may have been rounded where they were written.
_DEVIATIONS, _RELATIVE, _ABSOLUTE = 10.0, 1e-4, 1e-6


def as_logged(
    observations: Any,
    rewards: Any,
    actions: Any,
    terminated: Any,
    durations: Any,
    action_space: gym.Space[Any] | None,
) -> LoggedTrials:
    """Return the arguments of `SeminormLSTDAgent.add_trials` as logged trials."""
    parts = {"actions": actions, "terminated": terminated, "durations": durations}
    is_minari = hasattr(observations, "iterate_episodes")
    whole = LoggedTrials.from_minari(observations) if is_minari else observations
    if isinstance(whole, LoggedTrials):
        for name, part in {"rewards": rewards, **parts}.items():
            if part is not None:
                raise InvalidInputError(f"the trials hold their {name}: leave {name}= out")
        return whole if action_space is None else replace(whole, action_space=action_space)
    if hasattr(observations, "columns"):
        told = "make trials of a table by LoggedTrials.from_frame(frame, trial=..., ...)"
        raise InvalidInputError(told)
    if rewards is None:
        raise InvalidInputError("rewards are missing: give those of each trial")
    return LoggedTrials.of(observations, rewards, action_space=action_space, **parts)


def encoded_trials(
    encoding: Encoding,
    trials: LoggedTrials,
    t_max: int | None,
    known: int | None,
    numbers: ActionNumbers | None = None,
) -> KeptTrials:
    """Return encoded trials up to t_max: by default as ``known``, or of the longest one."""
    longest = int(trials.lengths.max()) - 1
    if t_max is None:
        t_max = longest if known is None else known
        if longest > t_max:
            told = f"trial {int(np.argmax(trials.lengths))} goes on to timestep {longest}, and the "
            told += f"trials so far have t_max = {t_max}: cut it with t_max={t_max}, or reset()"
            raise InvalidInputError(told)
    T = check_integer("t_max", t_max, 0) + 1
    if longest < T - 1 and known is None:
        told = f"no trial has timestep {t_max}: give a t_max of at most {longest}"
        raise InvalidInputError(told)
    ended = trials.terminated & (trials.lengths <= T)
    if ended.any() and not encoding.ends:
        i = int(np.argmax(ended))
        raise TerminationError(
            f"trial {i} terminated at timestep {trials.lengths[i] - 1}: {NEVER}. A trial that was "
            "cut short did not terminate"
        )
    states = _encoded(encoding, trials)
    encoding.check_features(states[: trials.lengths[0] + 1])
    flat: dict[str, Any] = {"rewards": np.concatenate(trials.rewards)}
    if trials.durations is not None:
        flat["durations"] = np.concatenate(trials.durations)
    if numbers is not None and trials.actions is not None:
        flat["actions"] = _as_numbers(trials.actions, numbers)
    how = trials.lengths, trials.terminated, T - 1, encoding.terminal
    return padded(encoding.compact(states), *how, **flat)


def _encoded(encoding: Encoding, trials: LoggedTrials) -> States:
    """Return the states of all trials, one after the other; errors say where."""
    try:
        states = encoding.encode_table(
            each_array(lambda *parts: np.concatenate(parts), *trials.observations)
        )
    except (InvalidInputError, TypeError, ValueError, LookupError):
        found = []
        for i, seen in enumerate(trials.observations):
            try:
                found.append(encoding.encode_table(seen))
            except InvalidInputError as error:
                parts = (take(seen, slice(t, t + 1)) for t in range(batch_size(seen)))
                t = first_refused(encoding.encode_table, parts)
                where = "" if t is None else f", observation {t}"
                raise InvalidInputError(f"{error} in trial {i}{where}") from None
        states = np.concatenate(found)
    box = None if encoding.is_counted else spaces.flatten_space(encoding.space)
    if isinstance(box, spaces.Box):
        outside = ((states < box.low) | (states > box.high)).any(axis=1)
        if outside.any():
            place = int(np.argmax(outside))
            i, t = _place(trials.lengths + 1, place)
            told = f"observation {t} of trial {i} is {states[place]}, outside {encoding.space}"
            raise InvalidInputError(told)
    return states


def implied_space(trials: LoggedTrials) -> gym.Space[Any] | None:
    """Return the space of a log: named, or unbounded for vectors of floats."""
    if trials.observation_space is not None:
        return trials.observation_space
    seen: Any = trials.observations[0]
    if isinstance(seen, np.ndarray) and seen.dtype.kind == "f" and seen.ndim > 1:
        return spaces.Box(-np.inf, np.inf, seen.shape[1:], seen.dtype.type)
    return None


def action_numbers(
    trials: LoggedTrials, known: ActionNumbers | None, policy: Any
) -> ActionNumbers | None:
    """Return the number of Discrete actions and the first one; None if not known."""
    space = None if trials.actions is None else _action_space(trials, policy)
    if not isinstance(space, spaces.Discrete):
        return known
    found = discrete_actions(space)
    if known is not None and known != found and trials.action_space is not None:
        told = f"actions of the trials so far are {in_words(known)}; the log has {space}"
        raise InvalidInputError(told)
    return known or found


def _action_space(trials: LoggedTrials, policy: Any) -> gym.Space[Any]:
    """Return the space of logged actions: named, or up to the largest of the log or a table."""
    assert trials.actions is not None
    if trials.action_space is not None:
        return trials.action_space
    is_table = policy is not None and not callable(policy)
    if is_table and np.ndim(policy) == 2:
        return spaces.Discrete(np.shape(policy)[1])
    kinds = "biuf" if is_table else "biu"  # a table's actions are read from a log of any numbers
    if all(each.ndim == 1 and each.dtype.kind in kinds for each in trials.actions):
        number = np.concatenate(trials.actions)
        if number.min() >= 0:
            most = max(int(number.max()), int(np.max(policy, initial=0)) if is_table else 0)
            return spaces.Discrete(most + 1)
    return spaces.Box(-np.inf, np.inf, trials.actions[0].shape[1:], np.float64)


def _as_numbers(actions: list[NDArray[Any]], numbers: ActionNumbers) -> IntArray:
    """Return the actions of all trials in one array, from 0; raise if one is invalid."""
    if all(map(_are_numbers, actions)):
        flat = np.concatenate(actions)
        if not are_none(flat, numbers).any():
            return np.asarray(flat.astype(np.int64) - numbers[1])
    wrong = (each[are_none(each, numbers)] if _are_numbers(each) else each for each in actions)
    i, found = next((i, each[0]) for i, each in enumerate(wrong) if len(each))
    told = f"actions are {in_words(numbers)}; trial {i} has {found}: name all of them with "
    told += "action_space= when the first trials are added"
    raise InvalidInputError(told)


def _are_numbers(actions: NDArray[Any]) -> bool:
    return actions.ndim == 1 and actions.dtype.kind in "biuf"


def _place(sizes: IntArray, place: int) -> tuple[int, int]:
    """Return the trial that contains row ``place`` of all trials, and the row within the trial."""
    stop = np.cumsum(sizes)
    trial = int(np.searchsorted(stop, place, side="right"))
    return trial, place - int(stop[trial] - sizes[trial])


def check_actions(
    policy: Policy, trials: LoggedTrials, encoding: Encoding, batched: bool | None = None
) -> None:
    """Raise unless a policy takes the logged actions, as often as its table says."""
    if trials.actions is None:
        told = "policy= is compared with actions, and the log has none: give actions, or no policy"
        raise InvalidInputError(told)
    action_space = _action_space(trials, policy)
    actor = make_actor(policy, encoding.space, action_space, batched)
    if callable(policy):
        rng = np.random.default_rng(0)  # an actor takes one; a function draws from its own
        for i, taken in enumerate(trials.actions):
            leaving = take(trials.observations[i], np.arange(len(taken)))
            answers = actor(leaving, rng)
            close = np.isclose(answers, taken, rtol=_RELATIVE, atol=_ABSOLUTE)
            same = np.asarray(close.reshape(len(taken), -1).all(axis=1))
            if not same.all():
                if not np.array_equal(actor(leaving, rng), answers):
                    return
                raise _never(trials, i, int(np.argmin(same)))
        return
    (A, first), table = discrete_actions(action_space), np.asarray(policy)
    probabilities = check_probabilities(np.eye(A)[table - first] if table.ndim == 1 else table)
    actions = np.concatenate(trials.actions)
    if not _are_numbers(actions):
        raise InvalidInputError(f"actions of a table are integers; got {trials.actions[0][:3]!r}")
    state = encoding.encode_table(np.concatenate([seen[:-1] for seen in trials.observations]))
    if not encoding.is_counted:  # a choice is one-hot
        state = state.argmax(axis=1)
    possible = ~are_none(actions, (A, first))
    number = np.where(possible, actions - first, 0).astype(np.int64)
    possible &= probabilities[state, number] > 0.0
    if not possible.all():
        raise _never(trials, *_place(trials.lengths, int(np.argmin(possible))))
    counts = np.bincount(state * A + number, minlength=probabilities.size).reshape(-1, A)
    seen = np.flatnonzero(counts.any(axis=1))
    n, observed, pi = counts[seen].sum(axis=1), counts[seen], probabilities[seen]
    taken = pi > 0.0
    inverse = np.divide(1.0, pi, out=np.zeros_like(pi), where=taken)
    k = taken.sum(axis=1)
    terms = ((observed - n[:, None] * pi) ** 2 * inverse).sum(axis=1) / n
    variance = 2.0 * (k - 1) + (inverse.sum(axis=1) - k**2 - 2.0 * k + 2.0) / n
    excess = terms.sum() - (k - 1).sum()
    if excess > _DEVIATIONS * np.sqrt(max(float(variance.sum()), 0.0)) and excess > 1.0:
        worst = int(np.argmax(terms - (k - 1)))
        told = f"the log's actions are not drawn by the policy: in state {seen[worst]} they are "
        told += f"{observed[worst].tolist()}, by {pi[worst].tolist()}"
        raise InvalidInputError(told)


def _never(trials: LoggedTrials, i: int, t: int) -> InvalidInputError:
    assert trials.actions is not None
    told = f"trial {i} takes action {trials.actions[i][t]} on observing "
    told += f"{take(trials.observations[i], t)} at timestep {t}, which the policy never does"
    return InvalidInputError(told)
