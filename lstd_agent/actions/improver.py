"""Improvement of a policy by the samples of this and other policies.

The outcome of an action does not depend on the policy, so samples of earlier policies stay useful.
An action replaces another where its advantage q(s, a) - q(s, π(s)) exceeds a number of its standard
errors. For counted states, the policy is evaluated and improved on the same counts until nothing
changes, and only then run. For vectors, all trials are kept and fitted again for each policy; such
a policy is a sequence of fits, each of which improves on the fits before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lstd_agent.actions import pair_equations as lstdq
from lstd_agent.actions.chain_values import ActionValues, PolicyChain
from lstd_agent.actions.record import Undecided, earned, means_of
from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.trials.counts import ActionCounts
from lstd_agent.trials.kept import KeptTrials, check_timed
from lstd_agent.trials.policies import ActionNumbers
from lstd_agent.trials.recording import Recording

Judged: TypeAlias = tuple[list[Undecided], list[str]]
"""The undecided actions, and how sure the policy's actions are, as lines of text."""

UNKNOWN = -1  # stands for the action where the policy has none

# An action is decided if it is worse than the policy's by this many standard errors; number of
# undecided pairs that an account shows; of observations at which a policy of vectors is judged; of
# rounds of policy iteration on counts, which ends after a few, unless noise makes it cycle.
_TOLD, _SHOWN, _N_STATES, _MOST_ROUNDS = 3.0, 5, 1000, 100


def better_actions(
    q: FloatArray,
    actions: IntArray,
    n_errors: float,
    error: Callable[[tuple[IntArray, ...]], FloatArray],
    rounding: float = 0.0,
) -> IntArray:
    """Return an action for each row of action values (n, A): a better one, or the same.

    An action is better if its advantage exceeds ``rounding`` and ``n_errors`` standard errors,
    given by ``error`` for rows and actions. If the policy has no action, it is the action with the
    largest known value.
    """
    known, enough = actions != UNKNOWN, np.zeros(q.shape, dtype=bool)
    advantage = q - q[np.arange(len(q)), np.maximum(actions, 0)][:, None]
    some = np.nonzero(known[:, None] & (advantage > rounding))
    enough[some] = advantage[some] > n_errors * error(some) + rounding
    better = np.where(
        enough.any(axis=1), np.argmax(np.where(enough, advantage, -np.inf), axis=1), actions
    )
    new = ~known & ~np.isnan(q).all(axis=1)
    better[new] = np.nanargmax(q[new], axis=1)
    return better


@dataclass(frozen=True, eq=False)
class ImprovedPolicy:
    """Takes the actions (from 0) of a rule for encoded observations, or the first for unknown."""

    encoding: Any
    first_action: int
    rule: Callable[[States], IntArray]

    def __call__(self, observations: Any) -> IntArray:
        """Return the task's actions (n,) for a batch."""
        return np.maximum(self.rule(self.encoding.encode(observations)), 0) + self.first_action

    def is_unknown(self, observations: Any) -> BoolArray:
        """Return for which of a batch the rule has no action."""
        return np.asarray(self.rule(self.encoding.encode(observations)) == UNKNOWN)


@dataclass(frozen=True, eq=False)
class Fits:
    """The rule of vectors: each fit improves on the fits before it."""

    pairs: lstdq.PairFeatureRows
    fits: tuple[lstdq.PairFit, ...]
    n_errors: float

    def __call__(self, states: States) -> IntArray:
        """Return actions (n,), unknown where no similar state was seen."""
        return self.of(self.pairs(states)) if self.fits else np.full(len(states), UNKNOWN)

    def of(self, f: FloatArray, actions: IntArray | None = None, first: int = 0) -> IntArray:
        """Return actions by features (n, A, D): given ones, improved by fits from ``first`` on."""
        taken = np.full(len(f), UNKNOWN) if actions is None else actions
        for fit in self.fits[first:]:
            error = partial(fit.advantage_errors, f, taken)
            taken = better_actions(fit.values(f), taken, self.n_errors, error)
        return taken


