"""The default's error beside alternatives, on the same trials of eight tasks with vectors.

    PYTHONPATH=. python scripts/audit/alternatives.py --seeds 8

Each method estimates the difference of the values of two starts; its error is the root mean square
over seeds. In four tasks the features suffice; in the other four they are coarse, or a state is
hidden.

lstd        average-reward LSTD of one step, over all timesteps; the gain is that of the second half
regression  least squares of what the first half of each trial earned above the gain from there on
model       certainty equivalence: transition counts between cells of a grid, solved exactly
returns     mean return of trials from one start, less that of trials from the other
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from models import Finite, Gaussian, Model, at, moves
from random_tasks import fitted
from scipy.stats import binom
from tasks import Task

from lstd_agent import FitWarning, KeptTrials, OneHot, Polynomial, RadialBasis, SeminormLSTDAgent
from lstd_agent.baselines import (
    LinearValue,
    average_reward_lstd,
    certainty_equivalence,
    monte_carlo,
)


def servers(n: int = 30) -> Finite:
    """Return M/M/3 at arrivals: the state is the number of jobs, the cost the waiting time."""
    come, serve, P = 1.0, 0.5, np.zeros((n, n))
    for found in range(n):
        here, k = 1.0, min(found + 1, n - 1)
        while k >= 0:
            rate = serve * min(k, 3)
            P[found, k] += here * come / (come + rate)
            here *= rate / (come + rate)
            k -= 1
    jobs = np.arange(n)
    return Finite(P, -np.maximum(jobs - 2, 0) / (3.0 * serve), at(n, 0, 9, 18), jobs[:, None] / 1.0)


def epidemic(n: int = 14) -> Finite:
    """Return an epidemic of n with waning immunity; only the number of infected is observed."""
    states = [(s, i) for s in range(n + 1) for i in range(n + 1 - s)]
    place = {state: k for k, state in enumerate(states)}
    P = np.zeros((len(states), len(states)))
    for (s, i), k in place.items():
        caught = binom.pmf(np.arange(s + 1), s, 1.0 - 0.98 * np.exp(-0.5 * i / n))
        healed = binom.pmf(np.arange(i + 1), i, 0.3)
        waned = binom.pmf(np.arange(n - s - i + 1), n - s - i, 0.1)
        for c, h, w in np.ndindex(len(caught), len(healed), len(waned)):
            P[k, place[s - c + w, i + c - h]] += caught[c] * healed[h] * waned[w]
    infected = np.array([[i] for _, i in states], dtype=np.float64)
    start = at(len(states), place[n - 1, 1], place[0, 4], place[n // 2, n // 2])
    return Finite(P, -infected[:, 0], start, infected)


def inventory(order_up_to: int = 10) -> Finite:
    """Return an order-up-to inventory with a lead time of 2; only the stock is observed."""
    m = order_up_to + 1
    states = [(x, a, b) for x in range(m) for a in range(m - x) for b in range(m - x - a)]
    place = {state: k for k, state in enumerate(states)}
    P, reward = np.zeros((len(states), len(states))), np.zeros(len(states))
    demand = binom.pmf(np.arange(7), 6, 0.5)
    for (x, a, b), k in place.items():
        for wanted, chance in enumerate(demand):
            left = max(0, x - wanted)
            reward[k] -= chance * (0.2 * left + 4.0 * max(0, wanted - x))
            ordered = order_up_to - left - a - b
            P[k, place[left + a, b, ordered]] += chance
    stock = np.array([[x] for x, _, _ in states], dtype=np.float64)
    start = at(len(states), place[0, 0, 5], place[4, 3, 3], place[order_up_to, 0, 0])
    return Finite(P, reward, start, stock)


def house() -> Gaussian:
    """Return a heated house with a hidden wall; the cost is the air's distance from 0."""
    A = np.array([[0.70, 0.25], [0.04, 0.95]])
    starts = np.array([[-3.0, -8.0], [-2.0, 0.0], [3.0, 0.0], [0.0, -4.0]])
    return Gaussian(A, np.diag([0.3, 0.02]), np.array([1.0, 0.0]), "absolute", starts, 1)


