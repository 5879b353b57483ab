"""The paper's claims as criteria, and the certainty of our verdicts over seeds.

A claim is a sentence of the paper's results (sections 7.1, 7.2), read as a criterion on means over
seeds. The criterion gives a verdict on each *item* (such as a row of the tables). The claim holds
if every item agrees, or most items where the sentence says so, and is judged on bootstrap resamples
of the seeds, and on the paper's own tables. Where at most two anchors are allowed, pax·· and p02··
are the same scheme: such twins count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.results import Row
from lstd_agent.summary import markdown
from study.sampling import PANELS, Panel
from study.sampling import SCHEMES as SAMPLED
from study.tables import METRICS, paper_cells

CONFIRMED, REFUTED, UNDECIDED = "confirmed", "not confirmed", "undecided with these seeds"
N_RESAMPLES, CONFIDENCE = 1_000, 0.95

# Resamples of fewer seeds hardly differ.
FEWEST_SEEDS = 5

SINGLE = ("buw", "p01")
TWO, MOST = ("p02tv", "p02ot", "p02md"), ("paxtv", "paxot", "paxmd")
_ALL = ("buw", "p01", "p02am", *TWO, *MOST, "pinf")

# Relative: two means this close are the same number.
_TIE = 1e-9

# "On par", "do not correlate", "roughly follow" and "100-fold" of the text, as numbers.
_ON_PAR, _UNCORRELATED, _FOLLOWS, _HUNDREDFOLD = 2.0, 0.5, 0.5, (10**1.5, 10**2.5)

Means = Mapping[Any, FloatArray]
"""Means over seeds, shape (..., n). Of tables by (metric, scheme), n rows; of the figure by
(panel, metric, scheme), n checkpoints. ``"rows"`` are the tables' rows (environment and ρ)."""

Items = Mapping[str, BoolArray]
"""Whether each item agrees, shape (...,)."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, its criterion, and the verdicts of our rows and the paper's tables.

    ``support`` is the share of resamples of the seeds in which the claim holds. ``items`` and
    ``in_paper`` say whether each item agrees, on our means and in the paper's own tables.
    """

    label: str
    section: str
    meaning: str
    test: str
    verdict: str
    support: float
    items: dict[str, bool]
    in_paper: list[bool] | None


def judge(
    rows: Sequence[Row],
    criteria: Sequence[tuple[Any, ...]],
    key: Sequence[str],
    arrange: Callable[[pd.MultiIndex, FloatArray], Means],
    paper: Means | None = None,
) -> list[Claim]:
    """Judge claims on means over seeds, and on resamples of the seeds, the same in all cells."""
    frame = pd.DataFrame(rows).melt([*key, "seed"], list(METRICS), var_name="metric")
    table = frame.pivot_table("value", ["metric", *key], "seed")
    if table.isna().any(axis=None):
        told = "claims need the same seeds in every cell: compute the missing rows"
        raise InvalidInputError(told)
    values, n = table.to_numpy(), table.shape[1]
    weights = np.random.default_rng(0).multinomial(n, np.full(n, 1.0 / n), N_RESAMPLES) / n
    means, resampled = (arrange(table.index, x) for x in (values.mean(axis=1), weights @ values.T))
    claims = []
    for label, section, meaning, test, items, every, needs in criteria:
        if not set(needs) <= set(table.index.get_level_values("scheme")):
            continue

        def agreement(found: Means, items: Callable[[Means], Items] = items) -> BoolArray:
            agree = [*items(found).values()]
            return np.stack(agree, axis=-1) if agree else np.empty((1, 0), dtype=bool)

        agree = agreement(resampled)
        holds = agree.all(axis=-1) if every else agree.mean(axis=-1) > 0.5
        support = float(np.mean(holds))
        verdict = CONFIRMED if support >= CONFIDENCE else REFUTED
        if n < FEWEST_SEEDS or 1.0 - CONFIDENCE < support < CONFIDENCE:
            verdict = UNDECIDED
        test = f"{test}; {'every one' if every else 'most'}"
        ours = {name: bool(agrees) for name, agrees in items(means).items()}
        theirs = None if paper is None else agreement(paper).tolist()
        claims.append(Claim(label, section, meaning, test, verdict, support, ours, theirs))
    return claims


def exact_claims(rows: Sequence[Row]) -> list[Claim]:
    """Judge the claims about the tables, of which the rows have all schemes."""
    published = paper_cells().stack().dropna()
    published.index.names = ["env", "rho", "metric", "scheme"]
    wanted = {(r["env"], r["rho"], m, r["scheme"]) for r in rows for m in METRICS}
    published = published[published.index.isin(wanted)]
    index = published.index.reorder_levels(["metric", "env", "rho", "scheme"])
    paper = _tables(index, published.to_numpy()) if len(published) == len(wanted) else None
    return judge(rows, EXACT, ["env", "rho", "scheme"], _tables, paper)


