"""Fit many random tasks with known answers, and count silent misses and false alarms.

    PYTHONPATH=. python scripts/audit/random_tasks.py --fits 300 --workers 2 --out rows.jsonl
    PYTHONPATH=. python scripts/audit/random_tasks.py --only queue:17

`verdicts` defines a miss, a false alarm and a healthy task. Process, number of trials, their length
(half of the mixing time to five times it; see `models.mixing_time`), features and options are drawn
by `tasks`. Rows are written as they come; fits that the file already has are not
repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
from models import Finite
from tasks import COUNTED, KINDS, Task, draw
from verdicts import Answer, Outcome, report

from lstd_agent import EvaluationError, FitWarning, SeminormLSTDAgent
from lstd_agent.standard_errors import quantile_of_t
from unichain_gym import TabularVectorEnv


def run(kind: str, seed: int, most_trials: int = 1500) -> Outcome:
    """Return the outcome of the task of a kind and a seed."""
    task = draw(kind, seed, most_trials)
    model = task.plan.model
    span = float(np.ptp(model.values(task.visited)))
    limit = (0.02 if kind in COUNTED else 0.1) * span
    truth = task.truth(model)
    seen = truth
    if isinstance(model, Finite) and task.plan.explored is None:
        seen = task.truth(model.as_seen(task.states, task.lengths))
    apart = {name: abs(seen[name] - truth[name]) for name in truth}
    apart["gain"] *= task.length
    healthy = health(task, span) | {"seen": max(apart.values()) <= limit}
    found = Outcome(kind, seed, limit, span, healthy, suffices(task, span))
    direct = task.direct()
    began = perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answers, found.starts_off = ask(task, seed)
            for name, (estimate, error) in answers.items():
                unit = task.length if name == "gain" else 1
                numbers = estimate, error, truth[name], seen[name]
                a, b, c, d = (float(unit * x) for x in numbers)
                found.answers[name] = Answer(a, b, c, d, direct[name])
        except EvaluationError as raised:
            found.raised = str(raised)
        except Exception:
            found.crash = traceback.format_exc()
    found.seconds = perf_counter() - began
    for each in caught:
        texts = found.warnings if issubclass(each.category, FitWarning) else found.others
        texts.append(str(each.message))
    return found


def fitted(task: Task, seed: int) -> SeminormLSTDAgent:
    """Return an agent fitted to a task's trials, or to trials with exploration."""
    agent = SeminormLSTDAgent(task.features, **task.options)
    n = len(task.lengths)
    if task.plan.explored is not None:
        mdp, policy, explore = task.plan.explored
        envs = TabularVectorEnv(mdp, -(-n // 20))
        agent.collect(envs, policy, n_trials=n, t_max=task.t_max, seed=seed, explore=explore)
    else:
        shown = [each[: n + 1] for each, n in zip(task.observations, task.lengths, strict=True)]
        rewards = [each[:n] for each, n in zip(task.rewards, task.lengths, strict=True)]
        space = None
        if isinstance(task.plan.model, Finite) and task.counted:
            space = gym.spaces.Discrete(int(task.plan.model.shown.max()) + 1)
        times = None
        if task.times is not None:
            times = [each[:n] for each, n in zip(task.times, task.lengths, strict=True)]
        agent.add_trials(shown, rewards, durations=times, observation_space=space)
    return agent.fit()


def ask(task: Task, seed: int) -> tuple[dict[str, tuple[float, float]], float]:
    """Return estimates and their errors; and the largest error of a start's value."""
    agent = fitted(task, seed)
    at = [np.append(x, 0.0) if task.plan.clock else x for x in (*task.sides, *task.begun[0])]
    compared = agent.compare(at[0], at[1], None if task.plan.one_start else 0)
    low, high = compared.interval(0.95)
    # Student's t tells how uncertain the errors of few batches are.
    few = quantile_of_t(0.95, max(1, min(agent.n_batches, len(task.lengths)) - 1)) / 1.96
    answers = {
        "gain": (agent.gain_, few * agent.gain_error_),
        "start_bias": (agent.start_bias_, few * agent.start_bias_error_),
        "difference": (compared.difference, (high - low) / 2 / 1.96),
    }
    off = np.ravel(agent.predict(at[2:], 0)) - [
        task.plan.model.value_of(x)[0] for x in task.begun[0]
    ]
    return answers, float(np.abs(off - task.begun[1] @ off / len(task.lengths)).max())


def health(task: Task, span: float) -> dict[str, bool]:
    """Return the conditions of a healthy task by name; see `verdicts`."""
    model, T = task.plan.model, task.t_max + 1
    left = float(model.weights @ model.to_come(T // 2, model.starts))
    n = task.begun[1]
    known = n.min() >= 10 or (not task.counted and len(n) > 12)
    return {
        "settled": bool(abs(left) <= 0.01 * span and 4 * model.period <= T),
        "forgets": bool(np.ptp(model.to_come(T // 4, task.visited)) <= 0.1 * span),
        "sound": task.plan.sound,
        "enough": bool(known and (task.lengths == T).sum() >= 24),
    }


def suffices(task: Task, span: float) -> bool:
    """Return whether the features can represent the true values; see `verdicts`."""
    if not task.plan.sound:
        return False
    model, where = task.plan.model, task.visited
    visits = np.ones(len(where))
    sides = np.array([task.sides[0], task.sides[1]])
    if isinstance(model, Finite):
        visits = np.bincount(task.states[:, :-1].ravel(), minlength=len(model.P))[where] + 0.0
    shown = model.shows(where)
    if task.counted:
        if not isinstance(task.features, np.ndarray):
            return True
        F, of_sides = task.features[shown], task.features[sides]
    else:
        both = task.features(np.concatenate([shown, sides]))
        both = both if isinstance(both, np.ndarray) else both.toarray()
        F, of_sides = both[:-2], both[-2:]
    root = np.sqrt(visits / visits.sum())[:, None]
    values = model.values(where)
    F = np.column_stack([F, np.ones(len(F))])
    weights = np.linalg.lstsq(root * F, root[:, 0] * values, rcond=1e-10)[0]
    at_sides = np.column_stack([of_sides, np.ones(2)]) @ weights
    true = [model.value_of(side, task.plan.one_start)[0] for side in task.sides]
    off = np.sqrt(visits / visits.sum() @ (F @ weights - values) ** 2)
    return bool(off <= 0.02 * span and np.abs(at_sides - true).max() <= 0.05 * span)


def read(line: str) -> Outcome:
    """Return the outcome of a row of JSON."""
    row = json.loads(line)
    answers = {name: Answer(**each) for name, each in row.pop("answers").items()}
    return Outcome(**{name: row[name] for name in row if name != "verdict"}, answers=answers)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if there is a silent miss or a crash."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fits", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed of each kind")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--only", metavar="KIND:SEED", help="print everything about one fit")
    parser.add_argument("--out", type=Path, help="write a line of JSON for each fit")
    options = parser.parse_args(argv)
    if options.only:
        kind, _, seed = options.only.rpartition(":")
        task, found = draw(kind, int(seed)), run(kind, int(seed))
        facts = {"verdict": found.verdict, "trials": len(task.lengths), "t_max": task.t_max}
        facts |= {"features": task.features, "options": task.options, "sides": task.sides}
        print("\n".join(f"{key:12s} {value}" for key, value in (facts | asdict(found)).items()))
        return 0
    had = (
        options.out.read_text("utf-8").splitlines() if options.out and options.out.exists() else []
    )
    outcomes = [read(line) for line in had]
    done, n = {(each.kind, each.seed) for each in outcomes}, len(options.kind)
    wanted = [(options.kind[i % n], options.seed + i // n) for i in range(options.fits)]
    names = [pair for pair in wanted if pair not in done]
    with ExitStack() as stack:
        mapped: Any = map
        if options.workers > 1:
            mapped = stack.enter_context(ProcessPoolExecutor(options.workers)).map
        file = stack.enter_context(options.out.open("a", encoding="utf-8")) if options.out else None
        for each in mapped(run, *zip(*names, strict=True)) if names else ():
            outcomes.append(each)
            if file:
                print(json.dumps(asdict(each) | {"verdict": each.verdict}), file=file, flush=True)
    print(report(outcomes))
    return int(any(each.verdict in ("miss", "crash") for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
