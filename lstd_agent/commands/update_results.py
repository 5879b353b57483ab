"""Regenerate the pictures in docs/ and the results section of README.md of a checkout.

Runs the studies of `unichain study` with their defaults (the last, of sample complexity, with a
quarter of the seeds; their rows are kept under results/, so that a second run is quick) and writes
what they say between two markers in README.md: all of the files, or none of them if anything goes
wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from lstd_agent.commands.arguments import add_quiet_argument, add_size_arguments, new_parser
from lstd_agent.commands.outputs import check_writable, write_files
from lstd_agent.commands.running import run
from lstd_agent.commands.studies import STUDIES
from lstd_agent.commands.study import one_thread_each, rows_kept
from lstd_agent.errors import InvalidInputError
from lstd_agent.figure_style import new_figure, picture
from lstd_agent.study import figures, tables
from lstd_agent.study.control_results import control_curves, markdown_control
from lstd_agent.study.pages import headlines, side_by_side
from lstd_agent.study.provenance import one_line, provenance
from lstd_agent.study.rows import Row
from unichain_gym import make_mdp

PICTURES = (
    "h36c",
    "x9d",
    "comparison",
    "sampling",
    "references",
    "control",
    "estimators",
    "complexity",
)
BEGIN, END = "<!-- results: scripts/update_results.py -->\n", "<!-- end of results -->\n"


def main(root: Path, argv: Sequence[str] | None = None) -> int:
    """Run the studies, draw the pictures and fill in the README; return the exit status."""
    parser = new_parser(None, __doc__)
    add_size_arguments(parser)
    parser.add_argument("--out", type=Path, default=root / "results", help="folder of raw rows")
    add_quiet_argument(parser)
    args = parser.parse_args(argv)
    return run(lambda: update(root, args))


def update(root: Path, args: argparse.Namespace) -> int:
    """Compute what is missing, and write the README and the pictures."""
    readme, docs = root / "README.md", root / "docs"
    pictures = {name: docs / f"{name}.png" for name in PICTURES}
    new_figure(1.0, 1.0)
    replace_section(readme.read_text(encoding="utf-8"), "")
    for path in (readme, docs / "side_by_side.md", *pictures.values()):
        check_writable(path)
    one_thread_each()
    rows = {}
    for name, study in STUDIES.items():
        with rows_kept(args.out / name / f"{study.rows_name}.jsonl"):
            rows[name] = study.run(
                args.out / name,
                study.settings(),
                n_seeds=-(-args.seeds * study.n_seeds // 20),
                workers=args.workers,
                progress=not args.quiet,
            )
    exact, sampled, control = rows["exact"], rows["sampling"], rows["control"]

    # Without --workers and --out: nothing hangs on them, and paths are nobody's business.
    command = ["scripts/update_results.py", "--seeds", str(args.seeds)]
    origin = one_line(provenance(command, seeds=f"0 to {args.seeds - 1}"))
    ratios = tables.log_ratios(tables.mean_cells(exact), tables.paper_cells())
    drawn = {
        "h36c": make_mdp("h36c").plot(),
        "x9d": make_mdp("x9d").plot(),
        "comparison": figures.ratio_heat_map(ratios),
        "sampling": figures.sampling_curves(sampled),
        "references": figures.reference_multiples(rows["references"]),
        "control": control_curves(control),
        "estimators": figures.estimator_multiples(rows["estimators"]),
        "complexity": figures.sample_complexity(rows["complexity"]),
    }
    text = headlines(exact, sampled, rows["references"], rows["estimators"], rows["complexity"])
    section = f"\n<!-- {origin} -->\n\n{text}\n{control_section(control)}\n"
    contents = {pictures[name]: picture(figure, ".png", origin) for name, figure in drawn.items()}
    # Read again: it may have been edited while the studies ran.
    text = replace_section(readme.read_text(encoding="utf-8"), section)
    page = side_by_side(exact, sampled, origin)
    write_files({readme: text.encode(), docs / "side_by_side.md": page.encode(), **contents})
    return 0


def control_section(rows: list[Row]) -> str:
    """Return what the README says of learners of policies."""
    return (
        "**Policies.** Learners of control on the same numbers of samples "
        "(`scripts/compare_control.py`).\n\n"
        f"{markdown_control(rows)}\n![Learners of control](docs/control.png)\n"
    )


def replace_section(text: str, section: str) -> str:
    """Return a text with what stands between the markers replaced.

    Raises
    ------
    InvalidInputError
        Unless there is one of each marker, in their order.
    """
    if (text.count(BEGIN), text.count(END)) != (1, 1) or text.index(BEGIN) > text.index(END):
        raise InvalidInputError(
            f"README.md must have the line {BEGIN.strip()} once and {END.strip()} once after it; "
            f"it has {text.count(BEGIN)} and {text.count(END)}, so nothing is written"
        )
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + section + END + after
