"""The studies of `unichain study`: their arguments, and what becomes of their rows."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lstd_agent.commands.arguments import (
    add_reference_argument,
    add_run_arguments,
    add_subset_argument,
)
from lstd_agent.commands.running import MOST_TRIALS, at_least
from lstd_agent.errors import InvalidInputError
from lstd_agent.study import claims, complexity_study, figures, tables
from lstd_agent.study.complexity_tables import markdown_complexity
from lstd_agent.study.control_results import control_curves, markdown_control
from lstd_agent.study.control_study import (
    CONTROL_ENVIRONMENTS,
    ControlSettings,
    run_control_study,
)
from lstd_agent.study.estimator_study import EstimatorSettings, run_estimator_study
from lstd_agent.study.estimator_tables import markdown_estimators, summary_table
from lstd_agent.study.exact_claims import exact_claims
from lstd_agent.study.exact_study import ExactSettings, run_exact_study
from lstd_agent.study.reference_study import (
    ReferenceSettings,
    markdown_comparison,
    run_reference_study,
)
from lstd_agent.study.rows import Row
from lstd_agent.study.sampled_claims import sampled_claims
from lstd_agent.study.sampling_study import SamplingSettings, run_sampling_study
from lstd_agent.study.schemes import ENVIRONMENTS, RHOS, SCHEMES, regimes
from unichain_gym import make_mdp

Contents = dict[str, str | Any]
"""By file name: a text, or a figure."""


@dataclass(frozen=True)
class Study:
    """One study as a command.

    Attributes
    ----------
    purpose : str
    rows_name : str
        Of its files of rows, without suffix.
    add_arguments : callable
        Adds its own to a parser.
    compute : callable
        Gets the arguments and what `run_exact_study` and the others have in common.
    present : callable
        Gives the files and the text to print.
    """

    purpose: str
    rows_name: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    compute: Callable[..., list[Row]]
    present: Callable[[list[Row]], tuple[Contents, str]]


def _exact_arguments(parser: argparse.ArgumentParser) -> None:
    add_subset_argument(parser, "env", ENVIRONMENTS)
    add_subset_argument(parser, "rho", RHOS, "features per state, ")
    add_subset_argument(parser, "scheme", SCHEMES)
    parser.add_argument(
        "--tail",
        choices=("window", "settled", "stationary"),
        default="window",
        help="what the last neighborhood averages (default: window, as in the paper's tables)",
    )
    add_reference_argument(parser)
    add_run_arguments(parser, default_out="results/exact")


def _exact(args: argparse.Namespace, **how: Any) -> list[Row]:
    studied = {env: [r.rho for r in regimes(make_mdp(env).n_states)] for env in args.envs}
    if not any(rho in args.rhos for rhos in studied.values() for rho in rhos):
        listed = "; ".join(f"{env} at ρ = {', '.join(map(str, r))}" for env, r in studied.items())
        raise InvalidInputError(
            f"nothing to compute: none of these environments is studied at ρ = "
            f"{', '.join(map(str, args.rhos))}, but {listed}"
        )
    settings = ExactSettings(tail=args.tail, reference=args.reference)
    subset = {"environments": args.envs, "rhos": args.rhos, "schemes": args.schemes}
    return run_exact_study(args.out, settings, **subset, **how)


def _present_exact(rows: list[Row]) -> tuple[Contents, str]:
    cells = tables.mean_cells(rows)
    ratios = tables.log_ratios(cells, tables.paper_cells())
    comparison = tables.markdown_agreement(tables.agreement(ratios))
    report = claims.markdown(exact_claims(rows))
    contents = {
        "tables.md": tables.markdown_tables(cells),
        "tables.tex": tables.latex_tables(cells),
        "comparison.md": comparison,
        "claims.md": report,
        "comparison.png": figures.ratio_heat_map(ratios),
    }
    return contents, f"{comparison}\n{report}"


def _sampling_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        choices=("trials", "population"),
        default="trials",
        help="step environments, or draw the counts of all trials at once (default: trials)",
    )
    parser.add_argument(
        "--estimator",
        choices=("quadratic", "linear"),
        default="quadratic",
        help="MMD of all pairs of trials, or the paper's of disjoint pairs (default: quadratic)",
    )
    parser.add_argument(
        "--tail",
        choices=("window", "settled"),
        default="window",
        help="what the last neighborhood averages (default: window, as in the paper)",
    )
    add_reference_argument(parser)
    add_run_arguments(parser, default_out="results/sampling")


def _sampling(args: argparse.Namespace, **how: Any) -> list[Row]:
    if args.engine == "population" and args.estimator == "linear":
        raise InvalidInputError(
            "the linear estimator pairs single trials: it needs --engine trials"
        )
    settings = SamplingSettings(
        engine=args.engine, estimator=args.estimator, tail=args.tail, reference=args.reference
    )
    return run_sampling_study(args.out, settings, **how)


def _present_sampling(rows: list[Row]) -> tuple[Contents, str]:
    report = claims.markdown(sampled_claims(rows))
    curves = figures.sampling_curves(rows)
    return {"claims.md": report, "curves.png": curves, "curves.pdf": curves}, report


def _reference_arguments(parser: argparse.ArgumentParser) -> None:
    add_subset_argument(parser, "env", ENVIRONMENTS)
    parser.add_argument(
        "--trials", type=at_least(2), default=10_000, help="number of trials (10,000)"
    )
    add_run_arguments(parser, default_out="results/references")


def _references(args: argparse.Namespace, **how: Any) -> list[Row]:
    settings = ReferenceSettings(n_trials=args.trials)
    return run_reference_study(args.out, settings, environments=args.envs, **how)


def _present_references(rows: list[Row]) -> tuple[Contents, str]:
    report = markdown_comparison(rows)
    return {"comparison.md": report, "comparison.png": figures.reference_multiples(rows)}, report


def _control_arguments(parser: argparse.ArgumentParser) -> None:
    add_subset_argument(parser, "env", CONTROL_ENVIRONMENTS)
    parser.add_argument(
        "--samples",
        nargs="+",
        type=at_least(1),
        default=list(ControlSettings().checkpoints),
        metavar="N",
        help="numbers of transitions (5,000 to 100,000)",
    )
    add_run_arguments(parser, default_out="results/control")


def _control(args: argparse.Namespace, **how: Any) -> list[Row]:
    settings = ControlSettings(checkpoints=tuple(sorted(set(args.samples))))
    return run_control_study(args.out, settings, environments=args.envs, **how)


def _present_control(rows: list[Row]) -> tuple[Contents, str]:
    report = markdown_control(rows)
    return {"comparison.md": report, "curves.png": control_curves(rows)}, report


def _estimator_arguments(parser: argparse.ArgumentParser) -> None:
    add_subset_argument(parser, "env", ENVIRONMENTS)
    parser.add_argument(
        "--trials", type=at_least(20, MOST_TRIALS), default=10_000, help="number of trials (10,000)"
    )
    add_run_arguments(parser, default_out="results/estimators")


def _estimators(args: argparse.Namespace, **how: Any) -> list[Row]:
    settings = EstimatorSettings(n_trials=args.trials)
    return run_estimator_study(args.out, settings, environments=args.envs, **how)


def _present_estimators(rows: list[Row]) -> tuple[Contents, str]:
    contents: Contents = {
        "comparison.md": markdown_estimators(rows),
        "comparison.png": figures.estimator_multiples(rows),
    }
    return contents, summary_table(rows) + "\n"


def _complexity_arguments(parser: argparse.ArgumentParser) -> None:
    add_subset_argument(parser, "env", complexity_study.ENVIRONMENTS)
    parser.add_argument(
        "--trials",
        nargs="+",
        type=at_least(2),
        default=list(complexity_study.ComplexitySettings().n_trials),
        help="numbers of trials (100 1000 10000 100000 1000000)",
    )
    add_run_arguments(parser, default_out="results/complexity", seeds=5)


def _complexity(args: argparse.Namespace, **how: Any) -> list[Row]:
    settings = complexity_study.ComplexitySettings(n_trials=tuple(sorted(set(args.trials))))
    return complexity_study.run_complexity_study(args.out, settings, environments=args.envs, **how)


def _present_complexity(rows: list[Row]) -> tuple[Contents, str]:
    report = markdown_complexity(rows)
    curves = figures.sample_complexity(rows)
    return {"complexity.md": report, "complexity.png": curves}, report


STUDIES = {
    "exact": Study(
        "the paper's six tables: ten schemes, exact statistics (a minute of two cores for each "
        "15 to 20 seeds)",
        "exact_rows",
        _exact_arguments,
        _exact,
        _present_exact,
    ),
    "sampling": Study(
        "the paper's figure: errors against the number of trials",
        "sampling_rows",
        _sampling_arguments,
        _sampling,
        _present_sampling,
    ),
    "references": Study(
        "what our rules buy on the same samples, as multiples of the projection limit",
        "reference_rows",
        _reference_arguments,
        _references,
        _present_references,
    ),
    "control": Study(
        "learners of policies on the same number of samples, held to the exact bias optimum",
        "control_rows",
        _control_arguments,
        _control,
        _present_control,
    ),
    "estimators": Study(
        "our systems beside TD, LSTD, Monte Carlo and certainty equivalence, on the same samples",
        "estimator_rows",
        _estimator_arguments,
        _estimators,
        _present_estimators,
    ),
    "complexity": Study(
        "how many neighborhoods how many trials can feed, by backup",
        "complexity_rows",
        _complexity_arguments,
        _complexity,
        _present_complexity,
    ),
}
