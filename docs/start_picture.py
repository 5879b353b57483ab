"""The README's picture: `python docs/start_picture.py` draws `docs/start.png` anew.

Above, where the trials of h36c are at three timesteps: every trial starts in a stream, moves on to
the core, and never comes back. Below, what two starts earn in total: their difference stays, and is
a difference of the bias.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd_agent.figure_style import COLORS, DASHES, WIDTH, new_figure, picture, styled
from unichain_gym import make_mdp
from unichain_gym.drawing import RECURRENT_COLOR, TRANSIENT_COLOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = (0, 12, 40)
LENGTH, N_STREAMS = 11, 3  # of h36c


def places() -> np.ndarray[Any, Any]:
    """Return a place for each state, shape (36, 2): streams are rows, the core is a triangle."""
    stream, step = np.divmod(np.arange(LENGTH * N_STREAMS), LENGTH)
    rows = np.stack([step, 2.0 - stream], axis=1)
    core = [(LENGTH + 0.6, 1.0), (LENGTH + 2.0, 1.9), (LENGTH + 2.0, 0.1)]
    return np.concatenate([rows, core])


def draw_trials(axes: Axes, share: np.ndarray[Any, Any], t: int) -> None:
    """Draw each state, and on it a dot whose area is the share of trials that are there."""
    at = places()
    first = at[LENGTH * N_STREAMS]
    for k in range(N_STREAMS):
        row = at[k * LENGTH : (k + 1) * LENGTH]
        axes.plot(*np.vstack([row, first]).T, color="0.75", linewidth=1.0, zorder=1)
    axes.plot(*np.vstack([at[-3:], first]).T, color="0.75", linewidth=1.0, zorder=1)
    colors = [TRANSIENT_COLOR] * (LENGTH * N_STREAMS) + [RECURRENT_COLOR] * 3
    axes.scatter(*at.T, s=42, c=colors, edgecolors="0.5", linewidths=0.6, zorder=2)
    axes.scatter(*at.T, s=700.0 * share, color=COLORS[0], alpha=0.85, linewidths=0, zorder=3)
    left = share[: LENGTH * N_STREAMS].sum()
    axes.set(title=f"t = {t}: {left:.0%} in the streams", xlim=(-0.8, 14.6), ylim=(-0.9, 2.9))
    axes.set_axis_off()


@styled
def start() -> Figure:
    """Draw where trials are, and what two starts earn in total."""
    chain = make_mdp("h36c").induce(np.ones(36, dtype=int))
    figure = new_figure(WIDTH, 5.4)
    grid = figure.add_gridspec(2, len(SHOWN), height_ratios=[1, 1.9])
    shares = chain.stepwise_distributions(max(SHOWN))
    for column, t in enumerate(SHOWN):
        draw_trials(figure.add_subplot(grid[0, column]), shares[t], t)
    axes = figure.add_subplot(grid[1, :])
    steps, ends = np.arange(1, 81), []
    for k, (state, name) in enumerate(((34, "the core"), (0, "a stream"))):
        reached = chain.reachable([state])
        total = np.cumsum(reached.stepwise_distributions(steps[-1] - 1) @ reached.reward)
        axes.plot(steps, total, DASHES[k], color=COLORS[k], label=f"start in {name}")
        ends.append(total[-1])
    gap = chain.bias[34] - chain.bias[0]
    low = ends[1] - 20 * chain.gain
    axes.annotate("", (60, low), (60, low + gap), arrowprops={"arrowstyle": "<->"})
    axes.annotate(f"{gap:.0f} units of reward,\na difference of the bias", (57, low - 60), va="top")
    axes.set(xlim=(0, 80), xlabel="steps", ylabel="units of reward")
    axes.set_title("Total reward so far, from two starts: the gain is the same, the totals are not")
    axes.legend()
    return figure


if __name__ == "__main__":
    (Path(__file__).parent / "start.png").write_bytes(picture(start(), ".png"))
