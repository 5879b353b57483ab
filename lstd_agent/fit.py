"""`Fit`: a fitted system of approximators, with predictions and standard errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.features.rows import Rows, dense
from lstd_agent.fit_options import FitOptions, Fitted
from lstd_agent.rows.factors import Segments
from lstd_agent.specification import Others
from lstd_agent.standard_errors import (
    Comparison,
    batch_standard_errors,
    quantile_of_t,
    unseen_errors,
)
from lstd_agent.system.approximators import System, values_in_features
from lstd_agent.system.minimizer import Gain, Solved
from lstd_agent.system.model import PooledModel, pooled_model
from lstd_agent.system.selection import OPEN_TOLERANCE
from lstd_agent.system.solve import Subsets
from lstd_agent.trials.encoding import Encoding

Kind = TypeVar("Kind", bound=np.generic)

# Share of a window's samples that lies outside its bulk, and the number of samples to find it.
# Features change a value if chance explains it less often.
_OUTLIERS, _N_BULK, _CHANCE = 0.01, 1000, 0.05


@dataclass(frozen=True, eq=False)
class Jackknife:
    """A fitted system without each batch of the trials of a source."""

    fitted: Fitted
    source: Any
    options: FitOptions
    n_batches: int

    @cached_property
    def subsets(self) -> Subsets:
        """The batches without each one."""
        if self.n_batches < 2:
            raise NotFittedError(
                f"standard errors compare batches of trials, and there is {self.n_batches}: with "
                "n_batches > 1, collect several trials, or add counts in several portions, then fit"
            )
        return replace(self.fitted.subsets, kind="others")

    @cached_property
    def n_trials(self) -> IntArray:
        """Of each batch, shape (B,)."""
        return np.asarray(self.source.sizes(self.source.groups(self.n_batches)))

    @cached_property
    def gains(self) -> list[Gain]:
        """The gain without each batch, by the rows that gave the gain of all trials."""
        gain = self.fitted.gain
        if self.options.gain is not None:
            return [gain] * self.n_batches
        return self.subsets.gains("mean" if gain.rows == "given" else gain.rows)

    @cached_property
    def solved(self) -> list[list[Solved]]:
        """The windows without each batch."""
        fitted, system, subsets = self.fitted, self.fitted.system, self.subsets
        if self.options.calibration == "references":
            ties = system.windows, system.references, system.occupancy
            solve, each = self.options.solve_windows, enumerate(self.gains)
            return [solve(self.source, subsets.segments[b], ties, g.value) for b, g in each]
        gains = [gain.value for gain in self.gains]
        return subsets.solve(system.anchors, gains, [fitted.choice.backup], fitted.solved)[0]

    @cached_property
    def systems(self) -> list[System]:
        """The system without each batch."""
        columns = [values_in_features(self.source, solved) for solved in self.solved]
        return [
            replace(self.fitted.system, weights=x[:, :-1], offsets=x[:, -1], gain=gain.value)
            for x, gain in zip(columns, self.gains, strict=True)
        ]

    def errors(self, estimate: Callable[[System], FloatArray]) -> FloatArray:
        """Return standard errors (m,) of an estimate from a system."""
        without = np.stack([estimate(system) for system in self.systems])
        return batch_standard_errors(estimate(self.fitted.system), without, self.n_trials)

    @property
    def gain_error(self) -> float:
        """Standard error of the gain; 0 where it was given."""
        return self._error(self.fitted.gain.value, [gain.value for gain in self.gains])

    def _start_bias(self, solved: Sequence[Solved], segments: Segments, gain: Gain) -> float:
        """Return `start_bias`; the long run is of the gain's rows or, if it is given, the tail."""
        first = segments.factors[0]
        start = float(first.sums[: first.p] @ solved[0].columns[:, 0] / max(first.n, 1.0))
        if gain.settled is not None:
            return start - float(gain.settled @ solved[-1].columns[:, 0])
        runs = segments.factors[segments.tail]
        windows = self.fitted.system.neighborhood_at(segments.edges[:-1][segments.tail])
        each = zip(runs, windows, strict=True)
        sums = sum(x.sums[: x.p] @ solved[k].columns[:, 0] for x, k in each)
        return start - float(sums / max(sum(x.n for x in runs), 1.0))

    @property
    def start_bias(self) -> float:
        """The mean value of the start minus the mean value of the long run."""
        return self._start_bias(self.fitted.solved, self.fitted.segments, self.fitted.gain)

    @property
    def start_bias_error(self) -> float:
        """Standard error of the start's mean bias."""
        segments, each = self.subsets.segments, enumerate(zip(self.solved, self.gains, strict=True))
        without = [self._start_bias(solved, segments[b], gain) for b, (solved, gain) in each]
        return self._error(self.start_bias, without)

    def _error(self, whole: float, without: Sequence[float]) -> float:
        found = batch_standard_errors(np.array([whole]), np.array(without)[:, None], self.n_trials)
        return float(found[0])

    def seen_without_each(self, states: States, neighborhood: IntArray) -> BoolArray:
        """Whether states (m,) were seen in more than one batch."""
        system, subsets, source = self.fitted.system, self.subsets, self.source
        seen, windows = np.ones(len(states), dtype=bool), system.windows
        segments: Any = subsets.segments
        if not np.all([sum(x.n for x in segments.between(*ab)) for ab in windows.tolist()]):
            return ~seen  # without some batch a window has no samples
        every = self.solved if source.is_sparse else segments
        surely, half = np.zeros((2, len(states)), dtype=bool), len(subsets.groups) // 2

        def are_seen(some: BoolArray, by: Any, group: Any) -> BoolArray:
            samples = source.samples_of(windows, by, group)(states[some])
            return np.asarray(of_each(samples, neighborhood[some]) > 0.0)

        if not source.is_sparse:  # samples of the other half suffice
            halves = replace(subsets, kind="halves")
            by = halves.groups if source.are_places else halves.segments  # counts need no factors
            surely = np.array([are_seen(seen, by[i], halves.groups[i]) for i in (2, 1)])
        for b, group in enumerate(subsets.groups):
            rest = seen & ~surely[int(b >= half)]
            if rest.any():
                seen[rest] = are_seen(rest, every[b], group)
        if self.fitted.choice.backup == "model":
            for part, gain in zip(subsets.parts, self.gains, strict=True):
                model = pooled_model(part, gain.value, system.references.main)
                seen &= model.open_share[states] <= OPEN_TOLERANCE
        return seen


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted system with its trials and options: predictions, coverage, standard errors."""

    source: Any  # CountRows or TrialRows of all trials
    encoding: Encoding
    options: FitOptions
    fitted: Fitted
    n_batches: int  # into which trials are dealt for standard errors

    @classmethod
    def of(cls, source: Any, encoding: Encoding, options: FitOptions, n_batches: int) -> Fit:
        """Fit a system to trials."""
        return cls(source, encoding, options, options.fit(source, n_batches), n_batches)

    def __reduce__(self) -> tuple[Callable[..., Fit], tuple[Any, ...]]:
        # Factors and functions cannot be pickled: a copy is fitted to the same samples again.
        return Fit.of, (self.source, self.encoding, self.options, self.n_batches)

    @property
    def system(self) -> System:
        """The fitted system."""
        return self.fitted.system

    def answer(
        self, what: Callable[..., NDArray[Kind]], observations: Any, t: ArrayLike | None = None
    ) -> NDArray[Kind]:
        """Return an answer for observations, such as `values`, by those that predict them."""
        states, neighborhood, shape = self._answering(observations, t)
        return what(self, states, neighborhood).reshape(shape)

    def values(self, states: States, neighborhood: IntArray) -> FloatArray:
        """Return values of encoded observations (m,) by neighbourhoods (m,)."""
        return self.system.values(self.encoding.rows(states), neighborhood)

    @cached_property
    def values_of_trials(self) -> FloatArray:
        """Values (t_max + 2, m) of the observations of kept trials."""
        weights = [each.columns[:, 0] for each in self.fitted.solved]
        return np.asarray(self.source.values(weights, self.system.anchors))

    def share_of_samples(self, states: States, neighborhood: IntArray) -> FloatArray:
        """Return the share of the neighbourhoods' samples at encoded observations (m,)."""
        n_samples = np.maximum(self.system.n_samples, 1)[neighborhood]
        return of_each(self.samples_of(states), neighborhood) / n_samples

    def compare(self, a: Any, b: Any, t: ArrayLike | None, checked: Any) -> Comparison:
        """See `SeminormLSTDAgent.compare`; ``checked`` are `Diagnostics`."""
        (of_a, first, _), (of_b, second, _) = (self._answering(side, t) for side in (a, b))
        states, k = np.concatenate((of_a, of_b)), np.concatenate((first, second))
        share = np.repeat((1.0 / len(of_a), -1.0 / len(of_b)), (len(of_a), len(of_b)))
        features = self.encoding.rows(states)

        def difference(system: System) -> FloatArray:
            return np.array([share @ system.values(features, k)])

        unseen = np.linalg.norm(share * self._unseen_outcomes(features, states, k))
        error = float(np.hypot(self.jackknife.errors(difference)[0], unseen))
        error = max(error, float(self.changes(features, states, k, share[None])[0]))
        if not k.any():  # trials start in the first neighborhood
            error = max(error, checked.conflict(of_a, of_b))
        value = float(difference(self.system)[0])
        return Comparison(value, error, len(self.jackknife.n_trials) - 1)

    def candidate(self, index: int) -> Any:
        """See `SeminormLSTDAgent.candidate`."""
        if index in (-1, self.source.terminal):
            return None
        return self.encoding.decode(self.source.candidates[index])

    def _answering(
        self, observations: Any, t: ArrayLike | None
    ) -> tuple[States, IntArray, tuple[int, ...]]:
        """Return states, the neighbourhood that predicts each, and the shape of the answer."""
        states, shape = self.encoding.encode_any(observations)
        if t is None:
            return states, self.most_sampled(states), shape
        position = np.arange(len(states)).reshape(shape)
        neighborhood = self.system.neighborhood_at(np.asarray(t))
        try:
            position, neighborhood = np.broadcast_arrays(position, neighborhood)
        except ValueError:
            raise InvalidInputError(
                f"observations and timesteps must broadcast; got {shape} observations and "
                f"timesteps of shape {neighborhood.shape}"
            ) from None
        return states[position.ravel()], neighborhood.ravel(), position.shape

    def most_sampled(self, states: States) -> IntArray:
        """Return the neighbourhoods (m,) that predict states (m,) without a timestep.

        Of those whose bulk contains a state the most sampled, otherwise the one of nearest bulk.
        """
        samples = self.samples_of(states)
        if len(samples) == 1 or self.source.are_places or self.source.is_sparse:
            return np.asarray(np.argmax(samples, axis=0))
        depth = samples / self._bulk[:, None]
        is_in = depth >= 1.0
        preferred = np.where(is_in.any(axis=0), np.where(is_in, samples, -1.0), depth)
        return np.asarray(np.argmax(preferred, axis=0))

    @cached_property
    def _bulk(self) -> FloatArray:
        """How many samples each window has of an observation at the edge of its bulk, (n,)."""
        found = []
        for k, (start, stop) in enumerate(self.system.windows.tolist()):
            own = self.source.some_of(start, stop, _N_BULK)
            found.append(np.quantile(self.samples_of(own)[k], _OUTLIERS) if len(own) else 0.0)
        return np.maximum(found, 1e-300)

    def candidate_values(self, k: int) -> FloatArray:
        """Return the values (M,) of the candidate reference states by neighbourhood k."""
        features = self.source.candidate_features
        return self.system.values(features, np.full(features.shape[0], k))

    @cached_property
    def samples_of(self) -> Callable[[States], FloatArray]:
        """How many samples (n, m) of encoded observations (m,) there are in each window."""
        found: Any = self.source.samples_of(self.system.windows, self.fitted.evidence)
        return lambda states: np.asarray(found(states))

    def states_determined(self, states: States, neighborhood: IntArray) -> BoolArray:
        """Return `determined` of encoded observations (m,) for neighbourhoods (m,)."""
        seen = of_each(self.samples_of(states), neighborhood) > 0.0
        if self.fitted.choice.backup == "model":
            model = pooled_model(self.source, self.system.gain, self.system.references.main)
            share = model.open_share[states]
        else:
            share = self.fitted.open_share(self.encoding.rows(states), neighborhood)
        return np.asarray(seen & (share <= OPEN_TOLERANCE) | self._are_zero(states))

    def _are_zero(self, states: States) -> BoolArray:
        """Whether states (m,) are vectors' end, which has no samples, if trials have ended."""
        if self.source.are_places or self.source.constant:
            return np.zeros(len(states), dtype=bool)
        return np.asarray(np.isnan(states).any(axis=1))

    @cached_property
    def jackknife(self) -> Jackknife:
        """The system without each batch of trials."""
        return Jackknife(self.fitted, self.source, self.options, self.n_batches)

    def errors_of_states(self, states: States, neighborhood: IntArray) -> FloatArray:
        """Return `standard_errors` of encoded observations (m,) for neighbourhoods (m,)."""
        features = self.encoding.rows(states)
        errors = self.jackknife.errors(lambda system: system.values(features, neighborhood))
        errors = np.hypot(errors, self._unseen_outcomes(features, states, neighborhood))
        return np.maximum(errors, self.changes(features, states, neighborhood))

    @cached_property
    def others(self) -> Others | None:
        """Other fits, which need less of the features; None where there is no such test."""
        source, backup = self.source, self.fitted.choice.backup
        is_dense = source.constant and not (source.are_places or source.is_sparse)
        if not is_dense or source.p >= source.n_trials:
            return None
        return Others(source, self.values_of_trials, self.system.gain, backup)

    def changes(
        self,
        features: Rows,
        states: States,
        neighborhood: IntArray,
        contrasts: FloatArray | None = None,
        chance: float = _CHANCE,
    ) -> FloatArray:
        """Return what another estimator changes of values (m,), if their features are to blame.

        It is the pooled model, which needs no features, or one of `Others`. If the features
        suffice, only noise makes a difference. It is 0 unless ``chance`` hardly makes one as large.
        With ``contrasts`` (k, m) the answer is about so many sums of values.
        """
        source = self.source
        if self.others is not None:
            rows = source.coordinates.of(dense(features), source.constant)
            values = self.system.values(features, neighborhood)
            return self.others.changes(rows, states, values, chance, contrasts)
        if self.fitted.choice.backup != "model" or self.n_batches < 2:
            return np.zeros(1)
        jackknife, main = self.jackknife, self.system.references.main

        def gap(system: System, model: PooledModel) -> FloatArray:
            off = system.values(features, neighborhood) - model.values[states]
            return off if contrasts is None else np.asarray(contrasts @ off)

        model = pooled_model(source, self.system.gain, main)
        off, rounding = gap(self.system, model), 1e-9 * float(np.abs(model.values).max())
        is_open = (model.open_share[source.starts] > OPEN_TOLERANCE).any()
        if is_open or not (np.abs(off) > rounding).any():
            return np.zeros(len(off))
        parts = zip(jackknife.systems, jackknife.subsets.parts, jackknife.gains, strict=True)
        without = [gap(by, pooled_model(part, g.value, main)) for by, part, g in parts]
        noise = batch_standard_errors(off, np.stack(without), jackknife.n_trials)
        noise *= quantile_of_t(1.0 - chance, self.n_batches - 1)
        return np.abs(off) * (np.abs(off) > np.maximum(noise, rounding))

    def _unseen_outcomes(self, f: Rows, states: States, neighborhood: IntArray) -> FloatArray:
        """Return what unseen outcomes may add to the standard errors of values (m,).

        Other values are the neighbourhood's. It is infinite where values are not determined by all
        trials, or not without one of the batches.
        """
        system, windows, place = self.system, self.system.windows, neighborhood
        if self.fitted.choice.backup == "model":  # the model uses all timesteps
            windows, place = np.array([[0, system.t_max + 1]]), np.zeros_like(neighborhood)
        n = of_each(self.source.moves_of(windows, self.fitted.evidence)(states), place)
        values, errors = system.values(f, neighborhood), np.zeros(len(states))
        for k in np.unique(neighborhood):
            weight = system.occupancy[k] / max(system.occupancy[k].sum(), 1e-300)
            others, here = self.candidate_values(int(k)), neighborhood == k
            errors[here] = unseen_errors(n[here], values[here], others, weight)
        known = self.jackknife.seen_without_each(states, neighborhood)
        known &= self.states_determined(states, neighborhood)
        return np.where(self._are_zero(states), 0.0, np.where(known, errors, np.inf))


def of_each(by_neighborhood: FloatArray, neighborhood: IntArray) -> FloatArray:
    """Return the entries of neighbourhoods (m,) in an array (n, m)."""
    return np.asarray(by_neighborhood[neighborhood, np.arange(len(neighborhood))])
