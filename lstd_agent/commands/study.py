"""Run the paper's experiments again, or our own: see the names below.

Rows are kept as they are computed: the same command, given again after an interrupt, does what is
missing. Tables, pictures and the paper's claims are written beside them, with their provenance.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lstd_agent.commands.arguments import add_run_arguments, new_parser, read_arguments
from lstd_agent.commands.outputs import put_out
from lstd_agent.commands.running import run, say
from lstd_agent.commands.studies import STUDIES, Study
from lstd_agent.figure_style import new_figure, picture
from lstd_agent.study.provenance import one_line, provenance
from lstd_agent.study.rows import Row
from lstd_agent.study.tables import csv_text
from lstd_agent.trials.workers import WorkerError, open_executor


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the study that the first argument names; return the exit status."""
    parser = new_parser(
        prog,
        __doc__,
        "example:\n  unichain study exact --envs h6 c10 --seeds 5 --out results/small",
    )
    commands = parser.add_subparsers(required=True, metavar="|".join(STUDIES))
    for name, study in STUDIES.items():
        own = commands.add_parser(
            name,
            help=study.purpose,
            description=study.purpose,
            epilog=f"example:\n  unichain study {name} --seeds 5 --out results/small",
            formatter_class=parser.formatter_class,
        )
        for flag, keywords in study.arguments.items():
            own.add_argument(flag, **keywords)
        add_run_arguments(own, f"results/{name}", study.n_seeds)
        own.set_defaults(study=study)
    args = read_arguments(parser, argv, prog or "study")
    return run(lambda: conduct(args.study, args))


def conduct(study: Study, args: argparse.Namespace) -> int:
    """Compute what is missing of a study and write its results."""
    new_figure(1.0, 1.0)  # without matplotlib, refuse to work for hours
    one_thread_each()
    with rows_kept(args.out / f"{study.rows_name}.jsonl"), open_executor(args.dask) as executor:
        how = {"n_seeds": args.seeds, "workers": args.workers, "executor": executor}
        rows = study.compute(args, **how, progress=not args.quiet)
        contents, report = study.present(rows)
        put_results(args, contents, report, study.rows_name, rows)
    print(f"Tables, pictures and raw rows are in {args.out}{os.sep}")
    return 0


def put_results(
    args: argparse.Namespace,
    contents: Mapping[str, Any],
    report: str,
    rows_name: str,
    rows: Sequence[Row],
) -> None:
    """Print a report, and write texts, figures and rows with their provenance."""
    facts = provenance(args.argv, seeds=f"0 to {args.seeds - 1}")
    files = {name: as_bytes(name, content, facts) for name, content in contents.items()}
    files[f"{rows_name}.csv"] = csv_text(rows).encode()
    files["provenance.json"] = (json.dumps(facts, indent=1) + "\n").encode()
    put_out(report, {args.out / name: content for name, content in files.items()})


def as_bytes(name: str, content: Any, facts: dict[str, Any]) -> bytes:
    """Return a text or a figure as the content of a file that carries its provenance."""
    suffix = Path(name).suffix
    if not isinstance(content, str):
        return picture(content, suffix, one_line(facts))
    before, after = {".tex": ("% ", "")}.get(suffix, ("<!-- ", " -->"))
    return f"{before}{one_line(facts)}{after}\n\n{content}".encode()


def one_thread_each() -> None:
    """Keep the processes to come from starting threads that would only compete."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")


@contextmanager
def rows_kept(path: Path) -> Iterator[None]:
    """Tell, when work breaks off, which rows are kept."""
    try:
        yield
    except (KeyboardInterrupt, OSError, MemoryError, WorkerError):
        if path.is_file():
            with path.open("rb") as lines:
                n_rows = sum(line.endswith(b"\n") for line in lines)
            say(f"{n_rows} rows are kept in {path}; the same command goes on from there")
        raise
