"""Action values of an agent's policy: from its samples, its fit, and what it knows of actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.fit import Fit
from lstd_agent.system.action_values import (
    OPEN,
    PolicyChain,
    evaluate_actions,
    main_state,
)
from lstd_agent.system.pair_features import PairFeatureRows, PairFeatures
from lstd_agent.system.pair_fit import PairFit, Transitions, fit_pairs, regress_pairs
from lstd_agent.trials.action_counts import ActionCounts
from lstd_agent.trials.collector import TrialCollector
from lstd_agent.trials.encoding import CountedEncoding, Encoding, VectorEncoding
from lstd_agent.trials.kept_trials import KeptTrials

_NOT_FITTED = "the agent is not fitted yet: call fit first"

_NO_ACTIONS = (
    "the trials do not tell which actions were taken: collect(..., explore=k) records them, and "
    "takes k exploratory ones in each trial"
)


def action_values(
    collector: TrialCollector,
    fit: Fit | None,
    observations: Any,
    t: ArrayLike | None,
    pair_features: PairFeatures | None,
) -> FloatArray:
    """Return action values; see `SeminormLSTDAgent.action_values`."""
    encoding = _known(collector)
    states, shape = encoding.encode_any(observations)
    time = None if t is None else np.asarray(t)
    if time is not None and time.shape not in ((), shape):
        raise InvalidInputError(
            f"t is one timestep, or one for each of the observations {shape}; got shape "
            f"{time.shape}"
        )
    if isinstance(encoding, CountedEncoding):
        if pair_features is not None:
            raise InvalidInputError(
                "pair_features are of vectors, and counted observations have action values of "
                "their own: leave them out"
            )
        q = _counted(collector, fit, encoding, states, time)
    elif fit is None:
        raise NotFittedError(_NOT_FITTED)
    else:
        q = _of_vectors(collector, fit, states, time, pair_features)
    return q.reshape(*shape, q.shape[1])


def action_coverage(collector: TrialCollector, observations: Any) -> FloatArray:
    """Return numbers of transitions; see `SeminormLSTDAgent.action_coverage`."""
    encoding = _known(collector)
    states, shape = encoding.encode_any(observations)
    if isinstance(encoding, CountedEncoding):
        n = np.asarray(_counts(collector, encoding).n_samples, dtype=np.float64)[states]
    else:
        pairs = _pairs(collector, encoding, None)
        # Whatever they are worth: only how often pairs were seen is asked.
        fitted = regress_pairs([_transitions(collector)], pairs, lambda _: 0.0)
        n = fitted.n_samples(pairs(states))
    return n.reshape(*shape, n.shape[1])


def _known(collector: TrialCollector) -> Encoding:
    if collector.encoding is None or not collector.batches.sums:
        raise NotFittedError("there are no trials yet: call collect first")
    return collector.encoding


def _counts(collector: TrialCollector, encoding: CountedEncoding) -> ActionCounts:
    """Return what actions led to: as recorded, or as the states of a deterministic policy tell."""
    taken = collector.batches.taken
    if taken is not None:
        return taken
    policy: Any = collector.policy
    if policy is None or callable(policy) or np.ndim(policy) != 1 or collector.actions is None:
        raise NotFittedError(_NO_ACTIONS)
    n_actions, first = collector.actions
    counts, S = collector.counts, encoding.n_states
    actions = np.append(np.asarray(policy) - first, [0] * (S - encoding.n)).astype(np.int64)
    N, R = counts.transition_counts, counts.reward_sums
    rewards = np.bincount(R.indices, weights=R.data, minlength=S).astype(np.float64)
    state, next_state = np.divmod(N.indices.astype(np.int64), S)
    living = state != (encoding.terminal if encoding.ends else -1)
    moves = state[living], next_state[living]
    return ActionCounts.of_policy(n_actions, actions, moves, N.data[living], rewards)


def _counted(
    collector: TrialCollector,
    fit: Fit | None,
    encoding: CountedEncoding,
    states: IntArray,
    t: IntArray | None,
) -> FloatArray:
    counts = _counts(collector, encoding)
    policy = _probabilities(collector, encoding, counts.n_actions)
    if t is None and policy is not None:
        if encoding.ends:
            found = evaluate_actions(counts, policy, encoding.terminal, 0.0)
        elif fit is not None:
            main = fit.system.references.main
            found = evaluate_actions(counts, policy, main, fit.system.gain)
        else:
            found = evaluate_actions(counts, policy, _main_of(counts, policy))
        return found.action_values[states]
    if fit is None:
        raise NotFittedError(_NOT_FITTED)
    following = None if t is None else np.unique(t + 1)
    return _one_backup(counts, fit, encoding, states, following, t)


def _main_of(counts: ActionCounts, policy: FloatArray) -> int:
    n = np.asarray(counts.n_samples, dtype=np.float64)
    seen = np.where(n > 0, policy, 0.0)
    chain = PolicyChain(counts.transition_matrix, counts.mean_rewards, seen)
    visited = n.sum(axis=1)
    return main_state(chain, visited)


def _probabilities(
    collector: TrialCollector, encoding: CountedEncoding, n_actions: int
) -> FloatArray | None:
    """Return the policy as probabilities (S, A), if it is a table."""
    policy = collector.policy
    if policy is None or callable(policy):
        return None
    table = np.asarray(policy)
    if table.ndim == 1:
        assert collector.actions is not None
        table = np.eye(n_actions)[table - collector.actions[1]]
    ended = np.zeros((encoding.n_states - encoding.n, n_actions))
    return np.concatenate((table.astype(np.float64), ended))


def _one_backup(
    counts: ActionCounts,
    fit: Fit,
    encoding: CountedEncoding,
    states: IntArray,
    following: IntArray | None,
    t: IntArray | None,
) -> FloatArray:
    """Return r - g + E v(s') with the fitted values of successors, at the timesteps asked for."""
    P, rewards, n = counts.transition_matrix, counts.mean_rewards, counts.n_samples
    every = np.arange(encoding.n)
    n_ends = encoding.n_states - encoding.n

    def backup(time: int | None) -> FloatArray:
        if time is None:
            samples = fit.occupancy_of(every) * np.maximum(fit.system.n_samples, 1)[:, None]
            neighborhood: IntArray = np.argmax(samples, axis=0)
        else:
            neighborhood = fit.system.neighborhood_at(np.full(len(every), time))
        values = fit.system.values(encoding.features(every), neighborhood)
        values = np.append(values, [0.0] * n_ends)
        told = np.append(fit.states_determined(every, neighborhood), [True] * n_ends)
        share = (P @ told.astype(np.float64)).reshape(rewards.shape)
        mean = (P @ np.where(told, values, 0.0)).reshape(rewards.shape)
        q = rewards - fit.system.gain + mean / np.where(share > 0.0, share, 1.0)
        return np.where((n > 0) & (share >= 1.0 - OPEN), q, np.nan)

    if following is None or t is None:
        return backup(None)[states]
    each = np.broadcast_to(t + 1, states.shape)
    q = np.empty((len(states), counts.n_actions))
    for time in following.tolist():
        q[each == time] = backup(time)[states[each == time]]
    return q


def _transitions(collector: TrialCollector) -> Transitions:
    """Return the kept trials of which actions are known."""
    total = collector.batches.total
    if not isinstance(total, KeptTrials):
        raise NotFittedError(
            "trials were condensed into moments, which do not tell actions: collect again, within "
            "max_bytes"
        )
    if total.actions is None:
        raise NotFittedError(_NO_ACTIONS)
    known: BoolArray = total.actions >= 0
    if total.lengths is not None:
        known = known & (np.arange(total.t_max + 1) < total.lengths[:, None])
    explored = np.zeros_like(known) if total.explored is None else total.explored
    actions = np.maximum(total.actions, 0)
    return Transitions(total.observations, actions, total.rewards, known, explored)


def _pairs(
    collector: TrialCollector, encoding: VectorEncoding, features: PairFeatures | None
) -> PairFeatureRows:
    if collector.actions is None:
        raise NotFittedError(_NO_ACTIONS)
    return PairFeatureRows(encoding, collector.actions[0], features)


def _of_vectors(
    collector: TrialCollector,
    fit: Fit,
    states: Any,
    t: IntArray | None,
    features: PairFeatures | None,
) -> FloatArray:
    encoding = fit.encoding
    assert isinstance(encoding, VectorEncoding)
    transitions = _transitions(collector)
    pairs = _pairs(collector, encoding, features)
    asked = pairs(states)
    if t is None:
        fitted = fit_pairs([transitions], pairs, fit.system.gain)
        q = fitted.values(asked)
        if not encoding.ends:
            q = q - _settled_value(transitions, pairs, fitted)
        return np.where(fitted.seen(asked), q, np.nan)
    each = np.broadcast_to(t + 1, (len(states),))
    q = np.empty(asked.shape[:2])
    for time in np.unique(each).tolist():
        k = int(fit.system.neighborhood_at(np.array([time]))[0])

        def value(following: Any, k: int = k) -> FloatArray:
            rows = encoding.features(following)
            values = fit.system.values(rows, np.full(len(rows), k))
            ended = np.isnan(np.asarray(following, dtype=np.float64)).any(axis=1)
            return np.where(ended, 0.0, values)

        fitted = regress_pairs([transitions], pairs, value, fit.system.gain)
        here = each == time
        q[here] = np.where(fitted.seen(asked[here]), fitted.values(asked[here]), np.nan)
    return q


def _settled_value(transitions: Transitions, pairs: PairFeatureRows, fitted: PairFit) -> float:
    """Return the mean value of the second half of all timesteps, where actions are the policy's."""
    half = transitions.actions.shape[1] // 2
    states, action = transitions.states[:, half:-1], transitions.actions[:, half:]
    own = np.ones(action.shape, dtype=bool)
    if transitions.known is not None and transitions.explored is not None:
        own = (transitions.known & ~transitions.explored)[:, half:]
    place = np.flatnonzero(own)
    place = place[:: max(1, len(place) // _N_SETTLED)]
    rows = pairs(states.reshape(-1, states.shape[2])[place])
    return float(fitted.values(rows)[np.arange(len(place)), action.ravel()[place]].mean())


# As many observations are enough for a mean value of the long run.
_N_SETTLED = 20_000
