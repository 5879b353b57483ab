"""The page that puts the paper's tables beside ours."""

from __future__ import annotations

from study.pages import paired_tables
from study.tables import METRICS, paper_cells, two_digits


def test_the_paper_beside_itself_shows_every_cell_twice_and_none_in_bold() -> None:
    cells = paper_cells()
    page = paired_tables(cells, cells)
    assert "**" not in "".join(line for line in page.splitlines() if line.startswith("|"))
    ours = [line.split(" | ")[2:] for line in page.splitlines() if "| ours |" in line]
    paper = [line.split(" | ")[2:] for line in page.splitlines() if "| paper |" in line]
    assert ours == paper
    shown = [cell.strip(" |") for line in paper for cell in line]
    assert sum(map(bool, shown)) == cells.count().sum()
    assert page.count("**Table ") == 6 * len(METRICS)


def test_a_cell_that_is_far_from_the_papers_is_bold() -> None:
    paper = paper_cells()
    row, value = ("h6", 0.49, "total_rems"), paper_cells().loc[("h6", 0.49, "total_rems"), "p01"]
    for factor, text in ((1.9, "{}"), (0.55, "{}"), (2.1, "**{}**"), (0.4, "**{}**")):
        ours = paper.loc[[row]].assign(p01=factor * value)
        page = paired_tables(ours, paper)
        line = next(line for line in page.splitlines() if line.startswith("| h6 | ours |"))
        assert line.split("|")[4].strip() == text.format(two_digits(factor * value))


def test_an_error_of_exactly_zero_is_shown() -> None:
    ours = paper_cells().loc[[("h6", 0.49, "total_repb")]].assign(pinf=0.0)
    page = paired_tables(ours, paper_cells())
    assert "**0**" in page
