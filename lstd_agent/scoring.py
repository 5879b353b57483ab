"""Scores of a user's method on problems with exact answers, and our own methods beside it.

A problem is an environment, a random policy and random features (`lstd_agent.problems`). A method
is a callable ``method(env, policy, budget, seed)`` that sees trials only. Its values v(s), or
v_t(s), are compared with the exact bias, both with a mean of 0 under the stationary distribution
at t_max, by the *total rems* (eq. ``tot_rooterr``) and its first term, the *rems at the start*.
"""

from __future__ import annotations

import inspect
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

import lstd_agent.baselines as baselines
import lstd_agent.problems as problems
from lstd_agent.agent import SeminormLSTDAgent
from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import EvaluationError, FitWarning, InvalidInputError, check_integer
from lstd_agent.features.tables import OneHot
from lstd_agent.results import Row, RowStore, digest, source_of
from lstd_agent.summary import markdown
from unichain_gym import TabularMDP, TabularVectorEnv

__all__ = ["Budget", "BudgetError", "BudgetedEnv", "Scores", "ScoringError", "score", "trials"]

REFERENCE = "certainty_equivalence"
"""Scores are multiples of this method's errors, and of the projection limit."""

Method = Callable[..., Any]
KEY = ("method", "source", "env", "model", "rho", "seed")
_problem = itemgetter(*KEY[2:])
FIELDS = (*KEY, "total_rems", "start_rems", "seconds", "gain_error", "limit_total", "limit_start")

MEASURES = {
    "total_to_limit": ("total rems / limit", "total_rems", "limit_total"),
    "total_to_reference": ("total rems / CE", "total_rems", None),
    "start_to_limit": ("start / limit", "start_rems", "limit_start"),
    "start_to_reference": ("start / CE", "start_rems", None),
    "gain_to_reference": ("gain error / CE", "gain_error", None),
    "seconds": ("seconds", "seconds", ""),
    "seconds_to_reference": ("seconds / CE", "seconds", None),
}
"""Heading, field, and its divisor: another field, 1 (''), or the reference's field (None)."""


class ScoringError(EvaluationError, RuntimeError):
    """A method failed on a problem (its ``traceback`` says where), or its answer does not fit."""

    traceback = ""


class BudgetError(EvaluationError, RuntimeError):
    """A method ran more trials than its budget, or longer ones."""


