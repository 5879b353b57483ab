"""The claims about the non-sampling experiments (section 7.1 of the paper), as criteria.

Where at most two anchors are allowed, a scheme pax·· and its p02·· are one and the same: such
*twins* count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.study.claims import Claim, Criterion, Items, judge, over_seeds, rank_correlation
from lstd_agent.study.rows import Row
from lstd_agent.study.tables import METRICS, Cell, paper_cells

DISTANCES = ("tv", "ot", "md")
SINGLE, TWO, MOST = (
    ("buw", "p01"),
    tuple(f"p02{m}" for m in DISTANCES),
    tuple(f"pax{m}" for m in DISTANCES),
)
_ALL = ("buw", "p01", "p02am", *TWO, *MOST, "pinf")

# Relative: below this, two means are the same number.
_TIE = 1e-9

# "On par", "do not correlate" and "100-fold" of the text, as numbers.
_ON_PAR = 2.0
_UNCORRELATED = 0.5
_HUNDREDFOLD = (10**1.5, 10**2.5)


@dataclass(frozen=True)
class TableMeans:
    """Mean errors, shape (..., rows) for each scheme.

    Attributes
    ----------
    rows : list of (str, float)
        Environment and ρ.
    repb, rems : dict of str to ndarray
        ε_PB and ε_MS by scheme.
    """

    rows: Sequence[tuple[str, float]]
    repb: Mapping[str, FloatArray]
    rems: Mapping[str, FloatArray]

    @property
    def names(self) -> list[str]:
        """The names of the table's rows."""
        return [f"{env} ρ={rho}" for env, rho in self.rows]

    @property
    def several(self) -> BoolArray:
        """Rows in which more than two anchors are allowed, so that there are no twins."""
        return np.array([int(1.0 / rho) > 2 for _, rho in self.rows])


def exact_claims(rows: Iterable[Row]) -> list[Claim]:
    """Judge the claims about the tables by rows of `run_exact_study`, with the same seeds for all.

    Those whose schemes are not among the rows are left out.
    """
    values = over_seeds(
        ((row["env"], row["rho"], metric, row["scheme"]), row["seed"], row[metric])
        for row in rows
        for metric in METRICS
    )
    means = table_means(values)
    published = {cell: np.float64(v) for cell, v in paper_cells().items() if cell in values}
    paper = table_means(published)
    complete = paper.rows == means.rows and paper.repb.keys() == means.repb.keys()
    criteria = [c for c in CRITERIA if c.schemes <= means.repb.keys()]
    return judge(criteria, values, table_means, paper if complete else None)


def table_means(cells: Mapping[Cell, FloatArray | np.float64]) -> TableMeans:
    """Arrange means by cell, each of shape (...), as tables."""
    rows = sorted({(env, rho) for env, rho, *_ in cells})
    schemes = [s for s in _ALL if any(s == scheme for *_, scheme in cells)]
    repb, rems = (
        {
            s: np.stack([np.asarray(cells[env, rho, metric, s]) for env, rho in rows], axis=-1)
            for s in schemes
        }
        for metric in METRICS
    )
    return TableMeans(rows, repb, rems)


def _stack(by_scheme: Mapping[str, FloatArray], schemes: Iterable[str]) -> FloatArray:
    """Return the schemes' values along a last axis of their own."""
    return np.stack([by_scheme[s] for s in schemes], axis=-1)


def _rank(m: TableMeans, scheme: str) -> FloatArray:
    """Return how many schemes have a lower ε_MS, ties aside."""
    own = m.rems[scheme] * (1.0 - _TIE)
    return np.asarray(sum((other < own).astype(float) for other in m.rems.values()))


def _pinf_lowest(m: TableMeans) -> Items:
    others = _stack(m.repb, (s for s in m.repb if s != "pinf"))
    return m.names, m.repb["pinf"] < others.min(axis=-1)


def _most_anchors_next(m: TableMeans) -> Items:
    two = np.where(m.several[:, None], _stack(m.repb, TWO), np.inf)
    others = np.concatenate((_stack(m.repb, (*SINGLE, "p02am")), two), axis=-1)
    second_of_three = np.sort(_stack(m.repb, MOST), axis=-1)[..., 1]
    return m.names, second_of_three <= others.min(axis=-1) * (1.0 + _TIE)


def _on_par(group: str) -> Callable[[TableMeans], Items]:
    def items(m: TableMeans) -> Items:
        ratio = np.log(m.repb[f"{group}md"] / m.repb[f"{group}ot"])
        return m.names, np.abs(ratio) <= np.log(_ON_PAR)

    return items


def _two_below_single(m: TableMeans) -> Items:
    agree = [m.repb[two] < m.repb[s] for two in ("p02am", *TWO) for s in SINGLE]
    names = [f"{name} {two}<{s}" for two in ("p02am", *TWO) for s in SINGLE for name in m.names]
    return names, np.concatenate(agree, axis=-1)


def _up_to_hundredfold(m: TableMeans) -> Items:
    pairs = [(single, two) for single in SINGLE for two in ("p02am", *TWO)]
    low, high = _HUNDREDFOLD
    largest = np.stack([(m.repb[a] / m.repb[b]).max(axis=-1) for a, b in pairs], axis=-1)
    return [f"{a}/{b}" for a, b in pairs], (low <= largest) & (largest <= high)


