"""Improvement where observations are vectors: least-squares policy iteration for the bias.

The trials themselves are kept, and their transitions, whoever chose the actions, are fitted anew
for each policy by `lstd_agent.system.pair_fit`. A policy takes another action than the one before
it where the advantage of that exceeds so many of its standard errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.improvement.record import Earned
from lstd_agent.system.pair_features import PairFeatureRows, PairFeatures
from lstd_agent.system.pair_fit import PairFit, Transitions, fit_pairs
from lstd_agent.trials.encoding import VectorEncoding
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.recording import Recording

# Changes are looked for at so many observations.
_N_SAMPLES = 1000

# Features of about this many numbers are held at a time.
_CHUNK_SIZE = 2**21

# As many observations are enough for a mean value of the long run.
_N_SETTLED = 20_000


@dataclass(frozen=True, eq=False)
class VectorPolicy:
    """Takes better actions than the policy before, by one fit of action values after another.

    Fits know actions from 0 on, and -1 where nothing like an observation was seen.
    """

    encoding: VectorEncoding
    pairs: PairFeatureRows
    fits: tuple[PairFit, ...]
    n_errors: float
    first_action: int

    def __call__(self, observations: Any) -> IntArray:
        """Return the task's actions (n,) for a batch; the first where nothing like it was seen."""
        return np.maximum(self._chosen(observations), 0) + self.first_action

    def is_unknown(self, observations: Any) -> BoolArray:
        """Return of a batch whether nothing like it was seen."""
        return self._chosen(observations) < 0

    def _chosen(self, observations: Any) -> IntArray:
        states = self.encoding.encode(observations)
        if not self.fits:  # features may not be known yet
            return np.full(len(states), -1)
        return self.actions(self.pairs(states))

    def actions(self, features: FloatArray) -> IntArray:
        """Return actions (n,) of features (n, A, D)."""
        return self.better_than(np.full(len(features), -1), features, 0)

    def better_than(self, action: IntArray, features: FloatArray, first: int) -> IntArray:
        """Return what the fits from number ``first`` on make of actions (n,)."""
        row = np.arange(len(features))
        for fit in self.fits[first:]:
            q = np.where(fit.seen(features), fit.values(features), -np.inf)
            best = np.argmax(q, axis=1)
            taken = np.maximum(action, 0)
            known, here, there = action >= 0, q[row, taken], q[row, best]
            compared = np.flatnonzero(known & (best != taken) & np.isfinite(here))
            a, b = taken[compared], best[compared]
            error = fit.standard_errors(features[compared, b] - features[compared, a])
            better = np.zeros(len(row), dtype=bool)
            better[compared] = there[compared] - here[compared] > self.n_errors * error
            action = np.where(better | (~known & np.isfinite(there)), best, action)
        return action


@dataclass(frozen=True, eq=False)
class VectorSamples:
    """What a file holds of a policy that is improved by trials: those of each iteration."""

    rounds: tuple[tuple[KeptTrials, ...], ...]


