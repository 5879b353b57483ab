r"""Established learners of control, to compare with: one-step, tabular, off-policy.

After each transition (s, a, r, s') of a behaviour that explores, with step size α of the pair,

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

All but the last use the average reward, which does not depend on actions in transient states. Their
learning in transient states depends on the number of starts there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from gymnasium.vector import VectorEnv

from lstd_agent.arrays import FloatArray

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
    learner starts a new trial; otherwise it would see transient states once. The n-th update of a
    pair has step size n^-exponent. With probability epsilon the behaviour takes an action at
    random. ``rate_step`` is η or β, and ``discount`` is γ of ``"discounted"``. Observations and
    actions are numbers from 0, and trials do not end.
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
