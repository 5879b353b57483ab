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
    add_run_arguments,
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
from study import complexity, figures, tables
from study.claims import exact_claims, markdown_claims, sampled_claims
from study.control import CONTROL_ENVIRONMENTS, ControlSettings, run_control_study
from study.estimators import EstimatorSettings, run_estimator_study
from study.exact import ExactSettings, run_exact_study
from study.exact_systems import SCHEMES, Rule, Tail
from study.references import ReferenceSettings, run_reference_study
from study.rule import markdown_complexity
from study.sampling import Engine, Estimator, SampledTail, SamplingSettings, run_sampling_study
from unichain_gym import make_mdp

Contents = dict[str, str | Any]
"""By file name: a text, or a figure."""

Arguments = Mapping[str, Mapping[str, Any]]
"""Keywords of ``add_argument`` by flag."""

# Fields of a study, and the argument that chooses among all their values.
_SUBSETS = {"environments": "envs", "rhos": "rhos", "schemes": "schemes"}


@dataclass(frozen=True)
class Study:
    """One study as a command.

    Arguments set the fields of ``settings``, or are subsets of what is studied. ``present`` gives
    the files and the text to print, and ``check`` raises if arguments do not fit together.
    """

    purpose: str
    rows_name: str
    settings: type
    run: Callable[..., list[Row]]
    present: Callable[[list[Row]], tuple[Contents, str]]
    arguments: Arguments = field(default_factory=dict)
    check: Callable[[argparse.Namespace], None] = lambda args: None
    n_seeds: int = 20

    def compute(self, args: argparse.Namespace, **how: Any) -> list[Row]:
        """Compute the rows that the arguments ask for, and return all of them."""
        self.check(args)
        given = vars(args)
        chosen = {
            each.name: tuple(sorted(set(value))) if isinstance(value, list) else value
            for each in fields(self.settings)
            if (value := given.get(each.name)) is not None
        }
        subsets = {name: given[dest] for name, dest in _SUBSETS.items() if dest in given}
        return self.run(args.out, self.settings(**chosen), **subsets, **how)


def _check_exact(args: argparse.Namespace) -> None:
    studied = {env: [r.rho for r in regimes(make_mdp(env).n_states)] for env in args.envs}
    if not any(rho in args.rhos for rhos in studied.values() for rho in rhos):
        listed = "; ".join(f"{env} at ρ = {', '.join(map(str, r))}" for env, r in studied.items())
        raise InvalidInputError(
            f"nothing to compute: none of these environments is studied at ρ = "
            f"{', '.join(map(str, args.rhos))}, but {listed}"
        )


def _present_exact(rows: list[Row]) -> tuple[Contents, str]:
    cells = tables.mean_cells(rows)
    ratios = tables.log_ratios(cells, tables.paper_cells())
    comparison = tables.markdown_agreement(ratios)
    report = markdown_claims(exact_claims(rows))
    contents = {
        "tables.md": tables.markdown_tables(cells),
        "tables.tex": tables.latex_tables(cells),
        "comparison.md": comparison,
        "claims.md": report,
        "comparison.png": figures.ratio_heat_map(ratios),
    }
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
    contents: Contents = {
        "comparison.md": tables.markdown_estimators(rows),
        "comparison.png": figures.estimator_multiples(rows),
    }
    return contents, tables.estimator_table(rows) + "\n"


def _report(
    text: str, write: Callable[[list[Row]], str], picture: str, draw: Callable[[list[Row]], Any]
) -> Callable[[list[Row]], tuple[Contents, str]]:
    """Return a function that presents rows by one text, which is also printed, and one picture."""

    def present(rows: list[Row]) -> tuple[Contents, str]:
        report = write(rows)
        return {text: report, picture: draw(rows)}, report

    return present


def _choice(flag: str, among: tuple[str, ...], told: str, default: str = "") -> Arguments:
    """Return an argument that takes one of several names, by default the first."""
    return {flag: {"choices": among, "default": default or among[0], "help": told}}


def _numbers(flag: str, dest: str, least: int, default: Sequence[int], told: str) -> Arguments:
    """Return an argument that takes several integers."""
    how = {"nargs": "+", "type": at_least(least), "default": list(default), "dest": dest}
    return {flag: {**how, "metavar": flag[2:].upper(), "help": told}}


_REFERENCE = _choice(
    "--reference",
    get_args(Rule),
    "rule for reference states (default: most_common, the paper's)",
    "most_common",
)


def _tail(among: tuple[str, ...], note: str) -> Arguments:
    what = f"what the last neighborhood averages (default: window, as in the paper{note})"
    return _choice("--tail", among, what)


