"""The guide's pictures: `python docs/guide_pictures.py` draws them anew.

They are kept beside the pages, so that these can be read without a build.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from lstd_agent import FitWarning, RadialBasis, SeminormLSTDAgent
from lstd_agent.figure_style import COLORS, DASHES, WIDTH, new_figure, picture, styled
from unichain_gym import MarkovChain, make_mdp

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def total_rewards(chain: MarkovChain, start: int, n: int) -> np.ndarray[Any, Any]:
    """Return the expected total reward of 1 to n steps from a start, shape (n,)."""
    reached = chain.reachable([start])
    return np.cumsum(reached.stepwise_distributions(n - 1) @ reached.reward)


@styled
def gain_and_bias() -> Figure:
    """Draw what a start costs, in total and on average, by the number of steps."""
    mdp = make_mdp("h36c")
    chain = mdp.induce(np.ones(mdp.n_states, dtype=int))
    figure = new_figure(WIDTH, 7.5)
    total, average = figure.subplots(2, 1)
    starts = {"core": 34, "stream": 0}
    for axes, n in ((total, 120), (average, 3000)):
        steps = np.arange(1, n + 1)
        for k, (name, start) in enumerate(starts.items()):
            shown = total_rewards(chain, start, n)
            shown = shown / steps if axes is average else shown
            axes.plot(steps, shown, DASHES[k], color=COLORS[k], label=f"start in the {name}")
        axes.legend()
        axes.set_xlim(0 if axes is total else 1, n)
        if axes is average:
            axes.set_xscale("log")
    gap = chain.bias[34] - chain.bias[0]
    last = total_rewards(chain, 0, 100)[-1]
    total.annotate("", (100, last), (100, last + gap), arrowprops={"arrowstyle": "<->"})
    total.annotate(f"{gap:.0f}, for ever", (104, last - 20), va="top")
    total.set(title="Total reward so far", xlabel="steps", ylabel="units of reward")
    average.axhline(chain.gain, color="black", linewidth=0.8)
    average.annotate(f"gain {chain.gain:.2f}", (1.2, chain.gain - 0.2), va="top")
    average.set(title="Average reward so far", xlabel="steps", ylabel="units of reward per step")
    return figure


class Backlog(gym.Env[Any, int]):
    """A step brings up to 1.4 units of work and does one; it costs what is waiting."""

    observation_space = gym.spaces.Box(0.0, np.inf, (1,))
    action_space = gym.spaces.Discrete(1)
    work = 20.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start with 20 units waiting."""
        super().reset(seed=seed)
        self.work = 20.0
        return np.array([self.work], dtype=np.float32), {}

    def step(self, action: int) -> Any:
        """Bring work, do some, and pay for what waits."""
        cost = self.work
        self.work = max(0.0, self.work + self.np_random.uniform(0.0, 1.4) - 1.0)
        return np.array([self.work], dtype=np.float32), -cost, False, False, {}


def fitted() -> SeminormLSTDAgent:
    """Return an evaluator of the backlog, fitted to 100 trials."""
    agent = SeminormLSTDAgent(RadialBasis.grid(low=[0], high=[20], n=8))
    return agent.collect(
        Backlog(), lambda _: 0, n_trials=100, t_max=150, seed=0, progress=False
    ).fit()


@styled
def settled() -> Figure:
    """Draw the mean reward by timestep, by which a t_max is chosen."""
    envs = gym.make_vec("unichain_gym:Unichain-h36c-v0", num_envs=1000)
    states, _ = envs.reset(seed=0)
    mean, error = np.empty(200), np.empty(200)
    for t in range(len(mean)):
        states, rewards, *_ = envs.step(np.ones_like(states))
        mean[t], error[t] = rewards.mean(), rewards.std() / np.sqrt(len(rewards))
    figure = new_figure(WIDTH, 3.8)
    axes = figure.subplots()
    t = np.arange(len(mean))
    axes.fill_between(t, mean - 2 * error, mean + 2 * error, color=COLORS[0], alpha=0.25)
    axes.plot(t, mean, color=COLORS[0])
    axes.axvline(40, color=COLORS[1], linestyle=DASHES[1])
    axes.annotate(" settled from here on:\n t_max = 80 or more", (40, 5.0), color=COLORS[1])
    axes.set(
        title="Mean reward of 1,000 trials, ± 2 standard errors",
        xlabel="timestep",
        ylabel="units of reward",
        xlim=(0, len(mean)),
    )
    return figure


def main() -> None:
    """Draw all pictures."""
    folder = Path(__file__).parent / "guide"
    warnings.simplefilter("ignore", FitWarning)
    drawn = {"gain_and_bias": gain_and_bias(), "settled": settled(), "fit": fitted().plot()}
    for name, figure in drawn.items():
        (folder / f"{name}.png").write_bytes(picture(figure, ".png"))


if __name__ == "__main__":
    main()
