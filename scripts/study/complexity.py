r"""How many trials it takes to feed how many neighbourhoods.

Errors of linked systems, of one neighbourhood up to one for each timestep, by backup. An error is
the total rems over that of the best constant, so that 1 needs no trials. The projection limit of
the same neighbourhoods is the error with infinitely many trials.

The rule of thumb is :math:`K \le n / (c\, d)`, never one for each timestep: each neighbourhood has
d weights, and each weight needs c trials. c is the candidate with the least loss in the
environments `FINDING`. Its losses in `CHECKING` measure the rule. A *loss* is the error over the
error of the best number of neighbourhoods tried, in the same case; losses are averaged
geometrically.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lstd_agent import LambdaReturn, TransitionCounts
from lstd_agent.problems import random_problem, regimes
from lstd_agent.results import Row
from lstd_agent.summary import markdown
from study.sampled import sampled_regimes
from study.store import Among, Key, Study, Task, generator
from unichain_gym import simulate_counts

FINDING = ("h6", "c10", "h36c", "c35c")
CHECKING = ("h36", "c35", "r20b", "g20b")
ENVIRONMENTS = (*FINDING, *CHECKING)
"""The rule of thumb is found in the first four, and checked in the others."""

RHOS = (0.33, 0.19)  # two of the paper's
STEPWISE = "stepwise"
WANTED = ("1", "2", "4", "8", "16", "32", STEPWISE)
BACKUPS: dict[str, Any] = {"one step": "one_step", "λ = 0.9": LambdaReturn(0.9), "model": "model"}

# Targets of several steps take a hundred times as long as others: few neighbourhoods have them.
_WITH_LAMBDA = ("1", "2", "8")
COMBINATIONS = [
    (wanted, backup)
    for wanted in WANTED
    for backup in BACKUPS
    if backup != "λ = 0.9" or wanted in _WITH_LAMBDA
]


@dataclass(frozen=True)
class ComplexitySettings:
    """What every row depends on: the rank cutoff."""

    rcond: float = 1e-10


def complexity_rows(task: Task) -> list[Row]:
    """Draw counts once, of a number of trials, and fit all systems."""
    chain, p = random_problem(task.env, task.seed)
    n_trials, t_max = task.missing[0][3], len(p) - 1
    drawn = simulate_counts(chain, n_trials, t_max, generator(task.seed, 4, n_trials))
    variance = p @ chain.bias**2 - (p @ chain.bias) ** 2
    of_constant = float(np.sqrt(np.maximum(variance, 0.0)).sum())
    rows = []
    for sampled in sampled_regimes(chain, [TransitionCounts.of(drawn)], p, task.seed, RHOS):
        anchors = {
            wanted: None if wanted == STEPWISE else sampled.anchors(int(wanted))
            for wanted in WANTED
        }
        limits: dict[str, float] = {}
        for wanted, backup in COMBINATIONS:
            options = {"backup": BACKUPS[backup], "rcond": task.settings.rcond}
            found = sampled.values(n_anchors=None, anchors=anchors[wanted], **options)
            if wanted not in limits:  # it does not depend on the backup
                limits[wanted] = sampled.errors.limit(found)
            row = {"env": task.env, "rho": sampled.regime.rho, "seed": task.seed}
            row |= {"n_trials": n_trials, "wanted": wanted, "backup": backup}
            row |= {"n_features": sampled.regime.n_features, "n_anchors": len(found.anchors)}
            row |= {"error": sampled.total_rems(found) / of_constant}
            rows.append({**row, "limit": limits[wanted] / of_constant})
    return rows


def _work(
    env: str, n_states: int, seeds: range, among: Among, _: Any
) -> Iterator[tuple[int, list[Key]]]:
    rhos = [regime.rho for regime in regimes(n_states, RHOS)]
    for seed in seeds:
        for n in among["n_trials"]:
            yield seed, [(env, rho, seed, n, *each) for rho in rhos for each in COMBINATIONS]


COMPLEXITY = Study(
    "complexity",
    ComplexitySettings,
    ("env", "rho", "seed", "n_trials", "wanted", "backup"),
    complexity_rows,
    _work,
    {"env": ENVIRONMENTS, "n_trials": (100, 1_000, 10_000, 100_000, 1_000_000)},
)


# The rule of thumb

# Backups that all numbers of neighbourhoods have.
_RULED = ("one step", "model")

# Half a decade apart: the rule is one of thumb.
_CANDIDATES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

Chooser = Callable[[int, int, Sequence[str]], str]
"""Wanted number of neighbourhoods by the numbers of trials and of features, and the choices."""


@dataclass(frozen=True, eq=False)
class Curves:
    """Medians over seeds by case (rows) and, of errors and limits, by wanted number (columns)."""

    error: pd.DataFrame
    limit: pd.DataFrame
    n_features: pd.Series[int]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Curves:
        """Gather rows."""
        case = ["env", "rho", "n_trials", "backup"]
        found = pd.DataFrame(rows)
        error, limit = (
            found.pivot_table(each, case, "wanted", aggfunc="median").reindex(columns=list(WANTED))
            for each in ("error", "limit")
        )
        return cls(error, limit, found.groupby(case)["n_features"].first())

    def by(self, backup: str) -> pd.DataFrame:
        """Return the errors with a backup, by environment, ρ and number of trials."""
        if backup not in self.error.index.get_level_values("backup"):
            return self.error.droplevel("backup").iloc[:0]
        return self.error.xs(backup, level="backup").dropna(axis=1, how="all")

    def losses(
        self, backup: str, environments: Sequence[str], choose: Chooser
    ) -> tuple[float, float]:
        """Return the geometric mean and the largest loss of a way to choose; NaN without rows."""
        errors, lost = self.by(backup), []
        for case, row in errors.iterrows():
            if case[0] in environments:
                n_features = int(self.n_features[(*case, backup)])
                lost.append(row[choose(case[2], n_features, list(errors))] / row.min())
        if not lost:
            return np.nan, np.nan
        return float(np.exp(np.log(lost).mean())), max(lost)

    def best_constant(self, backup: str) -> float:
        """Return the c of the rule that loses least in the environments `FINDING`."""
        return min(_CANDIDATES, key=lambda c: self.losses(backup, FINDING, by_rule(c))[0])

    def multiples(self, backup: str) -> pd.DataFrame:
        """Return medians of errors over the finest system's limit, by wanted number and trials."""
        lowest = self.limit[STEPWISE].xs("one step", level="backup")
        found = self.by(backup).div(lowest, axis=0).groupby(level="n_trials").median()
        return found.T.reindex([wanted for wanted in WANTED if wanted in found])


