"""`Fit`: a fitted system of approximators, with predictions and standard errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import Rows
from lstd_agent.fit_options import FitOptions, Fitted
from lstd_agent.standard_errors import Jackknife, quantile_of_t
from lstd_agent.system.approximators import System
from lstd_agent.system.model import pooled_model
from lstd_agent.system.selection import OPEN_TOLERANCE, Choice
from lstd_agent.trials.encoding import Encoding

Kind = TypeVar("Kind", bound=np.generic)

# Share of a window's samples that lies outside its bulk, and the number of samples to find it.
_OUTLIERS = 0.01
_N_BULK = 1000


@dataclass(frozen=True)
class Comparison:
    """A difference of values, with its own standard error.

    Attributes
    ----------
    difference, standard_error : float
        Value of the first minus the value of the second, in units of reward.
    degrees : int
        Degrees of freedom of the standard error: one less than there are batches of trials.

    Examples
    --------
    >>> print(Comparison(difference=-27.371, standard_error=0.2))
    -27.37 ± 0.20
    """

    difference: float
    standard_error: float
    degrees: int = 19

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return a confidence interval, by Student's distribution.

        Parameters
        ----------
        level : float
            Share of such intervals that hold the true difference, above 0 and below 1.

        Returns
        -------
        low, high : float
            In units of reward.

        Raises
        ------
        InvalidInputError
            For another level.
        """
        if not 0.0 < level < 1.0:
            raise InvalidInputError(f"level must be above 0 and below 1; got {level!r}")
        half = quantile_of_t(level, self.degrees) * self.standard_error
        return self.difference - half, self.difference + half

    def _repr_html_(self) -> str:
        """Return the difference with its interval for notebooks."""
        low, high = self.interval()
        return f"<b>{self}</b> (95 % interval: {low:.6g} to {high:.6g})"

    def __str__(self) -> str:
        error = self.standard_error
        if not 1e-6 < error < np.inf:
            return f"{self.difference:.6g} ± {error:.2g}"
        places = max(0, 1 - int(np.floor(np.log10(error))))  # two digits of the error
        return f"{self.difference:.{places}f} ± {error:.{places}f}"


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted system with its trials and options: predictions, coverage, standard errors.

    The trials are dealt into ``n_batches`` for standard errors.
    """

    source: Any  # CountRows or TrialRows of all trials
    encoding: Encoding
    options: FitOptions
    fitted: Fitted
    n_batches: int

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

    @property
    def choice(self) -> Choice:
        """The backup, given or chosen by the data."""
        return self.fitted.choice

    def answer(
        self,
        what: Callable[[Fit, States, IntArray], NDArray[Kind]],
        observations: Any,
        t: ArrayLike | None = None,
    ) -> NDArray[Kind]:
        """Return an answer for observations, such as `values`, by those that predict them."""
        states, neighborhood, shape = self._answering(observations, t)
        return what(self, states, neighborhood).reshape(shape)

    def values(self, states: States, neighborhood: IntArray) -> FloatArray:
        """Return values of encoded observations (m,) by neighbourhoods (m,)."""
        return self.system.values(self.encoding.rows(states), neighborhood)

    def share_of_samples(self, states: States, neighborhood: IntArray) -> FloatArray:
        """Return the share of the neighbourhoods' samples at encoded observations (m,)."""
        n_samples = np.maximum(self.system.n_samples, 1)[neighborhood]
        return of_each(self.samples_of(states), neighborhood) / n_samples

    def compare(self, a: Any, b: Any, t: ArrayLike | None = None) -> Comparison:
        """See `SeminormLSTDAgent.compare`."""
        sides = []
        for states, neighborhood, _ in (self._answering(side, t) for side in (a, b)):
            sides.append((self.encoding.rows(states), states, neighborhood))

        def difference(system: System) -> FloatArray:
            first, second = (system.values(f, k).mean() for f, _, k in sides)
            return np.array([first - second])

        error = float(self.jackknife.errors(difference)[0])
        for f, states, neighborhood in sides:
            unseen = self._unseen_outcomes(f, states, neighborhood)
            error = float(np.hypot(error, np.linalg.norm(unseen) / len(states)))
            if not self._robust(states, neighborhood).all():
                error = np.inf
        degrees = len(self.jackknife.n_trials) - 1
        return Comparison(float(difference(self.system)[0]), error, degrees)

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

        Among the neighbourhoods whose bulk contains a state, the one with most samples predicts. If
        there is none, the one with the nearest bulk predicts.
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
        found: Callable[[States], FloatArray] = self.source.samples_of(
            self.system.windows, self.fitted.evidence
        )
        return found

    def states_determined(self, states: States, neighborhood: IntArray) -> BoolArray:
        """Return `determined` of encoded observations (m,) for neighbourhoods (m,)."""
        seen = of_each(self.samples_of(states), neighborhood) > 0.0
        if self.choice.backup == "model":
            main = self.source.main_state(int(self.system.anchors[-1]))
            share = pooled_model(self.source, self.system.gain, main).open_share[states]
        else:
            share = self.fitted.open_share(self.encoding.rows(states), neighborhood)
        return np.asarray(seen & (share <= OPEN_TOLERANCE))

    @cached_property
    def jackknife(self) -> Jackknife:
        """The system without each batch of trials."""
        return Jackknife(self.fitted, self.source, self.options, self.n_batches)

    def errors_of_states(self, states: States, neighborhood: IntArray) -> FloatArray:
        """Return `standard_errors` of encoded observations (m,) for neighbourhoods (m,)."""
        features = self.encoding.rows(states)
        errors = self.jackknife.errors(lambda system: system.values(features, neighborhood))
        errors = np.hypot(errors, self._unseen_outcomes(features, states, neighborhood))
        return np.where(self._robust(states, neighborhood), errors, np.inf)

    def _robust(self, states: States, neighborhood: IntArray) -> BoolArray:
        """Whether values are determined, also without any one batch."""
        seen = self.jackknife.seen_without_each(states, neighborhood)
        return np.asarray(seen & self.states_determined(states, neighborhood))

    def _unseen_outcomes(
        self, features: Rows, states: States, neighborhood: IntArray
    ) -> FloatArray:
        """Return what unseen outcomes may add to the standard errors of values (m,).

        An outcome that n samples did not show may have a probability of 3/n (at 95 %, two standard
        errors). Its effect is taken as the spread of values in the neighbourhood.
        """
        system, windows, place = self.system, self.system.windows, neighborhood
        if self.choice.backup == "model":  # the model uses all timesteps
            windows, place = np.array([[0, system.t_max + 1]]), np.zeros_like(neighborhood)
        moves = self.source.moves_of(windows, self.fitted.evidence)(states)
        n = np.maximum(of_each(moves, place), 1.0)
        values, spread = system.values(features, neighborhood), np.zeros(len(states))
        for k in np.unique(neighborhood):
            weight = system.occupancy[k] / max(system.occupancy[k].sum(), 1e-300)
            others, here = self.candidate_values(int(k)), neighborhood == k
            mean = weight @ others
            spread[here] = np.sqrt(weight @ (others - mean) ** 2 + (values[here] - mean) ** 2)
        return np.asarray(1.5 * spread / n)


def of_each(by_neighborhood: FloatArray, neighborhood: IntArray) -> FloatArray:
    """Return the entries of neighbourhoods (m,) in an array (n, m)."""
    return np.asarray(by_neighborhood[neighborhood, np.arange(len(neighborhood))])
