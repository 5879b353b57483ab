"""Speed and memory as ratios, each measured against its yardstick in the same run.

A ratio of times is the median over interleaved pairs of measurements, shown with the smallest
and the largest: what else the machine does meanwhile slows both down. Memory is a process's
peak, measured in a process of its own. Competitors that are not installed are named and left
out. Ratios are "ours / yardstick" for costs, and growth exponents where a cost is to grow.
"""

from __future__ import annotations

import os

# One thread everywhere: ratios compare algorithms, not thread pools.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import argparse
import json
import platform
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from benchmark_rows import GROUPS, PROBES
from benchmark_timing import Row, Setting, Skipped

PACKAGES = ("numpy", "scipy", "gymnasium", "unichain-gym", "envpool", "quantecon", "distributed")


def main() -> None:
    """Measure, print the table as it grows, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under two minutes")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=GROUPS,
        default=list(GROUPS),
        metavar="GROUP",
        help=f"rows of these groups, among {', '.join(GROUPS)} (all)",
    )
    parser.add_argument("--repeats", type=int, default=5, help="measurements of a row (5)")
    parser.add_argument(
        "--json",
        type=Path,
        default=Path("benchmark.json"),
        metavar="FILE",
        help="where to write the figures (benchmark.json)",
    )
    parser.add_argument("--probe", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.probe:
        name, *numbers = args.probe
        print(json.dumps(PROBES[name](*map(int, numbers))))
        return

    machine = describe_machine()
    print("\n".join(f"{name}: {value}" for name, value in machine.items()))
    setting = Setting(args.quick, max(5, args.repeats))
    rows: list[Row] = []
    skipped: list[str] = []
    for group in args.only:
        print(f"\n{group}\n{Row.header()}")
        try:
            for row in GROUPS[group](setting):
                print(row, flush=True)
                rows.append(row)
        except Skipped as reason:
            skipped.append(f"{group}: {reason}")
            print(f"  skipped: {reason}")
    result = {"machine": machine, "rows": [asdict(row) for row in rows], "skipped": skipped}
    args.json.write_text(json.dumps(result, indent=1) + "\n")
    missed = [row.name for row in rows if row.met is False]
    print(f"\n{len(rows)} rows, {len(missed)} targets missed{': ' * bool(missed)}", end="")
    print("; ".join(missed))


def describe_machine() -> dict[str, str]:
    """Return what the figures depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": names[0].partition(": ")[2] if names else platform.processor(),
        "cores": str(os.cpu_count()),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "versions": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    }


def version(package: str) -> str:
    """Return an installed package's version."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    main()
