"""Shared by the examples: a model from a table, estimates from several runs, and a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from lstd_agent import Comparison, SeminormLSTDAgent
from lstd_agent.figure_style import COLORS, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Outcome = tuple[float, int, float, bool]
"""Probability, next state, reward, whether the episode ends (here it never does)."""


class TableEnv(gym.Env[Any, Any]):
    """A continuing task from its outcomes, with uniform starts in some states.

    Parameters
    ----------
    outcomes : list of list of tuple
        For each state: probability, next state, reward and False.
    starts : sequence of int
        The states in which trials start.
    """

    def __init__(self, outcomes: list[list[Outcome]], starts: list[int]) -> None:
        self.P = {s: {0: found} for s, found in enumerate(outcomes)}
        self.initial_state_distrib = np.bincount(starts, minlength=len(outcomes)) / len(starts)
        self.observation_space = gym.spaces.Discrete(len(outcomes))
        self.action_space = gym.spaces.Discrete(1)
        self._cumulative = [np.cumsum([p for p, *_ in found])[:-1] for found in outcomes]
        self._starts = starts
        self._state = starts[0]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Start in one of the starts."""
        super().reset(seed=seed)
        self._state = int(self.np_random.choice(self._starts))
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Draw one outcome."""
        place = np.searchsorted(self._cumulative[self._state], self.np_random.random(), "right")
        _, self._state, reward, _ = self.P[self._state][0][int(place)]
        return self._state, reward, False, False, {}


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error, from independent runs."""

    value: float
    error: float

    def __str__(self) -> str:
        return str(Comparison(self.value, self.error))

    def against(self, price: float) -> str:
        """Compare the number with a price, in words."""
        verdict = "worth it" if self.value > price else "too dear"
        return f"{verdict}, by {Estimate(abs(self.value - price), self.error)}"


def over_runs(
    make_agent: Callable[[], SeminormLSTDAgent],
    env: gym.Env[Any, Any],
    policy: Any,
    answer: Callable[[SeminormLSTDAgent], Any],
    *,
    n_runs: int,
    n_trials: int,
    t_max: int,
) -> list[Estimate]:
    """Collect and fit in several independent runs, and combine their numbers.

    Parameters
    ----------
    make_agent : callable
        Returns an agent without trials.
    env, policy, n_trials, t_max
        As in `SeminormLSTDAgent.collect`.
    answer : callable
        Computes numbers from a fitted agent.
    n_runs : int
        At least 2.
    """
    found = []
    for seed in range(n_runs):
        agent = make_agent()
        agent.collect(env, policy, n_trials=n_trials, t_max=t_max, seed=seed, progress=False)
        found.append(answer(agent.fit()))
    means, errors = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(n_runs)
    return [Estimate(float(m), float(e)) for m, e in zip(means, errors, strict=True)]


@styled
def draw_worth(
    places: list[Any],
    estimates: list[Estimate],
    exact: Any,
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    price: float | None = None,
) -> Figure:
    """Draw the values of starts: estimates, exact values, and a price.

    Parameters
    ----------
    places : list
        The starts, along the horizontal axis.
    estimates : list of Estimate
    exact : array_like
    title, xlabel, ylabel : str
    price : float, optional
    """
    figure = new_figure(height=4.5)
    axes = figure.subplots()
    at = range(len(places))
    values, errors = zip(*((e.value, 2.0 * e.error) for e in estimates), strict=True)
    axes.plot(at, exact, "o", mfc="none", color=COLORS[-1], markersize=9, label="exact")
    axes.errorbar(at, values, errors, fmt=".", color=COLORS[1], label="estimated, ± 2 s.e.")
    if price is not None:
        axes.axhline(price, color=COLORS[0], linestyle="--", label=f"price {price:g}")
    axes.set_xticks(at, [str(place) for place in places])
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.legend()
    return figure
