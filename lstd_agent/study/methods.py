"""Methods to score others beside: ours, the paper's, and the baseline of all.

A *method* is a callable ``method(env, policy, budget, seed)``, with a keyword ``features`` if it
uses any; `lstd_agent.study.score` says what it gets and returns.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lstd_agent import baselines
from lstd_agent.agent import SeminormLSTDAgent
from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import FitWarning, InvalidInputError
from lstd_agent.features.tables import OneHot
from lstd_agent.study.budget import Budget, BudgetedEnv
from lstd_agent.study.score_tables import REFERENCE
from lstd_agent.trials.counts import TransitionCounts

Method = Callable[..., Any]

DISCOUNT = 0.99
"""Of discounted LSTD, as is customary."""


def certainty_equivalence(
    env: BudgetedEnv, policy: IntArray, budget: Budget, seed: int
) -> tuple[FloatArray, float]:
    """Solve the model that the transitions of all trials together make up, without features."""
    counts = _counts(env, policy, budget, seed)
    tail = slice((budget.t_max + 1) // 2, None)
    gain = float(counts.reward_sums[tail].sum() / counts.transition_counts[tail].sum())
    values = baselines.certainty_equivalence(counts, gain)
    return np.where(np.isfinite(values), values, 0.0), gain  # 0 is the mean of all values


def linked(
    env: BudgetedEnv, policy: IntArray, budget: Budget, seed: int, *, features: FloatArray
) -> tuple[FloatArray, float]:
    """Fit two neighbourhoods by our defaults, solved backwards in time."""
    return _answer(SeminormLSTDAgent(features), env, policy, budget, seed)


def paper(
    env: BudgetedEnv, policy: IntArray, budget: Budget, seed: int, *, features: FloatArray
) -> tuple[FloatArray, float]:
    """Fit two neighbourhoods by the paper's rules."""
    return _answer(SeminormLSTDAgent.paper(features), env, policy, budget, seed)


def linear_baseline(
    estimate: Callable[..., baselines.LinearValue],
    env: BudgetedEnv,
    policy: IntArray,
    budget: Budget,
    seed: int,
    *,
    features: FloatArray,
) -> FloatArray:
    """Return values by one of `lstd_agent.baselines`, shape (S,).

    Parameters
    ----------
    estimate : callable
        From counts and features.
    env, policy, budget, seed, features
        See `lstd_agent.study.score`.
    """
    return estimate(_counts(env, policy, budget, seed), features)(features)


BUILT_IN: dict[str, Method] = {
    "certainty_equivalence": certainty_equivalence,
    "linked": linked,
    "paper": paper,
    "lstd": partial(linear_baseline, baselines.average_reward_lstd),
    "discounted_lstd": partial(
        linear_baseline, partial(baselines.discounted_lstd, discount=DISCOUNT)
    ),
    "differential_td": partial(linear_baseline, baselines.differential_td),
    "monte_carlo": partial(linear_baseline, baselines.monte_carlo),
}
"""By name; the first is what scores are multiples of."""


def _collected(
    agent: SeminormLSTDAgent, env: BudgetedEnv, policy: IntArray, budget: Budget, seed: int
) -> SeminormLSTDAgent:
    return agent.collect(
        env, policy, budget.n_trials, t_max=budget.t_max, seed=seed, progress=False
    )


def _counts(env: BudgetedEnv, policy: IntArray, budget: Budget, seed: int) -> TransitionCounts:
    return _collected(SeminormLSTDAgent(OneHot()), env, policy, budget, seed).counts


def _answer(
    agent: SeminormLSTDAgent, env: BudgetedEnv, policy: IntArray, budget: Budget, seed: int
) -> tuple[FloatArray, float]:
    """Collect, fit, and return values of shape (t_max + 1, S), and the gain."""
    _collected(agent, env, policy, budget, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the score says how far off the values are
        agent.fit()
    states = np.arange(len(policy))
    by_neighborhood = [agent.predict(states, k.anchor) for k in agent.neighborhoods_]
    at = agent.system_.neighborhood_at(np.arange(budget.t_max + 1))
    return np.array(by_neighborhood)[at], agent.gain_


def named(method: Method | Mapping[str, Method]) -> dict[str, Method]:
    """Return methods by name."""
    if isinstance(method, Mapping):
        named = dict(method)
    else:
        if isinstance(method, partial):
            name = getattr(method.func, "__name__", "")
        else:
            name = getattr(method, "__name__", type(method).__name__)
        if name in ("", "<lambda>"):
            raise InvalidInputError(f"{method!r} has no name: give {{'its name': method}}")
        named = {name: method}
    for name, function in named.items():
        if not callable(function):
            raise InvalidInputError(f"a method must be callable; got {function!r}")
        if name in BUILT_IN and function is not BUILT_IN[name]:
            raise InvalidInputError(
                f"there is a method {name!r} of ours: give {{'another name': method}}"
            )
    return named


def compared_with(names: Sequence[str]) -> dict[str, Method]:
    """Return those of our methods that are asked for, and the one that is the measure."""
    for name in names:
        if name not in BUILT_IN:
            raise InvalidInputError(f"against must be among {', '.join(BUILT_IN)}; got {name!r}")
    return {name: m for name, m in BUILT_IN.items() if name == REFERENCE or name in names}


def source_of(method: Method) -> str:
    """Return a hash of the file that a method is written in, or of what else tells it apart.

    Rows of a method whose source has changed are computed again. What the file imports, and the
    variables around a function that is made by another, are not looked at.
    """
    if isinstance(method, partial):
        bound = (*method.args, *(value for _, value in sorted(method.keywords.items())))
        parts = (source_of(value) if callable(value) else repr(value) for value in bound)
        return digest(" ".join((source_of(method.func), *method.keywords, *parts)).encode())
    named = method if hasattr(method, "__qualname__") else type(method)
    try:
        path = inspect.getsourcefile(named)
        if path is not None and os.path.isfile(path):
            return digest(Path(path).read_bytes())
        return digest(inspect.getsource(named).encode())  # of a notebook
    except (TypeError, OSError):
        code = getattr(named, "__code__", None)
        return digest(repr(method).encode() if code is None else code.co_code)


def digest(content: bytes) -> str:
    """Return a short hash of a text, whatever its line endings."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()[:12]
