"""Where results come from: the code, the versions of what it stands on, arguments, seed, date."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import lstd_agent
import unichain_gym

# Whose versions a result may depend on.
PACKAGES = ("numpy", "scipy", "gymnasium", "POT")

# What shows results, but does not compute any.
_SHOWING = re.compile(
    r"(commands|benchmarks)/|progress\.py"
    r"|study/(\w+_)?(claims|figures|markdown|multiples|pages|results|tables)\.py"
)


@cache
def code_version() -> str:
    """Return the packages' version and a hash of their source: what computes a row.

    Of all modules but those that only show results. Any change to the others gives another hash.
    """
    digest = hashlib.sha256()
    for package in (unichain_gym, lstd_agent):
        assert package.__file__ is not None
        root = Path(package.__file__).parent
        for path in sorted(root.rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if not _SHOWING.match(name):
                source = path.read_bytes().replace(b"\r\n", b"\n")
                digest.update(f"{root.name}/{name} {len(source)}\n".encode() + source)
    return f"{unichain_gym.__version__}+{digest.hexdigest()[:12]}"


def provenance(arguments: Sequence[str], **facts: Any) -> dict[str, Any]:
    """Return where a result comes from, as JSON-able facts: the command, and the caller's."""
    return {
        "command": " ".join(arguments),
        **facts,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "code": code_version(),
        "python": platform.python_version(),
        "platform": sys.platform,
        **{name: installed_version(name) for name in PACKAGES},
    }


def installed_version(package: str) -> str:
    """Return an installed package's version."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def one_line(facts: dict[str, Any]) -> str:
    """Write provenance as a line for the head of a text file, or into a picture."""
    return "; ".join(f"{name}: {value}" for name, value in facts.items())
