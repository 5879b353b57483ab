"""The one style of all charts: sizes for a page's width, colors for any color vision.

Matplotlib (extra ``plot``) is imported when a figure is asked for. Pyplot never is, so that figures
belong to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from io import BytesIO
from typing import TYPE_CHECKING, Any, ParamSpec

from lstd_agent.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Arguments = ParamSpec("Arguments")

WIDTH, DPI = 9.0, 150
"""Inches, and dots in each, of a figure that fills a page with text of the page's size."""

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""For any color vision (Okabe & Ito 2008); in black and white `DASHES` distinguish lines."""

DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

SEQUENTIAL = "viridis"  # of amounts

_STYLE: Any = {
    **dict.fromkeys(("font.size", "axes.titlesize"), 11.0),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "axes.titleweight": "bold",
    "grid.color": "0.9",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
}


def new_figure(width: float = WIDTH, height: float = 5.0) -> Figure:
    """Return an empty figure of a size in inches, or raise `MissingDependencyError`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        told = 'pictures need matplotlib: pip install "unichain-gym[plot]"'
        raise MissingDependencyError(told) from None
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    figure.__dict__["_repr_png_"] = partial(_shown, figure)  # notebooks ask for it
    return figure


def _shown(figure: Figure) -> tuple[bytes, dict[str, float]]:
    """Return a figure as a notebook shows it without pyplot: PNG, and its width."""
    return picture(figure, ".png"), {"width": 72.0 * figure.get_figwidth()}


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Make a function draw its `new_figure` in this style."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        new_figure()  # raises if matplotlib is missing
        from matplotlib import rc_context

        with rc_context(_STYLE):
            return draw(*args, **kwargs)

    return drawn


def picture(figure: Figure, suffix: str, description: str = "") -> bytes:
    """Return a figure as the content of a .png, .pdf or .svg file, whose metadata describe it."""
    field = {".pdf": "Subject"}.get(suffix, "Description")
    content = BytesIO()
    figure.savefig(content, format=suffix[1:], metadata={field: description})
    return content.getvalue()
