"""Improvement where observations are vectors: least-squares policy iteration for the bias.

The trials themselves are kept, and their transitions, whoever chose the actions, are fitted anew
for each policy by `lstd_agent.actions.vector_pairs`. A policy takes another action than the policy
before it where the advantage of that action exceeds so many of its standard errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from lstd_agent.actions.advantages import UNKNOWN, Advantages, better_actions
from lstd_agent.actions.pair_rows import (
    PairFeatureRows,
    PairFeatures,
    Rows,
    pairs_and_next,
    parts_of,
)
from lstd_agent.actions.record import Earned
from lstd_agent.actions.vector_pairs import PairEquations, PairFit
from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.trials.kept import KeptTrials, check_both_timed
from lstd_agent.trials.recording import Recording

# Changes are looked for at so many observations.
_N_SAMPLES = 1000

# As many observations are enough for a mean value of the long run.
_N_SETTLED = 20_000


@dataclass(frozen=True, eq=False)
class VectorPolicy:
    """Takes better actions than the policy before, by one fit of action values after another.

    Fits know actions from 0 on, and `UNKNOWN` where nothing like an observation was seen.
    """

    encoding: Any
    pairs: PairFeatureRows
    fits: tuple[PairFit, ...]
    n_errors: float
    first_action: int

    def __call__(self, observations: Any) -> IntArray:
        """Return the task's actions (n,) for a batch; the first where nothing like it was seen."""
        return np.maximum(self._chosen(observations), 0) + self.first_action

    def is_unknown(self, observations: Any) -> BoolArray:
        """Return of a batch whether nothing like it was seen."""
        return np.asarray(self._chosen(observations) == UNKNOWN)

    def _chosen(self, observations: Any) -> IntArray:
        states = self.encoding.encode(observations)
        if not self.fits:  # features may not be known yet
            return np.full(len(states), UNKNOWN)
        return self.actions(self.pairs(states))

    def actions(self, features: FloatArray) -> IntArray:
        """Return actions (n,) of features (n, A, D)."""
        return self.better_than(np.full(len(features), UNKNOWN), features, 0)

    def better_than(self, actions: IntArray, features: FloatArray, first: int) -> IntArray:
        """Return what the fits from number ``first`` on make of actions (n,)."""
        for fit in self.fits[first:]:
            error = partial(_advantage_errors, fit, features, actions)
            actions = better_actions(fit.values(features), actions, self.n_errors, error)
        return actions


def _advantage_errors(
    fit: PairFit, features: FloatArray, actions: IntArray, row: IntArray, other: IntArray
) -> FloatArray:
    """Return standard errors (m,) of advantages over actions (n,) in rows (m,)."""
    return fit.standard_errors(features[row, other] - features[row, actions[row]])


@dataclass(frozen=True, eq=False)
class VectorSamples:
    """What a file holds of a policy that is improved by trials: those of each iteration."""

    rounds: tuple[tuple[KeptTrials, ...], ...]