def sampled_claims(rows: Sequence[Row]) -> list[Claim]:
    """Judge the claims about the figure."""
    return judge(rows, FIGURE, ["env", "n_features", "scheme", "n_trials"], _curves)


def _tables(index: pd.MultiIndex, values: FloatArray) -> Means:
    """Arrange means (..., cells) by metric and scheme, shape (..., rows)."""
    place = {cell: k for k, cell in enumerate(index)}
    lines = sorted({(env, rho) for _, env, rho, _ in place})
    columns = {(m, s): [place[(m, *line, s)] for line in lines] for m, _, _, s in place}
    means: dict[Any, Any] = {column: values[..., k] for column, k in columns.items()}
    return means | {"rows": lines}


def _curves(index: pd.MultiIndex, values: FloatArray) -> Means:
    """Arrange means (..., cells) by panel, metric and scheme, shape (..., checkpoints)."""
    panels = {(panel.env, panel.n_features): panel for panel in PANELS}
    columns: dict[Any, list[int]] = {}
    for k, (metric, env, n_features, scheme, _) in enumerate(index):  # sorted by trials
        columns.setdefault((panels[env, n_features], metric, scheme), []).append(k)
    return {column: values[..., k] for column, k in columns.items()}


def rank_correlation(x: FloatArray, y: FloatArray, counted: BoolArray | bool = True) -> FloatArray:
    """Return Spearman's rank correlation of counted values along the last axis; 0 if all tie."""
    ranks = (rankdata(np.where(counted, v, np.nan), axis=-1, nan_policy="omit") for v in (x, y))
    a, b = (np.nan_to_num(r - np.nanmean(r, axis=-1, keepdims=True)) for r in ranks)
    scale = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    return np.asarray((a * b).sum(axis=-1) / np.where(scale == 0.0, 1.0, scale))


# Items about the tables


def _of(m: Means, metric: str, schemes: Iterable[str]) -> FloatArray:
    """Return the schemes' values along a last axis."""
    return np.stack([m[f"total_{metric}", s] for s in schemes], axis=-1)


def _schemes(m: Means) -> list[str]:
    return [s for s in _ALL if ("total_repb", s) in m]


def _by_row(m: Means, agree: BoolArray, suffix: str = "", only: BoolArray | None = None) -> Items:
    names = [f"{env} ρ={rho}{suffix}" for env, rho in m["rows"]]
    return {name: agree[..., k] for k, name in enumerate(names) if only is None or only[k]}


def _several(m: Means) -> BoolArray:
    """Rows in which more than two anchors are allowed, so that there are no twins."""
    return np.array([int(1.0 / rho) > 2 for _, rho in m["rows"]])


def _pinf_lowest(m: Means) -> Items:
    others = _of(m, "repb", (s for s in _schemes(m) if s != "pinf"))
    return _by_row(m, m["total_repb", "pinf"] < others.min(axis=-1))


def _most_anchors_next(m: Means) -> Items:
    two = np.where(_several(m)[:, None], _of(m, "repb", TWO), np.inf)
    others = np.concatenate((_of(m, "repb", (*SINGLE, "p02am")), two), axis=-1)
    second_of_three = np.sort(_of(m, "repb", MOST), axis=-1)[..., 1]
    return _by_row(m, second_of_three <= others.min(axis=-1) * (1.0 + _TIE))


def _on_par(m: Means, group: str) -> Items:
    ratio = np.log(m["total_repb", f"{group}md"] / m["total_repb", f"{group}ot"])
    return _by_row(m, np.abs(ratio) <= np.log(_ON_PAR))


def _two_below_single(m: Means) -> Items:
    agree: dict[str, BoolArray] = {}
    for two in ("p02am", *TWO):
        for s in SINGLE:
            below = m["total_repb", two] < m["total_repb", s]
            agree |= _by_row(m, below, f" {two}<{s}")
    return agree


def _hundredfold(ratio: FloatArray) -> BoolArray:
    largest = ratio.max(axis=-1)
    return np.asarray((_HUNDREDFOLD[0] <= largest) & (largest <= _HUNDREDFOLD[1]))


def _up_to_hundredfold(m: Means) -> Items:
    repb = {s: m["total_repb", s] for s in (*SINGLE, "p02am", *TWO)}
    return {f"{a}/{b}": _hundredfold(repb[a] / repb[b]) for a in SINGLE for b in ("p02am", *TWO)}


def _most_below_two(m: Means) -> Items:
    agree: dict[str, BoolArray] = {}
    for two, most in zip(TWO, MOST, strict=True):
        below = m["total_repb", most] < m["total_repb", two]
        agree |= _by_row(m, below, f" {two[3:]}", _several(m))
    return agree


