r"""Established learners of control, to compare with: one-step, tabular, off-policy.

After each transition (s, a, r, s') of a behaviour that explores, with step size α of the pair,

.. math:: \delta = r - \bar r + \gamma \max_{a'} Q(s', a') - Q(s, a), \quad
          Q(s, a) \mathrel{+}= \alpha \delta,

and they differ in what they subtract:

- ``"differential"``: :math:`\gamma = 1`, :math:`\bar r \mathrel{+}= \eta \alpha \delta`
  (Wan, Naik & Sutton 2021, "Learning and planning in average-reward Markov decision processes");
- ``"r_learning"``: :math:`\bar r \mathrel{+}= \beta (r + \max Q(s', \cdot) - \max Q(s, \cdot) -
  \bar r)` where the action was greedy (Schwartz 1993, "A reinforcement learning method for
  maximizing undiscounted rewards");
- ``"rvi"``: :math:`\bar r = f(Q)`, here the mean of Q, which is one of the functions that converge
  (Abounadi, Bertsekas & Borkar 2001, "Learning algorithms for Markov decision processes with
  average cost");
- ``"discounted"``: :math:`\bar r = 0`, :math:`\gamma < 1` (Watkins & Dayan 1992, "Q-learning").

All but the last look at the average reward. Their actions in states that are left for good matter
to it no more; what they learn there hangs on how often trials start there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.baselines import TIMED
from lstd_agent.errors import InvalidInputError, check_choice, check_integer

Rule = Literal["differential", "r_learning", "rvi", "discounted"]
RULES: tuple[Rule, ...] = get_args(Rule)

# Actions of equal value are taken at random: by values that are not quite 0 to begin with.
_NOISE = 1e-6


@dataclass(frozen=True)
class QLearning:
    """A learner and its numbers.

    Parameters
    ----------
    rule : {"differential", "r_learning", "rvi", "discounted"}
    exponent : float
        The n-th update of a pair has step size n^-exponent: more than 1/2, at most 1.
    epsilon : float
        With this probability the behaviour takes an action at random, else the greedy one.
    rate_step : float
        η of ``"differential"``, β of ``"r_learning"``.
    discount : float
        γ of ``"discounted"``.

    Raises
    ------
    InvalidInputError
        If a number is out of its range.
    """

    rule: Rule = "differential"
    exponent: float = 0.6
    epsilon: float = 0.1
    rate_step: float = 0.1
    discount: float = 0.99

    def __post_init__(self) -> None:
        check_choice("rule", self.rule, RULES)
        for name, low, high in (
            ("exponent", 0.5, 1.0),
            ("epsilon", 0.0, 1.0),
            ("rate_step", 0.0, np.inf),
            ("discount", 0.0, 1.0),
        ):
            value = getattr(self, name)
            if not low < value <= high or (name == "discount" and value == 1.0):
                raise InvalidInputError(
                    f"{name} must be above {low:g}, up to {high:g}; got {value}"
                )

    def learn(
        self,
        env: VectorEnv[Any, Any, Any],
        checkpoints: Sequence[int],
        t_max: int,
        seed: int | None = None,
    ) -> FloatArray:
        """Learn, one learner in each copy of an environment, all apart.

        Parameters
        ----------
        env : VectorEnv
            With Discrete observations and actions, a continuing task.
        checkpoints : sequence of int
            Numbers of transitions, ascending, after which to note what has been learned.
        t_max : int
            Every t_max + 1 transitions a learner starts over where trials start: else states that
            are left for good would be seen once.
        seed : int, optional

        Returns
        -------
        ndarray, shape (len(checkpoints), n, S, A)
            The action values of each learner, from the first observation and action on.

        Raises
        ------
        InvalidInputError
            If spaces are not Discrete, a trial ends, or checkpoints do not ascend.
        """
        S, first_state = _numbers(env.single_observation_space, "observations")
        A, first_action = _numbers(env.single_action_space, "actions")
        t_max = check_integer("t_max", t_max, 0)
        marks = [check_integer("a checkpoint", n, 1) for n in checkpoints]
        if not marks or sorted(set(marks)) != marks:
            raise InvalidInputError(f"checkpoints must ascend; got {list(checkpoints)}")
        env_seed, own = np.random.SeedSequence(seed).spawn(2)
        rng = np.random.default_rng(own)
        learners = _Learners(self, env.num_envs, S, A, rng)
        state: IntArray = np.empty(0, dtype=np.int64)
        found = []
        for t in range(marks[-1]):
            if t % (t_max + 1) == 0:
                start = int(env_seed.generate_state(1)[0]) if t == 0 else None
                state = env.reset(seed=start)[0] - first_state
            action = learners.act(state, rng)
            observation, reward, terminated, truncated, info = env.step(action + first_action)
            if "duration" in info:
                raise InvalidInputError(TIMED)
            if terminated.any() or (truncated.any() and (t + 1) % (t_max + 1)):
                raise InvalidInputError(
                    f"a trial ended after {t % (t_max + 1) + 1} transitions: these learners are "
                    f"for continuing tasks, with trials of t_max + 1 = {t_max + 1}"
                )
            following = observation - first_state
            learners.update(state, action, reward, following)
            state = following
            if t + 1 in marks:
                found.append(learners.Q.copy())
        return np.stack(found)


class _Learners:
    """n learners in lockstep."""

    def __init__(self, method: QLearning, n: int, S: int, A: int, rng: np.random.Generator) -> None:
        self._method = method
        self._each = np.arange(n)
        self.Q: FloatArray = _NOISE * rng.standard_normal((n, S, A))
        self._visits = np.zeros((n, S, A))
        self._rate = np.zeros(n)

    def act(self, state: IntArray, rng: np.random.Generator) -> IntArray:
        """Return the behaviour's actions (n,)."""
        A = self.Q.shape[2]
        greedy = self.Q[self._each, state].argmax(axis=1)
        explores, which = rng.random((2, len(state)))
        anything = (which * A).astype(np.int64)
        return np.asarray(np.where(explores < self._method.epsilon, anything, greedy))

    def update(
        self, state: IntArray, action: IntArray, reward: FloatArray, following: IntArray
    ) -> None:
        """Learn from one transition each."""
        method, each = self._method, self._each
        pair = (each, state, action)
        self._visits[pair] += 1.0
        step = self._visits[pair] ** -method.exponent
        next_best = self.Q[each, following].max(axis=1)
        discount = method.discount if method.rule == "discounted" else 1.0
        error = reward - self._rate + discount * next_best - self.Q[pair]
        change = step * error
        self.Q[pair] += change
        if method.rule == "differential":
            self._rate += method.rate_step * change
        elif method.rule == "rvi":
            self._rate += change / self.Q[0].size  # the mean of Q, but for what it began with
        elif method.rule == "r_learning":
            best = self.Q[each, state].max(axis=1)
            greedy: BoolArray = self.Q[pair] == best
            excess = reward + next_best - best - self._rate
            self._rate += method.rate_step * step * np.where(greedy, excess, 0.0)


def _numbers(space: Space[Any], name: str) -> tuple[int, int]:
    """Return how many numbers a Discrete space has, and the first."""
    if not isinstance(space, spaces.Discrete):
        raise InvalidInputError(
            f"these learners have a table of Discrete observations and actions; got {space} of "
            f"{name}"
        )
    return int(space.n), int(space.start)