def _most_below_two(m: TableMeans) -> Items:
    agree = [(m.repb[p] < m.repb[two])[..., m.several] for two, p in zip(TWO, MOST, strict=True)]
    rows = [name for name, several in zip(m.names, m.several, strict=True) if several]
    return [f"{name} {d}" for d in DISTANCES for name in rows], np.concatenate(agree, axis=-1)


def _gain_grows(m: TableMeans) -> Items:
    """Whether the advantage of the most anchors is larger for the smallest ρ than the largest."""
    names, agree = [], []
    advantage = {s: m.repb[s] / _stack(m.repb, MOST).min(axis=-1) for s in SINGLE}
    for env in sorted({env for env, _ in m.rows}):
        place = {rho: i for i, (e, rho) in enumerate(m.rows) if e == env}
        if len(place) > 1:
            for s in SINGLE:
                names.append(f"{env} {s}")
                agree.append(
                    advantage[s][..., place[min(place)]] > advantage[s][..., place[max(place)]]
                )
    return names, np.stack(agree, axis=-1) if agree else np.empty(0, bool)


def _third_within_hundredfold(m: TableMeans) -> Items:
    ordered = np.sort(_stack(m.rems, m.rems), axis=-1)
    low, high = _HUNDREDFOLD
    largest = [(ordered[..., k] / ordered[..., 0]).max(axis=-1) for k in (1, 2)]
    agree = np.stack([(low <= x) & (x <= high) for x in largest], axis=-1)
    return ["second/lowest", "third/lowest"], agree


def _uncorrelated(m: TableMeans) -> Items:
    schemes = [s for s in _ALL if s != "pinf"]
    counted = np.array([[several or s not in MOST for s in schemes] for several in m.several])
    correlation = rank_correlation(_stack(m.repb, schemes), _stack(m.rems, schemes), counted)
    return m.names, np.abs(correlation) < _UNCORRELATED


_EVERY, _SOME = True, False
_NEED = frozenset(_ALL)
_1 = "7.1"
CRITERIA: tuple[Criterion[TableMeans], ...] = (
    Criterion(
        "a1", _1, "pinf has the lowest ε_PB", "pinf below all others, by row", _pinf_lowest,
        _EVERY, frozenset({"pinf", "p01"}),
    ),
    Criterion(
        "a2", _1, "pax·· have the second and third lowest ε_PB",
        "two of the three pax·· below all schemes but pinf, by row", _most_anchors_next,
        _EVERY, _NEED,
    ),
    Criterion(
        "b1", _1, "one approximator (buw, p01) has a larger ε_PB than two (p02··)",
        "each of the two above each of the four p02··, by row", _two_below_single,
        _EVERY, frozenset({*SINGLE, *TWO, "p02am"}),
    ),
    Criterion(
        "b2", _1, "… up to 100-fold larger",
        "largest ratio over all rows from 10^1.5 to 10^2.5, by pair of schemes",
        _up_to_hundredfold, _EVERY, frozenset({*SINGLE, *TWO, "p02am"}),
    ),
    Criterion(
        "b3", _1, "p02·· behave likewise to pax··",
        "pax·· below its p02··, by TV, OT, MMD and row with more than two anchors allowed",
        _most_below_two, _EVERY, frozenset({*TWO, *MOST}),
    ),
    Criterion(
        "b4", _1, "… especially as ρ decreases",
        "ε_PB of buw and of p01 over the lowest pax·· larger for the smallest ρ than for the "
        "largest, by environment", _gain_grows, _EVERY, frozenset({*SINGLE, *MOST}),
    ),
    Criterion(
        "c1", _1, "paxmd is on par with paxot in ε_PB in most cases",
        "within a factor of 2, by row", _on_par("pax"), _SOME, frozenset({"paxmd", "paxot"}),
    ),
    Criterion(
        "c2", "6.3", "OT is on par with MMD for p02··",
        "ε_PB of p02md within a factor of 2 of p02ot's, by row", _on_par("p02"), _SOME,
        frozenset({"p02md", "p02ot"}),
    ),
    Criterion(
        "d1", _1, "pinf has the lowest or second lowest ε_MS",
        "at most one scheme below it, by row",
        lambda m: (m.names, _rank(m, "pinf") <= 1), _EVERY, _NEED,
    ),
    Criterion(
        "d2", _1, "p02am has the second lowest ε_MS in most cases",
        "exactly one scheme below it, by row",
        lambda m: (m.names, _rank(m, "p02am") == 1), _SOME, _NEED,
    ),
    Criterion(
        "d3", _1, "… and the lowest otherwise", "at most one scheme below it, by row",
        lambda m: (m.names, _rank(m, "p02am") <= 1), _EVERY, _NEED,
    ),
    Criterion(
        "d4", _1, "second and third lowest ε_MS are up to 100-fold the lowest",
        "largest ratio over all rows from 10^1.5 to 10^2.5, for second and third",
        _third_within_hundredfold, _EVERY, _NEED,
    ),
    Criterion(
        "e", _1, "ε_PB of all but pinf does not correlate with their ε_MS",
        "Spearman's correlation below 0.5 in absolute value, by row", _uncorrelated, _SOME, _NEED,
    ),
)  # fmt: skip
