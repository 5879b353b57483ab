"""The budget and the environment that a scored method gets; our own methods.

`lstd_agent.scoring.score` says what a method is given and what it returns.
"""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from lstd_agent import baselines
from lstd_agent.agent import SeminormLSTDAgent
from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.baselines import TIMED
from lstd_agent.errors import EvaluationError, FitWarning, InvalidInputError
from lstd_agent.features.tables import OneHot
from lstd_agent.problems import PiecewiseValues

Method = Callable[..., Any]

REFERENCE = "certainty_equivalence"
"""Scores are multiples of this method's errors, and of the projection limit."""


class BudgetError(EvaluationError, RuntimeError):
    """A method ran more trials than its budget, or longer ones."""


@dataclass(frozen=True)
class Budget:
    """The trials that a method may run.

    Attributes
    ----------
    n_trials : int
    t_max : int
        The last timestep: a trial has t_max + 1 steps, at timesteps 0 to t_max.
    """

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
    """A vector environment of ``budget.num_envs`` copies that refuses more than a budget.

    Every reset starts a trial in each copy. A round beyond the budget, or a step beyond timestep
    ``t_max``, raises `BudgetError`.

    Parameters
    ----------
    env : VectorEnv
        With ``budget.num_envs`` copies.
    budget : Budget

    Attributes
    ----------
    budget : Budget
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
        self.n_rounds += 1
        self._t = 0
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
    """Run all trials of a budget, and yield them round by round.

    Parameters
    ----------
    env, budget, seed
        As the method got them.
    policy : ndarray of int, shape (S,)
        The action of each state.

    Yields
    ------
    states : ndarray of int, shape (n, t_max + 2)
        At timesteps 0 to t_max + 1.
    rewards : ndarray, shape (n, t_max + 1)
        On leaving them.

    Raises
    ------
    InvalidInputError
        If steps have durations.
    """
    for k in range(budget.n_rounds):
        n = min(budget.num_envs, budget.n_trials - k * budget.num_envs)
        states = np.empty((budget.t_max + 2, budget.num_envs), dtype=np.int64)
        rewards = np.empty((budget.t_max + 1, budget.num_envs))
        states[0], _ = env.reset(seed=seed if k == 0 else None)
        for t in range(budget.t_max + 1):
            states[t + 1], rewards[t], *_, info = env.step(policy[states[t]])
            if "duration" in info:
                raise InvalidInputError(TIMED)
        yield states[:, :n].T, rewards[:, :n].T


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
    return found.values[found.at(problem[2].t_max + 1)], agent.gain_


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


def named(method: Method | Mapping[str, Method]) -> dict[str, Method]:
    """Return methods by name."""
    if not isinstance(method, Mapping):
        function = method.func if isinstance(method, partial) else method
        name = getattr(function, "__name__", type(function).__name__)
        if name in ("partial", "<lambda>"):
            raise InvalidInputError(f"{method!r} has no name: give {{'its name': method}}")
        method = {name: method}
    for name, function in method.items():
        if not callable(function):
            raise InvalidInputError(f"a method must be callable; got {function!r}")
        if name in BUILT_IN and function is not BUILT_IN[name]:
            raise InvalidInputError(
                f"there is a method {name!r} of ours: give {{'another name': method}}"
            )
    return dict(method)


def source_of(method: Method) -> str:
    """Return a hash of the file that a method is written in, or else of its code.

    Rows of a method whose file has changed are computed again. Files that it imports, and the
    variables around a function that another function makes, do not enter the hash.
    """
    if isinstance(method, partial):
        bound = (*method.args, *(value for _, value in sorted(method.keywords.items())))
        parts = (source_of(value) if callable(value) else repr(value) for value in bound)
        return digest(" ".join((source_of(method.func), *method.keywords, *parts)).encode())
    defined = method if hasattr(method, "__qualname__") else type(method)
    try:
        return digest(Path(str(inspect.getsourcefile(defined))).read_bytes())
    except (TypeError, OSError):  # such as a function of a notebook
        code = getattr(defined, "__code__", None)
        return digest(repr(method).encode() if code is None else code.co_code)


def digest(content: bytes) -> str:
    """Return a short hash of a text, the same for any line endings."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()[:12]
