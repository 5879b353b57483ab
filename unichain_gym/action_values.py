"""Discounted values, action values, and the distances between states that these define.

q(s, a) = r(s, a) + Σ_s' p(s'|s, a) v(s'),    d(s, s') = max_a |q(s, a) - q(s', a)|
"""

from __future__ import annotations

import numpy as np

from unichain_gym.arrays import FloatArray
from unichain_gym.errors import InvalidModelError
from unichain_gym.interface import OutcomeModel, RewardProcess
from unichain_gym.outcomes import check_discount, require_dense


def action_values(mdp: OutcomeModel | None, following: FloatArray) -> FloatArray:
    """Return q(s, a) for values v of next states, shape (S, A); NaN where the state lacks a."""
    if mdp is None:
        raise InvalidModelError(
            "action values need the MDP's actions, and this chain was made from a transition "
            "matrix alone; get it from TabularMDP.induce(policy)"
        )
    continued = np.einsum("sak,sak->sa", mdp.probability, following[mdp.next_state])
    return np.where(mdp.allowed_actions, mdp.expected_reward + continued, np.nan)


def discounted_value(chain: RewardProcess, discount: float) -> FloatArray:
    """Return v = (I - γP)^{-1} r for a discount γ.

    It is the sum of g/(1 - γ) and a part that tends to b, so it is accurate for γ close to 1. With
    durations, each step is discounted once, for any duration.

    Parameters
    ----------
    discount : float
        γ, in [0, 1).

    Returns
    -------
    ndarray, shape (S,)
    """
    check_discount(discount, "gain and bias")
    return chain._limits.discounted(chain.reward, discount)


def bisimulation_distance(chain: RewardProcess, discount: float = 0.999) -> FloatArray:
    """Return the paper's d_π, max_a |q(s, a) - q(s', a)| for discounted action values q.

    Parameters
    ----------
    discount : float
        In [0, 1).

    Returns
    -------
    ndarray, shape (S, S)

    Raises
    ------
    InvalidModelError
        If states have different actions.
    """
    require_dense("bisimulation_distance", chain.n_states)
    q = action_values(chain.mdp, discount * chain.discounted_value(discount))
    absent = np.isnan(q)
    if (absent != absent[0]).any():
        state = int(np.argmax((absent != absent[0]).any(axis=1)))
        raise InvalidModelError(
            f"bisimulation_distance compares states action by action, and state {state} has "
            "other actions than state 0: see mdp.allowed_actions"
        )
    distance = np.zeros((len(q), len(q)))
    for of_action in q[:, ~absent[0]].T:
        np.maximum(distance, np.abs(of_action[:, None] - of_action), out=distance)
    return distance