def tasks() -> Iterator[tuple[str, Model, Any, int, int, tuple[int, int]]]:
    """Yield name, model, features, trials, t_max, and the indices of the two starts."""
    line, turn = np.array([[0.9]]), np.array([[0.88, 0.2], [-0.2, 0.88]])
    points = np.array([[-5.0], [0.0], [5.0]])
    corners = np.array([[4.0, 0.0], [0.0, 4.0], [-3.0, -3.0], [0.0, 0.0]])
    noise, along = 0.2 * np.eye(2), np.array([1.0, 0.3])
    work = np.linspace(0.0, 20.0, 101)
    drains = moves(101, dict.fromkeys(range(-5, 3), 0.125))
    walk = moves(25, {1: 0.2, -1: 0.5, 0: 0.3})
    jobs = np.arange(25.0)
    backlog = Finite(drains, -work, at(101, 10, 50, 100), work[:, None])
    queue = Finite(walk, -jobs - 2.5 * (jobs > 8), at(25, 0, 8, 20), jobs[:, None])
    yield "backlog", backlog, RadialBasis.grid([0], [20], 10), 100, 120, (2, 0)
    yield "queue", queue, RadialBasis.grid([0], [24], 13), 200, 200, (2, 0)
    ar1 = Gaussian(line, 0.2 * line, np.ones(1), "absolute", points, 1)
    yield "ar1", ar1, RadialBasis.grid([-6], [6], 12), 100, 80, (2, 1)
    plane = Gaussian(turn, noise, along, "square", corners, 2)
    yield "plane", plane, Polynomial(2, scale=4.0), 100, 80, (0, 3)
    yield "servers*", servers(), Polynomial(1, scale=20.0), 100, 120, (2, 0)
    yield "epidemic*", epidemic(), RadialBasis.grid([0], [14], 6), 200, 120, (0, 1)
    yield "inventory*", inventory(), Polynomial(2, scale=12.0), 200, 40, (0, 1)
    yield "house*", house(), RadialBasis.grid([-8], [4], 8), 100, 150, (0, 1)


def linear(task: Task, method: Callable[..., LinearValue]) -> float:
    """Return the difference by one of the package's linear baselines."""
    value = method(KeptTrials.of(task.observations, task.rewards), task.features)
    one, other = value(task.features(np.array(task.sides)))
    return float(one - other)


def model(task: Task) -> float:
    """Return the difference by certainty equivalence on a grid of 24, or 12 by 12, cells."""
    n, T, k = task.observations.shape
    per_axis = 24 if k == 1 else 12
    both = np.concatenate([task.observations.reshape(-1, k), np.array(task.sides)])
    low, high = both[:-2].min(axis=0), both[:-2].max(axis=0)
    cells = np.clip((both - low) / (high - low) * per_axis, 0, per_axis - 1).astype(int)
    names, codes = np.unique(cells @ per_axis ** np.arange(k), return_inverse=True)
    agent = SeminormLSTDAgent(OneHot())
    space = gym.spaces.Discrete(len(names))
    agent.add_trials(codes[:-2].reshape(n, T), task.rewards, observation_space=space)
    one, other = certainty_equivalence(agent.counts)[codes[-2:]]
    return float(one - other)


ALTERNATIVES: dict[str, Callable[[Task], float]] = {
    "lstd": lambda task: linear(task, average_reward_lstd),
    "regression": lambda task: linear(task, monte_carlo),
    "model": model,
    "returns": lambda task: task.direct()["difference"][0],
}


def answers(task: Task, seed: int) -> tuple[dict[str, float], bool]:
    """Return the difference by each method, and whether the default's fit warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        agent = fitted(task, seed)
    found = {"default": agent.compare(*task.sides, 0).difference}
    found["by returns"] = agent.compare(*task.sides, 0, by="returns").difference
    found |= {name: method(task) for name, method in ALTERNATIVES.items()}
    return found, any(issubclass(each.category, FitWarning) for each in caught)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--task", nargs="+", help="names of tasks; by default all")
    options = parser.parse_args(argv)
    print("root mean square errors; * means coarse features or a hidden state")
    for name, process, features, n, t_max, (a, b) in tasks():
        if options.task and name not in options.task:
            continue
        shown = process.shows(process.starts)
        results, n_warned, truth = [], 0, np.nan
        for seed in range(options.seeds):
            drawn = process.simulate(n, t_max, np.random.default_rng([seed, n]))
            task = Task.of(process, drawn, features, (shown[a], shown[b]))
            truth = task.truth(process)["difference"]
            found, warned = answers(task, seed)
            results.append({key: value - truth for key, value in found.items()})
            n_warned += warned
        errors = {key: np.sqrt(np.mean([each[key] ** 2 for each in results])) for key in results[0]}
        best = min(errors, key=lambda key: errors[key] if key in ALTERNATIVES else np.inf)
        print(
            f"{name:11s} true {truth:8.4g}: "
            + ", ".join(f"{key} {error:.3g}" for key, error in errors.items())
            + f"; default / {best} {errors['default'] / errors[best]:.2f}, "
            f"warned {n_warned} of {options.seeds}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
