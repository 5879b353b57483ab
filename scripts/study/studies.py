"""The studies as scripts: arguments, output files and execution."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from lstd_agent.commands import running
from lstd_agent.figure_style import new_figure
from lstd_agent.problems import regimes
from lstd_agent.results import Row, open_executor
from study import figures, tables
from study.claims import exact_claims, markdown_claims, sampled_claims
from study.complexity import COMPLEXITY, markdown_complexity
from study.control import CONTROL
from study.exact import EXACT
from study.sampled import ESTIMATOR_STUDY, REFERENCES
from study.sampling import SAMPLING
from study.store import Study
from unichain_gym import make_mdp

Contents = dict[str, str | Any]
"""By file name: a text, or a figure."""


@dataclass(frozen=True)
class Command:
    """One study as a command.

    ``present`` gives the files and the text to print. ``arguments`` have, by flag, the field that
    they set, of the settings or of what is studied, with its description, and the keywords of
    ``add_argument`` that do not follow from the field. ``check`` raises if they do not fit.
    """

    purpose: str
    study: Study
    present: Callable[[list[Row]], tuple[Contents, str]]
    arguments: Mapping[str, tuple[Any, ...]]
    check: Callable[[argparse.Namespace], None] = lambda args: None
    n_seeds: int = 20

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the study's own arguments."""
        types, settings = get_type_hints(self.study.settings), self.study.settings()
        for flag, (name, told, *keywords) in self.arguments.items():
            values = self.study.every.get(name)
            if keywords:
                default = getattr(settings, name, values)
                how = {"default": default, "help": told, "metavar": flag[2:].upper(), **keywords[0]}
            elif values:
                how = running.subset(flag[2:-1].upper(), values, told)
            else:
                default = getattr(settings, name)
                told = f"{told} (default: {default})"
                how = {"choices": get_args(types[name]), "default": default, "help": told}
            parser.add_argument(flag, dest=name, **how)

    def compute(self, args: argparse.Namespace, **how: Any) -> list[Row]:
        """Compute the rows that the arguments ask for, and return all of them."""
        self.check(args)
        given, settings = vars(args), self.study.settings
        chosen = {
            each.name: tuple(sorted(set(value))) if isinstance(value, list) else value
            for each in fields(settings)
            if (value := given.get(each.name)) is not None
        }
        among = {name: [*dict.fromkeys(given[name])] for name in self.study.every if name in given}
        return self.study.run(args.out, settings(**chosen), among, args.seeds, **how)


def _check_exact(args: argparse.Namespace) -> None:
    every = [(make_mdp(env).n_states, args.rho, env) for env in args.env]
    if not any(regimes(n, rhos) for n, rhos, _ in every):
        regimes(*every[0])  # raises


def _present_exact(rows: list[Row]) -> tuple[Contents, str]:
    cells = tables.mean_cells(rows)
    ratios = tables.log_ratios(cells, tables.paper_cells())
    comparison, report = tables.markdown_agreement(ratios), markdown_claims(exact_claims(rows))
    contents = {"comparison.md": comparison, "claims.md": report}
    contents |= {"tables.md": tables.markdown_tables(cells)}
    contents |= {"tables.tex": tables.latex_tables(cells)}
    return {**contents, "comparison.png": figures.ratio_heat_map(ratios)}, f"{comparison}\n{report}"


def _present_sampling(rows: list[Row]) -> tuple[Contents, str]:
    report = markdown_claims(sampled_claims(rows))
    curves = figures.sampling_curves(rows)
    return {"claims.md": report, "curves.png": curves, "curves.pdf": curves}, report


def _report(
    name: str,
    write: Callable[[list[Row]], str],
    draw: Callable[[list[Row]], Any],
    drawn: str = "",
    shown: Callable[[list[Row]], str] | None = None,
) -> Callable[[list[Row]], tuple[Contents, str]]:
    """Return a function that presents rows by one text and one picture; it prints the text."""

    def present(rows: list[Row]) -> tuple[Contents, str]:
        report = write(rows)
        contents = {f"{name}.md": report, f"{drawn or name}.png": draw(rows)}
        return contents, report if shown is None else shown(rows)

    return present


