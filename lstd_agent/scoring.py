r"""Scores of a user's method on problems with exact answers.

A problem is an environment, a random policy and random features (`lstd_agent.problems`). A method
is a callable ``method(env, policy, budget, seed)`` that sees trials only. Its values v(s), or
v_t(s), are compared with the exact bias b by the *total rems*

.. math:: \sum_{t=0}^{t_{max}} \Big(\sum_s p^t(s) (v_t(s) - c - b(s))^2\Big)^{1/2}

(eq. ``tot_rooterr``), and by its first term, the *rems at the start*. Values are determined up to a
constant: c makes their mean under the stationary distribution, at t_max, 0, like the mean of b.
"""

from __future__ import annotations

import inspect
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.environments import model_of
from lstd_agent.errors import EvaluationError, InvalidInputError, check_integer
from lstd_agent.problems import (
    ENVIRONMENTS,
    Regime,
    best_values,
    full_distributions,
    random_features,
    random_policy,
    regimes,
    root_errors,
)
from lstd_agent.results import Row, RowStore
from lstd_agent.scored_methods import (
    BUILT_IN,
    REFERENCE,
    Budget,
    BudgetedEnv,
    BudgetError,
    Method,
    digest,
    named,
    source_of,
    trials,
)
from unichain_gym import MarkovChain, TabularMDP, TabularVectorEnv

__all__ = ["Budget", "BudgetError", "BudgetedEnv", "Scores", "ScoringError", "score", "trials"]

KEY = ("method", "source", "env", "model", "rho", "seed")

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


