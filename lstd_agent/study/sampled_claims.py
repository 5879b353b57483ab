"""The claims about the sampling experiments (section 7.2 of the paper), as criteria."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, pairwise
from operator import itemgetter

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.study.claims import Claim, Criterion, Items, judge, over_seeds, rank_correlation
from lstd_agent.study.rows import Row
from lstd_agent.study.sampling_study import PANELS, SCHEMES, Panel
from lstd_agent.study.tables import METRICS

_H6 = [panel for panel in PANELS if panel.env == "h6"]

# "Roughly follow" of the text, as a number.
_FOLLOWS = 0.5

Curve = tuple[Panel, str, str]
"""Panel, metric and scheme."""

Curves = Mapping[Curve, FloatArray]
"""Mean errors at the checkpoints, shape (..., checkpoints)."""


def sampled_claims(rows: Iterable[Row]) -> list[Claim]:
    """Judge the claims about the figure by rows of `run_sampling_study`, the same seeds for all."""
    by_panel = {(panel.env, panel.n_features): panel for panel in PANELS}
    points = over_seeds(
        (
            (by_panel[row["env"], row["n_features"]], metric, row["scheme"], row["n_trials"]),
            row["seed"],
            row[metric],
        )
        for row in rows
        for metric in METRICS
    )
    curves: dict[Curve, list[FloatArray]] = defaultdict(list)
    for point in sorted(points, key=itemgetter(3)):
        curves[point[:3]].append(points[point])
    values = {curve: np.stack(by_trials, axis=1) for curve, by_trials in curves.items()}
    return judge(CRITERIA, values, dict)


def _name(panel: Panel) -> str:
    return f"{panel.env} with {panel.n_features}"


def _of(curves: Curves, panel: Panel, metric: str) -> dict[str, FloatArray]:
    """Return a panel's curves by scheme; paxmd is left out where it is p02md, with two anchors."""
    return {
        scheme: curves[panel, metric, scheme]
        for scheme in SCHEMES
        if scheme != "paxmd" or panel.n_anchors_max > 2
    }


def _items(agree: Mapping[str, BoolArray]) -> Items:
    return list(agree), np.stack(list(agree.values()), axis=-1)


def _order(curves: Curves) -> Items:
    agree = {}
    for panel in _H6:
        final = {s: curve[..., -1] for s, curve in _of(curves, panel, "total_repb").items()}
        order = [s for s in ("pinf", "paxmd", "p02md", "p01") if s in final]
        agree[_name(panel)] = np.all([final[a] < final[b] for a, b in pairwise(order)], axis=0)
    return _items(agree)


def _crossing(curves: Curves) -> Items:
    agree = {}
    for panel in _H6:
        above = curves[panel, "total_repb", "pinf"] > curves[panel, "total_repb", "p01"]
        agree[_name(panel)] = above[..., 0] & ~above[..., -1]
    return _items(agree)


def _curve_pairs(curves: Curves) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    """Yield the logarithms of ε_PB and ε_MS of each panel and scheme."""
    for panel in PANELS:
        repb, rems = (_of(curves, panel, metric) for metric in METRICS)
        for scheme in repb:
            yield f"{_name(panel)}, {scheme}", np.log10(repb[scheme]), np.log10(rems[scheme])


def _progress_follows(curves: Curves) -> Items:
    return _items({name: rank_correlation(x, y) > _FOLLOWS for name, x, y in _curve_pairs(curves)})


def _final_follows(curves: Curves) -> Items:
    agree = {}
    for panel in PANELS:
        repb, rems = (
            np.stack([curve[..., -1] for curve in _of(curves, panel, metric).values()], axis=-1)
            for metric in METRICS
        )
        agree[_name(panel)] = rank_correlation(repb, rems) > _FOLLOWS
    return _items(agree)


def _moves_less(curves: Curves) -> Items:
    def moves(curve: FloatArray) -> FloatArray:
        return np.asarray(np.abs(np.diff(curve, axis=-1)).sum(axis=-1))

    return _items({name: moves(y) < moves(x) for name, x, y in _curve_pairs(curves)})


def _fewer_crossings(curves: Curves) -> Items:
    crossings = dict.fromkeys(METRICS, 0)
    for panel in PANELS:
        for metric in METRICS:
            for a, b in combinations(_of(curves, panel, metric).values(), 2):
                above = a > b
                crossings[metric] += (above[..., 1:] != above[..., :-1]).sum(axis=-1)
    fewer = np.asarray(crossings["total_rems"]) < np.asarray(crossings["total_repb"])
    return ["all panels"], fewer[..., None]


_2 = "7.2"
CRITERIA: tuple[Criterion[Curves], ...] = (
    Criterion(
        "f1", _2, "on h6 the final ε_PB rises from pinf over paxmd and p02md to p01",
        "that order at the last checkpoint, by panel", _order, True,
    ),
    Criterion(
        "f2", _2, "… where pinf starts above p01 and crosses it",
        "above at the first checkpoint and not at the last, by panel", _crossing, True,
    ),
    Criterion(
        "g1", _2, "the progression of ε_MS roughly follows that of ε_PB",
        "Spearman's correlation over the checkpoints above 0.5, by panel and scheme",
        _progress_follows, False,
    ),
    Criterion(
        "g2", _2, "… and so do the final values",
        "Spearman's correlation over the schemes above 0.5, by panel", _final_follows, False,
    ),
    Criterion(
        "g3", _2, "generally ε_MS changes at a lower rate than ε_PB",
        "sum of its steps between checkpoints, in orders of magnitude, below that of ε_PB, by "
        "panel and scheme", _moves_less, False,
    ),
    Criterion(
        "g4", _2, "ε_MS has fewer crossings than ε_PB",
        "crossings between the schemes' curves in all panels together", _fewer_crossings, True,
    ),
)  # fmt: skip
