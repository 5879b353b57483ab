r"""What the study of sample complexity says: slopes, crossovers and a rule of thumb.

The rule is :math:`K \le n / (c\, d)`, and never one a timestep: each neighbourhood has d weights,
and each weight wants c trials to feed it. c is the one that loses least in the environments
`FINDING`; what it loses in `CHECKING` is what it is worth. A *loss* is the error over that of the
best number of neighbourhoods tried, of the same case; losses are averaged geometrically.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from lstd_agent.study.complexity_study import BACKUPS, CHECKING, FINDING, STEPWISE, WANTED
from lstd_agent.study.markdown import table
from lstd_agent.study.rows import Row

Case = tuple[str, float, int, str]
"""Environment, ρ, number of trials and backup."""

# Backups with all numbers of neighbourhoods.
_RULED = ("one step", "model")

# Half a decade apart: the rule is one of thumb.
_CANDIDATES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class Curve:
    """Errors of one case by the wanted number of neighbourhoods: medians over seeds."""

    n_features: int
    error: dict[str, float]
    limit: dict[str, float]

    def loss(self, wanted: str) -> float:
        """Return the error over that of the best number of neighbourhoods."""
        return self.error[wanted] / min(self.error.values())


def curves(rows: Sequence[Row]) -> dict[Case, Curve]:
    """Gather rows by case."""
    gathered: dict[Case, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        case = (row["env"], row["rho"], row["n_trials"], row["backup"])
        gathered[case][row["wanted"]].append(row)
    found = {}
    for case, by_wanted in gathered.items():
        middle = {
            what: {w: float(np.median([row[what] for row in rs])) for w, rs in by_wanted.items()}
            for what in ("error", "limit")
        }
        n_features = next(iter(by_wanted.values()))[0]["n_features"]
        found[case] = Curve(n_features, middle["error"], middle["limit"])
    return found


def ruled(n_trials: int, n_features: int, c: float, choices: Sequence[str]) -> str:
    """Return the largest number of neighbourhoods that the rule allows, at least one."""
    allowed = n_trials / (c * n_features)
    return [w for w in choices if w == "1" or (w != STEPWISE and int(w) <= allowed)][-1]


Chooser = Callable[[int, Curve], str]


def by_rule(c: float) -> Chooser:
    """Return the choice by the rule."""

    def choose(n_trials: int, curve: Curve) -> str:
        return ruled(n_trials, curve.n_features, c, [w for w in WANTED if w in curve.error])

    return choose


def _always(wanted: str) -> Chooser:
    return lambda n_trials, curve: wanted


def best_constant(found: Mapping[Case, Curve], backup: str) -> float:
    """Return the c of the rule that loses least in the environments `FINDING`."""
    return min(_CANDIDATES, key=lambda c: losses(found, backup, FINDING, by_rule(c))[0])


def losses(
    found: Mapping[Case, Curve], backup: str, environments: Sequence[str], choose: Chooser
) -> tuple[float, float]:
    """Return the geometric mean and the largest of the losses of a way to choose.

    NaN without rows of these environments.
    """
    lost = [
        curve.loss(choose(n_trials, curve))
        for (env, _, n_trials, name), curve in found.items()
        if name == backup and env in environments
    ]
    if not lost:
        return np.nan, np.nan
    return float(np.exp(np.log(lost).mean())), max(lost)


def multiples_of_lowest_limit(
    found: Mapping[Case, Curve], backup: str
) -> dict[str, dict[int, float]]:
    """Return medians over environments and ρ, by wanted number and number of trials.

    Of errors over the limit of the finest system that any backup was tried with.
    """
    gathered: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (env, rho, n_trials, name), curve in found.items():
        if name == backup:
            lowest = found[env, rho, n_trials, "one step"].limit[STEPWISE]
            for wanted, error in curve.error.items():
                gathered[wanted][n_trials].append(error / lowest)
    return {
        wanted: {n: float(np.median(gathered[wanted][n])) for n in sorted(gathered[wanted])}
        for wanted in WANTED
        if wanted in gathered
    }


def slope(found: Mapping[Case, Curve], backup: str, wanted: str) -> float:
    """Return the slope, in log-log, of what an error is above that of the most trials.

    Of medians over environments and ρ, by least squares; -0.5 where noise is all that is above.
    NaN of fewer than three numbers of trials.
    """
    most = max(n for _, _, n, _ in found)
    above: dict[int, list[float]] = defaultdict(list)
    for (env, rho, n_trials, name), curve in found.items():
        if name == backup and n_trials < most:
            floor = found[env, rho, most, name].error[wanted]
            above[n_trials].append(abs(curve.error[wanted] - floor))
    middle = {n: np.median(values) for n, values in above.items()}
    points = np.array([(n, value) for n, value in middle.items() if value > 0.0])
    if len(points) < 2:
        return np.nan
    x, y = np.log10(points).T
    return float(np.polyfit(x, y, 1)[0])


def crossover(found: Mapping[Case, Curve], backup: str, fewer: str, more: str) -> str:
    """Return from how many trials on more neighbourhoods have the smaller error.

    In more than half of the environments and ρ.
    """
    wins: dict[int, list[bool]] = defaultdict(list)
    for (_, _, n_trials, name), curve in found.items():
        if name == backup:
            wins[n_trials].append(curve.error[more] < curve.error[fewer])
    lost = [n for n, won in wins.items() if 2 * sum(won) <= len(won)]
    later = [n for n in sorted(wins) if not lost or n > max(lost)]
    return f"{later[0]:,}" if later else "never"


def markdown_complexity(rows: Sequence[Row]) -> str:
    """Write the rule and its losses, slopes, crossovers, and errors by number of trials."""
    found = curves(rows)
    parts = (rule_table(found), _rates_table(found), *(_error_table(found, b) for b in BACKUPS))
    return "\n\n".join(parts) + "\n"


def rule_table(found: Mapping[Case, Curve]) -> str:
    """Write what is lost by the rule, and by the same number of neighbourhoods always."""
    names = ", ".join(f"{best_constant(found, b):g} ({b})" for b in _RULED)
    choosers = {
        f"n / (c d), with c = {names}": {b: by_rule(best_constant(found, b)) for b in _RULED},
        **{f"always {wanted}": dict.fromkeys(_RULED, _always(wanted)) for wanted in WANTED},
    }
    columns = [(b, where) for b in _RULED for where in (FINDING, CHECKING)]
    rows = [
        [name, *(_loss_cell(*losses(found, b, where, chooser[b])) for b, where in columns)]
        for name, chooser in choosers.items()
    ]
    heads = [f"{b}: {' '.join(where)}" for b, where in columns]
    return table(["neighborhoods", *heads], rows, "lr")


def _loss_cell(middle: float, worst: float) -> str:
    return "" if np.isnan(middle) else f"{middle:.2f}, at most {worst:.3g}"


def _rates_table(found: Mapping[Case, Curve]) -> str:
    rows = []
    for wanted, following in zip_longest(WANTED, WANTED[1:]):
        cells = [wanted]
        for b in _RULED:
            steepness = slope(found, b, wanted)
            cells += [
                "" if np.isnan(steepness) else f"{steepness:.2f}",
                crossover(found, b, wanted, following) if following else "",
            ]
        rows.append(cells)
    heads = [head for b in _RULED for head in (f"{b}: slope", "next is better from")]
    return (
        "Slope of the error against trials (log-log), and from how many trials on the next larger "
        "number of neighborhoods is the better one in more than half of the rows:\n\n"
        + table(["neighborhoods", *heads], rows, "lr")
    )


def _error_table(found: Mapping[Case, Curve], backup: str) -> str:
    medians = multiples_of_lowest_limit(found, backup)
    trials = sorted({n for by_trials in medians.values() for n in by_trials})
    rows = [
        [wanted, *(f"{by_trials[n]:.3g}" for n in trials)] for wanted, by_trials in medians.items()
    ]
    return (
        f"Backup: {backup}. Total rems over the projection limit of one neighborhood a timestep, "
        "medians over environments and ρ, by number of trials:\n\n"
        + table(["neighborhoods", *(f"{n:,}" for n in trials)], rows, "lr")
    )