@dataclass(frozen=True)
class Scores:
    """Scores of methods; ``print`` shows a table of all problems, and one by environment.

    Attributes
    ----------
    rows : tuple of dict
        One for each method and problem, with the errors themselves.
    methods : tuple of str
        In the order of the tables.
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
        found = []
        for row in self.rows:
            if row["method"] == method and all(row[name] == value for name, value in of.items()):
                own: dict[Any, Any] = {**row, "": 1.0}
                divisor = own.get(other, self._reference[_problem(row)][field])
                if row[field] is not None and divisor:
                    found.append(row[field] / divisor)
        return found

    @cached_property
    def _reference(self) -> dict[Any, Row]:
        return {_problem(row): row for row in self.rows if row["method"] == REFERENCE}

    def __str__(self) -> str:
        cells = []
        for method in self.methods:
            middles = [_quantiles(self.measures(method, measure))[1] for measure in MEASURES]
            cells.append([method, *middles])
        by_env = []
        for env, rho in dict.fromkeys((row["env"], row["rho"]) for row in self.rows):
            cell = [env, rho]
            for method in self.methods:
                found = self.measures(method, "total_to_limit", env=env, rho=rho)
                low, middle, high = _quantiles(found)
                cell.append(f"{middle} ({low} to {high})" if found else "none")
            by_env.append(cell)
        heads = [head for head, _, _ in MEASURES.values()]
        return (
            f"Medians over {len(self._reference)} problems. *limit*: the projection limit of the "
            f"problem's features with two neighborhoods; *CE*: {REFERENCE} with the same trials; "
            f"*start*: rems at the start.\n\n{markdown(['method', *heads], cells)}\n\n"
            "total rems / limit: median (lower to upper quartile) over seeds.\n\n"
            f"{markdown(['env', 'ρ', *self.methods], by_env)}\n"
        )


def _problem(row: Row) -> tuple[Any, ...]:
    return (row["env"], row["model"], row["rho"], row["seed"])


def _quantiles(values: Sequence[float]) -> list[str]:
    """Write the lower quartile, the median and the upper quartile."""
    if not values:
        return ["none"] * 3
    return [f"{each:.3g}" for each in np.quantile(values, (0.25, 0.5, 0.75))]


def markdown(
    heads: Sequence[Any], rows: Sequence[Sequence[Any]], left: Sequence[int] = (0,)
) -> str:
    """Write a table in Markdown; all columns but those on the left are aligned to the right."""
    rule = ["---" if k in left else "---:" for k in range(len(heads))]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in (heads, rule, *rows))


@dataclass(frozen=True)
class ScoreTask:
    """One method on one environment and seed; ``source`` and ``model`` are hashes."""

    method: Method
    name: str
    source: str
    env: str
    mdp: TabularMDP
    model: str
    regimes: tuple[Regime, ...]
    seed: int
    n_trials: int
    t_max: int | None

    def key(self, regime: Regime) -> tuple[Any, ...]:
        """Return the key of a regime's row; see `KEY`."""
        return (self.name, self.source, self.env, self.model, regime.rho, self.seed)


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
        ``method(env, policy, budget, seed)`` returns values, or a pair of values and the gain.
        ``env`` is a `BudgetedEnv`; ``policy`` the action of each state, (S,); ``budget`` a
        `Budget`; ``seed`` an integer for all that is random. A method with a parameter
        ``features`` gets the problem's table (S, d). Values are an array (S,), or (t_max + 1, S)
        if they differ by timestep, up to a constant. Workers must be able to import the method.
    environments : sequence of str, or mapping of names to TabularMDP
        Mnemonics, or ids of environments with an exact model; or MDPs of your own. Episodes of a
        table P, such as FrozenLake's, start again. By default the paper's ten.
    rhos : sequence of float
        Features per state, among `lstd_agent.problems.RHOS`; each environment is studied at some of
        them, all of the paper's at 0.19.
    seeds : int or sequence of int
        Number of seeds from 0, or the seeds: each draws a policy, features and samples.
    n_trials : int
        The budget of each problem.
    t_max : int, optional
        The last timestep of trials and errors; ten mixing times by default.
    against : sequence of str
        Names of `BUILT_IN` methods to score as well; certainty equivalence always is.
    out : path
        Folder of ``score_rows.jsonl``. A row there is not computed again, as long as the method's
        source file, this package and the settings are the same.
    workers, executor, progress
        Processes, or an executor to use instead; whether to show progress (None: on a terminal).

    Raises
    ------
    ScoringError
        If the method raises an error, exceeds its budget, or returns something else. Rows that
        were computed before are kept.
    InvalidInputError
        If an argument does not fit.
    """
    settings = {
        "n_trials": check_integer("n_trials", n_trials, 1),
        "t_max": None if t_max is None else check_integer("t_max", t_max, 1),
    }
    if isinstance(against, str):
        raise InvalidInputError(f"against must be a sequence; got {against!r}: write [{against!r}]")
    for name in against:
        if name not in BUILT_IN:
            raise InvalidInputError(f"against must be among {', '.join(BUILT_IN)}; got {name!r}")
    ours = {name: m for name, m in BUILT_IN.items() if name == REFERENCE or name in against}
    methods = {**named(method), **ours}
    numbers = range(check_integer("seeds", seeds, 1)) if isinstance(seeds, int) else seeds
    wanted = [
        ScoreTask(each, name, source_of(each), *problem, seed, n_trials, t_max)
        for problem in _problems(environments, rhos)
        for seed in numbers
        for name, each in methods.items()
    ]
    store = RowStore(Path(out) / "score_rows.jsonl", settings, KEY)
    tasks = [task for task in wanted if store.lacks(map(task.key, task.regimes))]
    store.compute(score_rows, tasks, workers=workers, executor=executor, progress=progress)
    asked = {task.key(regime) for task in wanted for regime in task.regimes}
    return Scores(tuple(row for row in store.rows if store.key_of(row) in asked), tuple(methods))


def score_rows(task: ScoreTask) -> list[Row]:
    """Run a method in all regimes of a task, and compare its values with the exact bias."""
    policy = random_policy(task.mdp, task.seed)
    chain = task.mdp.induce(policy)
    budget = Budget(task.n_trials, task.t_max or 10 * chain.mixing_time())
    p = full_distributions(chain, budget.t_max)
    takes_features = "features" in inspect.signature(task.method).parameters
    rows: list[Row] = []
    for regime in task.regimes:
        features = random_features(chain.n_states, regime.n_features, task.seed)
        if takes_features or not rows:
            where = f"{task.name} on {task.env}, ρ = {regime.rho}, seed {task.seed}"
            env = BudgetedEnv(TabularVectorEnv(task.mdp, budget.num_envs), budget)
            call = partial(task.method, features=features) if takes_features else task.method
            start = time.perf_counter()
            try:
                answer = call(env, policy.copy(), budget, task.seed)
            except Exception as error:
                raise ScoringError(f"{where}: {error!r}", traceback.format_exc()) from error
            seconds = time.perf_counter() - start
            values, gain = _checked(answer, chain, budget, where)
            rems = root_errors(values, chain, p)
        limit = root_errors(best_values(chain, features, p), chain, p)
        rows.append(
            {
                **dict(zip(KEY, task.key(regime), strict=True)),
                "total_rems": float(rems.sum()),
                "start_rems": float(rems[0]),
                "gain_error": None if gain is None else abs(gain - chain.gain),
                "seconds": seconds,
                "limit_total": float(limit.sum()),
                "limit_start": float(limit[0]),
            }
        )
    return rows


def _checked(
    answer: Any, chain: MarkovChain, budget: Budget, where: str
) -> tuple[FloatArray, float | None]:
    """Return a method's values and gain, or raise `ScoringError`."""
    values, gain = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    try:
        values = np.asarray(values, dtype=np.float64)
        gain = None if gain is None else float(gain)
    except (TypeError, ValueError):
        raise ScoringError(
            f"{where}: it must return an array, or a pair of an array and the gain; "
            f"got {type(answer).__name__}"
        ) from None
    S, T = chain.n_states, budget.t_max + 1
    if values.shape not in ((S,), (T, S)):
        raise ScoringError(
            f"{where}: values must have the shape ({S},), or ({T}, {S}) with timesteps first; "
            f"got {values.shape}"
        )
    for index in map(tuple, np.argwhere(~np.isfinite(values))[:1].tolist()):
        raise ScoringError(
            f"{where}: values must be finite; got {values[index]} at index {index}. Return a "
            "guess, such as the mean of the others, where trials say nothing"
        )
    if gain is not None and not np.isfinite(gain):
        raise ScoringError(f"{where}: the gain must be finite, or left out; got {gain}")
    return values, gain


def _problems(
    environments: Sequence[str] | Mapping[str, TabularMDP], rhos: Sequence[float]
) -> Iterator[tuple[str, TabularMDP, str, tuple[Regime, ...]]]:
    """Yield the name, the MDP, the hash of its arrays, and the regimes of each environment."""
    if isinstance(environments, str):
        raise InvalidInputError(
            f"environments must be a sequence; got {environments!r}: write [{environments!r}]"
        )
    for env in dict.fromkeys(environments):
        mdp = environments[env] if isinstance(environments, Mapping) else model_of(env)
        chosen = regimes(mdp.n_states, rhos)
        if not chosen:
            studied = ", ".join(str(regime.rho) for regime in regimes(mdp.n_states))
            instead = (
                f"take rhos among {studied}"
                if studied
                else "no ρ gives it a feature; put states in front (unichain_gym.attach_streams)"
            )
            raise InvalidInputError(
                f"{env} is not studied at ρ = {', '.join(map(str, rhos))}, features for each "
                f"state, with {mdp.n_states} states: {instead}"
            )
        arrays = (mdp.next_state, mdp.probability, mdp.reward, mdp.initial_distribution)
        model = digest(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))
        yield env, mdp, model, tuple(chosen)
