"""The allowed imports between the modules of the two packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EVALUATOR, ENVIRONMENTS = "lstd_agent", "unichain_gym"

# Each imports from itself and from those before it only.
ROOMS = (
    ("errors", "arrays", "progress", "backups"),
    ("figure_style",),
    ("features",),
    ("trials",),
    ("rows",),
    ("standard_errors", "specification"),
    ("system",),
    ("fit_options", "fit"),
    ("checks", "diagnostics", "fit_checks", "returns", "summary"),
    ("packing", "persistence", "plotting"),
    ("actions", "baselines"),
    ("agent", "sb3"),
    ("public",),
    ("results", "environments", "problems", "scoring", "commands", "__main__"),
)
# What compares the evaluator with exact answers, and so may import both packages.
OUTSIDE = ROOMS[-1]

# The names of types that annotations use: imported for checkers alone, since they go round.
NAMES_OF_TYPES = "unichain_gym.interface"


def modules(package: str) -> dict[str, Path]:
    """The files of a package by the names of their modules."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


EVERY = {**modules(EVALUATOR), **modules(ENVIRONMENTS)}


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """Imports of the two packages in a file, and whether each is in a function."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    imports = ast.Import, ast.ImportFrom
    lazy = {
        id(node)
        for function in nodes
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, imports)
    }
    for node in (each for each in nodes if isinstance(each, imports)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            members = [f"{module}.{alias.name}" for alias in node.names]
            names = [member if member in EVERY else module for member in members]
        for name in names:
            if name.split(".")[0] in (EVALUATOR, ENVIRONMENTS):
                yield name, id(node) in lazy


IMPORTS = {name: sorted(set(imported(path))) for name, path in EVERY.items()}


def room(module: str) -> int:
    """The place of a module of the evaluator among the rooms."""
    first = module.split(".")[1]
    places = [place for place, names in enumerate(ROOMS) if first in names]
    assert places, f"{module} is in no room: say where it belongs in ROOMS"
    return places[0]


def find_cycle(graph: dict[str, list[str]]) -> list[str]:
    """A circular path of imports, if there is one."""
    done: set[str] = set()

    def follow(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module) :], module]
        if module in done:
            return []
        for name in graph[module]:
            if cycle := follow(name, [*way, module]):
                return cycle
        done.add(module)
        return []

    return next((cycle for module in graph if (cycle := follow(module, []))), [])


def graph_of(package: str, without: str | None = None) -> dict[str, list[str]]:
    return {
        module: [
            name
            for name, _ in names
            # A package's own list of names imports all of it, and is no room.
            if name != package and name.startswith(package) and module != without
        ]
        for module, names in IMPORTS.items()
        if module.startswith(package) and module != package
    }


# Kinds of observations and of sums, and where things are made by them. Sums may ask what is added
# to them, and the collector what a user hands in.
KINDS = {"CountedEncoding", "VectorEncoding", "TransitionCounts", "KeptTrials"}
MADE_BY_KIND = {
    *("rows.kept", "trials.counted", "trials.counts", "trials.kept", "trials.store"),
}


def kinds_asked_for(tree: ast.AST) -> set[str]:
    """Names of `KINDS` in the second arguments of isinstance."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 2]
    asked = [node.args[1] for node in calls if getattr(node.func, "id", "") == "isinstance"]
    return {
        node.id for each in asked for node in ast.walk(each) if isinstance(node, ast.Name)
    } & KINDS


def test_only_constructors_ask_for_the_kind_of_observations() -> None:
    asking = {
        name.removeprefix(f"{EVALUATOR}.")
        for name, path in modules(EVALUATOR).items()
        if kinds_asked_for(ast.parse(path.read_text("utf-8")))
    }
    assert asking == MADE_BY_KIND


def test_the_walk_finds_a_cycle_and_imports_of_every_kind(tmp_path: Path) -> None:
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert find_cycle({"a": ["b", "c"], "b": ["c"], "c": []}) == []
    source = tmp_path / "source.py"
    source.write_text(
        "import unichain_gym.mdp\n"
        "if TYPE_CHECKING:\n"
        "    from lstd_agent.agent import SeminormLSTDAgent\n"
        "def draw():\n"
        "    from unichain_gym import drawing\n"
        "import numpy\n"
    )
    assert sorted(imported(source)) == [
        ("lstd_agent.agent", False),
        ("unichain_gym.drawing", True),
        ("unichain_gym.mdp", False),
    ]


def test_every_import_of_a_module_names_one_that_exists() -> None:
    assert len(EVERY) > 100
    unknown = {name for names in IMPORTS.values() for name, _ in names} - set(EVERY)
    assert unknown == set()


def test_packages_of_the_evaluator_import_only_earlier_ones() -> None:
    backwards = [
        (module, name)
        for module, names in graph_of(EVALUATOR).items()
        for name in names
        if room(name) > room(module)
    ]
    assert backwards == []


def test_no_import_of_the_evaluator_is_circular() -> None:
    assert find_cycle(graph_of(EVALUATOR)) == []


def test_no_import_of_the_environments_is_circular_except_for_checkers() -> None:
    assert find_cycle(graph_of(ENVIRONMENTS, without=NAMES_OF_TYPES)) == []
    tree = ast.parse(EVERY[NAMES_OF_TYPES].read_text("utf-8"))
    when_run = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert when_run == ["typing", "numpy.typing"]


def test_the_environments_import_nothing_of_the_evaluator() -> None:
    found = [
        (module, name)
        for module in modules(ENVIRONMENTS)
        for name, _ in IMPORTS[module]
        if name.startswith(EVALUATOR)
    ]
    assert found == []


def test_only_comparisons_of_the_evaluator_import_models() -> None:
    found = [
        (module, name)
        for module in modules(EVALUATOR)
        if module.split(".")[1:2] not in [[each] for each in OUTSIDE]
        for name, _ in IMPORTS[module]
        if name.startswith(ENVIRONMENTS)
    ]
    assert found == []


@pytest.mark.parametrize("package", [EVALUATOR, ENVIRONMENTS])
def test_nothing_imports_the_list_of_a_package_s_own_names(package: str) -> None:
    allowed = tuple(f"{EVALUATOR}.{each}" for each in OUTSIDE)
    found = [
        module
        for module, names in IMPORTS.items()
        if package in [name for name, _ in names] and not module.startswith(allowed)
    ]
    assert found == []


def test_modules_of_the_evaluator_are_imported_by_their_full_names() -> None:
    """``from lstd_agent import checks`` imports all public names first, a circle for some."""
    found = [
        f"{name}: {alias.name}"
        for name, path in modules(EVALUATOR).items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == EVALUATOR
        for alias in node.names
        if f"{EVALUATOR}.{alias.name}" in EVERY
    ]
    assert found == []
