r"""Scores of a user's method on problems with exact answers, and our own methods beside it.

A problem is an environment, a random policy and random features (`lstd_agent.problems`). A method
is a callable ``method(env, policy, budget, seed)`` that sees trials only. Its values v(s), or
v_t(s), are compared with the exact bias b by the *total rems*

.. math:: \sum_{t=0}^{t_{max}} \Big(\sum_s p^t(s) (v_t(s) - c - b(s))^2\Big)^{1/2}

(eq. ``tot_rooterr``), and by its first term, the *rems at the start*. The constant c makes the mean
of the values under the stationary distribution, at t_max, 0, like the mean of b.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

import lstd_agent.baselines as baselines
from lstd_agent.agent import SeminormLSTDAgent
from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.environments import model_of
from lstd_agent.errors import EvaluationError, FitWarning, InvalidInputError, check_integer
from lstd_agent.features.tables import OneHot
from lstd_agent.problems import (
    ENVIRONMENTS,
    PiecewiseValues,
    Regime,
    best_values,
    full_distributions,
    random_features,
    random_policy,
    root_errors,
    some_regimes,
)
from lstd_agent.results import Row, RowStore
from unichain_gym import TabularMDP, TabularVectorEnv

__all__ = ["Budget", "BudgetError", "BudgetedEnv", "Scores", "ScoringError", "score", "trials"]

Method = Callable[..., Any]

REFERENCE = "certainty_equivalence"
"""Scores are multiples of this method's errors, and of the projection limit."""

PROBLEM = ("env", "model", "rho", "seed")
KEY = ("method", "source", *PROBLEM)

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
    """A method failed on a problem, or its answer has the wrong form.

    ``traceback`` shows where it failed, as Python does; it is empty if the answer is wrong.
    """

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message, traceback)  # both are kept across processes
        self.traceback = traceback

    def __str__(self) -> str:
        return str(self.args[0])


class BudgetError(EvaluationError, RuntimeError):
    """A method ran more trials than its budget, or longer ones."""


