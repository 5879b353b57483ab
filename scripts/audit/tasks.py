"""Random tasks: trials of a process, features, options, and a question about two starts.

A kind, one of `KINDS`, decides about the process; kinds with counts come first. `draw` makes the
task of a kind and a seed, always the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
from models import (
    Finite,
    FloatArray,
    Gaussian,
    Model,
    Trials,
    at,
    mixing_time,
    moves,
    start_bias,
    with_event,
    with_mode,
)
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
from unichain_gym import TabularMDP, attach_streams
from unichain_gym.cores import CORES

Rng = np.random.Generator


@dataclass(frozen=True, eq=False)
class Plan:
    """The part of a task that depends on its kind; the rest is drawn alike for all kinds.

    ``cut`` is None, "random" or "state". ``sound`` says that observations are states without a
    clock, and that there is one gain. ``explored`` is an MDP, its policy and how often to explore,
    where the agent collects the trials.
    """

    model: Model
    features: Any = None
    t_max: int | None = None
    cut: str | None = None
    sound: bool = True
    clock: bool = False
    one_start: bool = False
    explored: tuple[TabularMDP, NDArray[Any], float] | None = None


def streams(rng: Rng) -> tuple[TabularMDP, NDArray[np.int64]]:
    """Return a random core with random streams in front of it, and a random policy."""
    core = CORES[str(rng.choice(list("hcrmgq")))].build()
    n_streams, A = int(rng.integers(1, 4)), core.n_actions
    mdp = attach_streams(
        core,
        n_streams,
        rng.integers(1, 9, n_streams).tolist(),
        rng.uniform(0.2, 0.95, (n_streams, A)),
        rng.uniform(-2.0, 4.0, (n_streams, A)).round(2),
        rng.integers(0, core.n_states, n_streams).tolist(),
    )
    policy = [rng.choice(np.flatnonzero(allowed)) for allowed in mdp.allowed_actions]
    return mdp, np.array(policy, dtype=np.int64)


def as_finite(mdp: TabularMDP, policy: NDArray[np.int64], noise: float = 0.0) -> Finite:
    """Return the chain that a policy induces, as a process."""
    chain = mdp.induce(policy)
    shown = np.arange(chain.n_states)
    P = chain.transition_matrix.toarray()
    return Finite(P, chain.reward, chain.initial_distribution, shown, noise)


def queue(rng: Rng, n: int = 24) -> Finite:
    """Return a counted queue with a few possible numbers of jobs at the start."""
    come, go = rng.uniform(0.2, 0.45), rng.uniform(0.5, 0.8)
    up, down = come * (1.0 - go), go * (1.0 - come)
    start = at(n, *rng.choice(n, int(rng.integers(2, 6)), replace=False))
    jobs = np.arange(n)
    cost = -jobs - rng.uniform(0.0, 3.0) * (jobs > n // 3)
    P = moves(n, {1: up, -1: down, 0: 1.0 - up - down})
    return Finite(P, cost, start, jobs, float(rng.choice([0.0, 0.5])))


def backlog(rng: Rng, one_start: bool = False) -> Finite:
    """Return work on a fine grid of 0 ... 20 that drains, noisily or nearly steadily."""
    n = int(rng.integers(60, 140))
    shape = rng.integers(3)
    if shape == 0:  # noisy
        widest = int(rng.integers(3, 9))
        steps = dict.fromkeys(range(-widest, int(widest * rng.uniform(0.3, 0.9))), 1.0)
    elif shape == 1:  # steady, with bursts
        steps = {-int(rng.integers(2, 5)): 0.9, int(rng.integers(3, 20)): 0.1}
    else:  # a step of one, or none
        steps = {-int(rng.integers(1, 4)): rng.uniform(0.6, 0.95), 0: 0.3}
    total = sum(steps.values())
    work = np.linspace(0.0, 20.0, n)
    starts = [n - 1] if one_start else rng.choice(n, int(rng.integers(2, 12)), replace=False)
    cost = [-work, -np.sqrt(work), (work > 0.0) * 1.0, -(work**2) / 10.0][rng.integers(4)]
    P = moves(n, {step: chance / total for step, chance in steps.items()})
    noise = float(rng.choice([0.0, 0.5]))
    return Finite(P, cost.astype(np.float64), at(n, *starts), work[:, None], noise)


def gaussian(rng: Rng, hides: bool = False) -> Gaussian:
    """Return AR(1) in 1 to 3 dimensions; a hidden one's start follows from the visible ones."""
    k = int(rng.integers(2 if hides else 1, 4))
    visible = k - hides
    A = rng.normal(size=(k, k)) * (0.3 if k > 1 else 1.0) + np.eye(k)
    A *= rng.uniform(0.6, 0.95) / np.abs(np.linalg.eigvals(A)).max()
    spread = rng.normal(size=(k, k)) * 0.3 + np.eye(k)
    points = rng.uniform(-6.0, 6.0, (int(rng.choice([2, 3, 5, 30])), k))
    points[:, visible:] = points[:, :visible] @ rng.normal(size=(visible, k - visible))
    pay = rng.choice(["linear", "square", "absolute", "bump"])
    c = rng.normal(size=k)
    c[visible:] *= 2.0  # hidden components matter
    return Gaussian(A, spread @ spread.T, c, pay, points, visible)


