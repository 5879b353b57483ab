"""Agents fitted to samples of a random problem, and their errors beside the projection limit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstd_agent import MMD, SeminormLSTDAgent, TransitionCounts
from lstd_agent.arrays import FloatArray
from lstd_agent.errors import FitWarning
from lstd_agent.problems import (
    RHOS,
    PiecewiseValues,
    Regime,
    StepwiseErrors,
    random_features,
    regimes,
)
from lstd_agent.results import How, Row
from study.store import Task, largest_first, open_store
from unichain_gym import MarkovChain

if TYPE_CHECKING:
    from typing_extensions import Unpack

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
        """Return an agent with these options, fitted to the samples.

        It gets the samples batch by batch if it chooses the backup by them.
        """
        agent = SeminormLSTDAgent(self.features, gain=self.errors.chain.gain, **options)
        for batch in self.batches if options.get("backup") == "auto" else [self.counts]:
            agent.add(batch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # errors tell more
            return agent.fit()

    def anchors(self, n_anchors: int) -> list[int]:
        """Return the anchors that the samples give."""
        if n_anchors == 1:
            return [0]
        agent = self.fit(n_anchors=n_anchors, backup="one_step", **_SEARCH)
        return [each.anchor for each in agent.neighborhoods_]

    @property
    def anchors_by_scheme(self) -> dict[str, list[int]]:
        """The anchors of each of `SCHEMES`."""
        numbers = (2, self.regime.n_anchors_max)
        return {s: self.anchors(n) for s, n in zip(SCHEMES, numbers, strict=True)}

    def values(self, agent: SeminormLSTDAgent) -> PiecewiseValues:
        """Return the values of an agent."""
        return PiecewiseValues.of(agent, len(self.features))

    def total_rems(self, found: PiecewiseValues) -> float:
        """Return the total rems of values."""
        return float(self.errors.rems(found).sum())


def sampled_regimes(
    chain: MarkovChain,
    batches: Sequence[TransitionCounts],
    distributions: FloatArray,
    seed: int,
    rhos: Container[float] = RHOS,
) -> Iterator[SampledRegime]:
    """Yield the samples in every regime of the environment, with features drawn by the seed."""
    counts = reduce(add, batches)
    for regime in regimes(chain.n_states, rhos):
        features = random_features(chain.n_states, regime.n_features, seed)
        errors = StepwiseErrors(chain, features, distributions)
        yield SampledRegime(regime, counts, batches, features, errors)


def rows_by_regime(
    out: Path,
    name: str,
    settings: Any,
    key: Sequence[str],
    compute: Callable[[Task], list[Row]],
    answers: Iterable[tuple[str, ...]],
    environments: Sequence[str],
    n_seeds: int,
    **how: Unpack[How],
) -> list[Row]:
    """Compute the rows of seeds 0 to n_seeds - 1 that a folder lacks, and return all asked for.

    There is one for each regime, scheme and answer.
    """
    store, answers = open_store(out, name, asdict(settings), key), list(answers)
    tasks = [
        Task(env, seed, None, settings)
        for env, n_states, seed in largest_first(environments, n_seeds)
        if store.lacks(
            (env, regime.rho, seed, scheme, *answer)
            for regime in regimes(n_states)
            for scheme in SCHEMES
            for answer in answers
        )
    ]
    store.compute(compute, tasks, **how)
    return store.asked(env=environments, seed=range(n_seeds))
