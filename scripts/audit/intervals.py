"""The coverage of nominal 95 % intervals on six tasks, by number of batches.

    PYTHONPATH=. python scripts/audit/intervals.py --repetitions 100

An interval is the estimate ± its error times Student's t, with one degree of freedom less than
there are batches; a comparison has an ``interval`` of its own. The target is 90 to 99 %.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from models import Finite, FloatArray, Gaussian, at, moves
from random_tasks import fitted
from tasks import Task

from lstd_agent import OneHot, Polynomial, RadialBasis
from lstd_agent.standard_errors import quantile_of_t
from unichain_gym import make_mdp

BATCHES = (20, 40)
ONE, TWO = np.array([[0.9]]), np.array([[0.85, 0.2], [-0.1, 0.8]])


def tasks() -> Iterator[tuple[str, Any, Any, int, int, tuple[Any, Any]]]:
    """Yield name, model, features, trials, t_max and the two sides of each task."""
    left = np.array([[0, 1.0, 0, 0], [0, 0.5, 0.5, 0], [0, 0.5, 0.5, 0], [0, 0, 1.0, 0]])
    pays: FloatArray = np.array([10.0, 0.0, 1.0, 6.0])
    at_once = Finite(left, pays, at(4, 0, 3), np.arange(4), 1.0)
    yield "left at once", at_once, OneHot(), 200, 40, (0, 3)
    chain = make_mdp("h9b").induce([1] * 9)
    P: FloatArray = chain.transition_matrix.toarray()
    h9b = Finite(P, chain.reward, chain.initial_distribution, np.arange(9))
    yield "h9b", h9b, OneHot(), 400, 80, (0, 5)
    jobs = np.arange(16)
    walk = moves(16, {1: 0.15, -1: 0.45, 0: 0.4})
    queue = Finite(walk, -np.arange(16.0), at(16, 0, 6, 12), jobs)
    yield "queue", queue, OneHot(), 300, 120, (12, 0)
    points = np.array([[-4.0], [0.0], [5.0]])
    square = Gaussian(ONE, ONE * 0.19 / 0.9, ONE[0], "square", points, 1)
    yield "ar1", square, Polynomial(2, scale=5.0), 200, 80, (points[2], points[1])
    corners = np.array([[4.0, 0.0], [0.0, -4.0], [-3.0, 3.0], [0.0, 0.0]])
    plane = Gaussian(TWO, 0.3 * np.eye(2), np.array([1.0, 0.5]), "square", corners, 2)
    yield "plane", plane, Polynomial(2, scale=4.0), 200, 60, (corners[0], corners[3])
    work = np.linspace(0.0, 12.0, 49)
    drains = moves(49, dict.fromkeys(range(-5, 3), 0.125))
    backlog = Finite(drains, -work, at(49, 4, 24, 48), work[:, None])
    yield "backlog", backlog, RadialBasis.grid([0], [12], 12), 200, 80, (work[48:], work[4:5])


def held(task: Task, seed: int) -> dict[str, bool]:
    """Return whether the interval of each answer with an error covers the true answer."""
    agent = fitted(task, seed)
    reach = quantile_of_t(0.95, min(agent.n_batches, len(task.lengths)) - 1)
    truth = task.truth(task.plan.model)
    low, high = agent.compare(*task.sides, 0).interval(0.95)
    off = truth["gain"] - agent.gain_, truth["start_bias"] - agent.start_bias_
    return {
        "gain": bool(abs(off[0]) <= reach * agent.gain_error_),
        "start_bias": bool(abs(off[1]) <= reach * agent.start_bias_error_),
        "difference": bool(low <= truth["difference"] <= high),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a share is outside of the target."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--task", nargs="+", help="names of tasks; by default all")
    options = parser.parse_args(argv)
    outside = 0
    print(f"{'task':13s} batches  share of intervals that hold the true answer")
    for name, model, features, n, t_max, sides in tasks():
        if options.task and name not in options.task:
            continue
        for n_batches in BATCHES:
            results = []
            for seed in range(options.seed, options.seed + options.repetitions):
                drawn = model.simulate(n, t_max, np.random.default_rng([seed, n]))
                task = Task.of(model, drawn, features, sides, n_batches=n_batches)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    results.append(held(task, seed))
            shares = {key: np.mean([each[key] for each in results]) for key in results[0]}
            outside += sum(not 0.9 <= share <= 0.99 for share in shares.values())
            text = ", ".join(f"{key} {share:.2f}" for key, share in shares.items())
            print(f"{name:13s} {n_batches:7d}  {text}", flush=True)
    print(f"{outside} outside of 90 to 99 %")
    return int(outside > 0)


if __name__ == "__main__":
    sys.exit(main())
