"""Write the rows of the table that it lacks; by hand, from the project's folder.

``python -m tests.frozen.record`` adds rows for new cases; ``--again NAME ...`` computes rows
again, which must have a reason that the commit says.

A row has the answers and their tolerances, relative to the span of each kind of value.

- Values: 1e-9 where the condition is below 1e4; of counts 1e-13 times a larger condition. Values
  of vectors come from moments, which square it: 1e-14 times its square. Sparse features have no
  condition: 1e-6.
- Standard errors: 1e-4, and where values are allowed more than 1e-6, 100 times that. Of vectors
  2e-2: what was never seen adds a part to them that a sample of the observations tells.
- Coverage: like values; of vectors at least 1e-6.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from . import counted, logs, loose, vectors
from .cases import ACTION_ERRORS, CASES, ERRORS, INTEGERS, Case, answers, condition, run

MODULES = counted, logs, loose, vectors
"""Importing them registers their cases."""

TABLE = Path(__file__).resolve().with_name("table.json")
_WELL_CONDITIONED = 1e4
_RANKS_ARE_SURE = 1e3


def tolerances(each: Case, found: dict[str, Any]) -> dict[str, float]:
    """Return the tolerances of answers, relative to the span of each."""
    size, is_counted = condition(each), np.ndim(each.at) == 1
    if not np.isfinite(size):
        values = 1e-6
    elif size < _WELL_CONDITIONED:
        values = 1e-9
    else:
        values = 1e-13 * size if is_counted else max(1e-9, 1e-14 * size**2)
    errors = max(1e-4 if is_counted else 2e-2, 100.0 * values)
    within = {}
    for name in found:
        if name in INTEGERS:
            within[name] = 0.0
        elif name in (*ERRORS, *ACTION_ERRORS):
            within[name] = errors
        elif name in ("coverage", "action_coverage"):
            within[name] = values if is_counted else max(1e-6, values)
        else:
            within[name] = values
    return within


def row_of(each: Case) -> dict[str, Any]:
    """Return the row of a case: answers, tolerances, and the condition that led to them."""
    found = answers(each)
    if np.ndim(each.at) == 2 and not condition(each) < _RANKS_ARE_SURE:
        found.pop("rank", None)
    if not np.isfinite(condition(each)):
        found.pop("rank", None)
    size = condition(each)
    return {
        "condition": float(f"{size:.3g}") if np.isfinite(size) else None,
        "within": {name: float(f"{x:.3g}") for name, x in tolerances(each, found).items()},
        "answers": {name: as_json(values) for name, values in found.items()},
    }


def as_json(values: Any) -> Any:
    """Return numbers as lists, with None for infinite ones and for none."""
    numbers: Any = np.where(np.isfinite(values), values.astype(object), None)
    return numbers.tolist()


def from_json(values: Any) -> Any:
    """Return what `as_json` made, with NaN for None."""
    return np.array(values, dtype=float)


def main() -> None:
    """Add the rows that are missing, and replace those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", nargs="+", default=[], metavar="NAME", choices=list(CASES))
    again = parser.parse_args().again
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    for name, make in CASES.items():
        if name in table and name not in again:
            continue
        each, _ = run(make)
        if each.frozen and not each.row:
            table[name] = row_of(each)
            print(name)
    rows = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(table.items()))
    TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
