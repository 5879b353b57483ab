"""The asymptotic variance of rewards, from the variance of a martingale.

With the gain g and the bias b of a chain with one recurrent class,

    R_t - g + b(s_{t+1}) - b(s_t)

has mean 0 given the past, and adds up over n steps to Σ_t R_t - n g but for a bounded part.
Hence lim Var(Σ_{t<n} R_t)/n is the mean square of it under the stationary distribution. With
R_t = r(s_t), the expected reward of the state, this is the usual variance of a chain's central
limit theorem (Kemeny & Snell, 1960, theorem 4.6.3; Meyn & Tweedie, 1993, Markov Chains and
Stochastic Stability, theorem 17.4.4). With R_t as observed it holds the noise of actions and
rewards too, which may go along with the next state, or against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unichain_gym.arrays import FloatArray
from unichain_gym.elimination import finite
from unichain_gym.structure import edges

if TYPE_CHECKING:
    from unichain_gym.chain import MarkovChain


def state_reward_variance(chain: MarkovChain) -> float:
    """Return lim Var(Σ_{t<n} r(s_t))/n, the rewards being the expected ones of the states."""
    recurrent = chain.recurrent_states
    rows = chain.transition_matrix[recurrent]
    row, column = edges(rows)
    state = recurrent[row]
    weight = np.sqrt(chain.stationary_distribution[state]) * np.sqrt(rows.data)
    step = (chain.reward[state] - chain.gain) + (chain.bias[column] - chain.bias[state])
    return _sum_of_squares(weight, step)


def observed_reward_variance(chain: MarkovChain) -> float:
    """Return lim Var(Σ_{t<n} R_t)/n, the rewards being those of a trajectory."""
    if chain.mdp is None or chain.policy is None:
        return state_reward_variance(chain)
    recurrent = chain.recurrent_states
    taken = np.sqrt(chain.stationary_distribution[recurrent, None] * chain.policy[recurrent])
    weight = taken[:, :, None] * np.sqrt(chain.mdp.probability[recurrent])
    place = np.nonzero(weight)
    state = recurrent[place[0]]
    change = chain.bias[chain.mdp.next_state[recurrent][place]] - chain.bias[state]
    step = (chain.mdp.reward[recurrent][place] - chain.gain) + change
    return _sum_of_squares(weight[place], step)


def _sum_of_squares(weight: FloatArray, step: FloatArray) -> float:
    """Return Σ (weight step)²; weights are roots of probabilities, which alone may underflow."""
    with np.errstate(over="ignore"):
        squares: FloatArray = (weight * step) ** 2
        return float(finite(squares.sum(keepdims=True))[0])