def _trials(fewest: int, most: int | None = None) -> Arguments:
    about = {"dest": "n_trials", "metavar": "TRIALS", "help": "number of trials (10,000)"}
    return {"--trials": {"type": at_least(fewest, most), "default": 10_000, **about}}


STUDIES = {
    "exact": Study(
        "the paper's six tables: ten schemes, exact statistics (a minute of two cores for each "
        "15 to 20 seeds)",
        "exact_rows",
        ExactSettings,
        run_exact_study,
        _present_exact,
        {
            "--envs": subset("ENV", ENVIRONMENTS),
            "--rhos": subset("RHO", RHOS, "features per state, "),
            "--schemes": subset("SCHEME", SCHEMES),
            **_tail(get_args(Tail), "'s tables"),
            **_REFERENCE,
        },
        _check_exact,
    ),
    "sampling": Study(
        "the paper's figure: errors against the number of trials",
        "sampling_rows",
        SamplingSettings,
        run_sampling_study,
        _present_sampling,
        {
            **_choice(
                "--engine",
                get_args(Engine),
                "step environments, or draw the counts of all trials at once (default: trials)",
            ),
            **_choice(
                "--estimator",
                get_args(Estimator),
                "MMD of all pairs of trials, or the paper's of disjoint pairs (default: quadratic)",
            ),
            **_tail(get_args(SampledTail), ""),
            **_REFERENCE,
        },
        _check_sampling,
    ),
    "references": Study(
        "the effect of our rules on the same samples, as multiples of the projection limit",
        "reference_rows",
        ReferenceSettings,
        run_reference_study,
        _report(
            "comparison.md",
            tables.markdown_references,
            "comparison.png",
            figures.reference_multiples,
        ),
        {"--envs": subset("ENV", ENVIRONMENTS), **_trials(2)},
    ),
    "control": Study(
        "learners of policies on the same number of samples, held to the exact bias optimum",
        "control_rows",
        ControlSettings,
        run_control_study,
        _report("comparison.md", tables.markdown_control, "curves.png", figures.control_curves),
        {
            "--envs": subset("ENV", CONTROL_ENVIRONMENTS),
            **_numbers(
                "--samples",
                "checkpoints",
                1,
                ControlSettings().checkpoints,
                "numbers of transitions (5,000 to 100,000)",
            ),
        },
    ),
    "estimators": Study(
        "our systems beside TD, LSTD, Monte Carlo and certainty equivalence, on the same samples",
        "estimator_rows",
        EstimatorSettings,
        run_estimator_study,
        _present_estimators,
        {"--envs": subset("ENV", ENVIRONMENTS), **_trials(20, MOST_TRIALS)},
    ),
    "complexity": Study(
        "how many neighborhoods how many trials can feed, by backup",
        "complexity_rows",
        complexity.ComplexitySettings,
        complexity.run_complexity_study,
        _report("complexity.md", markdown_complexity, "complexity.png", figures.sample_complexity),
        {
            "--envs": subset("ENV", complexity.ENVIRONMENTS),
            **_numbers(
                "--trials",
                "n_trials",
                2,
                complexity.ComplexitySettings().n_trials,
                "numbers of trials (100 1000 10000 100000 1000000)",
            ),
        },
        # These rows take longest, and need fewest seeds: there are five numbers of trials.
        n_seeds=5,
    ),
}


def main(name: str, argv: Sequence[str] | None = None) -> int:
    """Run a study; return the exit status."""
    study = STUDIES[name]
    parser = new_parser(
        None,
        f"{study.purpose[0].upper()}{study.purpose[1:]}.\n\nRows are kept as they are computed: "
        "the same command, given again after an interrupt,\ncomputes what is missing. Tables, "
        "pictures and claims are written beside them, with their provenance.",
        "example: --seeds 5 --out results/small",
    )
    for flag, keywords in study.arguments.items():
        parser.add_argument(flag, **keywords)
    add_run_arguments(parser, f"results/{name}", study.n_seeds)
    args = read_arguments(parser, argv, f"study {name}")
    return run(lambda: conduct(study, args))


def conduct(study: Study, args: argparse.Namespace) -> int:
    """Compute what is missing of a study and write its results."""
    new_figure(1.0, 1.0)  # without matplotlib, refuse before hours of work
    with rows_kept(args.out / f"{study.rows_name}.jsonl"), open_executor(args.dask) as executor:
        how = {"n_seeds": args.seeds, "workers": args.workers, "executor": executor}
        rows = study.compute(args, **how, progress=not args.quiet)
        contents, report = study.present(rows)
        put_results(args, contents, report, study.rows_name, rows)
    print(f"Tables, pictures and raw rows are in {args.out}{os.sep}")
    return 0
