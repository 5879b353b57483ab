"""The claims of the paper's results section, each counted on our own rows.

A claim is checked row by row (an environment and a ρ, or a panel of the figure), on means over
seeds as the paper reports them; the rows that disagree are named.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

import numpy as np

from lstd_agent.study.rows import Row
from lstd_agent.study.sampling_study import PANELS
from lstd_agent.study.tables import mean_cells

# "Most" and "roughly" of the text, as numbers.
_MOST = 0.5
_WEAK_CORRELATION = 0.5


@dataclass(frozen=True)
class Claim:
    """A claim and what our rows say about it.

    Attributes
    ----------
    label, text : str
        The claim.
    confirmed : bool
    n_agree, n_rows : int
        How many rows agree.
    disagreeing : tuple of str
        Those that do not.
    reading : str
        One line on what was found.
    """

    label: str
    text: str
    confirmed: bool
    n_agree: int
    n_rows: int
    disagreeing: tuple[str, ...]
    reading: str


Means = Mapping[tuple[str, float], Mapping[str, float]]
"""By environment and ρ: each scheme's mean."""


def exact_claims(rows: Iterable[Row]) -> list[Claim]:
    """Check the claims about the non-sampling experiments (a to e).

    Claims whose schemes are not among the rows are left out.
    """
    cells = mean_cells(rows)
    means: dict[str, dict[tuple[str, float], dict[str, float]]] = {
        metric: defaultdict(dict) for metric in ("total_repb", "total_rems")
    }
    for (env, rho, metric, scheme), value in cells.items():
        means[metric][env, rho][scheme] = value
    repb, rems = means["total_repb"], means["total_rems"]
    schemes = {scheme for *_, scheme in cells}
    claims = []
    if len(schemes) > 1 and "pinf" in schemes:
        claims.append(_pinf_has_the_lowest_repb(repb))
    if schemes >= {"buw", "p01", "p02ot", "p02md", "paxot", "paxmd"}:
        claims.append(_more_anchors_have_lower_repb(repb))
    if schemes >= {"p02ot", "p02md", "paxot", "paxmd"}:
        claims.append(_mmd_is_on_par_with_ot(repb))
    if schemes >= {"p02am", "pinf", "p01"}:
        claims.append(_pinf_and_p02am_have_the_lowest_rems(rems))
    if len(schemes - {"pinf", "p02am"}) >= 4:
        claims.append(_rems_does_not_follow_repb(repb, rems))
    return claims


def _claim(
    label: str, text: str, agrees: Mapping[str, bool], reading: str, *, of_most: bool = False
) -> Claim:
    """Count the rows that agree: a claim needs all of them, or more than half if it is of most."""
    n_agree = sum(agrees.values())
    disagreeing = tuple(row for row, agree in agrees.items() if not agree)
    confirmed = n_agree > _MOST * len(agrees) if of_most else not disagreeing
    return Claim(label, text, confirmed, n_agree, len(agrees), disagreeing, reading)


def _name(row: tuple[str, float]) -> str:
    return f"{row[0]} ρ={row[1]}"


def _pinf_has_the_lowest_repb(repb: Means) -> Claim:
    agrees = {_name(row): min(v, key=v.__getitem__) == "pinf" for row, v in repb.items()}
    gap = median(
        math.log10(min(x for s, x in v.items() if s != "pinf") / v["pinf"]) for v in repb.values()
    )
    return _claim(
        "a",
        "pinf has the lowest ε_PB in every row",
        agrees,
        f"The median distance to the next lowest is {gap:.1f} orders of magnitude.",
    )


def _more_anchors_have_lower_repb(repb: Means) -> Claim:
    agrees = {}
    single_over_two, two_over_max = [], []
    for row, v in repb.items():
        single = min(v["buw"], v["p01"])
        for metric in ("ot", "md"):
            two, most = v[f"p02{metric}"], v[f"pax{metric}"]
            # With at most two anchors the two schemes are one.
            agrees[f"{_name(row)} {metric}"] = most <= two * (1 + 1e-9) and two < single
            single_over_two.append(math.log10(single / two))
            two_over_max.append(math.log10(two / most))
    return _claim(
        "b",
        "for OT and MMD, ε_PB falls from one anchor (p01, buw) to two (p02) and to the most "
        "allowed (pax), by up to two orders",
        agrees,
        f"The better of p01 and buw is 10^{median(single_over_two):.1f} times p02 in the median "
        f"(at most 10^{max(single_over_two):.1f}), p02 10^{median(two_over_max):.1f} times pax "
        f"(at most 10^{max(two_over_max):.1f}).",
        of_most=True,
    )


def _mmd_is_on_par_with_ot(repb: Means) -> Claim:
    ratios = {
        f"{_name(row)} {group}": math.log10(v[f"{group}md"] / v[f"{group}ot"])
        for row, v in repb.items()
        for group in ("p02", "pax")
    }
    low, middle, high = np.quantile(list(ratios.values()), (0.25, 0.5, 0.75))
    agrees = {name: abs(ratio) <= math.log10(2.0) for name, ratio in ratios.items()}
    return _claim(
        "c",
        "MMD is on par with OT in ε_PB (within a factor of 2) in most rows",
        agrees,
        f"log10(MMD / OT) has quartiles {low:+.2f}, {middle:+.2f}, {high:+.2f}.",
        of_most=True,
    )


