"""The results of `unichain evaluate`: as columns of numbers, text, a file and a picture."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from lstd_agent import SeminormLSTDAgent, TransitionCounts
from lstd_agent.environments import available_memory, with_unit
from lstd_agent.errors import NotFittedError
from lstd_agent.figure_style import COLORS, WIDTH, new_figure, styled
from lstd_agent.plotting import draw_occupancy
from lstd_agent.problems import PiecewiseValues, StepwiseErrors, full_distributions
from unichain_gym import MarkovChain
from unichain_gym.errors import UnichainError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = {"estimated": "estimated", "standard_error": "±", "exact": "exact", "error": "error"}
"""Columns of numbers, and their headings in the text."""


def visits_of(counts: TransitionCounts) -> sparse.csr_array:
    """Return how many trials were in each state at each timestep, shape (t_max + 1, S)."""
    found = counts.transition_counts.tocoo()
    shape = (found.shape[0], counts.n_states)
    return sparse.csr_array((found.data, (found.row, found.col // counts.n_states)), shape=shape)


def table_of(agent: SeminormLSTDAgent) -> np.ndarray[Any, Any]:
    """Return the features (S, d) of an agent that counts states."""
    features: Any = agent.features
    if not hasattr(features, "table"):
        return np.asarray(features, dtype=np.float64)
    rows = features.table(agent.counts.n_states)
    return np.asarray(sparse.csr_array(rows).toarray(), dtype=np.float64)


def results(
    agent: SeminormLSTDAgent, chain: MarkovChain | None, first_state: int
) -> dict[str, Any]:
    """Return all that was learned, and all exact answers that there are, as numbers and columns."""
    neighborhoods = agent.neighborhoods_
    visits = np.asarray(visits_of(agent.counts).sum(axis=0))
    observation = first_state + np.arange(visits.size)
    is_visited = visits > 0
    estimated = np.where(is_visited, agent.predict(observation), np.nan)
    gain = {"estimated": agent.gain_}
    states = {"state": observation, "visits": visits, "estimated": estimated}
    with suppress(NotFittedError):  # a single round of trials has none
        errors = agent.standard_errors(observation)
        states["standard_error"] = np.where(is_visited, errors, np.nan)
    report = {
        "gain": gain,
        "main_reference": agent.main_reference_,
        "neighborhoods": {
            name: np.array([getattr(k, field) for k in neighborhoods])
            for name, field in (
                *(("anchor", "anchor"), ("stop", "stop")),
                *(("samples", "n_samples"), ("rank", "rank")),
            )
        },
        "states": states,
    }
    references = np.array([k.reference for k in neighborhoods])
    if (references >= 0).all():  # of a linked system only the last neighborhood has one
        report["neighborhoods"]["reference"] = references + first_state
    if chain is not None:
        gain["exact"] = chain.gain
        recurrent = np.isin(np.arange(chain.n_states), chain.recurrent_states)
        states["class"] = np.where(recurrent, "recurrent", "transient")
        states["exact"] = chain.relative_value(agent.main_reference_ - first_state)
        states["error"] = estimated - states["exact"]
        report |= total_errors(agent, chain, first_state)
    return report


def total_errors(agent: SeminormLSTDAgent, chain: MarkovChain, first_state: int) -> dict[str, Any]:
    """Return both errors summed over all timesteps, or the reason why they are left out."""
    features, t_max = table_of(agent), agent.counts.t_max
    needed = error_bytes(chain, features.shape[1], t_max)
    free = available_memory()
    if needed > free / 2:
        reason = f"they would take {with_unit(needed)} of memory, and {with_unit(free)} are free"
        return {"totals_left_out": reason}
    errors = StepwiseErrors(chain, features, full_distributions(chain, t_max))
    found = PiecewiseValues.of(agent, chain.n_states, first_state)
    return {
        "total_rems": float(errors.rems(found).sum()),
        "total_repb": float(errors.repb(found).sum()),
    }


def error_bytes(chain: MarkovChain, d: int, t_max: int) -> int:
    """Return about how many bytes `StepwiseErrors` takes for d features.

    It has arrays over states for every timestep, and a matrix of the features for each timestep
    until the chain has settled, by about twice its mixing time.
    """
    try:
        settled = min(t_max, 2 * chain.mixing_time())
    except UnichainError:
        settled = t_max
    return 8 * (4 * (t_max + 1) * chain.n_states + 2 * (settled + 1) * d * (d + 1))


def as_text(report: dict[str, Any]) -> str:
    """Return the report as text for people."""
    gain, states = report["gain"], report["states"]
    shown = {name: states[name] for name in ("state", "class", "visits") if name in states}
    shown |= {head: states[name] for name, head in SHOWN.items() if name in states}
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
    """Return columns as right-aligned text under their names; NaN, which is unknown, as a dash."""
    cells = [[name, *map(_cell, column.tolist())] for name, column in columns.items()]
    widths = [max(map(len, column)) for column in cells]
    rows = zip(*cells, strict=True)
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    text = "-" if np.isnan(value) else f"{value:.4f}"
    return text[1:] if text == "-0.0000" else text


def as_arrays(
    report: dict[str, Any], agent: SeminormLSTDAgent, policy: np.ndarray[Any, Any]
) -> bytes:
    """Return report, policy, features and weights as a .npz file of plain arrays (no pickle)."""
    arrays: dict[str, Any] = {}
    for name, value in report.items():
        if isinstance(value, dict):
            arrays |= {f"{name}_{part}": array for part, array in value.items()}
        else:
            arrays[name] = value
    content = BytesIO()
    np.savez(
        content,
        **arrays,
        policy=policy,
        features=table_of(agent),
        weights=np.stack([each.weights for each in agent.neighborhoods_]),
        offsets=np.array([each.offset for each in agent.neighborhoods_]),
        occupancy=visits_of(agent.counts).toarray() / agent.n_trials,
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