def by_rule(c: float) -> Chooser:
    """Return the choice of the largest number that the rule allows, at least one."""

    def choose(n_trials: int, n_features: int, choices: Sequence[str]) -> str:
        allowed = n_trials / (c * n_features)
        return [w for w in choices if w == "1" or (w != STEPWISE and int(w) <= allowed)][-1]

    return choose


def _always(wanted: str) -> Chooser:
    return lambda n_trials, n_features, choices: wanted


def rule_table(curves: Curves) -> str:
    """Write the losses of the rule, and of one number of neighbourhoods for all cases."""
    constants = {b: curves.best_constant(b) for b in _RULED}
    named = ", ".join(f"{c:g} ({b})" for b, c in constants.items())
    choosers = {
        f"n / (c d), with c = {named}": {b: by_rule(c) for b, c in constants.items()},
        **{f"always {wanted}": dict.fromkeys(_RULED, _always(wanted)) for wanted in WANTED},
    }
    columns = [(b, where) for b in _RULED for where in (FINDING, CHECKING)]
    rows = []
    for name, chooser in choosers.items():
        lost = [curves.losses(b, where, chooser[b]) for b, where in columns]
        cells = ["" if np.isnan(m) else f"{m:.2f}, at most {worst:.3g}" for m, worst in lost]
        rows.append([name, *cells])
    heads = [f"{b}: {' '.join(where)}" for b, where in columns]
    return markdown(["neighborhoods", *heads], rows)


def markdown_complexity(rows: Sequence[Row]) -> str:
    """Write the rule with its losses, and errors by number of trials."""
    curves = Curves.of(rows)
    parts = [rule_table(curves)]
    for backup in BACKUPS:
        middle = curves.multiples(backup)
        cells = [[w, *(f"{x:.3g}" for x in row)] for w, row in middle.iterrows()]
        parts += [
            f"Backup: {backup}. Total rems over the projection limit of one neighborhood a "
            "timestep, medians over environments and ρ, by number of trials:",
            markdown(["neighborhoods", *(f"{n:,}" for n in middle)], cells),
        ]
    return "\n\n".join(parts) + "\n"
