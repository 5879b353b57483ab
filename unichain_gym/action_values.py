"""Action values from state values, and the distances between states that they define.

q(s, a) = r(s, a) + Σ_s' p(s'|s, a) v(s'),    d(s, s') = max_a |q(s, a) - q(s', a)|
"""

from __future__ import annotations

import numpy as np

from unichain_gym.arrays import FloatArray
from unichain_gym.errors import InvalidModelError
from unichain_gym.interface import OutcomeModel


def action_values(mdp: OutcomeModel | None, following: FloatArray) -> FloatArray:
    """Return q(s, a) for values v of next states, shape (S, A); NaN where the state lacks a."""
    if mdp is None:
        raise InvalidModelError(
            "action values need the MDP's actions, and this chain was made from a transition "
            "matrix alone; get it from TabularMDP.induce(policy)"
        )
    continued = np.einsum("sak,sak->sa", mdp.probability, following[mdp.next_state])
    return np.where(mdp.allowed_actions, mdp.expected_reward + continued, np.nan)


def bisimulation_distances(q: FloatArray) -> FloatArray:
    """Return max_a |q(s, a) - q(s', a)|, shape (S, S)."""
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
