"""Random tasks: trials of a process, features, options, and a question about two starts.

`draw` makes the task of a kind and a seed, always the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
from kinds import KINDS, Plan, Rng
from models import Finite, FloatArray, Model, Trials, mixing_time, start_bias
from numpy.typing import NDArray

from lstd_agent import (
    FourierBasis,
    LambdaReturn,
    MultiStep,
    OneHot,
    Polynomial,
    RadialBasis,
    TileCoding,
)


@dataclass(frozen=True, eq=False)
class Task:
    """A process, trials of it, and two observations (without the time) whose values to compare.

    ``states`` are the hidden full states. A trial has its first ``lengths`` timesteps; ``options``
    go to the agent; ``times`` are the durations of steps, if any.
    """

    plan: Plan
    states: NDArray[Any]
    observations: NDArray[Any]
    rewards: FloatArray
    lengths: NDArray[np.int64]
    features: Any
    options: dict[str, Any]
    sides: tuple[Any, Any]
    times: FloatArray | None = None

    @classmethod
    def of(
        cls,
        model: Model,
        trials: Trials,
        features: Any,
        sides: tuple[Any, Any],
        options: dict[str, Any] | None = None,
    ) -> Task:
        """Return a task with whole trials."""
        n, T = trials[2].shape
        return cls(Plan(model), *trials, np.full(n, T), features, options or {}, sides)

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return int(self.lengths.max()) - 1

    @property
    def length(self) -> float:
        """The duration of a trial, the factor of an error of the gain."""
        return (self.t_max + 1) * (1.0 if self.times is None else float(self.times.mean()))

    @property
    def counted(self) -> bool:
        """Whether observations are counted."""
        return self.observations.ndim == 2

    @property
    def visited(self) -> NDArray[Any]:
        """Full states that trials visited: all for a finite chain, otherwise a sample."""
        has = np.arange(self.states.shape[1]) < self.lengths[:, None]
        states = self.states[has]
        if states.ndim == 1:
            return np.unique(states)
        return np.concatenate([self.states[:200, 0], states[:: max(1, len(states) // 400)]])

    @cached_property
    def begun(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The observations in which trials start, and how many start in each."""
        shown = self.plan.model.shows(self.states[:, 0])
        found, n = np.unique(shown, axis=0, return_counts=True)
        return found, n

    def direct(self) -> dict[str, tuple[float, float]]:
        """Return the answers by what whole trials earned above the true gain, with their errors.

        The gain is that of a trial's second half, times its length. NaN without two whole trials.
        """
        whole = self.lengths == self.t_max + 1
        times = np.ones_like(self.rewards) if self.times is None else self.times
        earned = (self.rewards - self.plan.model.gain * times)[whole, : self.t_max + 1]
        late = earned[:, (self.t_max + 1) // 2 :].mean(axis=1) * (self.t_max + 1)
        starts = self.plan.model.shows(self.states[whole, 0]).reshape(len(earned), -1)
        totals = earned.sum(axis=1)
        one, other = (totals[(starts == side).all(axis=1)] for side in self.sides)

        def mean(x: FloatArray) -> tuple[float, float]:
            if len(x) < 2:
                return np.nan, np.nan
            return float(x.mean()), float(x.std(ddof=1) / np.sqrt(len(x)))

        (a, error_a), (b, error_b), (gain, error) = mean(one), mean(other), mean(late)
        gain += self.plan.model.gain * self.length
        apart = a - b, float(np.hypot(error_a, error_b))
        return {"gain": (gain, error), "start_bias": mean(totals), "difference": apart}

    def truth(self, model: Model) -> dict[str, float]:
        """Return the true answers, by a model of the same states: gain, start_bias, difference.

        The difference is infinite, or NaN, if the gains of the two sides differ.
        """
        one, other = (model.value_of(side, self.plan.one_start) for side in self.sides)
        apart = 0.0 if abs(one[1] - other[1]) < 1e-9 else np.inf * (one[1] - other[1])
        difference = one[0] - other[0] + apart
        return {"gain": model.gain, "start_bias": start_bias(model), "difference": difference}


def draw(kind: str, seed: int, most_trials: int = 1500) -> Task:
    """Return the task of a kind and a seed, always the same one."""
    rng = np.random.default_rng([seed, crc32(kind.encode())])
    while True:
        plan = KINDS[kind](rng)
        mixes = mixing_time(plan.model)
        if 2 <= mixes <= 80 and np.ptp(plan.model.values(plan.model.reached)) > 1e-3:
            break
    drawn = rng.uniform(0.5, 5.0)
    t_max = plan.t_max or max(3, round(mixes * drawn))
    n = int(np.exp(rng.uniform(np.log(40), np.log(min(most_trials, max(60, 60_000 // t_max))))))
    if rng.random() < 0.6 and len(plan.model.starts) < 30:  # enough for each start
        n = max(n, 15 * len(plan.model.starts))
    states, observations, rewards = plan.model.simulate(n, t_max, rng)
    times = plan.model.times(states, rng) if isinstance(plan.model, Finite) else None
    lengths = np.full(n, t_max + 1)
    if plan.cut is not None:
        lengths = cut_lengths(plan.cut, plan.model, states, rng)
    sides = question(plan, states, rng)
    if plan.clock:
        time = np.broadcast_to(np.arange(t_max + 2.0)[None, :, None], (n, t_max + 2, 1))
        observations = np.concatenate([observations, time], axis=2)
    features = plan.features
    if features is None:
        features = OneHot() if observations.ndim == 2 else vector_features(observations, rng)
    options = random_options(observations.ndim == 2, n, rng)
    data = states, observations, rewards, lengths
    return Task(plan, *data, features, options, sides, times)


def question(plan: Plan, states: NDArray[Any], rng: Rng) -> tuple[Any, Any]:
    """Return two observations to compare.

    These are two of six starts with the largest difference in value. If there is one start, the
    other is a frequent late observation.
    """
    model = plan.model
    if isinstance(model, Finite) and plan.one_start:
        return model.shown[states[0, 0]], model.shown[np.bincount(states[:, -1]).argmax()]
    some = rng.permutation(np.unique(model.shows(states[:, 0]), axis=0))[:6]
    starts = sorted(some, key=lambda start: model.value_of(start)[0])
    return starts[-1], starts[0]


def cut_lengths(how: str, model: Model, states: NDArray[Any], rng: Rng) -> NDArray[np.int64]:
    """Return lengths of trials, cut at random, at good states or at bad states."""
    n, T = len(states), states.shape[1] - 1
    if how == "random":
        kept = rng.random(n) < rng.uniform(0.05, 0.5)
        short = rng.integers(max(2, T // 5), T + 1, n)
        return np.asarray(np.where(kept, T, short), dtype=np.int64)
    value = model.to_come(0, states.reshape(-1, *states.shape[2:])).reshape(n, T + 1)
    value = value * rng.choice([-1.0, 1.0])
    ends = (value < np.quantile(value, 0.3)) & (rng.random((n, T + 1)) < rng.uniform(0.02, 0.3))
    ends[:, : max(2, T // 8)] = False
    return np.asarray(np.where(ends.any(axis=1), ends.argmax(axis=1), T), dtype=np.int64)


def random_options(counted: bool, n: int, rng: Rng) -> dict[str, Any]:
    """Return options, most of them the defaults."""
    options: dict[str, Any] = {}
    if rng.random() < 0.5:
        options["n_batches"] = int(rng.choice([2, 3, 5, 10, min(40, n)]))
    if rng.random() < 0.25:
        options["n_anchors"] = ["auto", 1, 4][rng.integers(3)]
    if rng.random() < 0.2 and options.get("n_anchors") != "auto":
        backups = ["one_step", MultiStep(3), LambdaReturn(0.9), *(["model"] if counted else [])]
        options["backup"] = backups[rng.integers(len(backups))]
    return options


def vector_features(observations: FloatArray, rng: Rng) -> Any:
    """Return bumps, a polynomial, cosines or tiles over what was observed."""
    flat = observations.reshape(-1, observations.shape[-1])
    low, high = flat.min(axis=0), flat.max(axis=0) + 1e-9
    k = min(len(low), 3) - 1
    which = rng.integers(4)
    if which == 0:
        return RadialBasis.grid(low, high, int(rng.integers(*[(4, 17), (3, 6), (2, 4)][k])))
    if which == 1:
        return Polynomial(int(rng.integers(1, 5)), scale=float(np.abs(flat).max()))
    if which == 2:
        return FourierBasis(low, high, int(rng.integers(*[(2, 9), (2, 5), (1, 3)][k])))
    return TileCoding(low, high, int(rng.integers(*[(4, 12), (3, 6), (2, 3)][k])), 4)
