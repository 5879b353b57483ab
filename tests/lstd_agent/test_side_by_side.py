"""The page that puts the paper's tables beside ours."""

from __future__ import annotations

from lstd_agent.study.pages import paired_tables
from lstd_agent.study.tables import METRICS, paper_cells, two_digits


def test_the_paper_beside_itself_shows_every_cell_twice_and_none_in_bold() -> None:
    cells = paper_cells()
    page = paired_tables(cells, cells)
    assert "**" not in "".join(line for line in page.splitlines() if line.startswith("|"))
    ours = [line.split(" | ")[2:] for line in page.splitlines() if "| ours |" in line]
    paper = [line.split(" | ")[2:] for line in page.splitlines() if line.startswith("| | paper |")]
    assert ours == paper
    shown = [cell.strip(" |") for line in paper for cell in line]
    assert sum(map(bool, shown)) == len(cells)
    assert page.count("**Table ") == 6 * len(METRICS)


def test_a_cell_that_is_far_from_the_papers_is_bold() -> None:
    cell = ("h6", 0.49, "total_rems", "p01")
    for factor, text in ((1.9, "{}"), (0.55, "{}"), (2.1, "**{}**"), (0.4, "**{}**")):
        page = paired_tables({cell: factor * paper_cells()[cell]}, paper_cells())
        line = next(line for line in page.splitlines() if line.startswith("| h6 | ours |"))
        assert line.split("|")[4].strip() == text.format(two_digits(factor * paper_cells()[cell]))


def test_an_error_of_exactly_zero_is_shown() -> None:
    cell = ("h6", 0.49, "total_repb", "pinf")
    page = paired_tables({cell: 0.0}, paper_cells())
    assert "**0**" in page