class Improver:
    """A policy, and the samples of this and earlier policies that improve it."""

    few_changes = 0
    """A search ends when at most so many states change their actions."""

    if TYPE_CHECKING:  # defined for counts and for vectors

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, encoding: Any, actions: ActionNumbers, n_errors: float) -> None:
        self.encoding, self.n_errors = encoding, n_errors
        self.numbers = self.n_actions, self.first_action = actions

    def reduced(self, trials: KeptTrials) -> Any:
        """Return the kept part of trials; of vectors, all."""
        return trials

    def policy(self, snapshot: IntArray | None = None) -> Any:
        """Return the policy, or a snapshot's, as `SeminormLSTDAgent.collect` takes it.

        It is an array of actions (S,) for Discrete observations, or else a function of batches.
        """
        rule = self._rule(snapshot)
        if self.encoding.is_counted and self.encoding.is_discrete:
            return np.maximum(rule(np.arange(self.encoding.n)), 0) + self.first_action
        return ImprovedPolicy(self.encoding, self.first_action, rule)

    def unknown(self) -> Callable[[Any], BoolArray] | None:
        """Return the function that says for which observations the policy has no action, if any."""
        if self.encoding.is_counted and (self.actions[: self.encoding.n] != UNKNOWN).all():
            return None
        return ImprovedPolicy(self.encoding, self.first_action, self._rule(None)).is_unknown

    def judged(self) -> Judged:
        """Return the undecided actions, and how sure the policy's actions are."""
        # Of visited states: the policy's actions, action values (n, A), NaN if not known, standard
        # errors of their differences, and tried actions. Numbers up to ``rounding`` count as 0.
        states, taken, q, errors, tried, rounding = self._known()
        difference = q - q[np.arange(len(q)), taken][:, None]
        difference[np.abs(difference) <= rounding] = 0.0
        errors = np.where(np.isnan(difference), np.inf, errors * (errors > rounding))
        exact, others = errors == 0.0, np.arange(q.shape[1]) != taken[:, None]
        worse_by = np.nan_to_num(-difference / np.where(exact, 1.0, errors))
        worse_by[exact] = np.where(difference <= 0.0, np.inf, -np.inf)[exact]
        undecided = []
        for i, a in np.argwhere(others & ((worse_by < _TOLD) | ~tried)).tolist():
            names = self.first_action + a, self.first_action + int(taken[i])
            worth = float(difference[i, a]), float(errors[i, a])
            undecided.append(Undecided(self.encoding.decode(states[i]), *names, *worth))
        told_by = np.where(others & tried, worse_by, np.inf).min(axis=1, initial=np.inf)
        told = told_by[told_by >= _TOLD]
        lines = [f"best actions decided in {len(told)} of {len(taken)} states that were met"]
        if len(finite := told[np.isfinite(told)]):
            half = f"(half of them by {np.median(finite):.1f})"
            lines[0] += f", by {finite.min():.1f} standard errors or more {half}"
        known = [each for each in undecided if np.isfinite(each.standard_error)]
        pairs = [each for each in known if each.difference < _TOLD * each.standard_error]
        if n_better := len(known) - len(pairs):
            lines.append(f"pairs that are better than the policy's, to be taken: {n_better}")
        if pairs:
            lines.append(f"undecided pairs, by {_TOLD:g} standard errors: {len(pairs)}")
            pairs.sort(key=lambda each: -each.difference / each.standard_error)
            lines += [f"  {each}" for each in pairs[:_SHOWN]]
            lines += ["  ..."] if len(pairs) > _SHOWN else []
        if n_untried := np.count_nonzero(~tried):
            lines.append(f"pairs that were never tried, or do not exist: {n_untried}")
        return undecided, lines


