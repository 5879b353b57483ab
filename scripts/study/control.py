r"""Learners of control with the same number of samples: gain, start and transient actions.

Each method gets so many transitions, in trials from the starts. Its greedy policy is compared with
the exact optimum of the model: in the gain; if that is optimal, in the mean bias of the start, as a
share of the span of the optimal bias; and in the share of transient states with a bias-optimal
action. Learners start over with each trial, but for one that learns in one run: it sees transient
states once and learns nothing there.

Learners are one-step, tabular and off-policy. After each transition (s, a, r, s') of a behaviour
that explores, with step size α of the pair,

.. math:: \delta = r - \bar r + \gamma \max_{a'} Q(s', a') - Q(s, a), \quad
          Q(s, a) \mathrel{+}= \alpha \delta,

The methods differ in the subtracted rate:

- ``"differential"``: :math:`\gamma = 1`, :math:`\bar r \mathrel{+}= \eta \alpha \delta`
  (Wan, Naik & Sutton 2021, "Learning and planning in average-reward Markov decision processes");
- ``"r_learning"``: :math:`\bar r \mathrel{+}= \beta (r + \max Q(s', \cdot) - \max Q(s, \cdot) -
  \bar r)` where the action was greedy (Schwartz 1993, "A reinforcement learning method for
  maximizing undiscounted rewards");
- ``"rvi"``: :math:`\bar r = f(Q)`, here the mean of Q, which is one of the functions that converge
  (Abounadi, Bertsekas & Borkar 2001, "Learning algorithms for Markov decision processes with
  average cost");
- ``"discounted"``: :math:`\bar r = 0`, :math:`\gamma < 1` (Watkins & Dayan 1992, "Q-learning").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from gymnasium.vector import VectorEnv

from lstd_agent import PolicyIteration
from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.results import Row
from study.store import Among, Key, Study, Task
from unichain_gym import TabularMDP, TabularVectorEnv, make_mdp

CONTROL_ENVIRONMENTS = ("h36", "h36c", "c10", "c35c", "c100", "h100", "r6", "r20b", "m16", "q44")

EQUAL = 1e-4
"""A gain within this share of the optimal gain counts as optimal: samples do not separate them."""

_ROUNDING = 1e-9  # where the optimal gain is 0

# A trial lasts several times as long as acting at random takes to settle, within reason.
_TRIAL, _LONGEST = 2, 400

# Of policy iteration, for the same number of transitions.
_ITERATIONS = 5


@dataclass(frozen=True)
class ControlSettings:
    """What every row depends on: the numbers of transitions, ascending."""

    checkpoints: tuple[int, ...] = (5_000, 10_000, 20_000, 50_000, 100_000)


# Established learners

Rule = Literal["differential", "r_learning", "rvi", "discounted"]
RULES: tuple[Rule, ...] = get_args(Rule)

# Actions of equal value are taken at random: by values that are not quite 0 to begin with.
_NOISE = 1e-6


def learn(
    rule: Rule,
    env: VectorEnv[Any, Any, Any],
    checkpoints: Sequence[int],
    t_max: int,
    seed: int,
    *,
    exponent: float = 0.6,
    epsilon: float = 0.1,
    rate_step: float = 0.1,
    discount: float = 0.99,
) -> FloatArray:
    """Return action values (len(checkpoints), n, S, A), one learner in each of n copies.

    Values are recorded after ``checkpoints`` transitions, ascending. Every t_max + 1 transitions a
    learner starts a new trial. The n-th update of a pair has step size n^-exponent. With
    probability epsilon the behaviour takes an action at random. ``rate_step`` is η or β.
    """
    spaces: Any = env.single_observation_space, env.single_action_space
    S, A = (int(space.n) for space in spaces)
    n, gamma = env.num_envs, discount if rule == "discounted" else 1.0
    env_seed, own = np.random.SeedSequence(seed).spawn(2)
    rng = np.random.default_rng(own)
    Q: FloatArray = _NOISE * rng.standard_normal((n, S, A))
    visits, rate, each = np.zeros((n, S, A)), np.zeros(n), np.arange(n)
    state: Any = None
    found = []
    for t in range(checkpoints[-1]):
        if t % (t_max + 1) == 0:
            state = env.reset(seed=int(env_seed.generate_state(1)[0]) if t == 0 else None)[0]
        greedy = Q[each, state].argmax(axis=1)
        explores, which = rng.random((2, n))
        action = np.where(explores < epsilon, (which * A).astype(np.int64), greedy)
        following, reward, *_ = env.step(action)
        pair = (each, state, action)
        visits[pair] += 1.0
        step = visits[pair] ** -exponent
        ahead = Q[each, following].max(axis=1)
        change = step * (reward - rate + gamma * ahead - Q[pair])
        Q[pair] += change
        if rule == "differential":
            rate += rate_step * change
        elif rule == "rvi":
            rate += change / (S * A)  # the mean of Q, up to its initial value
        elif rule == "r_learning":
            best = Q[each, state].max(axis=1)
            excess = reward + ahead - best - rate
            rate += rate_step * step * np.where(Q[pair] == best, excess, 0.0)
        state = following
        if t + 1 in checkpoints:
            found.append(Q.copy())
    return np.stack(found)


Learned = Iterator[tuple[int, int, IntArray]]
"""Seed, number of transitions, and policy."""


def _q_learning(
    rule: Rule, mdp: TabularMDP, task: Task, t_max: int, *, starts_over: bool = True
) -> Learned:
    env = TabularVectorEnv(mdp, len(task.seed))
    marks = task.settings.checkpoints
    last = t_max if starts_over else marks[-1]
    tables = learn(rule, env, marks, last, task.seed[0])
    for n, by_seed in zip(marks, tables.argmax(axis=3), strict=True):
        for seed, policy in zip(task.seed, by_seed, strict=True):
            yield seed, n, policy


def _policy_iteration(mdp: TabularMDP, task: Task, t_max: int) -> Learned:
    """Give each checkpoint a search of its own: five iterations with a fifth of the transitions."""
    for n in task.settings.checkpoints:
        n_trials = n // (_ITERATIONS * (t_max + 1))
        if n_trials < 2:
            continue
        for seed in task.seed:
            env = TabularVectorEnv(mdp, n_trials)
            search = PolicyIteration(env, t_max=t_max, n_trials=n_trials, n_errors=0.0, seed=seed)
            for _ in range(_ITERATIONS):
                search.iterate()
            yield seed, n, np.asarray(search.policy_)


@dataclass(frozen=True)
class Method:
    """How policies are learned, and for how many seeds at once: always as many."""

    learn: Callable[[TabularMDP, Task, int], Learned]
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


def control_rows(task: Task) -> list[Row]:
    """Run a method for some seeds and compare its policies with the exact optimum."""
    mdp, method = make_mdp(task.env), task.missing[0][2]
    optimum = mdp.optimal_policy("bias")
    start = mdp.initial_distribution
    best_gain, best_start = optimum.chain.gain, float(start @ optimum.chain.bias)
    span = float(np.ptp(optimum.chain.bias))
    transient = optimum.chain.transient_states
    rows = []
    for seed, n_samples, policy in METHODS[method].learn(mdp, task, trial_length(mdp)):
        chain = mdp.induce(policy)
        gain = chain.gain
        is_optimal = bool(best_gain - gain <= EQUAL * abs(best_gain) + _ROUNDING)
        shortfall = (best_start - float(start @ chain.bias)) / span if is_optimal else None
        right = optimum.optimal_actions[transient, policy[transient]]
        row = {"env": task.env, "seed": seed, "method": method, "n_samples": n_samples}
        row |= {"gain": gain, "optimal_gain": best_gain, "is_gain_optimal": is_optimal}
        row |= {"start_shortfall": shortfall}
        rows.append({**row, "transient_right": float(right.mean()) if right.size else None})
    return rows


def _work(
    env: str, _: int, seeds: range, __: Among, settings: ControlSettings
) -> Iterator[tuple[tuple[int, ...], list[Key]]]:
    last = settings.checkpoints[-1]
    for name, method in METHODS.items():
        for first in seeds[:: method.n_at_once]:
            some = tuple(range(first, first + method.n_at_once))
            yield some, [(env, seed, name, last) for seed in some if seed in seeds]


CONTROL = Study(
    "control",
    ControlSettings,
    ("env", "seed", "method", "n_samples"),
    control_rows,
    _work,
    {"env": CONTROL_ENVIRONMENTS},
)