class VectorImprover:
    """A policy of vectors, improved by kept trials.

    An action has to be better by ``n_errors`` standard errors.
    """

    few_changes = _N_SAMPLES // 100
    """A search is over where no more observations than so many change their actions."""

    def __init__(
        self,
        encoding: Any,
        n_actions: int,
        first_action: int,
        n_errors: float,
        pair_features: PairFeatures | None,
    ) -> None:
        self.encoding = encoding
        self.rounds: list[tuple[KeptTrials, ...]] = []  # of each iteration
        self.fits: tuple[PairFit, ...] = ()
        self.n_errors = n_errors
        self.fit: PairFit | None = None
        self._n_actions, self.first_action = n_actions, first_action
        self._pairs = PairFeatureRows(encoding, n_actions, pair_features)
        self._gain = np.full(2, np.nan)  # with its standard error
        # Actions of the policy made by so many fits in the states that follow, by portion.
        self._following: list[IntArray] = []
        self._n_followed = 0

    def recording(self, t_max: int) -> Recording:
        """Return how trials are recorded: they are kept."""
        return Recording(self.encoding)

    def add(self, rounds: Sequence[KeptTrials]) -> Earned:
        """Add trials of the policy; return what they earned."""
        for kept in rounds:
            self.encoding.measure(kept.observations)
            check_both_timed((self.portions or rounds)[0].durations, kept.durations)
        # Whoever chose an action, it stands for the policy where that has none.
        self.rounds.append(tuple(replace(kept, explored=None) for kept in rounds))
        paid, time = (
            np.concatenate([kept.part(name) for kept in rounds])
            for name in ("rewards", "durations")
        )
        half = slice(paid.shape[1] // 2, None)
        numbers = [x[:, part].mean(axis=1) for part in (half, slice(None)) for x in (paid, time)]
        found = Earned.of(*numbers)
        # The settled tail is the policy's own, exploration apart.
        error = found.tail.std(ddof=1) / np.sqrt(len(found.tail))
        self._gain = np.zeros(2) if self.encoding.ends else np.array([found.tail.mean(), error])
        return found

    @property
    def portions(self) -> list[KeptTrials]:
        """All trials so far."""
        return list(chain.from_iterable(self.rounds))

    def evaluate(self) -> PairFit:
        """Return the action values of the policy by all trials."""
        self._update_following()
        each = list(zip(self.portions, self._following, strict=True))

        def rows() -> Iterator[Rows]:
            return chain.from_iterable(
                pairs_and_next(part, self._pairs, actions) for part, actions in each
            )

        D = self._pairs(self.portions[0].observations[:1, 0]).shape[2]
        return PairEquations.of(rows(), D).fit(rows(), *self._gain.tolist())

    def evaluate_start(self) -> tuple[float, float]:
        """Return the policy's gain, and its mean bias of the start."""
        self.fit = self.evaluate()
        latest = self.portions[-1].observations
        start = self._mean_value(np.concatenate([p.observations[:, 0] for p in self.portions]))
        if self.encoding.ends:
            return 0.0, start
        tail = latest[:, latest.shape[1] // 2 : -1].reshape(-1, latest.shape[2])
        every = max(1, len(tail) // _N_SETTLED)
        return float(self._gain[0]), start - self._mean_value(tail[::every])

    def _update_following(self) -> None:
        """Bring the policy's actions in all states that follow up to the latest fit."""
        policy, known = self.policy(), len(self._following)
        for i, portion in enumerate(self.portions):
            is_new = i >= known
            actions = np.full(portion.rewards.shape, UNKNOWN) if is_new else self._following[i]
            first = 0 if is_new else self._n_followed
            updated = np.empty_like(actions)
            for block, part in parts_of(portion, self._pairs):
                seen = part.observations[:, 1:]
                rows = self._pairs(seen.reshape(-1, seen.shape[2]))
                better = policy.better_than(actions[block].ravel(), rows, first)
                updated[block] = better.reshape(part.rewards.shape)
            self._following[i : i + 1] = [updated]
        self._n_followed = len(self.fits)

    def _mean_value(self, states: States) -> float:
        """Return the mean value of states under the policy, all actions alike where it has none."""
        assert self.fit is not None
        features = self._pairs(states)
        q = features @ self.fit.weights
        action = self.policy().actions(features)
        own = q[np.arange(len(q)), np.maximum(action, 0)]
        return float(np.where(action == UNKNOWN, q.mean(axis=1), own).mean())

    def improve(self) -> int:
        """Improve the policy; return of how many of 1000 observations the action changed."""
        assert self.fit is not None
        before = self.policy()
        self.fits = (*self.fits, self.fit)
        features = self._pairs(self._some_states())
        changed = before.actions(features) != self.policy().actions(features)
        return round(_N_SAMPLES * float(changed.mean()))

    def advantages(self) -> Advantages:
        """Return what all actions are worth beside the policy's, of at most 1000 observations."""
        fit, states = self.evaluate(), np.unique(self._some_states(), axis=0)
        features = self._pairs(states)
        actions = self.policy().actions(features)
        met = actions != UNKNOWN
        states, features, actions = states[met], features[met], actions[met]
        taken = features[np.arange(len(actions)), actions][:, None]
        q = fit.values(features)
        difference = q - q[np.arange(len(actions)), actions][:, None]
        errors = np.where(np.isnan(difference), np.inf, fit.standard_errors(features - taken))
        return Advantages(states, actions, difference, errors, ~np.isnan(q))

    def _some_states(self) -> States:
        """Return states spread over all trials and timesteps alike."""
        states = np.concatenate(
            [x[:, :-1].reshape(-1, x.shape[2]) for x in (p.observations for p in self.portions)]
        )
        states = states[np.isfinite(np.asarray(states, dtype=np.float64)).all(axis=1)]
        some: States = states[np.linspace(0, len(states) - 1, _N_SAMPLES).astype(np.int64)]
        return some

    def action_values(self, states: States) -> FloatArray:
        """Return the action values of the policy that was evaluated last, shape (m, A)."""
        if self.fit is None:
            raise NotFittedError("there are no action values yet: call run first")
        return self.fit.values(self._pairs(states))

    def snapshot(self) -> IntArray:
        """Return how many fits make the policy."""
        return np.array(len(self.fits))

    @property
    def samples(self) -> VectorSamples:
        """What a file holds: trials, from which all fits follow."""
        return VectorSamples(tuple(self.rounds[: len(self.fits)]))

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
        return VectorPolicy(self.encoding, self._pairs, fits, self.n_errors, self.first_action)

    def unknown(self) -> Callable[[Any], BoolArray] | None:
        """Return what tells of a batch of observations for which the policy has no action."""
        return self.policy().is_unknown
