"""What is installed, and what the repository ships beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "reference"
PACKAGES = ("unichain_gym", "lstd_agent")


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_says_that_it_is_typed(package: str) -> None:
    assert resources.files(package).joinpath("py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_loads_no_heavy_library(package: str) -> None:
    heavy = ["scipy.stats", "ot", "matplotlib", "distributed", "torch", "jax"]
    code = f"import sys, {package}; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_the_extras_are_those_documented() -> None:
    try:
        extras = metadata.metadata("unichain-gym").get_all("Provides-Extra")
    except metadata.PackageNotFoundError:
        pytest.skip("the project is on the path, not installed")
    assert set(extras or ()) == {"plot", "test", "dask", "docs"}


@pytest.mark.skipif(not SHARED.is_dir(), reason="there is no shared copy beside the checkout")
def test_the_reference_figures_are_the_shared_ones() -> None:
    ours = {path.name: path.read_bytes() for path in (ROOT / "tests" / "reference").iterdir()}
    shared = {path.name: path.read_bytes() for path in SHARED.iterdir()}
    assert ours.keys() == shared.keys()
    assert [name for name in ours if ours[name] != shared[name]] == []


def test_the_continuous_integration_script_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