_ENVS = {"--envs": ("env", "")}
_RULES = {
    "--tail": ("tail", "what the last neighborhood averages"),
    "--reference": ("reference", "rule for reference states"),
}
_SEVERAL = {"nargs": "+", "type": running.at_least(2)}


def _trials(fewest: int, most: int | None = None) -> dict[str, tuple[Any, ...]]:
    how = {"type": running.at_least(fewest, most)}
    return {"--trials": ("n_trials", "number of trials (10,000)", how)}


STUDIES = {
    "exact": Command(
        "the paper's six tables: ten schemes, exact statistics (a minute of two cores for each "
        "15 to 20 seeds)",
        EXACT,
        _present_exact,
        {
            **_ENVS,
            "--rhos": ("rho", "features per state, "),
            "--schemes": ("scheme", ""),
            **_RULES,
        },
        _check_exact,
    ),
    "sampling": Command(
        "the paper's figure: errors against the number of trials",
        SAMPLING,
        _present_sampling,
        {
            "--engine": ("engine", "step environments, or draw the counts of all trials at once"),
            "--estimator": ("estimator", "MMD of all pairs of trials, or of disjoint pairs"),
            **_RULES,
        },
    ),
    "references": Command(
        "the effect of our rules on the same samples, as multiples of the projection limit",
        REFERENCES,
        _report("comparison", tables.markdown_references, figures.reference_multiples),
        {**_ENVS, **_trials(2)},
    ),
    "control": Command(
        "learners of policies on the same number of samples, held to the exact bias optimum",
        CONTROL,
        _report("comparison", tables.markdown_control, figures.control_curves, "curves"),
        {
            **_ENVS,
            "--samples": (
                *("checkpoints", "numbers of transitions (5,000 to 100,000)"),
                {**_SEVERAL, "type": running.at_least(1)},
            ),
        },
    ),
    "estimators": Command(
        "our systems beside TD, LSTD, Monte Carlo and certainty equivalence, on the same samples",
        ESTIMATOR_STUDY,
        _report(
            *("comparison", tables.markdown_estimators, figures.estimator_multiples),
            shown=lambda rows: f"{tables.estimator_table(rows)}\n",
        ),
        {**_ENVS, **_trials(20, running.MOST_TRIALS)},
    ),
    "complexity": Command(
        "how many neighborhoods how many trials can feed, by backup",
        COMPLEXITY,
        _report("complexity", markdown_complexity, figures.sample_complexity),
        {**_ENVS, "--trials": ("n_trials", "numbers of trials (100 to 1,000,000)", _SEVERAL)},
        # These rows take longest, and need fewest seeds: there are five numbers of trials.
        n_seeds=5,
    ),
}


def main(name: str, argv: Sequence[str] | None = None) -> int:
    """Run a study; return the exit status."""
    command = STUDIES[name]
    parser = running.new_parser(
        None,
        f"{command.purpose[0].upper()}{command.purpose[1:]}.\n\nRows are kept as they are "
        "computed: the same command, given again after an interrupt,\ncomputes what is missing. "
        "Tables, pictures and claims are written beside them, with their provenance.",
        "example: --seeds 5 --out results/small",
    )
    command.add_arguments(parser)
    running.add_arguments(parser, *running.RUN, out=Path("results", name), seeds=command.n_seeds)
    args = running.read_arguments(parser, argv, f"study {name}")
    return running.run(lambda: conduct(command, args))


def conduct(command: Command, args: argparse.Namespace) -> int:
    """Compute what is missing of a study and write its results."""
    new_figure(1.0, 1.0)  # without matplotlib, refuse before hours of work
    name = f"{command.study.name}_rows"
    with running.rows_kept(args.out / f"{name}.jsonl"), open_executor(args.dask) as executor:
        how = {"workers": args.workers, "executor": executor, "progress": not args.quiet}
        rows = command.compute(args, **how)
        contents, report = command.present(rows)
        running.put_results(args, contents, report, name, rows)
    print(f"Tables, pictures and raw rows are in {args.out}{os.sep}")
    return 0
