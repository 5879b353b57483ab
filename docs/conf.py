"""Configuration of the documentation's generator, Sphinx.

Sphinx, since it takes the API reference from docstrings and can be told to fail on any reference
that leads nowhere; MyST, so that pages are the same Markdown that GitHub shows; furo, a plain theme
that reads well on small screens. Build it with `pip install '.[docs]'` and then
`sphinx-build -W --keep-going -n docs build/docs`. It needs no network.
"""

import importlib
import re
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from environment_pages import write_pages  # noqa: E402

import unichain_gym  # noqa: E402

project = "unichain-gym"
author = "The unichain-gym authors"
version = release = unichain_gym.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
]
exclude_patterns = ["templates"]
templates_path = ["templates"]
html_theme = "furo"
html_title = "unichain-gym"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say shapes and units, which hints cannot
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
default_role = "py:obj"  # a name in single backticks is a reference where it can be one
# Names alone (of parameters, of attributes, of types of NumPy's and Gymnasium's) are shown as they
# are. Full names of ours must exist: `known_name` sees to those that have no page.
nitpick_ignore_regex = [("py:.*", r"(?!(?:unichain_gym|lstd_agent)\.).*")]
suppress_warnings = ["ref.python"]  # both packages have a MissingDependencyError


def without_methods(app, what, name, obj, options, lines):  # type: ignore[no-untyped-def]
    """Drop a class's list of methods: the page shows them all below."""
    lines[:] = re.sub(
        r"^Methods\n-+\n(?:(?!\S.*\n-+$).*\n?)*", "", "\n".join(lines), flags=re.MULTILINE
    ).split("\n")


def readable_docstring(app, what, name, obj, options, lines):  # type: ignore[no-untyped-def]
    """Mend what reStructuredText would read otherwise than a reader does."""
    if name == "unichain_gym.UnichainEnv":
        lines[1:] = ["", "The pages on environments describe it."]  # theirs is Markdown
    literal = re.compile(r"(``.*?``)")
    for i, line in enumerate(lines):
        parts = literal.split(line)  # |x| is a norm, not a substitution
        lines[i] = "".join(p if p.startswith("``") else p.replace("|", r"\|") for p in parts)


def known_name(app, env, node, contnode):  # type: ignore[no-untyped-def]
    """Show a full name that exists but has no page as it is; all others are left to fail."""
    parts = str(node.get("reftarget", "")).split(".")
    if node.get("refdomain") != "py" or parts[0] not in ("unichain_gym", "lstd_agent"):
        return None
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            found = getattr(found, part, None)
        return None if found is None else contnode
    return None


def setup(app):  # type: ignore[no-untyped-def]
    """Write the pages on environments before anything is read."""
    write_pages(Path(__file__).parent / "environments")
    app.connect("autodoc-process-docstring", without_methods, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", readable_docstring, priority=600)
    app.connect("missing-reference", known_name)
