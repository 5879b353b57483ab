"""What is installed, and what the repository ships beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module, metadata, resources
from pathlib import Path

import pytest

from lstd_agent.commands.main import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "reference"
PACKAGES = ("unichain_gym", "lstd_agent")


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_is_marked_as_typed(package: str) -> None:
    assert resources.files(package).joinpath("py.typed").is_file()


def test_importing_the_evaluator_loads_no_heavy_library() -> None:
    heavy = ["scipy.stats", "ot", "matplotlib", "distributed", "torch", "jax"]
    code = (
        f"import sys, lstd_agent; lstd_agent.MMD; print([m for m in {heavy} if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_the_extras_are_documented() -> None:
    try:
        extras = metadata.metadata("unichain-gym").get_all("Provides-Extra")
    except metadata.PackageNotFoundError:
        pytest.skip("the project is on the path, not installed")
    assert set(extras or ()) == {"plot", "study", "test", "dask", "docs", "minari", "sb3"}


@pytest.mark.skipif(not SHARED.is_dir(), reason="there is no shared copy beside the checkout")
def test_the_reference_figures_equal_the_shared_ones() -> None:
    ours = {path.name: path.read_bytes() for path in (ROOT / "tests" / "reference").iterdir()}
    shared = {path.name: path.read_bytes() for path in SHARED.iterdir()}
    assert ours.keys() == shared.keys()
    assert [name for name in ours if ours[name] != shared[name]] == []


def test_the_continuous_integration_script_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=True)


def test_the_command_and_the_scripts_name_existing_modules() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'unichain = "lstd_agent.commands.main:main"' in project
    started = [module for module, _ in COMMANDS.values()]
    for script in (ROOT / "scripts").glob("*.py"):
        (module,) = re.findall(r'start\("([\w.]+)"', script.read_text("utf-8"))
        started.append(module)
    for module in {*started}:
        assert callable(import_module(module).main)


def test_every_dependency_states_its_lowest_version() -> None:
    # What continuous integration installs as "the lowest" is read from these.
    section = (ROOT / "pyproject.toml").read_text("utf-8").partition("dependencies = [")[2]
    claims = re.findall(r'"([^"]+)"', section.partition("\n\n")[0])
    assert len(claims) >= 5
    assert [claim for claim in claims if not re.fullmatch(r"[\w-]+>=[\d.]+", claim)] == []


def test_no_file_is_opened_in_the_encoding_of_the_place() -> None:
    sources = [p for folder in (*PACKAGES, "scripts") for p in (ROOT / folder).rglob("*.py")]
    opened = re.compile(r"(?:\.read_text|\.write_text|\bopen)\(([^()]*(?:\([^()]*\))?[^()]*)\)")
    bare = [
        f"{path.name}: {call[0]}"
        for path in sources
        for call in opened.finditer(path.read_text("utf-8"))
        if not re.search(r"utf-8|ascii|devnull|[\"'][rwax]b[\"']", call[0])
    ]
    assert bare == []