@dataclass(frozen=True)
class Budget:
    """The trials that a method may run: ``n_trials``, each of the timesteps 0 to ``t_max``.

    ``num_envs`` of them, a twentieth, run at once, in ``n_rounds``; the last may count in part.
    """

    n_trials: int
    t_max: int
    num_envs = property(lambda self: -(-self.n_trials // 20))
    n_rounds = property(lambda self: -(-self.n_trials // self.num_envs))


class BudgetedEnv(VectorWrapper):
    """The vector environment ``env``, with ``budget.num_envs`` copies, and the ``budget`` it keeps.

    A reset starts a trial in each copy; ``n_rounds`` have been started. More is a `BudgetError`.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], budget: Budget) -> None:
        super().__init__(env)
        self.budget = budget
        self.n_rounds = self._t = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start a round of trials."""
        if self.n_rounds == self.budget.n_rounds:
            spent = f"{self.n_rounds} rounds of {self.budget.num_envs}"
            raise BudgetError(f"the budget of {self.budget.n_trials} trials is spent: {spent}")
        self.n_rounds, self._t = self.n_rounds + 1, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in each copy."""
        if self._t > self.budget.t_max:
            raise BudgetError(f"a trial ends with the step at timestep t_max = {self.budget.t_max}")
        self._t += 1
        return self.env.step(actions)


def trials(
    env: BudgetedEnv, policy: IntArray, budget: Budget, seed: int
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Run all trials; ``env``, ``policy``, ``budget`` and ``seed`` are those of the method.

    Yields
    ------
    states : ndarray of int, shape (n, t_max + 2)
    rewards : ndarray, shape (n, t_max + 1)
        On leaving the states at timesteps 0 to t_max.

    Raises
    ------
    InvalidInputError
        If steps have durations.
    """
    for n_left in range(budget.n_trials, 0, -budget.num_envs):
        states = np.empty((budget.t_max + 2, budget.num_envs), dtype=np.int64)
        rewards = np.empty((budget.t_max + 1, budget.num_envs))
        states[0], _ = env.reset(seed=seed if n_left == budget.n_trials else None)
        for t in range(budget.t_max + 1):
            states[t + 1], rewards[t], *_, info = env.step(policy[states[t]])
            if "duration" in info:
                raise InvalidInputError(baselines.TIMED)
        yield states[:, :n_left].T, rewards[:, :n_left].T


def _run(agent: SeminormLSTDAgent, env: Any, policy: Any, budget: Budget, seed: int) -> Any:
    return agent.collect(env, policy, n_trials=budget.n_trials, t_max=budget.t_max, seed=seed)


def _tabular(*problem: Any) -> Any:
    """Solve the chain of all counted transitions; unknown values are 0, the mean."""
    counts = _run(SeminormLSTDAgent(OneHot()), *problem).counts
    return np.nan_to_num(baselines.certainty_equivalence(counts)), baselines.late_gain(counts)


def _ours(make: Method, *problem: Any, features: FloatArray) -> Any:
    agent = _run(make(features), *problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the score shows the error
        found = problems.PiecewiseValues.of(agent.fit(), len(features))
    return found.by_timestep(problem[2].t_max + 1), agent.gain_


def _linear(estimate: Method, *problem: Any, features: FloatArray) -> Any:
    return estimate(_run(SeminormLSTDAgent(OneHot()), *problem).counts, features)(features)


BUILT_IN: dict[str, Method] = {
    REFERENCE: _tabular,
    "linked": partial(_ours, SeminormLSTDAgent),
    "paper": partial(_ours, SeminormLSTDAgent.paper),
    "lstd": partial(_linear, baselines.average_reward_lstd),
    "discounted_lstd": partial(_linear, partial(baselines.discounted_lstd, discount=0.99)),
    "differential_td": partial(_linear, baselines.differential_td),
    "monte_carlo": partial(_linear, baselines.monte_carlo),
}
"""Methods to compare with: our defaults, the paper's rules, and `lstd_agent.baselines`."""


@dataclass(frozen=True)
class Scores:
    """Scores of ``methods``; ``print`` shows a table of all problems, and one by environment.

    The ``rows``, one for each method and problem, hold the errors themselves.
    """

    rows: tuple[Row, ...]
    methods: tuple[str, ...]

    def measures(self, method: str, measure: str, **of: Any) -> list[float]:
        """Return a ``measure`` (a key of `MEASURES`) of a ``method``, problem by problem.

        Fields ``of`` rows choose some of them, such as ``env="h6"``.

        Returns
        -------
        list of float
        """
        reference = {_problem(row): row for row in self.rows if row["method"] == REFERENCE}
        (_, field, other), found = MEASURES[measure], []
        for row in self.rows:
            if {"method": method, **of}.items() <= row.items():
                divisors: Any = {**row, "": 1.0, None: reference[_problem(row)][field]}
                if row[field] is not None and divisors[other]:
                    found.append(row[field] / divisors[other])
        return found

    def __str__(self) -> str:
        def written(method: str, measure: str, shape: str, **of: Any) -> str:
            found = self.measures(method, measure, **of)
            return shape.format(*np.quantile(found, (0.5, 0.25, 0.75))) if found else "none"

        cells = [[m, *(written(m, each, "{:.3g}") for each in MEASURES)] for m in self.methods]
        what = "total_to_limit", "{:.3g} ({:.3g} to {:.3g})"
        by_env = [
            [env, rho, *(written(m, *what, env=env, rho=rho) for m in self.methods)]
            for env, rho in dict.fromkeys((row["env"], row["rho"]) for row in self.rows)
        ]
        n, heads = len({*map(_problem, self.rows)}), [head for head, _, _ in MEASURES.values()]
        return (
            f"Medians over {n} problems. *limit*: the projection limit of the problem's features "
            f"with two neighborhoods; *CE*: {REFERENCE} with the same trials; "
            f"*start*: rems at the start.\n\n{markdown(['method', *heads], cells)}\n\n"
            "total rems / limit: median (lower to upper quartile) over seeds.\n\n"
            f"{markdown(['env', 'ρ', *self.methods], by_env)}\n"
        )


def score(
    method: Method | Mapping[str, Method],
    *,
    environments: Sequence[str] | Mapping[str, TabularMDP] = problems.ENVIRONMENTS,
    rhos: Sequence[float] = (0.19,),
    seeds: int | Sequence[int] = 5,
    n_trials: int = 10_000,
    t_max: int | None = None,
    against: Sequence[str] = tuple(BUILT_IN),
    out: str | os.PathLike[str] = "results/score",
    workers: int = 1,
    executor: Executor | None = None,
    progress: bool | None = None,
) -> Scores:
    """Score a method on problems with exact answers, beside ours and the baselines; ``print`` it.

    Parameters
    ----------
    method : callable, or mapping of names to callables
        ``method(env, policy, budget, seed)`` gets a `BudgetedEnv`, the action of each state (S,), a
        `Budget` and an integer for all that is random; with a parameter ``features``, also a table
        (S, d). It returns values (S,), or (t_max + 1, S) by timestep, up to a constant; or a pair
        of values and the gain. Workers must be able to import it.
    environments : sequence of str, or mapping of names to TabularMDP
        Mnemonics, or ids of environments with an exact model. Episodes of a table P start again.
    rhos : sequence of float
        Features per state, among `lstd_agent.problems.RHOS`.
    seeds : int or sequence of int
        Number of seeds from 0, or the seeds: each draws a policy, features and samples.
    n_trials, t_max : int
        The budget of each problem; trials and errors last ten mixing times by default.
    against : sequence of str
        `BUILT_IN` methods to score as well; certainty equivalence always is.
    out : path
        Folder of ``score_rows.jsonl``. Its rows are computed again only after a change of the
        settings, this package or the method's source file.
    workers, executor, progress
        See `SeminormLSTDAgent.collect`.

    Raises
    ------
    ScoringError, InvalidInputError
        If the method fails, exceeds its budget or returns something else; if an argument is wrong.
    """
    if isinstance(seeds, int | np.integer):
        seeds = range(check_integer("seeds", seeds, 1))
    seeds = [check_integer("a seed", seed, 0) for seed in problems.elements("seeds", seeds)]
    against, rhos = problems.elements("against", against), problems.elements("rhos", rhos)
    for name in against:
        if name not in tuple(BUILT_IN):
            raise InvalidInputError(f"against must be among {', '.join(BUILT_IN)}; got {name!r}")
    t_max = None if t_max is None else check_integer("t_max", t_max, 1)
    settings = {"n_trials": check_integer("n_trials", n_trials, 1), "t_max": t_max}
    if not isinstance(method, Mapping):
        function = method.func if isinstance(method, partial) else method
        method = {getattr(function, "__name__", type(function).__name__): method}
    for name, each in method.items():
        if not callable(each):
            raise InvalidInputError(f"a method must be callable; got {each!r}")
        if name == "<lambda>" or not isinstance(name, str):
            raise InvalidInputError(f"{each!r} has no name: give {{'its name': method}}")
        if name in BUILT_IN and each is not BUILT_IN[name]:
            raise InvalidInputError(f"there is a method {name!r} of ours: give {{'other': method}}")
    methods = {**method, **{k: v for k, v in BUILT_IN.items() if k in (REFERENCE, *against)}}
    sources = {name: source_of(each) for name, each in methods.items()}
    wanted = []
    for env, mdp in problems.models(environments, n_trials, t_max or 1).items():
        regimes = problems.regimes(mdp.n_states, rhos, env)
        of_model = "next_state", "probability", "reward", "initial_distribution", "durations"
        arrays = (np.asarray(getattr(mdp, name), np.float64) for name in of_model)
        model = digest(b"".join(array.tobytes() for array in arrays))
        for seed, (name, each) in product(seeds, methods.items()):
            keys = {r: (name, sources[name], env, model, r.rho, seed) for r in regimes}
            wanted.append((keys, each, mdp, seed, n_trials, t_max))
    store = RowStore(Path(out) / "score_rows.jsonl", settings, KEY)
    tasks = [task for task in wanted if not all(key in store for key in task[0].values())]
    store.compute(score_rows, tasks, workers=workers, executor=executor, progress=progress)
    asked = {key for task in wanted for key in task[0].values()}
    return Scores(tuple(row for row in store.rows if store.key_of(row) in asked), tuple(methods))


def score_rows(task: tuple[Any, ...]) -> list[Row]:
    """Run a method, once or with the features of each regime, and return rows of its errors."""
    keys, method, mdp, seed, n_trials, t_max = task
    chain = mdp.induce(problems.random_policy(mdp, seed))
    budget = Budget(n_trials, t_max or 10 * chain.mixing_time())
    p = chain.stepwise_distributions(budget.t_max, tol=0.0)
    takes_features = "features" in inspect.signature(method).parameters
    rows: list[Row] = []
    for regime, key in keys.items():
        features = problems.random_features(chain.n_states, regime.n_features, seed)
        if takes_features or not rows:
            where = f"{key[0]} on {key[2]}, ρ = {regime.rho}, seed {seed}"
            env = BudgetedEnv(TabularVectorEnv(mdp, budget.num_envs), budget)
            call = partial(method, features=features) if takes_features else method
            start = time.perf_counter()
            try:
                answer = call(env, problems.random_policy(mdp, seed), budget, seed)
            except Exception as error:
                failed = ScoringError(f"{where}: {error!r}")
                failed.traceback = traceback.format_exc()
                raise failed from error
            seconds = time.perf_counter() - start
            values, gain = _checked(answer, (budget.t_max + 1, chain.n_states), where)
            rems = problems.root_errors(values, chain, p)
            off = None if gain is None else abs(gain - chain.gain)
        limit = problems.limit_errors(chain, features, p)
        totals = float(rems.sum()), float(rems[0]), seconds, off, float(limit.sum())
        rows.append(dict(zip(FIELDS, (*key, *totals, float(limit[0])), strict=True)))
    return rows


def _checked(answer: Any, shape: tuple[int, int], where: str) -> tuple[FloatArray, float | None]:
    """Return a method's values and gain, or raise `ScoringError`."""
    values, gain = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    try:
        values, gain = np.asarray(values, np.float64), None if gain is None else float(gain)
    except (TypeError, ValueError):
        told = "it must return an array, or a pair of an array and the gain; got "
        raise ScoringError(f"{where}: {told}{type(answer).__name__}") from None
    if values.shape not in (shape[1:], shape):
        told = f"values must have the shape {shape[1:]}, or {shape} by timestep"
        raise ScoringError(f"{where}: {told}; got {values.shape}")
    for place in map(tuple, np.argwhere(~np.isfinite(values)).tolist()):
        told = f"values must be finite; got {values[place]} at index {place}. Return a guess, such "
        raise ScoringError(f"{where}: {told}as the mean of the others, where trials say nothing")
    if gain is not None and not np.isfinite(gain):
        raise ScoringError(f"{where}: the gain must be finite, or left out; got {gain}")
    return values, gain
