"""Learners of control with the same number of samples: gain, start and transient actions.

Each method gets so many transitions, in trials from the starts. Its greedy policy is compared with
the exact optimum of the model: in the gain; if that is optimal, in the mean bias of the start, as a
share of the span of the optimal bias; and in the share of transient states with a bias-optimal
action. The shortfall of the start is defined only with the optimal gain: otherwise a policy loses
at every step.

Learners start over with each trial, as the evaluator's trials do. One method learns in one run, as
is usual in tasks that never end. It sees transient states once and learns nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lstd_agent import PolicyIteration
from lstd_agent.arrays import IntArray
from lstd_agent.results import How, Row
from study.q_learning import Rule, learn
from study.store import open_store
from unichain_gym import TabularMDP, TabularVectorEnv, make_mdp

if TYPE_CHECKING:
    from typing_extensions import Unpack

CONTROL_ENVIRONMENTS = ("h36", "h36c", "c10", "c35c", "c100", "h100", "r6", "r20b", "m16", "q44")

KEY = ("env", "seed", "method", "n_samples")

EQUAL = 1e-4
"""A gain within this share of the optimal gain counts as optimal.

100,000 transitions do not separate gains this close. Actions in states that are hardly ever visited
cost even less; where they matter, the start's value shows it.
"""

_ROUNDING = 1e-9  # where the optimal gain is 0

# A trial lasts several times as long as acting at random takes to settle, within reason.
_TRIAL, _LONGEST = 2, 400

# Of policy iteration, for the same number of transitions.
_ITERATIONS = 5


@dataclass(frozen=True)
class ControlSettings:
    """What every row depends on: the numbers of transitions, ascending."""

    checkpoints: tuple[int, ...] = (5_000, 10_000, 20_000, 50_000, 100_000)


@dataclass(frozen=True)
class ControlTask:
    """A method on an environment, for some seeds at once."""

    env: str
    method: str
    seeds: tuple[int, ...]
    settings: ControlSettings


Learned = Iterator[tuple[int, int, IntArray]]
"""Seed, number of transitions, and policy."""


def _q_learning(
    rule: Rule, mdp: TabularMDP, task: ControlTask, t_max: int, *, starts_over: bool = True
) -> Learned:
    env = TabularVectorEnv(mdp, len(task.seeds))
    marks = task.settings.checkpoints
    last = t_max if starts_over else marks[-1]
    tables = learn(rule, env, marks, last, task.seeds[0])
    for n, by_seed in zip(marks, tables.argmax(axis=3), strict=True):
        for seed, policy in zip(task.seeds, by_seed, strict=True):
            yield seed, n, policy


def _policy_iteration(mdp: TabularMDP, task: ControlTask, t_max: int) -> Learned:
    """Give each checkpoint a search of its own: five iterations with a fifth of the transitions.

    All transitions are used, even if an iteration changes nothing. Any positive advantage changes
    the action, since no more transitions follow.
    """
    for n in task.settings.checkpoints:
        n_trials = n // (_ITERATIONS * (t_max + 1))
        if n_trials < 2:
            continue
        for seed in task.seeds:
            env = TabularVectorEnv(mdp, n_trials)
            search = PolicyIteration(env, t_max, n_trials, n_errors=0.0, seed=seed)
            for _ in range(_ITERATIONS):
                search.iterate()
            yield seed, n, np.asarray(search.policy_)


@dataclass(frozen=True)
class Method:
    """How policies are learned, in trials of t_max + 1 timesteps, and for how many seeds at once.

    The number of seeds is fixed, so that the result of a seed does not depend on the others.
    """

    learn: Callable[[TabularMDP, ControlTask, int], Learned]
    n_at_once: int


METHODS = {
    "policy iteration": Method(_policy_iteration, 1),
    "differential Q": Method(partial(_q_learning, "differential"), 20),
    "differential Q, one run": Method(partial(_q_learning, "differential", starts_over=False), 20),
    "R-learning": Method(partial(_q_learning, "r_learning"), 20),
    "RVI Q": Method(partial(_q_learning, "rvi"), 20),
    "discounted Q": Method(partial(_q_learning, "discounted"), 20),
}


def trial_length(mdp: TabularMDP) -> int:
    """Return t_max: twice the time that acting at random takes to settle within a hundredth."""
    chain = mdp.induce(np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions))
    return min(_LONGEST, _TRIAL * max(chain.mixing_time(1e-2), 10))


def control_rows(task: ControlTask) -> list[Row]:
    """Run a method for some seeds and compare its policies with the exact optimum."""
    mdp = make_mdp(task.env)
    optimum = mdp.optimal_policy("bias")
    start = mdp.initial_distribution
    best_gain, best_start = optimum.chain.gain, float(start @ optimum.chain.bias)
    span = float(np.ptp(optimum.chain.bias))
    transient = optimum.chain.transient_states
    rows = []
    for seed, n_samples, policy in METHODS[task.method].learn(mdp, task, trial_length(mdp)):
        chain = mdp.induce(policy)
        gain = chain.gain
        is_optimal = bool(best_gain - gain <= EQUAL * abs(best_gain) + _ROUNDING)
        shortfall = (best_start - float(start @ chain.bias)) / span if is_optimal else None
        right = optimum.optimal_actions[transient, policy[transient]]
        row = {"env": task.env, "seed": seed, "method": task.method, "n_samples": n_samples}
        row |= {"gain": gain, "optimal_gain": best_gain, "is_gain_optimal": is_optimal}
        row |= {"start_shortfall": shortfall}
        rows.append({**row, "transient_right": float(right.mean()) if right.size else None})
    return rows


def run_control_study(
    out: Path,
    settings: ControlSettings,
    *,
    environments: Sequence[str] = CONTROL_ENVIRONMENTS,
    n_seeds: int = 20,
    **how: Unpack[How],
) -> list[Row]:
    """Compute the rows of seeds 0 to n_seeds - 1 that a folder lacks, and return all asked for."""
    store = open_store(out, "control", asdict(settings), KEY)
    last = settings.checkpoints[-1]
    tasks = []
    for env in environments:
        for name, method in METHODS.items():
            for first in range(0, n_seeds, method.n_at_once):
                seeds = range(first, first + method.n_at_once)
                if any((env, s, name, last) not in store for s in seeds if s < n_seeds):
                    tasks.append(ControlTask(env, name, tuple(seeds), settings))
    store.compute(control_rows, tasks, **how)
    return store.asked(env=environments, seed=range(n_seeds))