class VectorImprover:
    """A policy of vectors, improved by kept trials.

    Parameters
    ----------
    encoding : VectorEncoding
    n_actions, first_action : int
    n_errors : float
        By how many standard errors an action has to be better.
    pair_features : callable, optional
    """

    few_changes = 10
    """A search is over where no more observations than so many change their actions."""

    def __init__(
        self,
        encoding: VectorEncoding,
        n_actions: int,
        first_action: int,
        n_errors: float,
        pair_features: PairFeatures | None,
    ) -> None:
        self.encoding = encoding
        self.portions: list[Transitions] = []
        # How many of them each fit had.
        self._n_portions: list[int] = []
        self.fits: tuple[PairFit, ...] = ()
        self.n_errors = n_errors
        self.fit: PairFit | None = None
        self._pairs = PairFeatureRows(encoding, n_actions, pair_features)
        self._n_actions, self._first_action = n_actions, first_action
        self._gain = np.nan
        # Actions of the policy made by so many fits in the states that follow, by portion.
        self._following: list[IntArray] = []
        self._n_followed = 0

    def recording(self, t_max: int) -> Recording:
        """Return how trials are recorded: they are kept."""
        return Recording(self.encoding)

    def add(self, rounds: Sequence[KeptTrials]) -> Earned:
        """Add trials of the policy; return what they earned."""
        rewards = []
        for kept in rounds:
            assert kept.actions is not None
            self.encoding.measure(kept.observations)
            self.portions.append(Transitions(kept.observations, kept.actions, kept.rewards))
            rewards.append(kept.rewards)
        paid = np.concatenate(rewards)
        tail = paid[:, paid.shape[1] // 2 :].mean(axis=1)
        # The settled tail is the policy's own, exploration apart.
        self._gain = 0.0 if self.encoding.ends else float(tail.mean())
        return Earned(tail, paid.mean(axis=1))

    def evaluate_start(self) -> tuple[float, float]:
        """Return the policy's gain, and its mean bias of the start."""
        self._update_following()
        self.fit = fit_pairs(self.portions, self._pairs, self._gain, self._following)
        latest = self.portions[-1].states
        start = self._mean_value(np.concatenate([p.states[:, 0] for p in self.portions]))
        if self.encoding.ends:
            return 0.0, start
        tail = latest[:, latest.shape[1] // 2 : -1].reshape(-1, latest.shape[2])
        every = max(1, len(tail) // _N_SETTLED)
        return self._gain, start - self._mean_value(tail[::every])

    def _update_following(self) -> None:
        """Bring the policy's actions in all states that follow up to the latest fit."""
        policy, known = self.policy(), len(self._following)
        for i, portion in enumerate(self.portions):
            m, n, k = portion.states.shape
            first, actions = 0, np.full((m, n - 1), -1)
            if i < known:
                first, actions = self._n_followed, self._following[i]
            step = max(1, _CHUNK_SIZE // (n * self._pairs(portion.states[:1, 0]).size))
            updated = np.empty_like(actions)
            for start in range(0, m, step):
                block = slice(start, start + step)
                rows = self._pairs(portion.states[block, 1:].reshape(-1, k))
                better = policy.better_than(actions[block].ravel(), rows, first)
                updated[block] = better.reshape(-1, n - 1)
            self._following[i : i + 1] = [updated]
        self._n_followed = len(self.fits)

    def _mean_value(self, states: States) -> float:
        """Return the mean value of states under the policy, all actions alike where it has none."""
        assert self.fit is not None
        features = self._pairs(states)
        q = self.fit.values(features)
        action = self.policy().actions(features)
        value = np.where(action >= 0, q[np.arange(len(q)), np.maximum(action, 0)], q.mean(axis=1))
        return float(value.mean())

    def improve(self) -> int:
        """Improve the policy; return of how many of 1000 observations the action changed."""
        assert self.fit is not None
        before = self.policy()
        self.fits = (*self.fits, self.fit)
        self._n_portions.append(len(self.portions))
        features = self._pairs(self._some_states())
        changed = before.actions(features) != self.policy().actions(features)
        return round(_N_SAMPLES * float(changed.mean()))

    def _some_states(self) -> States:
        """Return states spread over all trials and timesteps alike."""
        states = np.concatenate(
            [p.states[:, :-1].reshape(-1, p.states.shape[2]) for p in self.portions]
        )
        states = states[np.isfinite(np.asarray(states, dtype=np.float64)).all(axis=1)]
        some: States = states[np.linspace(0, len(states) - 1, _N_SAMPLES).astype(np.int64)]
        return some

    def action_values(self, states: States) -> FloatArray:
        """Return the action values of the policy that was evaluated last, shape (m, A)."""
        if self.fit is None:
            raise NotFittedError("there are no action values yet: call run first")
        features = self._pairs(states)
        return np.where(self.fit.seen(features), self.fit.values(features), np.nan)

    def snapshot(self) -> IntArray:
        """Return how many fits make the policy."""
        return np.array(len(self.fits))

    @property
    def samples(self) -> VectorSamples:
        """What a file holds: trials, from which all fits follow."""
        held = [KeptTrials(p.states, p.rewards, actions=p.actions) for p in self.portions]
        edges = [0, *self._n_portions]
        rounds = [tuple(held[a:b]) for a, b in pairwise(edges)]
        return VectorSamples(tuple(rounds))

    def restore(self, samples: Any, tried: Sequence[IntArray]) -> None:
        """Take the trials of a saved search, and improve the policy by them as it did.

        Raises
        ------
        InvalidInputError
            If they are not of these observations and actions.
        """
        if not isinstance(samples, VectorSamples):
            raise InvalidInputError("its samples are not trials of vectors")
        for rounds in samples.rounds:
            for kept in rounds:
                self.encoding.encode_logged(kept.observations)
                n = self._n_actions
                if kept.actions is None or kept.actions.min() < 0 or kept.actions.max() >= n:
                    raise InvalidInputError(f"its actions are not all from 0 to {n - 1}")
            self.add(rounds)
            self.evaluate_start()
            self.improve()
        for each in tried:
            if each.shape != () or each.dtype.kind != "i" or not 0 <= each <= len(self.fits):
                raise InvalidInputError(f"a policy of {len(self.fits)} fits is not {each}")

    def policy(self, snapshot: IntArray | None = None) -> VectorPolicy:
        """Return the policy, or that of a snapshot, as a function of batches."""
        fits = self.fits if snapshot is None else self.fits[: int(snapshot)]
        return VectorPolicy(self.encoding, self._pairs, fits, self.n_errors, self._first_action)

    def unknown(self) -> Callable[[Any], BoolArray] | None:
        """Return what tells of a batch of observations for which the policy has no action."""
        return self.policy().is_unknown