def ring(rng: Rng) -> Plan:
    """Return a periodic core of up to 8 states, with states that lead into it."""
    d, m = int(rng.integers(2, 9)), int(rng.integers(1, 4))
    P = np.zeros((d + m, d + m))
    P[np.arange(d), (np.arange(d) + 1) % d] = 1.0
    stay = rng.uniform(0.3, 0.95, m)
    P[np.arange(d, d + m), np.arange(d, d + m)] = stay
    np.add.at(P, (np.arange(d, d + m), rng.integers(d, size=m)), 1.0 - stay)
    reward = np.concatenate([rng.normal(size=d) * rng.choice([0.0, 1.0]), rng.normal(size=m) * 4.0])
    start = np.ones(d + m) if rng.random() < 0.3 else np.arange(d + m) >= d
    model = Finite(P, reward, start / start.sum(), np.arange(d + m))
    return Plan(model, t_max=max(3, int(d * rng.uniform(1.0, 10.0))))


def aggregated(rng: Rng) -> Plan:
    """Return streams and a core whose features merge some states."""
    model = as_finite(*streams(rng))
    S = len(model.P)
    d = max(2, int(S * rng.uniform(0.2, 0.9)))
    groups = rng.integers(d, size=S) if rng.random() < 0.5 else np.arange(S) * d // S
    table = (
        np.eye(d)[groups] if rng.random() < 0.6 else rng.normal(np.arange(S)[:, None], 1, (S, d))
    )
    return Plan(model, features=table)


def hidden(rng: Rng, base: Finite, forever: bool = False) -> Plan:
    """Return a hidden mode that moves or pays; forever, trials have gains of their own."""
    if rng.random() < 0.5:
        other = replace(base, reward=base.reward + rng.normal() * np.ptp(base.reward))
    else:
        slows = rng.random() < 0.5  # else it is thrown back to a start now and then
        share, to = (rng.uniform(0.2, 0.6), np.eye(len(base.P))) if slows else (0.05, base.start)
        other = replace(base, P=(1.0 - share) * base.P + share * to)
    if forever:
        share = rng.uniform(0.2, 0.8)
        start = np.stack([share * base.start, (1.0 - share) * base.start])
        return Plan(with_mode(base, other, 1.0, start), sound=False)
    known = rng.random(len(base.start)) < 0.5  # the mode of a start is its own
    start = np.stack([base.start * known, base.start * ~known])
    return Plan(with_mode(base, other, rng.uniform(0.85, 0.98), start), sound=False)


