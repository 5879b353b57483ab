"""The studies as scripts: arguments, output files and execution."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from lstd_agent.commands.outputs import put_results, rows_kept
from lstd_agent.commands.running import (
    MOST_TRIALS,
    RUN,
    add_arguments,
    at_least,
    new_parser,
    read_arguments,
    run,
    subset,
)
from lstd_agent.errors import InvalidInputError
from lstd_agent.figure_style import new_figure
from lstd_agent.problems import ENVIRONMENTS, RHOS, regimes
from lstd_agent.results import Row, open_executor
from study import figures, tables
from study.claims import exact_claims, markdown_claims, sampled_claims
from study.complexity import COMPLEXITY, markdown_complexity
from study.control import CONTROL, ControlSettings
from study.exact import EXACT, SCHEMES, Rule, Tail
from study.sampled import ESTIMATOR_STUDY, REFERENCES
from study.sampling import SAMPLING, Engine, Estimator, SampledTail
from study.store import Study
from unichain_gym import make_mdp

Contents = dict[str, str | Any]
"""By file name: a text, or a figure."""

Arguments = Mapping[str, Mapping[str, Any]]
"""Keywords of ``add_argument`` by flag."""


@dataclass(frozen=True)
class Command:
    """One study as a command.

    Arguments set fields of the settings, or choose among what is studied. ``present`` gives the
    files and the text to print, and ``check`` raises if arguments do not fit together.
    """

    purpose: str
    study: Study
    present: Callable[[list[Row]], tuple[Contents, str]]
    arguments: Arguments = field(default_factory=dict)
    check: Callable[[argparse.Namespace], None] = lambda args: None
    n_seeds: int = 20

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
    studied = {env: [r.rho for r in regimes(make_mdp(env).n_states)] for env in args.env}
    if not any(rho in args.rho for rhos in studied.values() for rho in rhos):
        listed = "; ".join(f"{env} at ρ = {', '.join(map(str, r))}" for env, r in studied.items())
        raise InvalidInputError(
            f"nothing to compute: none of these environments is studied at ρ = "
            f"{', '.join(map(str, args.rho))}, but {listed}"
        )


def _present_exact(rows: list[Row]) -> tuple[Contents, str]:
    cells = tables.mean_cells(rows)
    ratios = tables.log_ratios(cells, tables.paper_cells())
    comparison, report = tables.markdown_agreement(ratios), markdown_claims(exact_claims(rows))
    contents: Contents = {"comparison.md": comparison, "claims.md": report}
    contents |= {
        "tables.md": tables.markdown_tables(cells),
        "tables.tex": tables.latex_tables(cells),
    }
    contents["comparison.png"] = figures.ratio_heat_map(ratios)
    return contents, f"{comparison}\n{report}"


def _check_sampling(args: argparse.Namespace) -> None:
    if args.engine == "population" and args.estimator == "linear":
        raise InvalidInputError(
            "the linear estimator pairs single trials: it needs --engine trials"
        )


def _present_sampling(rows: list[Row]) -> tuple[Contents, str]:
    report = markdown_claims(sampled_claims(rows))
    curves = figures.sampling_curves(rows)
    return {"claims.md": report, "curves.png": curves, "curves.pdf": curves}, report


def _present_estimators(rows: list[Row]) -> tuple[Contents, str]:
    text, drawn = tables.markdown_estimators(rows), figures.estimator_multiples(rows)
    return {"comparison.md": text, "comparison.png": drawn}, tables.estimator_table(rows) + "\n"


def _report(
    name: str, write: Callable[[list[Row]], str], draw: Callable[[list[Row]], Any], drawn: str = ""
) -> Callable[[list[Row]], tuple[Contents, str]]:
    """Return a function that presents rows by one text, which is also printed, and one picture."""

    def present(rows: list[Row]) -> tuple[Contents, str]:
        report = write(rows)
        return {f"{name}.md": report, f"{drawn or name}.png": draw(rows)}, report

    return present


def _choice(flag: str, among: tuple[str, ...], told: str, default: str = "") -> Arguments:
    """Return an argument that takes one of several names, by default the first."""
    return {flag: {"choices": among, "default": default or among[0], "help": told}}


def _numbers(flag: str, dest: str, least: int, default: Sequence[int], told: str) -> Arguments:
    """Return an argument that takes several integers."""
    how = {"nargs": "+", "type": at_least(least), "default": list(default), "dest": dest}
    return {flag: {**how, "metavar": flag[2:].upper(), "help": told}}


_SAMPLES = "numbers of transitions (5,000 to 100,000)"
_NUMBERS = "numbers of trials (100 1000 10000 100000 1000000)"
_ENGINE = "step environments, or draw the counts of all trials at once (default: trials)"
_ESTIMATOR = "MMD of all pairs of trials, or the paper's of disjoint pairs (default: quadratic)"
_REFERENCE = "rule for reference states (default: most_common, the paper's)"


def _tail(among: tuple[str, ...], note: str) -> Arguments:
    what = f"what the last neighborhood averages (default: window, as in the paper{note})"
    return _choice("--tail", among, what)


def _trials(fewest: int, most: int | None = None) -> Arguments:
    about = {"dest": "n_trials", "metavar": "TRIALS", "help": "number of trials (10,000)"}
    return {"--trials": {"type": at_least(fewest, most), "default": 10_000, **about}}


def _among(flag: str, dest: str, choices: Sequence[Any], what: str = "") -> Arguments:
    """Return an argument that chooses among all values of a field."""
    return {flag: {**subset(flag[2:-1].upper(), choices, what), "dest": dest}}


STUDIES = {
    "exact": Command(
        "the paper's six tables: ten schemes, exact statistics (a minute of two cores for each "
        "15 to 20 seeds)",
        EXACT,
        _present_exact,
        {
            **_among("--envs", "env", ENVIRONMENTS),
            **_among("--rhos", "rho", RHOS, "features per state, "),
            **_among("--schemes", "scheme", SCHEMES),
            **_tail(get_args(Tail), "'s tables"),
            **_choice("--reference", get_args(Rule), _REFERENCE, "most_common"),
        },
        _check_exact,
    ),
    "sampling": Command(
        "the paper's figure: errors against the number of trials",
        SAMPLING,
        _present_sampling,
        {
            **_choice("--engine", get_args(Engine), _ENGINE),
            **_choice("--estimator", get_args(Estimator), _ESTIMATOR),
            **_tail(get_args(SampledTail), ""),
            **_choice("--reference", get_args(Rule), _REFERENCE, "most_common"),
        },
        _check_sampling,
    ),
    "references": Command(
        "the effect of our rules on the same samples, as multiples of the projection limit",
        REFERENCES,
        _report("comparison", tables.markdown_references, figures.reference_multiples),
        {**_among("--envs", "env", ENVIRONMENTS), **_trials(2)},
    ),
    "control": Command(
        "learners of policies on the same number of samples, held to the exact bias optimum",
        CONTROL,
        _report("comparison", tables.markdown_control, figures.control_curves, "curves"),
        {
            **_among("--envs", "env", CONTROL.every["env"]),
            **_numbers("--samples", "checkpoints", 1, ControlSettings().checkpoints, _SAMPLES),
        },
    ),
    "estimators": Command(
        "our systems beside TD, LSTD, Monte Carlo and certainty equivalence, on the same samples",
        ESTIMATOR_STUDY,
        _present_estimators,
        {**_among("--envs", "env", ENVIRONMENTS), **_trials(20, MOST_TRIALS)},
    ),
    "complexity": Command(
        "how many neighborhoods how many trials can feed, by backup",
        COMPLEXITY,
        _report("complexity", markdown_complexity, figures.sample_complexity),
        {
            **_among("--envs", "env", COMPLEXITY.every["env"]),
            **_numbers("--trials", "n_trials", 2, COMPLEXITY.every["n_trials"], _NUMBERS),
        },
        # These rows take longest, and need fewest seeds: there are five numbers of trials.
        n_seeds=5,
    ),
}


def main(name: str, argv: Sequence[str] | None = None) -> int:
    """Run a study; return the exit status."""
    command = STUDIES[name]
    parser = new_parser(
        None,
        f"{command.purpose[0].upper()}{command.purpose[1:]}.\n\nRows are kept as they are "
        "computed: the same command, given again after an interrupt,\ncomputes what is missing. "
        "Tables, pictures and claims are written beside them, with their provenance.",
        "example: --seeds 5 --out results/small",
    )
    for flag, keywords in command.arguments.items():
        parser.add_argument(flag, **keywords)
    add_arguments(parser, *RUN, out=f"results/{name}", seeds=command.n_seeds)
    args = read_arguments(parser, argv, f"study {name}")
    return run(lambda: conduct(command, args))


def conduct(command: Command, args: argparse.Namespace) -> int:
    """Compute what is missing of a study and write its results."""
    new_figure(1.0, 1.0)  # without matplotlib, refuse before hours of work
    name = f"{command.study.name}_rows"
    with rows_kept(args.out / f"{name}.jsonl"), open_executor(args.dask) as executor:
        how = {"workers": args.workers, "executor": executor, "progress": not args.quiet}
        rows = command.compute(args, **how)
        contents, report = command.present(rows)
        put_results(args, contents, report, name, rows)
    print(f"Tables, pictures and raw rows are in {args.out}{os.sep}")
    return 0
