"""Agents and other estimators on the same samples of random problems, beside the projection limit.

Two studies, in every environment and ρ of the paper, with two neighbourhoods (``p02md``) and as
many as features allow (``paxmd``); all get the exact gain. Errors are total rems, also as multiples
of the projection limit (`lstd_agent.problems`).

- *References*: the effect of linked calibration, its backups and the occupancy rule.
- *Estimators*: our systems and established estimators. TD gets the best of several numbers of
  updates, which is unknown in practice.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np

from lstd_agent import MMD, LambdaReturn, SeminormLSTDAgent, TransitionCounts
from lstd_agent.arrays import FloatArray
from lstd_agent.baselines import (
    average_reward_lstd,
    certainty_equivalence,
    differential_td,
    discounted_lstd,
    monte_carlo,
)
from lstd_agent.errors import EvaluationError, FitWarning
from lstd_agent.problems import (
    ENVIRONMENTS,
    RHOS,
    PiecewiseValues,
    Regime,
    StepwiseErrors,
    random_features,
    random_problem,
    regimes,
)
from lstd_agent.results import Row
from study.store import Key, Study, Task, generator
from unichain_gym import MarkovChain, simulate_counts

SCHEMES = ("p02md", "paxmd")
"""Two neighbourhoods, and as many as features allow; both by the MMD."""

# The study of the paper searches for anchors by doubling.
_SEARCH = {"search": "doubling", "distance": MMD("quadratic")}


@dataclass(frozen=True, eq=False)
class SampledRegime:
    """Samples of a chain in one feature regime; every agent gets the exact gain."""

    regime: Regime
    counts: TransitionCounts
    batches: Sequence[TransitionCounts]
    features: FloatArray
    errors: StepwiseErrors

    def fit(self, **options: Any) -> SeminormLSTDAgent:
        """Return a fitted agent; it gets the samples batch by batch if it chooses by them."""
        agent = SeminormLSTDAgent(self.features, gain=self.errors.chain.gain, **options)
        for batch in self.batches if options.get("backup") == "auto" else [self.counts]:
            agent.add(batch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # errors tell more
            return agent.fit()

    def values(self, **options: Any) -> PiecewiseValues:
        """Return the values of an agent with these options."""
        return PiecewiseValues.of(self.fit(**options), len(self.features))

    def anchors(self, n_anchors: int) -> list[int]:
        """Return the anchors that the samples give."""
        options: dict[str, Any] = {"n_anchors": n_anchors, "backup": "one_step", **_SEARCH}
        return [0] if n_anchors == 1 else self.values(**options).anchors.tolist()

    @property
    def anchors_by_scheme(self) -> dict[str, list[int]]:
        """The anchors of each of `SCHEMES`."""
        numbers = (2, self.regime.n_anchors_max)
        return {s: self.anchors(n) for s, n in zip(SCHEMES, numbers, strict=True)}

    def total_rems(self, found: PiecewiseValues) -> float:
        """Return the total rems of values."""
        return float(self.errors.rems(found).sum())


def sampled_regimes(
    chain: MarkovChain,
    batches: Sequence[TransitionCounts],
    distributions: FloatArray,
    seed: int,
    rhos: Collection[float] = RHOS,
) -> Iterator[SampledRegime]:
    """Yield the samples in every regime of the environment, with features drawn by the seed."""
    counts = reduce(add, batches)
    for regime in regimes(chain.n_states, rhos):
        features = random_features(chain.n_states, regime.n_features, seed)
        errors = StepwiseErrors(chain, features, distributions)
        yield SampledRegime(regime, counts, batches, features, errors)


def _study(
    name: str,
    settings: type,
    fields: tuple[str, ...],
    rows: Callable[[Task], list[Row]],
    answers: Iterable[tuple[str, ...]],
) -> Study:
    """Return a study whose rows are one for each regime, scheme and answer."""
    every = [(scheme, *answer) for scheme in SCHEMES for answer in answers]

    def work(env: str, n_states: int, seeds: range, *_: Any) -> Iterator[tuple[int, list[Key]]]:
        rhos = [regime.rho for regime in regimes(n_states)]
        for seed in seeds:
            yield seed, [(env, rho, seed, *each) for rho in rhos for each in every]

    key = ("env", "rho", "seed", "scheme", *fields)
    return Study(name, settings, key, rows, work, {"env": ENVIRONMENTS})


# The effect of our rules

COMBINATIONS = {
    ("linked", "none", "auto"): "linked, backup by the data",
    ("linked", "none", "one_step"): "linked, one step",
    ("references", "occupancy", "one_step"): "references, occupancy",
    ("references", "most_common", "one_step"): "references, most_common",
}
"""Calibration, rule for reference states and backup, with a name; the agent's default comes first,
the paper's rules last."""


@dataclass(frozen=True)
class ReferenceSettings:
    """What every row depends on: number of trials and rank cutoff."""

    n_trials: int = 10_000
    rcond: float = 1e-10


def reference_rows(task: Task) -> list[Row]:
    """Simulate once, and compare all combinations in every regime."""
    chain, distributions = random_problem(task.env, task.seed)
    n_trials, rcond = task.settings.n_trials, task.settings.rcond
    drawn = simulate_counts(chain, n_trials, len(distributions) - 1, generator(task.seed, 2))
    counts = TransitionCounts.of(drawn)
    rows = []
    for sampled in sampled_regimes(chain, [counts], distributions, task.seed):
        for scheme, anchors in sampled.anchors_by_scheme.items():
            for calibration, rule, backup in COMBINATIONS:
                found = sampled.values(
                    anchors=anchors,
                    calibration=calibration,
                    reference="occupancy" if rule == "none" else rule,
                    backup=backup,
                    rcond=rcond,
                )
                row = {"env": task.env, "rho": sampled.regime.rho, "seed": task.seed}
                row |= {"scheme": scheme, "calibration": calibration, "reference": rule}
                row |= {"backup": backup, "n_anchors": len(found.anchors)}
                row |= {"main_reference": found.main, **sampled.errors.totals(found)}
                rows.append({**row, "limit": sampled.errors.limit(found)})
    return rows


