"""A case: a fitted agent, its questions, and the known facts about the answers.

Each case is a function without arguments, and `CASES` holds all of them by name. What is asked goes
through the public interface of the agent alone, so that the cases outlive any implementation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lstd_agent import FitWarning, SeminormLSTDAgent
from unichain_gym import MarkovChain, make_mdp, simulate_counts

VALUES = "values", "difference", "start_bias", "coverage", "determined"
ERRORS = "errors", "difference_error"
SHAPE = "anchors", "stops", "n_samples", "rank"
REFERENCES = ("references",)
ACTIONS = "action_values", "action_coverage"
ACTION_ERRORS = ("action_errors",)

INTEGERS = "determined", *SHAPE, *REFERENCES
"""Answers that must be equal."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fitted agent, what it is asked, and what is known of the answers.

    Attributes
    ----------
    agent : SeminormLSTDAgent
    at, t : array_like
        Observations, and the timestep at which they are made.
    frozen : tuple of str
        The answers that are held to the table.
    row : str
        The row of the table, where that is another case's: the two must answer alike.
    more : dict
        Further answers that are frozen.
    truth : array_like, optional
        Right values, up to a constant. Differences must be right within 5 standard errors, or
        within ``off``, an absolute number that takes the place of standard errors.
    actions : array_like, optional
        Right action values, up to a constant, within ``off``.
    gain : tuple of float, optional
        The right gain, and how far off it may be.
    warns : bool, optional
        Whether the fit must warn.
    """

    agent: SeminormLSTDAgent
    at: Any
    t: Any = 0
    frozen: tuple[str, ...] = (*VALUES, *ERRORS, *SHAPE)
    row: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    truth: Any = None
    off: float | None = None
    actions: Any = None
    gain: tuple[float, float] | None = None
    warns: bool | None = None


CASES: dict[str, Callable[[], Case]] = {}
"""All cases by name."""


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    """Register a case under the name of its function."""
    assert make.__name__ not in CASES, make.__name__
    CASES[make.__name__] = make
    return make


def run(make: Callable[[], Case]) -> tuple[Case, bool]:
    """Return a case, and whether its fits warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.simplefilter("always", FitWarning)
        made = make()
    return made, bool(caught)


def answer(each: Case, name: str) -> Any:
    """Return one answer of the agent."""
    agent, at, t = each.agent, each.at, each.t
    if name in each.more:
        return each.more[name]
    if name == "values":
        return agent.predict(at, t)
    if name == "errors":
        return agent.standard_errors(at, t)
    if name == "difference":
        return agent.compare(at[0], at[-1], t).difference
    if name == "difference_error":
        return agent.compare(at[0], at[-1], t).standard_error
    if name == "coverage":
        return agent.coverage(at, t)
    if name == "determined":
        return agent.determined(at, t)
    if name == "start_bias":
        return agent.start_bias_
    if name == "action_values":
        return agent.action_values(at)
    if name == "action_errors":
        return agent.action_standard_errors(at)
    if name == "action_coverage":
        return agent.action_coverage(at)
    part = {"anchors": "anchor", "stops": "stop", "references": "reference"}.get(name, name)
    return [getattr(each, part) for each in agent.neighborhoods_]


def answers(each: Case) -> dict[str, Any]:
    """Return all frozen answers, as arrays."""
    names = (*each.frozen, *each.more)
    return {name: np.asarray(answer(each, name), dtype=float) for name in names}


def condition(each: Case) -> float:
    """Return the largest condition number among the agent's neighborhoods."""
    return float(max(part.condition for part in each.agent.neighborhoods_))


def rounds_of_counts(chain: MarkovChain, n_rounds: int, n_trials: int, t_max: int) -> Iterable[Any]:
    """Yield counts of so many rounds, each of so many trials."""
    for seed in range(n_rounds):
        yield simulate_counts(chain, n_trials, t_max, seed)


def chain_of(mnemonic: str, policy: int = 1) -> MarkovChain:
    """Return the chain of an environment and a policy that alternates between two actions."""
    mdp = make_mdp(mnemonic)
    return mdp.induce(np.arange(mdp.n_states) * policy // 2 % 2)


def counted(
    chain: MarkovChain,
    features: Any,
    *,
    t_max: int = 60,
    n_trials: int = 150,
    n_rounds: int = 6,
    make: Callable[..., SeminormLSTDAgent] = SeminormLSTDAgent,
    **options: Any,
) -> SeminormLSTDAgent:
    """Return an agent that is fitted to rounds of counts; each round is a batch of its own."""
    agent = make(features, **{"backup": "one_step", "gain": chain.gain, **options})
    for counts in rounds_of_counts(chain, n_rounds, n_trials, t_max):
        agent.add(counts)
    return agent.fit()


def of_trials(
    trials: tuple[Any, Any],
    features: Any,
    *,
    make: Callable[..., SeminormLSTDAgent] = SeminormLSTDAgent,
    terminated: Any = None,
    actions: Any = None,
    add: dict[str, Any] | None = None,
    **options: Any,
) -> SeminormLSTDAgent:
    """Return an agent that is fitted to logged trials, each in a batch of its own.

    So standard errors leave out one trial after the other, whatever the rule for batches.
    """
    observations, rewards = trials
    m = len(rewards)
    agent = make(features, **{"backup": "one_step", "n_batches": m, **options})
    order = np.argsort([-len(paid) for paid in rewards], kind="stable")  # the longest sets t_max
    for i in order:
        agent.add_trials(
            [observations[i]],
            [rewards[i]],
            None if actions is None else [actions[i]],
            terminated=None if terminated is None else [terminated[i]],
            **(add or {}),
        )
    return agent.fit()