class CountedImprover(Improver):
    """A policy of counted states, improved by counts: actions (S,) from 0, at first unknown."""

    def __init__(
        self, encoding: Any, actions: ActionNumbers, n_errors: float, policy: IntArray | None
    ) -> None:
        super().__init__(encoding, actions, n_errors)
        S = encoding.n_states
        self.actions = np.full(S, UNKNOWN) if policy is None else policy
        self.counts = ActionCounts.none(S, self.n_actions)  # of all behaviours so far
        self.starts: FloatArray = np.zeros(S)  # in how many trials each state was the first

    def reduced(self, trials: KeptTrials) -> tuple[ActionCounts, FloatArray]:
        """Return the counts and starts of trials."""
        counts = Recording(self.encoding, 1, self.n_actions).by_action(trials)
        starts = np.bincount(trials.observations[:, 0], minlength=len(self.actions))
        return counts, starts.astype(np.float64)

    def add(self, rounds: Sequence[Any], figures: dict[str, float]) -> None:
        """Add trials of any policy, as `reduced` returns them."""
        self.counts = reduce(add, [counts for counts, _ in rounds], self.counts)
        self.starts = self.starts + np.sum([starts for _, starts in rounds], axis=0)

    def evaluate(self, starts: IntArray | None = None) -> ActionValues:
        """Return the action values of the policy by all counts.

        Where it has no action, it takes actions with their frequencies. Values are relative to the
        recurrent class of the largest gain, or to one that starts lead to.
        """
        n = np.asarray(self.counts.n_samples, dtype=np.float64)
        policy = n / np.maximum(n.sum(axis=1, keepdims=True), 1.0)
        known = np.flatnonzero(self.actions != UNKNOWN)
        policy[known] = np.eye(self.n_actions)[self.actions[known]]
        chained = PolicyChain(self.counts, policy)
        if self.encoding.ends:
            return ActionValues(chained, self.encoding.terminal, 0.0)
        return ActionValues(chained, chained.main_state(starts))

    def evaluate_start(self) -> tuple[float, float]:
        """Return the policy's gain, and its mean bias of the start, NaN if not determined."""
        started = np.flatnonzero(self.starts)
        found = self.evaluate(started)
        mean = np.average(found.values[started], weights=self.starts[started])
        return found.gain, float(mean - found.settled_value)

    def improve(self) -> int:
        """Improve the policy until nothing changes; return in how many states it changed."""
        before = self.actions
        for _ in range(_MOST_ROUNDS):
            found, own, taken = self.evaluate(), self.actions, np.maximum(self.actions, 0)
            q, errors, leading = found.action_values, found.standard_errors, found.leading(taken)
            error = np.hypot(errors, errors[np.arange(len(q)), taken][:, None]).__getitem__
            better = better_actions(q, own, self.n_errors, error, found.rounding)
            self.actions = np.where((own != UNKNOWN) & (leading != taken), leading, better)
            if np.array_equal(self.actions, own):
                break
        return int(np.count_nonzero(before != self.actions))

    def _known(self) -> tuple[Any, ...]:
        found, taken, n = self.evaluate(), np.maximum(self.actions, 0), self.counts.n_samples
        met = np.flatnonzero((self.actions != UNKNOWN) & (n.sum(axis=1) > 0))
        q, errors = found.action_values[met], found.advantage_errors(taken)[met]
        return met, taken[met], q, errors, n[met] > 0, found.rounding

    def action_values(self, states: IntArray) -> FloatArray:
        """Return the policy's action values, shape (m, A)."""
        return self.evaluate().action_values[states]

    def snapshot(self) -> IntArray:
        """Return the actions of the policy."""
        return self.actions.copy()

    @property
    def samples(self) -> tuple[ActionCounts, FloatArray, IntArray]:
        """What a file holds of the improver."""
        return self.counts, self.starts, self.actions

    def restore(self, counts: ActionCounts, starts: FloatArray, actions: IntArray) -> None:
        """Take the samples of a saved search."""
        self.counts, self.starts, self.actions = counts, starts, actions

    def _rule(self, snapshot: IntArray | None) -> Callable[[States], IntArray]:
        return partial(np.take, self.actions if snapshot is None else snapshot)