def rare(rng: Rng, base: Finite) -> Plan:
    """Return rewards that are large and rare, where the base pays least or anywhere."""
    chance = float(10.0 ** rng.uniform(-3.5, -1.5))
    where = base.reward <= np.median(base.reward) if rng.random() < 0.5 else base.reward < np.inf
    size = rng.choice([-1.0, 1.0]) * np.ptp(base.reward) * rng.uniform(0.3, 1.0) / chance
    return Plan(with_event(base, chance, size * where))


def explored(rng: Rng) -> Plan:
    """Return streams and a core for trials that the agent collects with exploration."""
    mdp, policy = streams(rng)
    model = as_finite(mdp, policy)
    return Plan(model, explored=(mdp, policy, [0.02, 0.1, 1, 3][rng.integers(4)]))


def timed(rng: Rng, base: Finite) -> Plan:
    """Return a process whose steps take time, in a random unit."""
    S, scale = len(base.P), 10.0 ** rng.uniform(-3.0, 3.0)
    duration = scale * rng.uniform(0.1, 2.0, S)
    a_unit = base.reward + rng.normal() * np.ptp(base.reward)
    law = one_of(rng, "deterministic", "exponential", "lognormal")
    return Plan(replace(base, reward=a_unit * duration / scale, duration=duration, law=law))


def some_counts(rng: Rng) -> Finite:
    """Return a queue, or streams and a core."""
    return queue(rng) if rng.random() < 0.5 else as_finite(*streams(rng), 0.3)


def some_vectors(rng: Rng) -> Model:
    """Return a backlog, or AR(1) in 1 to 3 dimensions."""
    if rng.random() < 0.5:
        return backlog(rng)
    return gaussian(rng)


def one_of(rng: Rng, *choices: str) -> str:
    """Return one of them."""
    return str(rng.choice(choices))


COUNTED: dict[str, Callable[[Rng], Plan]] = {
    "streams": lambda rng: Plan(as_finite(*streams(rng), float(rng.choice([0.0, 1.0])))),
    "aggregated": aggregated,
    "periodic": ring,
    "queue": lambda rng: Plan(queue(rng)),
    "cut": lambda rng: Plan(some_counts(rng), cut=one_of(rng, "random", "state")),
    "hidden": lambda rng: hidden(rng, some_counts(rng)),
    "own": lambda rng: hidden(rng, some_counts(rng), forever=True),
    "rare": lambda rng: rare(rng, some_counts(rng)),
    "explored": explored,
    "timed": lambda rng: timed(rng, some_counts(rng)),
}
VECTORS: dict[str, Callable[[Rng], Plan]] = {
    "backlog": lambda rng: Plan(backlog(rng)),
    "one-start": lambda rng: Plan(backlog(rng, one_start=True), one_start=True),
    "ar1": lambda rng: Plan(gaussian(rng)),
    "clock": lambda rng: Plan(some_vectors(rng), clock=True, sound=False),
    "cut-vectors": lambda rng: Plan(some_vectors(rng), cut=one_of(rng, "random", "state")),
    "hidden-vectors": lambda rng: (
        hidden(rng, backlog(rng))
        if rng.random() < 0.5
        else Plan(gaussian(rng, hides=True), sound=False)
    ),
    "own-vectors": lambda rng: hidden(rng, backlog(rng), forever=True),
    "rare-vectors": lambda rng: rare(rng, backlog(rng)),
    "timed-vectors": lambda rng: timed(rng, backlog(rng)),
}
KINDS = COUNTED | VECTORS


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
    sides: tuple[Any, Any]
    options: dict[str, Any] = field(default_factory=dict)
    times: FloatArray | None = None

    @classmethod
    def of(cls, model: Model, trials: Trials, features: Any, sides: Any, **options: Any) -> Task:
        """Return a task with whole trials."""
        n, T = trials[2].shape
        return cls(Plan(model), *trials, np.full(n, T), features, sides, options)

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
    return Task(plan, *data, features, sides, options, times)


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
