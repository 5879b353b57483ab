"""The paper's claims as a referee would judge them: a criterion each, and how sure our seeds are.

A claim is a sentence of the paper's results, read as a criterion on means over seeds. The criterion
gives a verdict on each *item* (such as a row of the tables), and the claim holds if every item
agrees, or most of them do where the sentence says so. Our means come from a finite number of
seeds, so the claim is judged again on 1,000 bootstrap resamples of them. It is *confirmed* if it
holds in at least 95 % of those, *not confirmed* if in at most 5 %, and *undecided with these seeds*
otherwise. Beside that stands the same criterion on the paper's own tables, where there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.study.markdown import table

CONFIRMED, REFUTED, UNDECIDED = "confirmed", "not confirmed", "undecided with these seeds"

N_RESAMPLES = 1_000
CONFIDENCE = 0.95

# Fewer seeds hardly differ from one another when they are resampled.
FEWEST_SEEDS = 5

Means = TypeVar("Means")


@dataclass(frozen=True)
class Criterion(Generic[Means]):
    """A sentence of the paper, and how it is tested.

    Attributes
    ----------
    label : str
    section : str
        Of the paper.
    meaning : str
        What the sentence says.
    test : str
        What an item must fulfil, thresholds included.
    items : callable
        Gives the names of the items, and for means of any leading shape whether each agrees,
        shape (..., items).
    every : bool
        Whether all items must agree, or more than half of them.
    schemes : frozenset of str
        Without which the claim cannot be judged.
    """

    label: str
    section: str
    meaning: str
    test: str
    items: Callable[[Means], tuple[Sequence[str], BoolArray]]
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


def resampling_weights(n_seeds: int) -> FloatArray:
    """Return the weight of each seed in each bootstrap resample, shape (resamples, seeds)."""
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(n_seeds, np.full(n_seeds, 1.0 / n_seeds), N_RESAMPLES)
    return np.asarray(drawn / n_seeds)


def judge(
    criterion: Criterion[Means], means: Means, resampled: Means, n_seeds: int, paper: Means | None
) -> Claim:
    """Judge a claim.

    Parameters
    ----------
    criterion : Criterion
    means, resampled : Means
        Over all seeds, and over each resample of them.
    n_seeds : int
    paper : Means, optional
        The paper's own.
    """
    names, agree = criterion.items(means)
    support = float(criterion.holds(criterion.items(resampled)[1]).mean())
    if n_seeds < FEWEST_SEEDS or 1.0 - CONFIDENCE < support < CONFIDENCE:
        verdict = UNDECIDED
    else:
        verdict = CONFIRMED if support >= CONFIDENCE else REFUTED
    in_paper = None
    if paper is not None:
        theirs = criterion.items(paper)[1]
        in_paper = (int(theirs.sum()), theirs.size)
    return Claim(
        criterion,
        verdict,
        support,
        int(agree.sum()),
        agree.size,
        tuple(name for name, agrees in zip(names, agree, strict=True) if not agrees),
        in_paper,
    )


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
