"""What `unichain evaluate` has learned: as columns of numbers, text, a file and a picture."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd_agent import SeminormLSTDAgent
from lstd_agent.commands.running import available_memory, with_unit
from lstd_agent.figure_style import COLORS, WIDTH, new_figure, styled
from lstd_agent.plotting import draw_occupancy
from lstd_agent.study.exact import ExactStatistics, full_distributions
from lstd_agent.study.metrics import StepwiseErrors
from unichain_gym import MarkovChain
from unichain_gym.errors import UnichainError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def results(
    agent: SeminormLSTDAgent, chain: MarkovChain | None, first_state: int
) -> dict[str, Any]:
    """Return everything learned, beside everything exact there is, as numbers and columns."""
    neighborhoods = agent.neighborhoods_
    statistics: Any = agent.statistics  # counts: states are Discrete
    visits = statistics.visits.sum(axis=0)
    observation = first_state + np.arange(visits.size)
    estimated = agent.predict(observation)
    gain = {"estimated": agent.gain_}
    states = {"state": observation, "visits": visits, "estimated": estimated}
    report = {
        "gain": gain,
        "main_reference": agent.main_reference_,
        "neighborhoods": {
            "anchor": np.array([k.anchor for k in neighborhoods]),
            "stop": np.array([k.stop for k in neighborhoods]),
            "samples": np.array([k.n_samples for k in neighborhoods]),
            "rank": np.array([k.rank for k in neighborhoods]),
        },
        "states": states,
    }
    references = np.array([k.reference for k in neighborhoods])
    if (references >= 0).all():  # of a linked system only the last neighbourhood has one
        report["neighborhoods"]["reference"] = references + first_state
    if chain is not None:
        gain["exact"] = chain.gain
        recurrent = np.isin(np.arange(chain.n_states), chain.recurrent_states)
        states["class"] = np.where(recurrent, "recurrent", "transient")
        states["exact"] = chain.relative_value(agent.main_reference_)
        states["error"] = estimated - states["exact"]
        report |= total_errors(agent, chain)
    return report


def total_errors(agent: SeminormLSTDAgent, chain: MarkovChain) -> dict[str, Any]:
    """Return both errors summed over all timesteps, or why they are left out."""
    statistics: Any = agent.statistics  # counts: states are Discrete
    n_states, d = statistics.features.shape
    needed = error_bytes(chain, n_states, d, statistics.t_max)
    free = available_memory()
    if needed > free / 2:
        reason = f"they would take {with_unit(needed)} of memory, and {with_unit(free)} are free"
        return {"totals_left_out": reason}
    p = full_distributions(chain, statistics.t_max)
    errors = StepwiseErrors(ExactStatistics(chain, statistics.features, p))
    return {
        "total_rems": float(errors.rems(agent.system_).sum()),
        "total_repb": float(errors.repb(agent.system_).sum()),
    }


def error_bytes(chain: MarkovChain, n_states: int, d: int, t_max: int) -> int:
    """Return about how many bytes `StepwiseErrors` takes for d features.

    Arrays over states for every timestep, and a matrix of the features for each until the chain
    has settled, which it has by about twice its mixing time.
    """
    try:
        settled = min(t_max, 2 * chain.mixing_time())
    except UnichainError:
        settled = t_max
    return 8 * (4 * (t_max + 1) * n_states + 2 * (settled + 1) * d * (d + 1))


def as_text(report: dict[str, Any]) -> str:
    """Return the report as text for people."""
    gain, states = report["gain"], report["states"]
    shown = {name: states[name] for name in ("state", "class", "visits") if name in states}
    shown |= {name: states[name] for name in ("estimated", "exact", "error") if name in states}
    lines = [
        f"{report['env_id']}: {report['n_trials']} trials of timesteps 0 to {report['t_max']}",
        "",
        "gain " + ", ".join(f"{name} {value:.6f}" for name, value in gain.items()),
        "",
        "timestep neighborhoods",
        table(report["neighborhoods"]),
        "",
        f"relative value of each state to state {report['main_reference']}",
        table(shown),
    ]
    if "total_rems" in report:
        totals = f"total rems {report['total_rems']:.4g}, total repb {report['total_repb']:.4g}"
        lines += ["", totals]
    if "totals_left_out" in report:
        lines += ["", f"total rems and repb left out: {report['totals_left_out']}"]
    return "\n".join(lines)


def table(columns: dict[str, np.ndarray[Any, Any]]) -> str:
    """Return columns as right-aligned text under their names."""
    cells = [[name, *map(_cell, column.tolist())] for name, column in columns.items()]
    widths = [max(map(len, column)) for column in cells]
    rows = zip(*cells, strict=True)
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def _cell(x: Any) -> str:
    """Return a number as text, without the sign of what rounds to zero."""
    return f"{round(x, 4) + 0.0:.4f}" if isinstance(x, float) else str(x)


def as_arrays(
    report: dict[str, Any], agent: SeminormLSTDAgent, policy: np.ndarray[Any, Any]
) -> bytes:
    """Return the report, and what it was made of, as a .npz file of plain arrays (no pickle)."""
    arrays: dict[str, Any] = {}
    for name, value in report.items():
        if isinstance(value, dict):
            arrays |= {f"{name}_{part}": array for part, array in value.items()}
        else:
            arrays[name] = value
    system, content = agent.system_, BytesIO()
    statistics: Any = agent.statistics
    np.savez(
        content,
        **arrays,
        policy=policy,
        features=statistics.features,
        weights=system.weights,
        offsets=system.offsets,
        occupancy=statistics.distributions,
    )
    return content.getvalue()


@styled
def draw_report(report: dict[str, Any], occupancy: np.ndarray[Any, Any]) -> Figure:
    """Draw estimated against exact values by state, and occupancy over time with the anchors."""
    states = report["states"]
    state = states["state"]
    figure = new_figure(WIDTH, 7.5)
    figure.suptitle(f"{report['env_id']}, {report['n_trials']:,} trials")
    values, times = figure.subplots(2, 1)
    if "exact" in states:
        values.plot(state, states["exact"], "o", ms=8, mfc="none", color=COLORS[-1], label="exact")
    values.plot(state, states["estimated"], ".", color=COLORS[1], label="estimated")
    values.set(
        xlabel="state",
        ylabel="value (in units of reward)",
        title=f"Value relative to state {report['main_reference']}",
    )
    values.legend()
    bounds = np.append(state, state[-1] + 1) - 0.5
    times.set_title("Occupancy")
    draw_occupancy(times, occupancy, bounds, report["neighborhoods"]["anchor"], "state")
    return figure
