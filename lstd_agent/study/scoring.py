r"""Scores of anybody's method on problems with exact answers.

A *problem* is an environment, a deterministic policy and a table of features drawn at random by a
seed, as in the paper's experiments. A method sees trials only; its values v(s), or v_t(s), are
held to the exact bias b by

.. math:: \sum_{t=0}^{t_{max}} \Big(\sum_s p^t(s) (v_t(s) - c - b(s))^2\Big)^{1/2},

the *total rems* (eq. ``tot_rooterr``), and by its first term, the *rems at the start*. Values are
determined up to a constant: c is the one by which their mean under the stationary distribution,
at t_max, is that of the bias, 0.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import EvaluationError, InvalidInputError, check_integer
from lstd_agent.study.budget import Budget, BudgetedEnv
from lstd_agent.study.exact import full_distributions
from lstd_agent.study.methods import (
    BUILT_IN,
    Method,
    compared_with,
    digest,
    named,
    source_of,
)
from lstd_agent.study.metrics import best_values, root_errors
from lstd_agent.study.problems import random_features, random_policy
from lstd_agent.study.rows import Row, RowStore
from lstd_agent.study.schemes import ENVIRONMENTS, Regime, regimes
from lstd_agent.study.score_tables import Scores
from unichain_gym import MarkovChain, TabularMDP, TabularVectorEnv, make_mdp

N_SEEDS = 5
"""By default, so that a first look takes minutes and not hours."""

KEY = ("method", "source", "env", "model", "rho", "seed")


class ScoringError(EvaluationError, RuntimeError):
    """A method failed on a problem, or its answer has the wrong form."""


@dataclass(frozen=True)
class ScoreSettings:
    """What every row depends on beside its method and problem."""

    n_trials: int
    t_max: int | None  # None is for ten mixing times, as in the paper


@dataclass(frozen=True)
class ScoreTask:
    """One method on one environment and seed, in some regimes."""

    method: Method
    name: str
    source: str
    env: str
    mdp: TabularMDP | None
    model: str
    regimes: tuple[Regime, ...]
    seed: int
    settings: ScoreSettings

    def key(self, regime: Regime) -> tuple[Any, ...]:
        """Return what tells the row of a regime apart; see `KEY`."""
        return (self.name, self.source, self.env, self.model, regime.rho, self.seed)

    def without(self, store: RowStore) -> ScoreTask:
        """Return what is left of the task."""
        left = tuple(regime for regime in self.regimes if self.key(regime) not in store)
        return replace(self, regimes=left)

    def described(self, regime: Regime) -> str:
        """Return where something went wrong."""
        return f"{self.name} on {self.env}, ρ = {regime.rho}, seed {self.seed}"


def score(
    method: Method | Mapping[str, Method],
    *,
    environments: Sequence[str] | Mapping[str, TabularMDP] = ENVIRONMENTS,
    rhos: Sequence[float] = (0.19,),
    seeds: int | Sequence[int] = N_SEEDS,
    n_trials: int = 10_000,
    t_max: int | None = None,
    against: Sequence[str] = tuple(BUILT_IN),
    out: str | os.PathLike[str] = "results/score",
    workers: int = 1,
    executor: Executor | None = None,
    progress: bool | None = None,
) -> Scores:
    """Score a method on problems with exact answers, beside ours and the baselines.

    Parameters
    ----------
    method : callable, or mapping of names to callables
        ``method(env, policy, budget, seed)`` returns values, or a pair of values and the gain.
        It gets

        - ``env``, a Gymnasium vector environment of ``budget.num_envs`` copies, which refuses
          more than the budget (`lstd_agent.study.budget.BudgetedEnv`);
        - ``policy``, the action of each state, int array (S,);
        - ``budget``, with ``n_trials`` and ``t_max`` (`lstd_agent.study.budget.Budget`);
        - ``seed``, an integer, for the environment and whatever else is random;
        - ``features``, the problem's table (S, d), if it has a parameter of that name.

        Values are an array (S,), or (t_max + 1, S) where they differ by timestep; a constant
        does not count. Several workers need methods that they can import.
    environments : sequence of str, or mapping of names to TabularMDP
        Mnemonics, such as ``"h36c"``; or MDPs of your own. By default the paper's ten.
    rhos : sequence of float
        Features per state, among `lstd_agent.study.schemes.RHOS`; those that an environment is
        not studied in are left out. In 0.19, the default, all of the paper's are.
    seeds : int or sequence of int
        How many, from 0 on, or which: each is another policy, other features and samples. The
        5 by default take a quarter of an hour on two cores, beside all of ours; the 20 of the
        paper's studies take an hour.
    n_trials : int
        The budget of each problem.
    t_max : int, optional
        The last timestep of trials and errors; ten mixing times by default.
    against : sequence of str
        Which of `lstd_agent.study.methods.BUILT_IN` to score as well; certainty equivalence,
        of which scores are multiples, always is.
    out : path
        Folder of ``score_rows.jsonl``. Rows that are there are not computed again, as long as
        the method's source file, this package and the settings are the same.
    workers, executor
        See `lstd_agent.trials.workers.run_tasks`.
    progress : bool or None
        See `lstd_agent.progress.progress_bar`.

    Returns
    -------
    Scores
        ``print`` it; ``rows`` has everything.

    Raises
    ------
    ScoringError
        If the method raises an error, exceeds its budget or returns something else; rows that
        were computed before are kept.
    InvalidInputError
        If an argument does not fit.
    """
    settings = ScoreSettings(
        check_integer("n_trials", n_trials, 1),
        None if t_max is None else check_integer("t_max", t_max, 1),
    )
    methods = {**named(method), **compared_with(against)}
    problems = _problems(environments, rhos)
    numbers = range(check_integer("seeds", seeds, 1)) if isinstance(seeds, int) else seeds
    wanted = [
        ScoreTask(function, name, source_of(function), *problem, seed, settings)
        for problem in problems
        for seed in numbers
        for name, function in methods.items()
    ]
    store = RowStore(Path(out) / "score_rows.jsonl", asdict(settings), KEY)
    tasks = (task for task in (each.without(store) for each in wanted) if task.regimes)
    store.compute(score_rows, tasks, workers=workers, executor=executor, progress=progress)
    asked = {task.key(regime) for task in wanted for regime in task.regimes}
    return Scores(tuple(row for row in store.rows if store.key_of(row) in asked), tuple(methods))


def score_rows(task: ScoreTask) -> list[Row]:
    """Run a method, on all its regimes, and hold what it returns to the exact bias."""
    mdp = make_mdp(task.env) if task.mdp is None else task.mdp
    policy = random_policy(mdp, task.seed)
    chain = mdp.induce(policy)
    t_max = task.settings.t_max or 10 * chain.mixing_time()
    distributions = full_distributions(chain, t_max)
    budget = Budget(task.settings.n_trials, t_max)
    by_regime = "features" in inspect.signature(task.method).parameters
    rows: list[Row] = []
    for regime in task.regimes:
        features = random_features(chain.n_states, regime.n_features, task.seed)
        if by_regime or not rows:
            env = BudgetedEnv(TabularVectorEnv(mdp, budget.num_envs), budget)
            call = partial(task.method, features=features) if by_regime else task.method
            start = time.perf_counter()
            try:
                answer = call(env, policy.copy(), budget, task.seed)
            except Exception as error:
                raise ScoringError(f"{task.described(regime)}: {error!r}") from error
            seconds = time.perf_counter() - start
            values, gain = _checked(answer, chain, budget, task.described(regime))
            rems = root_errors(values, chain, distributions)
        limit = root_errors(best_values(chain, features, distributions), chain, distributions)
        rows.append(
            {
                "method": task.name,
                "source": task.source,
                "env": task.env,
                "model": task.model,
                "rho": regime.rho,
                "seed": task.seed,
                "total_rems": float(rems.sum()),
                "start_rems": float(rems[0]),
                "gain_error": None if gain is None else abs(gain - chain.gain),
                "seconds": seconds,
                "limit_total": float(limit.sum()),
                "limit_start": float(limit[0]),
            }
        )
    return rows


def _model_digest(mdp: TabularMDP) -> str:
    arrays = (mdp.next_state, mdp.probability, mdp.reward, mdp.initial_distribution)
    return digest(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))


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
    if not np.isfinite(values).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise ScoringError(
            f"{where}: values must be finite; got {values[first]} at index {first}. Return a "
            "guess, such as the mean of the others, where trials say nothing"
        )
    if gain is not None and not np.isfinite(gain):
        raise ScoringError(f"{where}: the gain must be finite, or left out; got {gain}")
    return values, gain


def _problems(
    environments: Sequence[str] | Mapping[str, TabularMDP], rhos: Sequence[float]
) -> list[tuple[str, TabularMDP | None, str, tuple[Regime, ...]]]:
    """Return the name, the MDP if it is the caller's own, its digest, and the regimes of each."""
    if isinstance(environments, str):
        raise InvalidInputError(f"environments must be a sequence; got {environments!r}")
    own = dict(environments) if isinstance(environments, Mapping) else {}
    problems = []
    for env in dict.fromkeys(environments):
        mdp = own.get(env)
        S = (mdp or make_mdp(env)).n_states
        chosen = tuple(regimes(S, rhos))
        if not chosen:
            studied = ", ".join(str(regime.rho) for regime in regimes(S))
            raise InvalidInputError(
                f"{env} is not studied at ρ = {', '.join(map(str, rhos))}, but at "
                f"{studied or 'none, with so few states'}"
            )
        problems.append((env, mdp, "" if mdp is None else _model_digest(mdp), chosen))
    return problems
