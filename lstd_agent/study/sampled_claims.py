"""The claims about the sampling experiments (section 7.2 of the paper), as criteria."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.study.claims import Claim, Criterion, judge, resampling_weights
from lstd_agent.study.exact_claims import rank_correlation
from lstd_agent.study.rows import Row
from lstd_agent.study.sampling_study import PANELS, SCHEMES, Panel

METRICS = ("total_repb", "total_rems")

# "Roughly follow" of the text, as a number.
_FOLLOWS = 0.5

Items = tuple[Sequence[str], BoolArray]


@dataclass(frozen=True)
class CurveMeans:
    """Mean errors at the checkpoints, shape (..., checkpoints), by panel, metric and scheme."""

    curves: dict[tuple[Panel, str, str], FloatArray]

    def of(self, panel: Panel, metric: str) -> dict[str, FloatArray]:
        """Return a panel's curves; paxmd is left out where it is p02md, with two anchors."""
        return {
            scheme: self.curves[panel, metric, scheme]
            for scheme in SCHEMES
            if scheme != "paxmd" or panel.n_anchors_max > 2
        }


def sampled_claims(rows: Iterable[Row]) -> list[Claim]:
    """Judge the claims about the figure.

    Parameters
    ----------
    rows : iterable of Row
        Of `run_sampling_study`; the same seeds for all.
    """
    values: dict[tuple[Panel, str, str], dict[int, dict[int, float]]] = {}
    by_panel = {(panel.env, panel.n_features): panel for panel in PANELS}
    for row in rows:
        for metric in METRICS:
            key = (by_panel[row["env"], row["n_features"]], metric, row["scheme"])
            values.setdefault(key, {}).setdefault(row["n_trials"], {})[row["seed"]] = row[metric]
    seeds = {tuple(sorted(s)) for curve in values.values() for s in curve.values()}
    if len(seeds) != 1:
        raise InvalidInputError(
            f"claims need the same seeds everywhere; got {len(seeds)} different sets of them"
        )
    (common,) = seeds
    arrays = {
        key: np.array([[curve[n][s] for n in sorted(curve)] for s in common])
        for key, curve in values.items()
    }
    weights = resampling_weights(len(common))
    means = CurveMeans({key: array.mean(axis=0) for key, array in arrays.items()})
    resampled = CurveMeans({key: weights @ array for key, array in arrays.items()})
    return [judge(criterion, means, resampled, len(common), None) for criterion in CRITERIA]


def _name(panel: Panel) -> str:
    return f"{panel.env} with {panel.n_features}"


def _order(m: CurveMeans) -> Items:
    names, agree = [], []
    for panel in PANELS:
        if panel.env == "h6":
            final = {s: curve[..., -1] for s, curve in m.of(panel, "total_repb").items()}
            order = [s for s in ("pinf", "paxmd", "p02md", "p01") if s in final]
            names.append(_name(panel))
            rising = [final[a] < final[b] for a, b in pairwise(order)]
            agree.append(np.all(rising, axis=0))
    return names, np.stack(agree, axis=-1)


def _crossing(m: CurveMeans) -> Items:
    names, agree = [], []
    for panel in PANELS:
        if panel.env == "h6":
            curves = m.of(panel, "total_repb")
            names.append(_name(panel))
            above = curves["pinf"] > curves["p01"]
            agree.append(above[..., 0] & ~above[..., -1])
    return names, np.stack(agree, axis=-1)


def _curve_pairs(m: CurveMeans) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    """Yield the logarithms of ε_PB and ε_MS of each panel and scheme."""
    for panel in PANELS:
        repb, rems = (m.of(panel, metric) for metric in METRICS)
        for scheme in repb:
            yield f"{_name(panel)}, {scheme}", np.log10(repb[scheme]), np.log10(rems[scheme])


def _progress_follows(m: CurveMeans) -> Items:
    names, agree = [], []
    for name, x, y in _curve_pairs(m):
        names.append(name)
        everything = np.ones(x.shape[-1], dtype=bool)
        agree.append(rank_correlation(x, y, everything) > _FOLLOWS)
    return names, np.stack(agree, axis=-1)


def _final_follows(m: CurveMeans) -> Items:
    names, agree = [], []
    for panel in PANELS:
        repb, rems = (
            np.stack([curve[..., -1] for curve in m.of(panel, metric).values()], axis=-1)
            for metric in METRICS
        )
        names.append(_name(panel))
        everything = np.ones(repb.shape[-1], dtype=bool)
        agree.append(rank_correlation(repb, rems, everything) > _FOLLOWS)
    return names, np.stack(agree, axis=-1)


def _moves_less(m: CurveMeans) -> Items:
    names, agree = [], []
    for name, x, y in _curve_pairs(m):
        names.append(name)
        moves = [np.abs(np.diff(curve, axis=-1)).sum(axis=-1) for curve in (x, y)]
        agree.append(moves[1] < moves[0])
    return names, np.stack(agree, axis=-1)


def _fewer_crossings(m: CurveMeans) -> Items:
    crossings = dict.fromkeys(METRICS, 0)
    for panel in PANELS:
        for metric in METRICS:
            curves = m.of(panel, metric)
            for a, b in combinations(curves, 2):
                above = curves[a] > curves[b]
                crossings[metric] += (above[..., 1:] != above[..., :-1]).sum(axis=-1)
    fewer = np.asarray(crossings["total_rems"]) < np.asarray(crossings["total_repb"])
    return ["all panels"], fewer[..., None]


_2 = "7.2"
CRITERIA: tuple[Criterion[CurveMeans], ...] = (
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