def _gain_grows(m: Means) -> Items:
    """Whether the advantage of the most anchors is larger for the smallest ρ than the largest."""
    best, agree = _of(m, "repb", MOST).min(axis=-1), {}
    for env in sorted({env for env, _ in m["rows"]}):
        place = {rho: k for k, (e, rho) in enumerate(m["rows"]) if e == env}
        for s in SINGLE if len(place) > 1 else ():
            advantage = m["total_repb", s] / best
            agree[f"{env} {s}"] = (
                advantage[..., place[min(place)]] > advantage[..., place[max(place)]]
            )
    return agree


def _rank_at_most(m: Means, scheme: str, least: int, most: int) -> Items:
    """Whether so many schemes have a lower ε_MS, ties aside."""
    own = m["total_rems", scheme] * (1.0 - _TIE)
    below = (_of(m, "rems", _schemes(m)) < own[..., None]).sum(axis=-1)
    return _by_row(m, (least <= below) & (below <= most))


def _third_within_hundredfold(m: Means) -> Items:
    ordered = np.sort(_of(m, "rems", _schemes(m)), axis=-1)
    names = {1: "second/lowest", 2: "third/lowest"}
    return {name: _hundredfold(ordered[..., k] / ordered[..., 0]) for k, name in names.items()}


def _uncorrelated(m: Means) -> Items:
    schemes = [s for s in _ALL if s != "pinf"]
    counted = np.array([[several or s not in MOST for s in schemes] for several in _several(m)])
    correlation = rank_correlation(_of(m, "repb", schemes), _of(m, "rems", schemes), counted)
    return _by_row(m, np.abs(correlation) < _UNCORRELATED)


# Items about the figure

_H6 = [panel for panel in PANELS if panel.env == "h6"]


def _named(panel: Panel) -> str:
    return f"{panel.env} with {panel.n_features}"


def _panel(m: Means, panel: Panel, metric: str) -> dict[str, FloatArray]:
    """Return a panel's curves by scheme, without paxmd where it is the twin of p02md."""
    return {s: m[panel, metric, s] for s in SAMPLED if s != "paxmd" or panel.n_anchors_max > 2}


def _order(m: Means) -> Items:
    agree = {}
    for panel in _H6:
        final = {s: curve[..., -1] for s, curve in _panel(m, panel, "total_repb").items()}
        order = [s for s in ("pinf", "paxmd", "p02md", "p01") if s in final]
        agree[_named(panel)] = np.all([final[a] < final[b] for a, b in pairwise(order)], axis=0)
    return agree


def _crossing(m: Means) -> Items:
    above = {p: m[p, "total_repb", "pinf"] > m[p, "total_repb", "p01"] for p in _H6}
    return {_named(panel): a[..., 0] & ~a[..., -1] for panel, a in above.items()}


def _pairs(m: Means) -> Iterable[tuple[str, FloatArray, FloatArray]]:
    """Yield the logarithms of ε_PB and ε_MS of each panel and scheme."""
    for panel in PANELS:
        repb, rems = (_panel(m, panel, metric) for metric in METRICS)
        for scheme in repb:
            yield f"{_named(panel)}, {scheme}", np.log10(repb[scheme]), np.log10(rems[scheme])


def _progress_follows(m: Means) -> Items:
    return {name: rank_correlation(x, y) > _FOLLOWS for name, x, y in _pairs(m)}


def _final_follows(m: Means) -> Items:
    agree = {}
    for panel in PANELS:
        x, y = (
            np.stack([curve[..., -1] for curve in _panel(m, panel, metric).values()], axis=-1)
            for metric in METRICS
        )
        agree[_named(panel)] = rank_correlation(x, y) > _FOLLOWS
    return agree


def _moves_less(m: Means) -> Items:
    def moves(curve: FloatArray) -> FloatArray:
        return np.asarray(np.abs(np.diff(curve, axis=-1)).sum(axis=-1))

    return {name: moves(y) < moves(x) for name, x, y in _pairs(m)}


def _fewer_crossings(m: Means) -> Items:
    crossings = []
    for metric in METRICS:
        above = [a > b for p in PANELS for a, b in combinations(_panel(m, p, metric).values(), 2)]
        crossings.append(sum((a[..., 1:] != a[..., :-1]).sum(axis=-1) for a in above))
    return {"all panels": np.asarray(crossings[1]) < np.asarray(crossings[0])}


