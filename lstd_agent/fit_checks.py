"""A fit before its checks: the trials, values and facts that these need of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.checks import (
    FEWEST_TRIALS,
    MIN_TRIALS,
    direct_difference,
    drawn_trials,
    trial_weights,
)
from lstd_agent.diagnostics import Diagnostics, FitFacts, diagnose
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.features.sizes import FeatureSizes
from lstd_agent.fit import Comparison, Fit, of_each
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.kept import NO_TIME, KeptTrials

# Fewer transitions do not show that a class of states is never left.
_ENOUGH_TRANSITIONS = 100

# Leaving out more of a window's samples may change what the others tell: it is by where they led.
_MOST_LEFT_OUT = 0.1

# So many trials are drawn from counts that were added without any.
_N_DRAWN = 2000


def check_single_class(source: Any, encoding: Encoding) -> None:
    """Raise if trials end up in more than one recurrent class: one gain is none of theirs."""
    classes = [
        found for found in source.recurrent_classes if found.n_transitions >= _ENOUGH_TRANSITIONS
    ]
    if len(classes) < 2:
        return
    names = []
    for found in classes[:5]:
        states = [str(encoding.decode(state)) for state in found.states[:5]]
        names.append("{" + ", ".join(states) + (", ..." if found.states.size > 5 else "") + "}")
    raise InvalidInputError(
        f"from timestep {(source.t_max + 1) // 2} on the trials stay in {len(classes)} "
        f"separate classes of states: {', '.join(names)}{', ...' if len(classes) > 5 else ''}. "
        "Gain and relative values need a single recurrent class: evaluate the classes one by "
        "one, or, if trials only take long to get from one to another, use a larger t_max"
    )


def check_own_trials(source: Any) -> None:
    """Raise if exploration leaves a timestep without a transition that is the policy's."""
    n_at = source.trials_at
    missing = np.flatnonzero(n_at == 0)
    if missing.size and (np.diff(n_at) > 0).any():
        raise InvalidInputError(
            f"all actions at timestep {missing[0]} were exploratory, so that nothing there is the "
            "policy's own: explore less, or collect trials without exploration too. Action values "
            "of counted observations do without a fit"
        )
    T = len(n_at)
    if T and not source.mean_durations[T // 2 :].any():
        raise InvalidInputError(NO_TIME)


def _mean_duration(source: Any) -> float:
    """Return the mean duration of a step in the tail, the second half of all timesteps."""
    tail = slice(len(source.trials_at) // 2, None)
    n = source.trials_at[tail]
    return float(source.mean_durations[tail] @ n / n.sum())


def diagnose_fit(fit: Fit) -> Diagnostics:
    """Return how far the fit may be relied on; ``print`` it."""
    source, system, encoding = fit.source, fit.system, fit.encoding
    states, gain, sparse = source.starts, fit.fitted.gain, fit.fitted.sparse
    neighborhood = system.neighborhood_at(np.zeros(len(states), dtype=np.int64))
    has_errors = fit.n_batches > 1 and not source.is_sparse
    others: tuple[str, ...] = ()
    if sparse is not None and (left_out := sparse[1].most_left_out).share > _MOST_LEFT_OUT:
        others = (str(left_out),)
    (trials, drawn), own = _trials_of(fit), _means_of_batches(fit)
    facts = FitFacts(
        gain=system.gain,
        gain_error=fit.jackknife.gain_error if has_errors else np.nan,
        gain_share=gain.share,
        mean_duration=_mean_duration(source),
        gain_rows=gain.rows,
        starts=[encoding.decode(state) for state in states],
        start_samples=of_each(fit.samples_of(states), neighborhood),
        start_determined=fit.states_determined(states, neighborhood),
        start_error=fit.jackknife.start_value_error if has_errors else np.nan,
        n_trials=source.n_trials,
        trials_at=source.trials_at,
        rank=system.rank,
        condition=system.condition,
        choice=fit.choice,
        features=_feature_sizes(fit),
        n_recurrent_classes=len(source.recurrent_classes) or None,
        others=others,
        drawn=drawn,
    )

    def values(states: Any, t: IntArray) -> FloatArray:
        return system.values(encoding.rows(states), system.neighborhood_at(t))

    how = values, encoding.features, encoding.decode, own if drawn else None, source.terminal
    return diagnose(trials, facts, states, *how)


def compare_returns(fit: Fit, a: Any, b: Any) -> Comparison:
    """Return how much more trials from a earned than those from b; see `Fit.compare`.

    Raises
    ------
    NotFittedError
        If no two trials start at, or close to, each of the observations.
    """
    (difference, error, known), n = _returns_of(fit, a, b)
    if np.any(fit.source.mean_durations != 1.0) and fit.n_batches > 1 and not fit.source.is_sparse:
        # Starts differ in the time that their trials take, by which the gain's error counts.
        off = fit.jackknife.gain_error
        (other, *_), _ = _returns_of(fit, a, b, fit.system.gain + off)
        error = float(np.hypot(error, other - difference))
    return Comparison(difference, error if known else np.inf, max(1, n - 1))


def _returns_of(
    fit: Fit, a: Any, b: Any, gain: float | None = None
) -> tuple[tuple[float, float, bool], int]:
    """Return the difference of returns, its error, and whether that is known; numbers of trials."""
    (trials, _), encoding = _trials_of(fit, gain), fit.encoding
    first, lengths = trials.observations[:, 0], trials.all_lengths
    # The longest run of timesteps that half of the trials have.
    T = max(1, int(np.sort(lengths)[len(lengths) // 2]))
    R = np.where(np.arange(T) < lengths[:, None], trials.rewards[:, :T], np.nan)
    of_a, of_b = (trial_weights(first, encoding.encode_any(each)[0]) for each in (a, b))
    _, kind = np.unique(first.reshape(len(first), -1), axis=0, return_inverse=True)
    difference, error, _, known = direct_difference(R, of_a, of_b, kind.ravel())
    if not np.isfinite(difference):
        raise NotFittedError(
            "compare(by='returns') needs at least two whole trials that start at, or close to, "
            "each of the observations: collect trials from these starts, or use by='fit'"
        )
    n = min(int(np.count_nonzero(side)) for side in (of_a, of_b))
    return (difference, error, known), n


def _trials_of(fit: Fit, gain: float | None = None) -> tuple[KeptTrials, bool]:
    """Return whole trials: kept, stored beside counts, or drawn from these; and whether drawn.

    Their rewards are what steps of mean duration would pay, r - g (τ - mean τ), by the fit's gain
    or another one: what checks know of rewards per step is then true of rewards and time.
    """
    source = fit.source
    gain, mean = fit.system.gain if gain is None else gain, _mean_duration(source)
    trials = source.whole_trials
    if trials is not None and (not source.are_places or trials.n_trials >= MIN_TRIALS):
        if trials.durations is not None:
            rewards = trials.rewards - gain * (trials.durations - mean)
            trials = replace(trials, rewards=rewards, durations=None)
        return trials, False
    counts = source.total
    n, rng = min(counts.n_trials, _N_DRAWN), np.random.default_rng(0)
    sums = _sums_of_rewards(counts, gain, mean)
    states, rewards = drawn_trials(counts.transition_counts, sums, n, rng)
    return KeptTrials(states, np.nan_to_num(rewards), np.isfinite(rewards).sum(axis=1)), True


def _sums_of_rewards(counts: TransitionCounts, gain: float, mean: float) -> Any:
    """Return the sums (t_max + 1, S) of what steps of mean duration would pay."""
    N, times = counts.transition_counts, counts.duration_sums
    if times is None:
        return counts.reward_sums
    where = np.repeat(np.arange(N.shape[0]), np.diff(N.indptr)), N.indices // counts.n_states
    visits = sparse.csr_array((N.data, where), shape=times.shape)
    return sparse.csr_array(counts.reward_sums - gain * (times - mean * visits))


def _means_of_batches(fit: Fit) -> FloatArray | None:
    """Return mean rewards of batches of counts, whose trials' own are not kept."""
    if not fit.source.are_places or len(fit.source.batches) < FEWEST_TRIALS:
        return None
    how = fit.system.gain, _mean_duration(fit.source)
    return np.stack(
        [
            _sums_of_rewards(batch, *how).sum(axis=1)
            / np.where(batch.trials_at, batch.trials_at, np.nan)
            for batch in fit.source.batches
        ]
    )


def _feature_sizes(fit: Fit) -> FeatureSizes:
    """Return those of the candidates that were seen."""
    source, rcond = fit.source, fit.options.rcond
    features = source.candidate_features
    if not source.are_places:  # all were seen
        return FeatureSizes.of(features, 2.0 * np.sqrt(rcond))
    seen = np.flatnonzero((fit.system.occupancy > 0.0).any(axis=0))
    return FeatureSizes.of(features[seen], rcond)
