"""The paper's claims as a referee would judge them: a criterion each, and how sure our seeds are.

A claim is a sentence of the paper's results, read as a criterion on means over seeds. The criterion
gives a verdict on each *item* (such as a row of the tables), and the claim holds if every item
agrees, or most of them do where the sentence says so. Our means come from a finite number of
seeds, so the claim is judged again on 1,000 bootstrap resamples of them. It is *confirmed* if it
holds in at least 95 % of those, *not confirmed* if in at most 5 %, and *undecided with these seeds*
otherwise. Beside that stands the same criterion on the paper's own tables, where there are any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.study.markdown import table

CONFIRMED, REFUTED, UNDECIDED = "confirmed", "not confirmed", "undecided with these seeds"

N_RESAMPLES = 1_000
CONFIDENCE = 0.95

# Fewer seeds hardly differ from one another when they are resampled.
FEWEST_SEEDS = 5

Means = TypeVar("Means")
Cell = TypeVar("Cell", bound=Hashable)

Items = tuple[Sequence[str], BoolArray]
"""Names of items, and whether each agrees, shape (..., items)."""


@dataclass(frozen=True)
class Criterion(Generic[Means]):
    """A sentence of the paper, and how it is tested.

    Attributes
    ----------
    label : str
    section : str
        Where the paper says it.
    meaning : str
        What the sentence says.
    test : str
        What an item must fulfil, thresholds included.
    items : callable
        Gives the `Items`, for means of any leading shape.
    every : bool
        Whether all items must agree, or more than half of them.
    schemes : frozenset of str
        Without which the claim cannot be judged.
    """

    label: str
    section: str
    meaning: str
    test: str
    items: Callable[[Means], Items]
    every: bool
    schemes: frozenset[str] = frozenset()

    def holds(self, agree: BoolArray) -> BoolArray:
        """Whether the claim holds, given which items agree, shape (..., items)."""
        return np.asarray(agree.all(axis=-1) if self.every else agree.mean(axis=-1) > 0.5)


@dataclass(frozen=True)
class Claim:
    """A criterion and what our rows, and the paper's tables, say about it.

    Attributes
    ----------
    criterion : Criterion
    verdict : str
        `CONFIRMED`, `REFUTED` or `UNDECIDED`.
    support : float
        The share of resamples of the seeds in which the claim holds.
    n_agree, n_items : int
        How many items agree, on the means over all seeds.
    disagreeing : tuple of str
        Those that do not.
    in_paper : tuple of int, optional
        How many items agree in the paper's own tables, and of how many.
    """

    criterion: Criterion[Any]
    verdict: str
    support: float
    n_agree: int
    n_items: int
    disagreeing: tuple[str, ...]
    in_paper: tuple[int, int] | None


def over_seeds(
    found: Iterable[tuple[Cell, int, float]],
) -> dict[Cell, FloatArray]:
    """Gather (cell, seed, value) into each cell's values, in the order of the seeds.

    Raises
    ------
    InvalidInputError
        Unless all cells have the same seeds, by which they are resampled together.
    """
    cells: dict[Cell, dict[int, float]] = defaultdict(dict)
    for cell, seed, value in found:
        cells[cell][seed] = value
    seeds = {tuple(sorted(by_seed)) for by_seed in cells.values()}
    if len(seeds) != 1:
        raise InvalidInputError(
            f"claims need the same seeds in every cell; got {len(seeds)} different sets of them"
        )
    (common,) = seeds
    return {cell: np.array([by_seed[s] for s in common]) for cell, by_seed in cells.items()}


def judge(
    criteria: Iterable[Criterion[Means]],
    values: Mapping[Cell, FloatArray],
    arrange: Callable[[Mapping[Cell, FloatArray]], Means],
    paper: Means | None = None,
) -> list[Claim]:
    """Judge claims on the means of values over their first axis, and on bootstrap resamples of it.

    Parameters
    ----------
    criteria : iterable of Criterion
    values : mapping of cells to ndarray, shape (seeds, ...)
    arrange : callable
        Makes of each cell's mean, shape (resamples, ...) or (...), what items are asked of.
    paper : Means, optional
        The paper's own.
    """
    n_seeds = len(next(iter(values.values())))
    rng, evenly = np.random.default_rng(0), np.full(n_seeds, 1.0 / n_seeds)
    weights = rng.multinomial(n_seeds, evenly, N_RESAMPLES) / n_seeds
    means = arrange({cell: np.asarray(v.mean(axis=0)) for cell, v in values.items()})
    resampled = arrange({cell: weights @ v for cell, v in values.items()})
    return [_judge(criterion, means, resampled, n_seeds, paper) for criterion in criteria]


def _judge(
    criterion: Criterion[Means], means: Means, resampled: Means, n_seeds: int, paper: Means | None
) -> Claim:
    names, agree = criterion.items(means)
    support = float(criterion.holds(criterion.items(resampled)[1]).mean())
    if n_seeds < FEWEST_SEEDS or 1.0 - CONFIDENCE < support < CONFIDENCE:
        verdict = UNDECIDED
    else:
        verdict = CONFIRMED if support >= CONFIDENCE else REFUTED
    theirs = None if paper is None else criterion.items(paper)[1]
    return Claim(
        criterion,
        verdict,
        support,
        int(agree.sum()),
        agree.size,
        tuple(name for name, agrees in zip(names, agree, strict=True) if not agrees),
        None if theirs is None else (int(theirs.sum()), theirs.size),
    )


def rank_correlation(x: FloatArray, y: FloatArray, counted: BoolArray | bool = True) -> FloatArray:
    """Return Spearman's rank correlation along the last axis; tied values share their mean rank.

    Parameters
    ----------
    x, y : ndarray, shape (..., n)
    counted : ndarray of bool, broadcasting to (..., n)
        Which of the n to count: all by default.

    Returns
    -------
    ndarray, shape (...)
        0 where all counted values of either are tied.
    """
    counted = np.broadcast_to(counted, x.shape)
    among = counted[..., None, :]
    centered = []
    for values in (x, y):
        below = ((values[..., None] > values[..., None, :]) & among).sum(axis=-1)
        ties = ((values[..., None] == values[..., None, :]) & among).sum(axis=-1)
        rank = np.where(counted, below + (ties - 1) / 2, 0.0)
        mean = rank.sum(axis=-1, keepdims=True) / np.sum(counted, axis=-1, keepdims=True)
        centered.append(np.where(counted, rank - mean, 0.0))
    a, b = centered
    scale = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    return np.asarray((a * b).sum(axis=-1) / np.where(scale == 0.0, 1.0, scale))


def markdown_table(claims: Iterable[Claim]) -> str:
    """Write claims as a Markdown table."""
    rows = []
    for claim in claims:
        c = claim.criterion
        rows.append(
            [
                c.label,
                f"{c.meaning} ({c.section})",
                f"{c.test}; {'every one' if c.every else 'most'}",
                f"{claim.n_agree} of {claim.n_items}",
                "" if claim.in_paper is None else "{} of {}".format(*claim.in_paper),
                f"{100 * claim.support:.0f} %",
                claim.verdict,
            ]
        )
    heads = ("", "the paper says (section)", "tested as", "ours", "in the paper's tables")
    return table([*heads, "holds in resamples", "verdict"], rows, "lllrrrl") + "\n"


def markdown(claims: Sequence[Claim]) -> str:
    """Write claims as a Markdown table, and what disagrees with each."""
    lines = [markdown_table(claims)]
    lines += [
        f"- {claim.criterion.label} disagreeing: {'; '.join(claim.disagreeing)}."
        for claim in claims
        if claim.disagreeing
    ]
    return "\n".join(lines) + "\n"