_EVERY, _MOST = True, False
_FOUR = (*SINGLE, *TWO, "p02am")
EXACT = (
    ("a1", "7.1", "pinf has the lowest ε_PB", "pinf below all others, by row",
     _pinf_lowest, _EVERY, ("pinf", "p01")),
    ("a2", "7.1", "pax·· have the second and third lowest ε_PB",
     "two of the three pax·· below all schemes but pinf, by row", _most_anchors_next, _EVERY, _ALL),
    ("b1", "7.1", "one approximator (buw, p01) has a larger ε_PB than two (p02··)",
     "each of the two above each of the four p02··, by row", _two_below_single, _EVERY, _FOUR),
    ("b2", "7.1", "… up to 100-fold larger",
     "largest ratio over all rows from 10^1.5 to 10^2.5, by pair of schemes",
     _up_to_hundredfold, _EVERY, _FOUR),
    ("b3", "7.1", "p02·· behave likewise to pax··",
     "pax·· below its p02··, by TV, OT, MMD and row with more than two anchors allowed",
     _most_below_two, _EVERY, (*TWO, *MOST)),
    ("b4", "7.1", "… especially as ρ decreases",
     "ε_PB of buw and of p01 over the lowest pax·· larger for the smallest ρ than for the "
     "largest, by environment", _gain_grows, _EVERY, (*SINGLE, *MOST)),
    ("c1", "7.1", "paxmd is on par with paxot in ε_PB in most cases",
     "within a factor of 2, by row", partial(_on_par, group="pax"), _MOST, ("paxmd", "paxot")),
    ("c2", "6.3", "OT is on par with MMD for p02··",
     "ε_PB of p02md within a factor of 2 of p02ot's, by row", partial(_on_par, group="p02"),
     _MOST, ("p02md", "p02ot")),
    ("d1", "7.1", "pinf has the lowest or second lowest ε_MS",
     "at most one scheme below it, by row",
     partial(_rank_at_most, scheme="pinf", least=0, most=1), _EVERY, _ALL),
    ("d2", "7.1", "p02am has the second lowest ε_MS in most cases",
     "exactly one scheme below it, by row",
     partial(_rank_at_most, scheme="p02am", least=1, most=1), _MOST, _ALL),
    ("d3", "7.1", "… and the lowest otherwise", "at most one scheme below it, by row",
     partial(_rank_at_most, scheme="p02am", least=0, most=1), _EVERY, _ALL),
    ("d4", "7.1", "second and third lowest ε_MS are up to 100-fold the lowest",
     "largest ratio over all rows from 10^1.5 to 10^2.5, for second and third",
     _third_within_hundredfold, _EVERY, _ALL),
    ("e", "7.1", "ε_PB of all but pinf does not correlate with their ε_MS",
     "Spearman's correlation below 0.5 in absolute value, by row", _uncorrelated, _MOST, _ALL),
)  # fmt: skip
"""Label, section, meaning, test, items, whether all items must agree, and the schemes needed."""

FIGURE = (
    ("f1", "7.2", "on h6 the final ε_PB rises from pinf over paxmd and p02md to p01",
     "that order at the last checkpoint, by panel", _order, _EVERY, ()),
    ("f2", "7.2", "… where pinf starts above p01 and crosses it",
     "above at the first checkpoint and not at the last, by panel", _crossing, _EVERY, ()),
    ("g1", "7.2", "the progression of ε_MS roughly follows that of ε_PB",
     "Spearman's correlation over the checkpoints above 0.5, by panel and scheme",
     _progress_follows, _MOST, ()),
    ("g2", "7.2", "… and so do the final values",
     "Spearman's correlation over the schemes above 0.5, by panel", _final_follows, _MOST, ()),
    ("g3", "7.2", "generally ε_MS changes at a lower rate than ε_PB",
     "sum of its steps between checkpoints, in orders of magnitude, below that of ε_PB, by "
     "panel and scheme", _moves_less, _MOST, ()),
    ("g4", "7.2", "ε_MS has fewer crossings than ε_PB",
     "crossings between the schemes' curves in all panels together", _fewer_crossings, _EVERY, ()),
)  # fmt: skip


def claims_table(claims: Iterable[Claim]) -> str:
    """Write claims as a table in Markdown."""
    heads = ["", "the paper says (section)", "tested as", "ours", "in the paper's tables",
             "holds in resamples", "verdict"]  # fmt: skip
    rows = []
    for c in claims:
        ours = f"{sum(c.items.values())} of {len(c.items)}"
        theirs = "" if c.in_paper is None else f"{sum(c.in_paper)} of {len(c.in_paper)}"
        figures = ours, theirs, f"{100 * c.support:.0f} %"
        rows.append([c.label, f"{c.meaning} ({c.section})", c.test, *figures, c.verdict])
    return markdown(heads, rows, left=(0, 1, 2, 6))


def markdown_claims(claims: Sequence[Claim]) -> str:
    """Write claims as a table, and the items that disagree with each."""
    lines = []
    for c in claims:
        if disagreeing := [name for name, agrees in c.items.items() if not agrees]:
            lines.append(f"- {c.label} disagreeing: {'; '.join(disagreeing)}.")
    return "\n".join([claims_table(claims), "", *lines]) + "\n"
