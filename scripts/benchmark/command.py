"""Speed and memory as ratios, each measured against its yardstick in the same run.

A ratio of times is the median over interleaved pairs of measurements, shown with the smallest and
the largest: other work of the machine slows both down. Memory is a process's peak, measured in a
process of its own. Competitors that are not installed are skipped by name. Ratios are "ours /
yardstick" for costs, and exponents where a row says how a cost grows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmark import evaluator, exact, processes, stepping
from benchmark.timing import HEAD, Row, Setting, Skipped
from lstd_agent.commands import running
from lstd_agent.packing import write_files
from lstd_agent.progress import progress_bar
from lstd_agent.results import installed_version, provenance

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
PACKAGES = ("numpy", "scipy", "gymnasium", "unichain-gym", "envpool", "quantecon", "distributed")

GROUPS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "stepping": stepping.stepping,
    "envpool": stepping.envpool,
    "quantecon": stepping.quantecon,
    "collection": evaluator.collection,
    "loops": evaluator.loops,
    "fits": evaluator.fits,
    "backups": evaluator.backups,
    "population": evaluator.population,
    "improvement": evaluator.improvement,
    "jobs": evaluator.jobs,
    "exact": exact.exact,
    "optimal": exact.optimal,
    "growth": exact.growth_group,
    "imports": processes.imports,
    "memory": processes.memory,
    "vectors": processes.vectors,
}
"""Generators of rows by the name of their group."""


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Measure, print the table as it grows, and write it as JSON; return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    if not all(os.environ.get(name) for name in THREADS):
        # One thread everywhere: ratios compare algorithms, not thread pools. NumPy makes its pool
        # at import, so this needs another process.
        command = [sys.executable, str(Path(__file__).parent), *argv]
        single = {**os.environ, **{name: os.environ.get(name) or "1" for name in THREADS}}
        return running.run(lambda: subprocess.run(command, env=single, check=False).returncode)
    args = command_line(prog).parse_args(argv)
    if args.probe:
        name, *numbers = args.probe
        print(json.dumps(processes.PROBES[name](*map(int, numbers))))
        return 0
    return running.run(lambda: measure(args, argv))


def command_line(prog: str | None) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = running.new_parser(
        prog, __doc__, "example:\n  python scripts/benchmark --quick --only stepping collection"
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under two minutes")
    parser.add_argument("--only", **running.subset("GROUP", [*GROUPS], "rows of these groups, "))
    parser.add_argument(
        "--repeats", type=running.at_least(1), default=5, help="measurements of a row (5)"
    )
    told = "where to write the figures (benchmark.json)"
    parser.add_argument("--json", type=Path, default=Path("benchmark.json"), help=told)
    running.add_arguments(parser, "--quiet")
    parser.add_argument("--probe", nargs="+", help=argparse.SUPPRESS)
    return parser


def measure(args: argparse.Namespace, argv: Sequence[str]) -> int:
    """Measure the rows that are asked for."""
    running.check_destinations(None, args.json)
    machine = describe_machine()
    print("\n".join(f"{name}: {value}" for name, value in machine.items()))
    setting = Setting(args.quick, args.repeats)
    rows: list[Row] = []
    skipped: list[str] = []
    with progress_bar(len(args.only), "group", not args.quiet) as bar:
        for group in args.only:
            bar.write(f"\n{group}\n{HEAD}")
            try:
                for row in GROUPS[group](setting):
                    bar.write(str(row))
                    sys.stdout.flush()
                    rows.append(row)
            except Skipped as reason:
                skipped.append(f"{group}: {reason}")
                bar.write(f"  skipped: {reason}")
            bar.update()
    result = {"machine": machine, "rows": [asdict(row) for row in rows], "skipped": skipped}
    result["provenance"] = provenance(["benchmark", *argv])
    write_files({args.json: (json.dumps(result, indent=1) + "\n").encode()})
    missed = [row.name for row in rows if row.met is False]
    print(
        f"\n{len(rows)} rows, {len(missed)} targets missed{': ' * bool(missed)}{'; '.join(missed)}"
    )
    return 0


def describe_machine() -> dict[str, str]:
    """Return the machine's properties that affect the figures."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    facts = {"processor": next(iter(names), platform.processor()), "cores": str(os.cpu_count())}
    facts |= {"system": platform.platform(), "python": sys.version.split()[0]}
    return facts | {name: installed_version(name) for name in PACKAGES}
