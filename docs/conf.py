"""Configuration of the documentation's generator, Sphinx.

Sphinx, since it takes the API reference from docstrings and can be told to fail on any reference
that leads nowhere; MyST, so that pages are the same Markdown that GitHub shows, and notebooks are
pages; furo, a plain theme that reads well on small screens. Formulas become MathML, which browsers
show without the network. Build it with `pip install '.[docs]'` and then
`sphinx-build -W --keep-going -n docs build/docs`. It needs no network.
"""

import importlib
import os
import re
import sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from docutils.nodes import SkipNode  # noqa: E402
from environment_pages import write_pages  # noqa: E402
from latex2mathml.converter import convert  # noqa: E402

import unichain_gym  # noqa: E402
from lstd_agent.commands.main import COMMANDS, dispatch  # noqa: E402

os.environ["COLUMNS"] = "80"  # of help texts

project = "unichain-gym"
author = "The unichain-gym authors"
version = release = unichain_gym.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["templates"]
templates_path = ["templates"]
html_theme = "furo"
html_title = "unichain-gym"
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # they are kept with their outputs, which a test compares

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


def numbers_of_the_paper():  # type: ignore[no-untyped-def]
    """Return the number of each label of the paper: "Theorem 3.1", "section 4.1"."""
    numbers = {}
    for line in (Path(__file__).parent / "paper.md").read_text("utf-8").splitlines():
        row = re.match(r"\| ([\w .()]+) \| `(?:\w+:)?(\w+)` \|", line)
        if row:
            number = f"section {row[1]}" if row[1][0].isdigit() else row[1]
            numbers[row[2]] = f"equation {number}" if number[0] == "(" else number
    return numbers


NUMBERS = numbers_of_the_paper()
_KIND = r"(?:Thm|Theorem|Algorithm|Def|Definition|Lemma|Table|[Ff]igure|[Ss]ection|[Ee]q\.)\s+"
LABEL = re.compile(rf"(?:{_KIND})?``({'|'.join(NUMBERS)})``")


_SECTION = r"\n-+\n(?:(?!\S.*\n-+$).*\n?)*"


def each_by_itself(section):  # type: ignore[no-untyped-def]
    """Write an entry ``a, b : A, B`` of a section as two, which is how napoleon reads them."""

    def apart(entry):  # type: ignore[no-untyped-def]
        names, of, rest = entry[1].split(", "), entry[2].split(", "), entry[3]
        types = of if len(of) == len(names) else [entry[2]] * len(names)
        return "".join(f"{n} : {t}\n{rest}" for n, t in zip(names, types, strict=True))

    return re.sub(
        r"^(\w+(?:, \w+)+) : (.+)\n((?:[ \t]+.*\n?|\n(?=[ \t]))*)",
        apart,
        section[0],
        flags=re.MULTILINE,
    )


def mend_sections(app, what, name, obj, options, lines):  # type: ignore[no-untyped-def]
    """Drop a class's lists of what the page shows below; take attributes one by one."""
    text = "\n".join(lines)
    text = re.sub(rf"^Methods{_SECTION}", "", text, flags=re.MULTILINE)
    text = re.sub(r"^Attributes\n-+\n(?:\w+(?:, \w+)*\n)+(?=\n)", "", text, flags=re.MULTILINE)
    text = re.sub(rf"^Attributes{_SECTION}", each_by_itself, text, flags=re.MULTILINE)
    lines[:] = text.split("\n")


def readable_docstring(app, what, name, obj, options, lines):  # type: ignore[no-untyped-def]
    """Mend what reStructuredText would read otherwise than a reader does."""
    if name == "unichain_gym.UnichainEnv":
        lines[1:] = ["", "The pages on environments describe it."]  # theirs is Markdown
    text = LABEL.sub(lambda found: NUMBERS[found[1]], "\n".join(lines))
    # A trailing underscore is part of a name, not a link: `:ivar gain_, start_bias_:`.
    text = re.sub(
        r"^(:(?:ivar|vartype) )([^:]+)(:)",
        lambda found: found[1] + re.sub(r"_\b", r"\\_", found[2].replace("\\", "")) + found[3],
        text,
        flags=re.MULTILINE,
    )
    lines[:] = text.split("\n")
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


def help_of(name):  # type: ignore[no-untyped-def]
    """Return what a command of `unichain` prints when it is asked for help."""
    with redirect_stdout(StringIO()) as shown, suppress(SystemExit):
        dispatch([name, "--help"])
    return shown.getvalue()


def appended(app, docname, source):  # type: ignore[no-untyped-def]
    """Append to two pages what a checkout has elsewhere: help texts, and code of examples."""
    if docname == "commands":
        source[0] += "\n## All options\n"
        for name in COMMANDS:
            source[0] += f"\n### unichain {name}\n\n```text\n{help_of(name)}```\n"
    if docname == "examples":
        for path in re.findall(r"^\| `(examples/\w+\.py)`", source[0], re.MULTILINE):
            source[0] += f"\n## {path}\n\n```{{literalinclude}} ../{path}\n:language: python\n```\n"


def visit_math(translator, node):  # type: ignore[no-untyped-def]
    """Write a formula as MathML."""
    block = node.tagname == "math_block"
    formula = convert(node.astext(), display="block" if block else "inline")
    translator.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise SkipNode  # its text is written


def setup(app):  # type: ignore[no-untyped-def]
    """Write the pages on environments before anything is read."""
    write_pages(Path(__file__).parent / "environments")
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.connect("autodoc-process-docstring", mend_sections, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", readable_docstring, priority=600)
    app.connect("missing-reference", known_name)
    app.connect("source-read", appended)
