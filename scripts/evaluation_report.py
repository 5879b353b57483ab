"""What `evaluate_policy.py` has learned: as columns of numbers, text, a file and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lstd_agent import SeminormLSTDAgent
from lstd_agent.study.exact import ExactStatistics, full_distributions
from lstd_agent.study.metrics import StepwiseErrors
from unichain_gym import MarkovChain


def results(
    agent: SeminormLSTDAgent, chain: MarkovChain | None, first_state: int
) -> dict[str, Any]:
    """Return everything learned, beside everything exact there is, as numbers and columns."""
    neighborhoods = agent.neighborhoods_
    visits = agent.statistics.visits.sum(axis=0)
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
            "reference": np.array([k.reference for k in neighborhoods]) + first_state,
            "samples": np.array([k.n_samples for k in neighborhoods]),
            "rank": np.array([k.rank for k in neighborhoods]),
        },
        "states": states,
    }
    if chain is not None:
        gain["exact"] = chain.gain
        recurrent = np.isin(np.arange(chain.n_states), chain.recurrent_states)
        states["class"] = np.where(recurrent, "recurrent", "transient")
        states["exact"] = chain.relative_value(agent.main_reference_)
        states["error"] = estimated - states["exact"]
        p = full_distributions(chain, agent.statistics.t_max)
        errors = StepwiseErrors(ExactStatistics(chain, agent.statistics.features, p))
        report["total_rems"] = float(errors.rems(agent.system_).sum())
        report["total_repb"] = float(errors.repb(agent.system_).sum())
    return report


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
        "timestep neighbourhoods",
        table(report["neighborhoods"]),
        "",
        f"relative value of each state to state {report['main_reference']}",
        table(shown),
    ]
    if "total_rems" in report:
        totals = f"total rems {report['total_rems']:.4g}, total repb {report['total_repb']:.4g}"
        lines += ["", totals]
    return "\n".join(lines)


def table(columns: dict[str, np.ndarray[Any, Any]]) -> str:
    """Return columns as right-aligned text under their names."""
    cells = [
        [name, *(f"{x:.4f}" if isinstance(x, float) else str(x) for x in column.tolist())]
        for name, column in columns.items()
    ]
    widths = [max(map(len, column)) for column in cells]
    rows = zip(*cells, strict=True)
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def save(
    path: Path, report: dict[str, Any], agent: SeminormLSTDAgent, policy: np.ndarray[Any, Any]
) -> None:
    """Write the report, and what it was made of, as plain arrays (no pickle)."""
    arrays: dict[str, Any] = {}
    for name, value in report.items():
        if isinstance(value, dict):
            arrays |= {f"{name}_{part}": array for part, array in value.items()}
        else:
            arrays[name] = value
    system = agent.system_
    with path.open("wb") as file:
        np.savez(
            file,
            **arrays,
            policy=policy,
            features=agent.statistics.features,
            weights=system.weights,
            offsets=system.offsets,
            occupancy=agent.statistics.distributions,
        )


def plot(path: Path, report: dict[str, Any], occupancy: np.ndarray[Any, Any]) -> None:
    """Draw estimated against exact values by state, and occupancy over time with the anchors."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    states = report["states"]
    state = states["state"]
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    figure.suptitle(f"{report['env_id']}, {report['n_trials']} trials")
    values, times = figure.subplots(1, 2)

    if "exact" in states:
        values.plot(state, states["exact"], "o", ms=8, mfc="none", color="0.3", label="exact")
    values.plot(state, states["estimated"], ".", color="tab:red", label="estimated")
    values.set(xlabel="state", ylabel=f"relative value to state {report['main_reference']}")
    values.legend()

    # Logarithmic in time, since the start is where the distribution moves.
    edges = np.unique(np.geomspace(1, len(occupancy) + 1, 400).astype(int)) - 1
    shown = np.where(occupancy > 0, occupancy, np.nan)[edges[:-1]]
    bounds = np.append(state, state[-1] + 1) - 0.5
    norm = LogNorm(0.5 / report["n_trials"], 1)
    mesh = times.pcolormesh(edges, bounds, shown.T, norm=norm, cmap="viridis")
    anchors = report["neighborhoods"]["anchor"]
    bottom, top = bounds[[0, -1]]
    times.vlines(anchors, bottom, top, color="tab:red", lw=min(1.5, 10 / len(anchors)))
    times.plot(anchors, np.full(len(anchors), top), "v", color="tab:red", clip_on=False)
    times.set_xscale("symlog", linthresh=1)
    times.set(xlabel="timestep (red: anchors)", xlim=edges[[0, -1]], ylabel="state")
    figure.colorbar(mesh, ax=times, label="share of trials in the state")
    figure.savefig(path, dpi=120)