def _pinf_and_p02am_have_the_lowest_rems(rems: Means) -> Claim:
    agrees = {
        _name(row): set(sorted(v, key=v.__getitem__)[:2]) == {"pinf", "p02am"}
        for row, v in rems.items()
    }
    lowest = sum(min(v, key=v.__getitem__) == "pinf" for v in rems.values())
    return _claim(
        "d",
        "in ε_MS, pinf or p02am is lowest and the other second in most rows",
        agrees,
        f"pinf is the lowest in {lowest} of {len(rems)} rows.",
        of_most=True,
    )


def _rems_does_not_follow_repb(repb: Means, rems: Means) -> Claim:
    correlations = {}
    for row, values in repb.items():
        schemes = [s for s in values if s not in ("pinf", "p02am")]
        correlations[_name(row)] = _rank_correlation(
            [values[s] for s in schemes], [rems[row][s] for s in schemes]
        )
    agrees = {name: c < _WEAK_CORRELATION for name, c in correlations.items()}
    return _claim(
        "e",
        "the other schemes' ε_MS does not follow their ε_PB (rank correlation below 0.5)",
        agrees,
        f"Spearman's correlation has mean {mean(correlations.values()):+.2f} over the rows.",
        of_most=True,
    )


def _rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Spearman's rank correlation, with tied values sharing their mean rank."""
    ranks = []
    for values in (x, y):
        array = np.asarray(values)
        below = (array[:, None] > array).sum(axis=1)
        ties = (array[:, None] == array).sum(axis=1)
        ranks.append(below + (ties - 1) / 2)
    if min(np.ptp(r) for r in ranks) == 0.0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def sampled_claims(rows: Iterable[Row]) -> list[Claim]:
    """Check the claims about the sampling experiments (f and g)."""
    values = defaultdict(list)
    for row in rows:
        for metric in ("total_repb", "total_rems"):
            key = (row["env"], row["n_features"], metric, row["scheme"], row["n_trials"])
            values[key].append(row[metric])
    curves: dict[tuple[str, int, str, str], list[float]] = defaultdict(list)
    for (env, n_features, metric, scheme, _), numbers in sorted(values.items()):
        curves[env, n_features, metric, scheme].append(mean(numbers))
    return [_sampled_order_on_h6(curves), _rems_moves_less_than_repb(curves)]


Curves = Mapping[tuple[str, int, str, str], Sequence[float]]
"""By environment, features, metric and scheme: the means at the checkpoints."""


def _sampled_order_on_h6(curves: Curves) -> Claim:
    agrees, readings = {}, []
    for panel in PANELS:
        if panel.env != "h6":
            continue
        by_scheme = {
            s: curves[panel.env, panel.n_features, "total_repb", s]
            for s in ("pinf", "paxmd", "p02md", "p01")
        }
        final = [curve[-1] for curve in by_scheme.values()]
        name = f"h6 with {panel.n_features}"
        # With at most two anchors paxmd and p02md are one scheme.
        agrees[f"{name}: order"] = (
            final[0] < final[1] <= final[2] * (1 + 1e-9) and final[2] < final[3]
        )
        start = by_scheme["pinf"][0] / by_scheme["p01"][0]
        end = by_scheme["pinf"][-1] / by_scheme["p01"][-1]
        agrees[f"{name}: pinf crosses p01"] = start > 1.0 > end
        readings.append(
            f"With {panel.n_features} feature(s) pinf goes from {start:.2g} to {end:.2g} times p01."
        )
    return _claim(
        "f",
        "on h6 the final sampled ε_PB order is pinf < paxmd < p02md < p01, and pinf starts above "
        "p01 and crosses it",
        agrees,
        " ".join(readings),
    )


def _rems_moves_less_than_repb(curves: Curves) -> Claim:
    agrees = {}
    moves: dict[str, list[float]] = {"total_repb": [], "total_rems": []}
    for env, n_features, metric, scheme in curves:
        if metric != "total_repb":
            continue
        change = {}
        for m in moves:
            curve = curves[env, n_features, m, scheme]
            change[m] = abs(math.log10(curve[-1] / curve[0]))
            moves[m].append(change[m])
        name = f"{env} with {n_features}, {scheme}"
        agrees[name] = change["total_rems"] <= change["total_repb"]
    return _claim(
        "g",
        "ε_MS moves less than ε_PB from the first checkpoint to the last",
        agrees,
        f"Mean change in orders of magnitude: ε_PB {mean(moves['total_repb']):.2f}, "
        f"ε_MS {mean(moves['total_rems']):.2f}.",
        of_most=True,
    )


def markdown(claims: Iterable[Claim]) -> str:
    """Write claims as a Markdown list."""
    lines = []
    for claim in claims:
        verdict = "confirmed" if claim.confirmed else "NOT confirmed"
        lines.append(
            f"- **({claim.label}) {claim.text}**: {verdict}, {claim.n_agree} of {claim.n_rows}. "
            f"{claim.reading}"
        )
        if claim.disagreeing:
            lines.append(f"  Disagreeing: {'; '.join(claim.disagreeing)}.")
    return "\n".join(lines) + "\n"
