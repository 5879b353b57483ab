"""Action values from an agent's trials and fit, under its policy or another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from lstd_agent.actions import pair_equations as lstdq
from lstd_agent.actions.chain_values import ActionValues, PolicyChain, one_step_ahead
from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.fit import Fit
from lstd_agent.rows.factors import Factor, without_each
from lstd_agent.standard_errors import batch_standard_errors
from lstd_agent.trials.counts import ActionCounts
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.policies import make_actor
from lstd_agent.trials.spaces import plain_array


@dataclass(frozen=True, eq=False)
class ActionEvidence:
    """Action values, their standard errors, and their numbers of samples.

    They come from an agent, a source of its rows, and its latest fit, if any. The policy is the
    trials' own, unless another one is given.
    """

    trials: Any
    source: Any
    n_batches: int
    fit: Fit | None
    policy: Any
    pair_features: lstdq.PairFeatures | None

    if TYPE_CHECKING:  # defined for counts and for vectors

        def __getattr__(self, name: str) -> Any: ...

    def action_values(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """See `SeminormLSTDAgent.action_values`."""
        states, shape = self.trials.encoding.encode_any(observations)
        if t is None and not self._needs_fit:
            q: Any = self._values(states, self._gain)
        else:
            k, q = np.array([-1]) if t is None else self._neighborhood_after(t, shape), np.nan
            for each in np.unique(k).tolist():
                found = self._ahead(states, partial(self._successor_value, each))
                q = np.where((k == each)[:, None], found, q)
        return np.reshape(q, (*shape, q.shape[1]))

    def standard_errors(self, observations: Any) -> FloatArray:
        """See `SeminormLSTDAgent.action_standard_errors`."""
        states, shape = self.trials.encoding.encode_any(observations)
        if self.n_batches < 2:
            told = "standard errors compare batches, and there is one: collect with n_batches > 1"
            raise NotFittedError(told)
        sizes = self.source.sizes(self.source.groups(self.n_batches))
        gains: dict[int, float] = {}
        if self.policy is None and self.fit is not None:
            gains = {b: gain.value for b, gain in enumerate(self.fit.jackknife.gains)}
            if not np.array_equal(self.fit.jackknife.n_trials, sizes):
                raise NotFittedError("trials were added since the fit: call fit again")
        if self._needs_fit:
            told = "standard errors of action values need the policy itself: give it by policy="
            raise NotFittedError(told)
        parts = self._parts()
        pairs = zip(parts, without_each(list(parts.values())), strict=True)
        without = [self._solved(others, states, gains.get(i)).ravel() for i, others in pairs]
        q: FloatArray = self._values(states, self._gain)
        errors = batch_standard_errors(q.ravel(), np.stack(without), sizes[list(parts)])
        least, unseen = self._own_errors(states)
        errors = np.hypot(np.maximum(errors, least), unseen)
        return np.where(np.isnan(errors), np.inf, errors).reshape(*shape, q.shape[1])

    def coverage(self, observations: Any) -> FloatArray:
        """See `SeminormLSTDAgent.action_coverage`."""
        states, shape = self.trials.encoding.encode_any(observations)
        n = self._n_samples(states)
        return np.reshape(n, (*shape, n.shape[1]))

    @property
    def _gain(self) -> float | None:
        """The gain of the fit, of the trials' own policy, or None."""
        if self.policy is not None or (self.fit is None and self.source.are_places):
            return None
        return float(self.trials.gain_)

    def _neighborhood_after(self, t: ArrayLike, shape: tuple[int, ...]) -> IntArray:
        """Return the neighborhoods by which `predict` values the states after timesteps t."""
        time = plain_array(t, "t")
        if time.shape not in ((), shape):
            told = f"t is one timestep, or one for each observation, {shape}; got {time.shape}"
            raise InvalidInputError(told)
        if self.policy is not None:
            told = "with t=, successors have values of the trials' policy: leave t= or policy= out"
            raise InvalidInputError(told)
        neighborhood_at = self.trials.system_.neighborhood_at
        neighborhood_at(time)  # raises unless these are timesteps
        return np.asarray(neighborhood_at(time.ravel() + 1))

    def _successor_value(self, k: int, states: States) -> tuple[FloatArray, BoolArray]:
        """Return values by neighborhood k, or the most sampled (-1), and which are determined."""
        fit, n = self.trials._last_fit, len(states)
        neighborhood = fit.most_sampled(states) if k < 0 else np.full(n, k)
        values = fit.system.values(fit.encoding.rows(states), neighborhood)
        known = fit.states_determined(states, neighborhood) if fit.source.are_places else True
        return np.where(lstdq.ended(states), 0.0, values), np.broadcast_to(known, n)

    def _chosen(self, observed: Any, actions: tuple[int, int]) -> IntArray:
        """Return the actions from 0 of another policy, a function of batches, for observations."""
        space = spaces.Discrete(actions[0], start=actions[1])
        actor = make_actor(self.policy, self.trials.encoding.space, space, True)
        taken = np.asarray(actor(observed, np.random.default_rng(0)))
        return (taken - actions[1]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class CountedEvidence(ActionEvidence):
    """Action values of counted states; see `lstd_agent.actions.chain_values`."""

    def __post_init__(self) -> None:
        if self.pair_features is not None:
            told = "counted observations have action values of their own: leave pair_features out"
            raise InvalidInputError(told)

    @cached_property
    def _by_batch(self) -> list[ActionCounts]:
        """Action counts as recorded, or as a deterministic policy implies."""
        trials, encoding = self.trials, self.trials.encoding
        policy, S = trials.policy, encoding.n_states
        if known := [taken for _, taken in trials.batches.counted if taken is not None]:
            return known  # those of all batches
        if callable(policy) or np.ndim(policy) != 1 or trials.actions is None:
            raise NotFittedError(lstdq.NO_ACTIONS)
        n_actions, first = trials.actions
        actions = np.append(np.asarray(policy) - first, [0] * (S - encoding.n)).astype(np.int64)
        how = n_actions, actions, encoding.terminal if encoding.ends else None
        return [ActionCounts.of_policy(counts, *how) for counts in trials.batches.sums]

    @cached_property
    def _counts(self) -> ActionCounts:
        return reduce(add, self._by_batch)

    @cached_property
    def _probabilities(self) -> FloatArray | None:
        """The policy as probabilities (n_states, A); None for a function of the trials."""
        encoding, policy = self.trials.encoding, self.policy
        actions = n_actions, first = self.trials.actions or (self._counts.n_actions, 0)
        if policy is None:
            policy = self.trials.policy
            if policy is None or callable(policy):
                return None
        elif callable(policy):
            if isinstance(encoding.space, spaces.Dict | spaces.Tuple):
                told = f"values of a policy need observations in one array; got {encoding.space}"
                raise InvalidInputError(told)
            shape = encoding.n, *(encoding.space.shape or ())
            observed = encoding.observed(np.arange(encoding.n)).reshape(shape)
            policy = self._chosen(observed, actions) + first
            if not np.array_equal(policy, self._chosen(observed, actions) + first):
                told = "the policy's answers differ between calls: give its probabilities (S, A)"
                raise InvalidInputError(told)
        else:
            make_actor(policy, encoding.space, spaces.Discrete(n_actions, start=first), None)
        table = np.asarray(policy)
        if table.ndim == 1:
            table = np.eye(n_actions)[table - first]
        return np.pad(table.astype(np.float64), ((0, encoding.n_states - encoding.n), (0, 0)))

    @property
    def _needs_fit(self) -> bool:
        return self._probabilities is None  # a function of observations

    @cached_property
    def _main(self) -> int:
        """The state with value 0: the terminal one, or from the fit, or from all counts."""
        if self.trials.encoding.ends:
            return int(self.trials.encoding.terminal)
        if self.fit is not None and self.policy is None:
            return self.fit.system.references.main
        return self._chain(self._counts).main_state()

    def _chain(self, counts: ActionCounts) -> PolicyChain:
        policy: Any = self._probabilities
        return PolicyChain(counts, policy)

    def _found(self, counts: ActionCounts, gain: float | None) -> ActionValues:
        ends = self.trials.encoding.ends
        return ActionValues(self._chain(counts), self._main, 0.0 if ends else gain)

    def _solved(self, part: ActionCounts, states: IntArray, gain: float | None) -> FloatArray:
        found = self._found(part, gain)
        is_bias = self.policy is not None and not self.trials.encoding.ends
        return found.action_values[states] - (found.settled_value if is_bias else 0.0)

    def _values(self, states: IntArray, gain: float | None) -> FloatArray:
        return self._solved(self._counts, states, gain)

    def _ahead(self, states: IntArray, value: Any) -> FloatArray:
        """Return r - g τ + E v(s'), shape (n, A), with given values of successors."""
        counts, encoding, gain = self._counts, self.trials.encoding, self.trials.gain_
        v, told = value(np.arange(encoding.n))
        over = 0, encoding.n_states - encoding.n  # the terminal state has the value 0
        v, known = np.pad(np.where(told, v, 0.0), over), np.pad(1.0 * told, over, constant_values=1)
        return one_step_ahead(counts, counts.transition_matrix, v, known, gain)[states]

    def _parts(self) -> dict[int, ActionCounts]:
        """Return the counts of batches with known actions, by number."""
        parts = {i: part for i, part in enumerate(self._by_batch) if len(part.key)}
        if len(parts) < 2:
            told = "actions are known of a single batch of trials: collect or add them in several"
            raise NotFittedError(told)
        return parts

    def _own_errors(self, states: IntArray) -> Any:
        """Return errors of r - g τ + v(s') alone, and those by unseen outcomes."""
        found = self._found(self._counts, None)
        return found.standard_errors[states].ravel(), found.unseen_errors[states].ravel()

    def _n_samples(self, states: IntArray) -> FloatArray:
        return np.asarray(self._counts.n_samples, dtype=np.float64)[states]


@dataclass(frozen=True, eq=False)
class _Part:
    """A factor of pairs, and sums of (f, 1) over late pairs of the policy, of some trials."""

    factor: Factor
    late: FloatArray

    def __add__(self, other: _Part) -> _Part:
        return _Part(self.factor + other.factor, self.late + other.late)


@dataclass(frozen=True, eq=False)
class VectorEvidence(ActionEvidence):
    """Action values of vectors; see `lstd_agent.actions.pair_equations`."""

    _needs_fit = False  # except for the gain

    @cached_property
    def _pairs(self) -> lstdq.PairFeatureRows:
        trials = self.trials
        if trials.actions is None:
            raise NotFittedError(lstdq.NO_ACTIONS)
        return lstdq.PairFeatureRows(trials.encoding, trials.actions[0], self.pair_features)

    def _part(self, trials: KeptTrials) -> _Part:
        rows = lstdq.pair_rows(trials, self._pairs, self._following(trials))
        return _Part(lstdq.factor_of_pairs(rows), self._late(trials))

    def _parts(self) -> dict[int, _Part]:
        groups = self.source.groups(self.n_batches)
        return {i: self._part(self.source.trials.take(each)) for i, each in enumerate(groups)}

    def _solved(self, part: _Part, states: States, gain: float | None) -> FloatArray:
        """Return q (n, A), relative to the long run; total rewards if trials end."""
        equations, asked = lstdq.PairEquations(part.factor), self._pairs(states)
        if self.trials.encoding.ends:
            return np.asarray(asked @ equations.weights(gain or 0.0)[:, 0])
        if gain is None:
            weights, mean = equations.bias()
            return np.asarray(asked @ weights - mean)
        if part.late[-1] == 0.0:
            told = "no trial has actions of the second half of timesteps, the long run: lower t_max"
            raise NotFittedError(told)
        return np.asarray((asked - part.late[:-1] / part.late[-1]) @ equations.weights(gain)[:, 0])

    def _values(self, states: States, gain: float | None) -> FloatArray:
        whole = self._part(self.source.trials)
        q = self._solved(whole, states, gain)
        return lstdq.PairEquations(whole.factor).where_seen(self._pairs(states), q)

    def _ahead(self, states: States, value: Any) -> FloatArray:
        """Return r - g τ + E v(s'), shape (n, A), with given values of successors."""
        equations, asked = self._valued(lambda following: value(following)[0]), self._pairs(states)
        weights = equations.weights(self.trials.gain_)[:, 0]
        return equations.where_seen(asked, asked @ weights)

    def _own_errors(self, states: States) -> Any:
        return 0.0, 0.0

    def _n_samples(self, states: States) -> FloatArray:
        return self._valued(lambda following: 0.0).n_samples(self._pairs(states))

    def _valued(self, value: Callable[[States], Any]) -> lstdq.PairEquations:
        """Return the equations of all transitions, with given values of successors."""
        rows = lstdq.pair_rows(self.source.trials, self._pairs, value=value)
        return lstdq.PairEquations(lstdq.factor_of_pairs(rows))

    def _following(self, trials: KeptTrials) -> IntArray | None:
        """Return another policy's actions, from 0, in all states that follow, (m, t_max + 1)."""
        if self.policy is None:
            return None
        space = self.trials.encoding.space
        if not isinstance(space, spaces.Box):
            raise InvalidInputError(f"values of another policy need Box observations; got {space}")
        m, T = trials.rewards.shape
        following = trials.observations[:, 1:].reshape(m * T, -1)
        if following.dtype.kind == "f":
            following = np.nan_to_num(following)  # after the end no action matters
        observed = following.reshape(m * T, *space.shape).astype(space.dtype)
        return self._chosen(observed, self.trials.actions).reshape(m, T)

    def _late(self, trials: KeptTrials) -> FloatArray:
        """Return sums of (f, 1) over the policy's late pairs, (D + 1,); [0] where not needed."""
        if self.policy is not None or self.trials.encoding.ends:
            return np.zeros(1)
        own = lstdq.have_actions(trials, own=True)
        own[:, : own.shape[1] // 2] = False
        trial, t = np.nonzero(own)
        step = max(1, len(trial) // lstdq.N_SETTLED)
        some, at = trial[::step], t[::step]
        every = self._pairs(trials.observations[some, at])
        taken = every[np.arange(len(some)), trials.part("actions")[some, at].astype(np.int64)]
        return np.append(taken.sum(axis=0) * (len(trial) / max(1, len(some))), len(trial))
