"""Runs the notebooks again: `python docs/run_notebooks.py` keeps their outputs in them.

They need the extra `docs`. A test runs them into another folder, by `--out`, and compares.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent / "notebooks"


def main(argv: list[str] | None = None) -> None:
    """Run each notebook in a kernel of its own, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder (docs/notebooks)")
    out = parser.parse_args(argv).out
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(
            notebook, timeout=300, kernel_name="python3", coalesce_streams=True
        ).execute()
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # times of day
        notebook.metadata.pop("language_info", None)  # the version of Python
        nbformat.write(notebook, out / path.name)


if __name__ == "__main__":
    main()
