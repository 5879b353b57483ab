"""What the documents say exists, exists: names, numbers, links and the citation."""

from __future__ import annotations

import html
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # comes with dask, of the extra `test`

from tests.pages import assert_printed, run_page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAPER = (DOCS / "paper.md").read_text(encoding="utf-8")
SOURCE = ROOT.parent / "shared" / "paper" / "discounting_free_policy_evaluation.tex"

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAPER.splitlines()
    if re.match(r"\| [^|]+ \| `", line)
]
NAMES = sorted(set(re.findall(r"`((?:unichain_gym|lstd_agent|study)\.[\w.]+)`", PAPER)))


def find(name: str) -> object:
    """Import what a dotted name says: a module, or something inside one."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_beside_an_item_of_the_paper_exists(name: str) -> None:
    assert find(name) is not None


def test_a_name_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(AttributeError, match="minimise"):
        find("lstd_agent.system.minimizer.minimise")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        find("no_such_package.minimize")


def test_every_item_of_the_paper_has_its_row() -> None:
    numbers = {row[0] for row in ROWS}
    expected = {"Assumption 2.1", "Definition 3.1", "Definition 5.1", "Theorem 3.1"}
    expected |= {f"Definition 4.{n}" for n in range(1, 6)} | {f"Lemma 3.{n}" for n in (1, 2)}
    expected |= {f"Algorithm {n}" for n in range(1, 6)} | {f"Figure {n}" for n in range(1, 4)}
    expected |= {f"Table {n}" for n in range(1, 8)} | {f"({n})" for n in range(1, 31)}
    assert expected <= numbers
    assert all(re.fullmatch(r"\d(\.\d)?", extra) for extra in numbers - expected)


def test_every_row_names_a_function_or_none() -> None:
    same = ("none", "the same", "the algorithms below")
    assert [row for row in ROWS if "`" not in row[3] and not row[3].startswith(same)] == []


def environments(source: str) -> list[str]:
    """Return the labels of a LaTeX source in its order, without those of its lists and proofs."""
    source = re.sub(r"(?<!\\)%.*", "", source)
    labels = re.findall(r"\\label\{([\w:]+)\}", source)
    return [x for x in labels if re.match(r"(assume|def|lmm|thm|alg|equ|tab|tbl|fig):", x)]


@pytest.mark.skipif(not SOURCE.is_file(), reason="the paper's source is not beside the checkout")
def test_labels_and_their_order_are_those_of_the_source() -> None:
    wanted = [x for x in environments(SOURCE.read_text("utf-8")) if x != "thm:epb_minimizer_proof"]
    ours = [row[1].strip("`") for row in ROWS]
    assert set(wanted) - set(ours) == set()
    for kind in ("def:", "lmm:", "alg:", "equ:", "tbl:", "fig:"):
        assert [x for x in ours if x.startswith(kind)] == [x for x in wanted if x.startswith(kind)]


@pytest.mark.parametrize(
    "page", sorted([*DOCS.glob("**/*.md"), *ROOT.glob("*.md")]), ids=lambda page: page.name
)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    # The pages of environments are written, and their links checked, by the site's build.
    local = [link for link in local if not link.endswith("environments/index.md")]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_every_script_and_file_that_a_document_names_exists() -> None:
    for page in (*DOCS.glob("*.md"), ROOT / "CONTRIBUTING.md"):
        named = re.findall(
            r"`((?:scripts|examples|docs|tests|unichain_gym|lstd_agent)/[\w./]*)`",
            page.read_text(encoding="utf-8"),
        )
        assert [name for name in named if not (ROOT / name).exists()] == [], page.name


def test_the_citation_file_names_the_version_and_the_paper() -> None:
    import unichain_gym

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == unichain_gym.__version__
    assert {"message", "title", "authors", "license", "type"} <= citation.keys()
    assert citation["references"][0]["identifiers"][0]["value"] == "arXiv:2204.04324"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built without a warning."""
    for needed in ("sphinx", "furo", "myst_nb", "latex2mathml"):
        pytest.importorskip(needed, reason="needs the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "-W", "--keep-going", "-n", "-q", str(DOCS), str(folder)]
    built = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    return folder


def words(page: Path) -> str:
    """Return what a page of the site says."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


@pytest.mark.slow
def test_the_site_shows_facts_that_are_computed(site: Path) -> None:
    # the optimal gain: 0.42862243 by every policy in rational arithmetic
    assert "0.428622" in words(site / "environments" / "river_swim.html")
    assert "--max-minutes" in words(site / "commands.html")
    assert "class Depot" in words(site / "notebooks" / "backlog.html")


@pytest.mark.slow
def test_a_class_page_shows_every_public_attribute(site: Path) -> None:
    for package in ("unichain_gym", "lstd_agent", "lstd_agent.scoring"):
        module = importlib.import_module(package)
        for name in module.__all__:
            found = getattr(module, name)
            shown = words(site / "api" / f"{package}.{name}.html")
            assert found.__name__ in shown
            if inspect.isclass(found):
                documented = documented_attributes(inspect.getdoc(found) or "")
                theirs = {n for base in found.mro() if foreign(base) for n in vars(base)}
                own = {n for n in vars(found) if not n.startswith("_")} - theirs | documented
                missing = {n for n in own if not re.search(rf"(?<!\w){n}(?!\w)", shown)}
                assert missing == set(), f"{package}.{name}"


def foreign(base: type) -> bool:
    """Whether a class is another package's, which documents what it has."""
    return not base.__module__.startswith(("unichain_gym", "lstd_agent"))


def documented_attributes(doc: str) -> set[str]:
    """Return the names that a docstring's section on attributes lists."""
    section = re.search(r"^Attributes\n-+\n(.*?)(?=^\S.*\n---|\Z)", doc, re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^(\w[\w, ]*) : ", section[1] if section else "", re.MULTILINE)
    return {name for entry in entries for name in entry.split(", ")}


@pytest.mark.slow
def test_the_site_needs_no_network_and_numbers_the_paper(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"""(?:src|<link[^>]*href)="https?://[^"]*""", text) == [], page.name
    assert "<math" in (site / "guide" / "gain_and_bias.html").read_text(encoding="utf-8")
    for page in (site / "api").glob("*.html"):
        shown = words(page)
        labels = [row[1].strip("`").partition(":")[2] for row in ROWS]
        assert [x for x in labels if "_" in x and re.search(rf"\b{x}\b", shown)] == [], page.name


@pytest.mark.slow
def test_the_notebooks_show_their_output(tmp_path: Path) -> None:
    pytest.importorskip("nbclient", reason="needs the extra `docs`")
    pytest.importorskip("ipykernel", reason="needs the extra `docs`")
    command = [sys.executable, str(DOCS / "run_notebooks.py"), "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    for kept in DOCS.glob("notebooks/*.ipynb"):
        before, after = (
            json.loads(path.read_text("utf-8"))["cells"] for path in (kept, tmp_path / kept.name)
        )
        for cell, again in zip(before, after, strict=True):
            shown, printed = (
                ["".join(o["text"]) for o in c.get("outputs", ()) if o["output_type"] == "stream"]
                for c in (cell, again)
            )
            for text, now in zip(shown, printed, strict=True):
                assert_printed(now, text)


def test_the_guide_prints_the_numbers_that_it_states(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (DOCS / "guide" / "gain_and_bias.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    exec(compile(block, "gain_and_bias.md", "exec"), {})
    difference = float(capsys.readouterr().out.split()[-1])
    assert f"costs: {difference:.2f}" in block


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(DOCS.glob("guide/*.md")), ids=lambda page: page.stem)
def test_the_code_of_a_guide_page_prints_the_shown_output(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page.read_text(encoding="utf-8")
    if "stable_baselines3" in text:
        pytest.importorskip("stable_baselines3", reason="needs the extra `sb3`")
    monkeypatch.chdir(tmp_path)
    run_page(text)


@pytest.mark.parametrize("package", ["unichain_gym", "lstd_agent", "lstd_agent.scoring"])
def test_the_reference_lists_every_public_name(package: str) -> None:
    listed = re.findall(rf"~{package}\.(\w+)\n", (DOCS / "api.md").read_text(encoding="utf-8"))
    assert set(importlib.import_module(package).__all__) == set(listed)