@dataclass(frozen=True)
class Budget:
    """The trials that a method may run: ``n_trials``, each of the timesteps 0 to ``t_max``."""

    n_trials: int
    t_max: int

    @property
    def num_envs(self) -> int:
        """How many trials run at once: a twentieth of all."""
        return -(-self.n_trials // 20)

    @property
    def n_rounds(self) -> int:
        """How many rounds of ``num_envs`` trials there are; the last one may count in part."""
        return -(-self.n_trials // self.num_envs)


class BudgetedEnv(VectorWrapper):
    """A vector environment that refuses more than a budget, by `BudgetError`.

    Parameters
    ----------
    env : VectorEnv
        With ``budget.num_envs`` copies, in each of which a reset starts a trial.
    budget : Budget

    Attributes
    ----------
    n_rounds : int
        How many rounds of trials have been started.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], budget: Budget) -> None:
        super().__init__(env)
        self.budget = budget
        self.n_rounds = self._t = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start a trial in each copy, or raise `BudgetError` if all rounds have been started."""
        budget = self.budget
        if self.n_rounds == budget.n_rounds:
            raise BudgetError(
                f"the budget of {budget.n_trials} trials is spent: {budget.n_rounds} rounds of "
                f"{budget.num_envs}; start no other"
            )
        self.n_rounds, self._t = self.n_rounds + 1, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in each copy, or raise `BudgetError` beyond timestep ``budget.t_max``."""
        if self._t > self.budget.t_max:
            raise BudgetError(
                f"a trial ends with the step at timestep t_max = {self.budget.t_max}; reset, "
                "which starts the next round"
            )
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
    n_left = budget.n_trials
    for k in range(budget.n_rounds):
        states = np.empty((budget.t_max + 2, budget.num_envs), dtype=np.int64)
        rewards = np.empty((budget.t_max + 1, budget.num_envs))
        states[0], _ = env.reset(seed=seed if k == 0 else None)
        for t in range(budget.t_max + 1):
            states[t + 1], rewards[t], *_, info = env.step(policy[states[t]])
            if "duration" in info:
                raise InvalidInputError(baselines.TIMED)
        yield states[:, :n_left].T, rewards[:, :n_left].T
        n_left -= budget.num_envs


def _run(agent: SeminormLSTDAgent, env: Any, policy: Any, budget: Budget, seed: int) -> Any:
    return agent.collect(env, policy, budget.n_trials, budget.t_max, seed)


def _tabular(env: Any, policy: Any, budget: Budget, seed: int) -> Any:
    """Solve the chain of all counted transitions; unknown values are 0, the mean."""
    counts = _run(SeminormLSTDAgent(OneHot()), env, policy, budget, seed).counts
    tail = slice((budget.t_max + 1) // 2, None)
    gain = float(counts.reward_sums[tail].sum() / counts.transition_counts[tail].sum())
    return np.nan_to_num(baselines.certainty_equivalence(counts, gain)), gain


def _ours(make: Method, *problem: Any, features: FloatArray) -> tuple[FloatArray, float]:
    agent = _run(make(features), *problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the score shows the error
        agent.fit()
    found = PiecewiseValues.of(agent, len(features))
    return found.by_timestep(problem[2].t_max + 1), agent.gain_


def _linear(estimate: Method, *problem: Any, features: FloatArray) -> FloatArray:
    counts = _run(SeminormLSTDAgent(OneHot()), *problem).counts
    return np.asarray(estimate(counts, features)(features))


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
        """Return a measure of a method, problem by problem.

        Parameters
        ----------
        method : str
        measure : str
            A key of `MEASURES`.
        **of
            Fields that rows must have, such as ``env="h6"``.

        Returns
        -------
        list of float
        """
        _, field, other = MEASURES[measure]
        wanted, found = {"method": method, **of}, []
        for row in self.rows:
            if wanted.items() <= row.items():
                own: dict[Any, Any] = {**row, "": 1.0}
                divisor = own.get(other, self._reference[_problem(row)][field])
                if row[field] is not None and divisor:
                    found.append(row[field] / divisor)
        return found

    @cached_property
    def _reference(self) -> dict[Any, Row]:
        return {_problem(row): row for row in self.rows if row["method"] == REFERENCE}

    def __str__(self) -> str:
        def written(shape: str, *what: Any, **of: Any) -> str:
            found = self.measures(*what, **of)
            return shape.format(*np.quantile(found, (0.5, 0.25, 0.75))) if found else "none"

        middle, quartiles = "{:.3g}", "{:.3g} ({:.3g} to {:.3g})"
        cells = [[m, *(written(middle, m, each) for each in MEASURES)] for m in self.methods]
        by_env = [
            [env, rho]
            + [written(quartiles, m, "total_to_limit", env=env, rho=rho) for m in self.methods]
            for env, rho in dict.fromkeys((row["env"], row["rho"]) for row in self.rows)
        ]
        heads = [head for head, _, _ in MEASURES.values()]
        return (
            f"Medians over {len(self._reference)} problems. *limit*: the projection limit of the "
            f"problem's features with two neighborhoods; *CE*: {REFERENCE} with the same trials; "
            f"*start*: rems at the start.\n\n{markdown(['method', *heads], cells)}\n\n"
            "total rems / limit: median (lower to upper quartile) over seeds.\n\n"
            f"{markdown(['env', 'ρ', *self.methods], by_env)}\n"
        )


def _problem(row: Row) -> tuple[Any, ...]:
    return tuple(row[field] for field in PROBLEM)


def markdown(
    heads: Sequence[Any], rows: Sequence[Sequence[Any]], left: Sequence[int] = (0,)
) -> str:
    """Write a table in Markdown; all columns but those on the left are aligned to the right."""
    rule = ["---" if k in left else "---:" for k in range(len(heads))]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in (heads, rule, *rows))


class ScoreTask(NamedTuple):
    """A method on a model with one seed, and the `KEY` of each regime's row."""

    method: Method
    mdp: TabularMDP
    keys: dict[Regime, tuple[Any, ...]]
    seed: int
    n_trials: int
    t_max: int | None


def score(
    method: Method | Mapping[str, Method],
    *,
    environments: Sequence[str] | Mapping[str, TabularMDP] = ENVIRONMENTS,
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
        Folder of ``score_rows.jsonl``. A row there is not computed again, as long as the method's
        source file, this package and the settings are the same.
    workers, executor, progress
        See `SeminormLSTDAgent.collect`.

    Raises
    ------
    ScoringError
        If the method raises an error, exceeds its budget, or returns something else.
    InvalidInputError
        If an argument does not fit.
    """
    for argument, names in (("against", against), ("environments", environments)):
        if isinstance(names, str):
            told = f"{argument} must be a sequence; got {names!r}: write [{names!r}]"
            raise InvalidInputError(told)
    for name in against:
        if name not in BUILT_IN:
            raise InvalidInputError(f"against must be among {', '.join(BUILT_IN)}; got {name!r}")
    t_max = None if t_max is None else check_integer("t_max", t_max, 1)
    settings = {"n_trials": check_integer("n_trials", n_trials, 1), "t_max": t_max}
    ours = {name: m for name, m in BUILT_IN.items() if name in (REFERENCE, *against)}
    methods = {**_named(method), **ours}
    sources = {name: source_of(each) for name, each in methods.items()}
    numbers = range(check_integer("seeds", seeds, 1)) if isinstance(seeds, int) else seeds
    wanted = []
    for env in dict.fromkeys(environments):
        mdp = environments[env] if isinstance(environments, Mapping) else model_of(env)
        chosen = some_regimes(env, mdp, rhos)
        arrays = (mdp.next_state, mdp.probability, mdp.reward, mdp.initial_distribution)
        model = digest(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))
        for seed in numbers:
            for name, each in methods.items():
                keys = {r: (name, sources[name], env, model, r.rho, seed) for r in chosen}
                wanted.append(ScoreTask(each, mdp, keys, seed, n_trials, t_max))
    store = RowStore(Path(out) / "score_rows.jsonl", settings, KEY)
    tasks = [task for task in wanted if not all(key in store for key in task.keys.values())]
    store.compute(score_rows, tasks, workers=workers, executor=executor, progress=progress)
    asked = {key for task in wanted for key in task.keys.values()}
    return Scores(tuple(row for row in store.rows if store.key_of(row) in asked), tuple(methods))


def _named(method: Method | Mapping[str, Method]) -> dict[str, Method]:
    """Return methods by name."""
    if not isinstance(method, Mapping):
        function = method.func if isinstance(method, partial) else method
        name = getattr(function, "__name__", type(function).__name__)
        if name == "<lambda>":
            raise InvalidInputError(f"{method!r} has no name: give {{'its name': method}}")
        method = {name: method}
    for name, function in method.items():
        if not callable(function):
            raise InvalidInputError(f"a method must be callable; got {function!r}")
        if name in BUILT_IN and function is not BUILT_IN[name]:
            told = f"there is a method {name!r} of ours: give {{'another name': method}}"
            raise InvalidInputError(told)
    return dict(method)


def source_of(method: Method) -> str:
    """Return a hash of the file that a method is written in, or else of its code.

    Rows of a method whose file has changed are computed again. Files that it imports, and the
    variables around a function that another function makes, do not enter the hash.
    """
    if isinstance(method, partial):
        parts = (method.func, *method.args, *method.keywords, *method.keywords.values())
        return digest(" ".join(source_of(x) if callable(x) else repr(x) for x in parts).encode())
    defined = method if hasattr(method, "__qualname__") else type(method)
    try:
        return digest(Path(str(inspect.getsourcefile(defined))).read_bytes())
    except (TypeError, OSError):  # such as a function of a notebook
        code = getattr(defined, "__code__", None)
        return digest(repr(method).encode() if code is None else code.co_code)


def digest(content: bytes) -> str:
    """Return a short hash of a text, the same for any line endings."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()[:12]


def score_rows(task: ScoreTask) -> list[Row]:
    """Run a method in all regimes of a task, and compare its values with the exact bias."""
    chain = task.mdp.induce(random_policy(task.mdp, task.seed))
    budget = Budget(task.n_trials, task.t_max or 10 * chain.mixing_time())
    p = full_distributions(chain, budget.t_max)
    takes_features = "features" in inspect.signature(task.method).parameters
    rows: list[Row] = []
    for regime, key in task.keys.items():
        features = random_features(chain.n_states, regime.n_features, task.seed)
        if takes_features or not rows:
            where = f"{key[0]} on {key[2]}, ρ = {regime.rho}, seed {task.seed}"
            env = BudgetedEnv(TabularVectorEnv(task.mdp, budget.num_envs), budget)
            call = partial(task.method, features=features) if takes_features else task.method
            start = time.perf_counter()
            try:
                answer = call(env, random_policy(task.mdp, task.seed), budget, task.seed)
            except Exception as error:
                raise ScoringError(f"{where}: {error!r}", traceback.format_exc()) from error
            seconds = time.perf_counter() - start
            values, gain = _checked(answer, (budget.t_max + 1, chain.n_states), where)
            rems = root_errors(values, chain, p)
        limit = root_errors(best_values(chain, features, p), chain, p)
        row = {**dict(zip(KEY, key, strict=True)), "total_rems": float(rems.sum())}
        row |= {"start_rems": float(rems[0]), "seconds": seconds}
        row |= {"gain_error": None if gain is None else abs(gain - chain.gain)}
        rows.append(row | {"limit_total": float(limit.sum()), "limit_start": float(limit[0])})
    return rows


def _checked(answer: Any, shape: tuple[int, int], where: str) -> tuple[FloatArray, float | None]:
    """Return a method's values and gain, or raise `ScoringError`."""
    values, gain = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    wrong = (
        f"it must return an array, or a pair of an array and the gain; got {type(answer).__name__}"
    )
    with suppress(TypeError, ValueError):
        values, gain = np.asarray(values, np.float64), None if gain is None else float(gain)
        unknown = [tuple(place) for place in np.argwhere(~np.isfinite(values)).tolist()]
        if values.shape not in (shape[1:], shape):
            wrong = f"values must have the shape {shape[1:]}, or {shape} with timesteps first; got "
            wrong += f"{values.shape}"
        elif unknown:
            wrong = (
                f"values must be finite; got {values[unknown[0]]} at index {unknown[0]}. Return "
            )
            wrong += "a guess, such as the mean of the others, where trials say nothing"
        elif gain is not None and not np.isfinite(gain):
            wrong = f"the gain must be finite, or left out; got {gain}"
        else:
            return values, gain
    raise ScoringError(f"{where}: {wrong}")