REFERENCES = _study(
    "reference",
    ReferenceSettings,
    ("calibration", "reference", "backup"),
    reference_rows,
    [*COMBINATIONS],
)

# Beside other estimators

DEFAULTS = "ours: defaults, backup by the data"
_LINKED = {"one step": "one_step", "model": "model", "λ = 0.9": LambdaReturn(0.9)}
OURS: dict[str, dict[str, Any]] = {
    DEFAULTS: {"backup": "auto"},
    **{f"ours: linked, {name}": {"backup": backup} for name, backup in _LINKED.items()},
    "ours: paper's rules": {"calibration": "references", "reference": "most_common"},
}
"""Options of the agent."""


def _td(counts: TransitionCounts, F: FloatArray, gain: float, decay: float) -> Iterator[FloatArray]:
    """Yield the values of TD after 0, 100, …, 10⁷ updates, until it diverges."""
    for n_updates in (0, *(10**k for k in range(2, 8))):
        try:
            yield differential_td(counts, F, gain, decay=decay, n_updates=n_updates)(F)
        except EvaluationError:
            return


CERTAINTY = "certainty equivalence, tabular"
BASELINES: dict[str, Callable[[TransitionCounts, FloatArray, float], Iterable[FloatArray]]] = {
    "LSTD(0)": lambda counts, F, g: [average_reward_lstd(counts, F, g)(F)],
    "LSTD(0.9)": lambda counts, F, g: [average_reward_lstd(counts, F, g, decay=0.9)(F)],
    "TD(0)": partial(_td, decay=0.0),
    "TD(0.9)": partial(_td, decay=0.9),
    "discounted LSTD, 0.9": lambda counts, F, _: [discounted_lstd(counts, F, 0.9)(F)],
    "discounted LSTD, 0.99": lambda counts, F, _: [discounted_lstd(counts, F, 0.99)(F)],
    "discounted LSTD, 0.999": lambda counts, F, _: [discounted_lstd(counts, F, 0.999)(F)],
    "Monte Carlo regression": lambda counts, F, g: [monte_carlo(counts, F, g)(F)],
    CERTAINTY: lambda counts, F, g: [certainty_equivalence(counts, g)],
}
"""Values (S,) by counts, features and gain: one, or several of which the best is taken."""

ESTIMATORS = (*OURS, *BASELINES)


@dataclass(frozen=True)
class EstimatorSettings(ReferenceSettings):
    """Likewise; the agent chooses by held-out batches."""

    n_batches: int = 20


def draw_batches(
    chain: MarkovChain, seed: int, n_trials: int, n_batches: int, t_max: int
) -> list[TransitionCounts]:
    """Return the counts of trials, drawn in independent batches of nearly the same size."""
    seeds = np.random.SeedSequence([seed, 3]).spawn(n_batches)
    sizes = np.diff(np.linspace(0, n_trials, n_batches + 1).astype(int)).tolist()
    return [
        TransitionCounts.of(simulate_counts(chain, size, t_max, np.random.default_rng(each)))
        for size, each in zip(sizes, seeds, strict=True)
    ]


def estimator_rows(task: Task) -> list[Row]:
    """Draw samples once, and give them to all estimators in every regime."""
    settings = task.settings
    chain, p = random_problem(task.env, task.seed)
    batches = draw_batches(chain, task.seed, settings.n_trials, settings.n_batches, len(p) - 1)
    rows = []
    for sampled in sampled_regimes(chain, batches, p, task.seed):
        alone = baseline_errors(sampled)
        for scheme, anchors in sampled.anchors_by_scheme.items():
            ours = {
                name: sampled.values(anchors=anchors, rcond=settings.rcond, **options)
                for name, options in OURS.items()
            }
            limit = sampled.errors.limit(ours[DEFAULTS])
            errors = {name: sampled.total_rems(found) for name, found in ours.items()} | alone
            row = {"env": task.env, "rho": sampled.regime.rho, "seed": task.seed, "scheme": scheme}
            rows += [
                {**row, "estimator": estimator, "total_rems": error, "limit": limit}
                for estimator, error in errors.items()
            ]
    return rows


def baseline_errors(sampled: SampledRegime) -> dict[str, float]:
    """Return the total rems of `BASELINES`; an unknown value counts as the mean."""
    counts, F, gain = sampled.counts, sampled.features, sampled.errors.chain.gain
    moves = counts.transition_counts
    main = int(np.argmax(np.bincount(moves.indices // counts.n_states, weights=moves.data)))

    def total_rems(values: FloatArray) -> float:
        relative = np.nan_to_num(values - values[main])
        found = PiecewiseValues(np.zeros(1, dtype=np.int64), relative[None], main)
        return sampled.total_rems(found)

    return {
        name: min(map(total_rems, values(counts, F, gain))) for name, values in BASELINES.items()
    }


ESTIMATOR_STUDY = _study(
    "estimator",
    EstimatorSettings,
    ("estimator",),
    estimator_rows,
    [(name,) for name in ESTIMATORS],
)