class VectorImprover(Improver):
    """A policy of vectors, improved by kept trials, in several rounds for each iteration."""

    few_changes = _N_STATES // 100

    def __init__(
        self, encoding: Any, actions: ActionNumbers, n_errors: float, features: Any
    ) -> None:
        super().__init__(encoding, actions, n_errors)
        self.rounds: list[tuple[KeptTrials, ...]] = []
        self.fits: tuple[lstdq.PairFit, ...] = ()
        self.fit: Any = None
        self._pairs = lstdq.PairFeatureRows(encoding, self.n_actions, features)
        self._gain = 0.0, 0.0  # with its standard error
        # Actions in all next states of each portion of trials, and by how many fits.
        self._following: list[IntArray] = []
        self._n_followed = 0

    def add(self, rounds: Sequence[KeptTrials], figures: dict[str, float]) -> None:
        """Add trials of the policy, and their mean rewards."""
        for kept in rounds:
            if not self.encoding.is_measured:
                self.encoding.measure(kept.observations)
            check_timed((self._portions or rounds)[0].durations is not None, kept.durations)
        # Where the policy has no action, the taken action replaces it.
        self.rounds.append(tuple(replace(kept, explored=None) for kept in rounds))
        if not self.encoding.ends:
            # The second half has no exploration: it shows the policy's own gain.
            self._gain = figures["tail_reward"], figures["tail_error"]

    @property
    def _portions(self) -> list[KeptTrials]:
        """All trials so far."""
        return list(chain.from_iterable(self.rounds))

    def evaluate(self) -> lstdq.PairFit:
        """Return the action values of the policy by all trials."""
        rule, portions, n_old = self._rule(None), self._portions, len(self._following)
        self._following += [np.full(each.rewards.shape, UNKNOWN) for each in portions[n_old:]]
        followed = list(zip(portions, self._following, strict=True))
        for i, (portion, actions) in enumerate(followed):
            for block, part in lstdq.parts_of(portion, self._pairs):
                seen = part.observations[:, 1:]
                features = self._pairs(seen.reshape(-1, seen.shape[2]))
                first = self._n_followed if i < n_old else 0
                better = rule.of(features, actions[block].ravel(), first)
                actions[block] = better.reshape(part.rewards.shape)
        self._n_followed = len(self.fits)

        def rows() -> Iterator[lstdq.Rows]:
            for portion, actions in followed:
                yield from lstdq.pair_rows(portion, self._pairs, actions)

        return lstdq.PairEquations(lstdq.factor_of_pairs(rows())).fit(rows(), *self._gain)

    def evaluate_start(self) -> tuple[float, float]:
        """Return the policy's gain, and its mean bias of the start."""
        self.fit = self.evaluate()
        latest = self._portions[-1].observations
        start = self._mean_value(np.concatenate([p.observations[:, 0] for p in self._portions]))
        if self.encoding.ends:
            return 0.0, start
        tail = latest[:, latest.shape[1] // 2 : -1].reshape(-1, latest.shape[2])
        every = max(1, len(tail) // lstdq.N_SETTLED)
        return self._gain[0], start - self._mean_value(tail[::every])

    def _mean_value(self, states: States) -> float:
        """Return the mean value of states; without an action of the policy, over all actions."""
        features = self._pairs(states)
        q, action = features @ self.fit.weights, self._rule(None).of(features)
        own = q[np.arange(len(q)), np.maximum(action, 0)]
        return float(np.where(action == UNKNOWN, q.mean(axis=1), own).mean())

    def improve(self) -> int:
        """Improve the policy; return for how many of 1000 observations the action changed."""
        features = self._pairs(self._some_states())
        before = self._rule(None).of(features)
        self.fits = (*self.fits, self.fit)
        return round(_N_STATES * float((before != self._rule(None).of(features)).mean()))

    def _known(self) -> tuple[Any, ...]:
        fit, states = self.evaluate(), np.unique(self._some_states(), axis=0)
        features = self._pairs(states)
        actions = self._rule(None).of(features)
        met = actions != UNKNOWN
        states, features, actions = states[met], features[met], actions[met]
        q, taken = fit.values(features), features[np.arange(len(actions)), actions][:, None]
        return states, actions, q, fit.standard_errors(features - taken), ~np.isnan(q), 0.0

    def _some_states(self) -> States:
        """Return states spread over all trials and timesteps alike."""
        seen = (portion.observations for portion in self._portions)
        states = np.concatenate([x[:, :-1].reshape(-1, x.shape[2]) for x in seen])
        states = states[np.isfinite(np.asarray(states, dtype=np.float64)).all(axis=1)]
        some: States = states[np.linspace(0, len(states) - 1, _N_STATES).astype(np.int64)]
        return some

    def action_values(self, states: States) -> FloatArray:
        """Return the action values of the last evaluated policy, shape (m, A)."""
        found: FloatArray = self.fit.values(self._pairs(states))
        return found

    def snapshot(self) -> IntArray:
        """Return the number of the policy's fits."""
        return np.array(len(self.fits))

    @property
    def samples(self) -> tuple[tuple[KeptTrials, ...], ...]:
        """The trials of each iteration, from which all fits follow."""
        return tuple(self.rounds[: len(self.fits)])

    def restore(self, *samples: tuple[KeptTrials, ...]) -> None:
        """Take the samples of a saved search, and fit them again."""
        for rounds in samples:
            self.add(rounds, earned([means_of(kept) for kept in rounds]))
            self.evaluate_start()
            self.improve()

    def _rule(self, snapshot: IntArray | None) -> Fits:
        fits = self.fits if snapshot is None else self.fits[: int(snapshot)]
        return Fits(self._pairs, fits, self.n_errors)
