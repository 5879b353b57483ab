"""What rewards of a chain are worth: discounted values, action values, and their variance.

q(s, a) = r(s, a) + Σ_s' p(s'|s, a) v(s'),    d(s, s') = max_a |q(s, a) - q(s', a)|

With the gain g and the bias b of a chain with one recurrent class,

    R_t - g + b(s_{t+1}) - b(s_t)

has mean 0 given the past; its sum over n steps is Σ_t R_t - n g plus a bounded term. Hence lim
Var(Σ_{t<n} R_t)/n is its mean square under the stationary distribution. With R_t = r(s_t), the
expected reward of the state, this is the usual variance of a chain's central limit theorem (Kemeny
& Snell, 1960, section 4.6; Meyn & Tweedie, 1993, Markov Chains and Stochastic Stability, theorem
17.4.4). With observed R_t, it includes the noise of actions and rewards, which may be correlated
with the next state.

If a step takes the time τ_t, R_t - g τ_t replaces R_t - g, and the mean square divided by the mean
time of a step is lim Var(reward until time t)/t: cycles of a regenerative process with rewards R_t
- g τ_t have mean 0 (Asmussen, 2003, Applied Probability and Queues, theorem VI.3.2).
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from unichain_gym.elimination import finite
from unichain_gym.errors import InvalidModelError
from unichain_gym.interface import FloatArray, OutcomeModel, RewardProcess
from unichain_gym.outcomes import check_choice, check_discount, require_dense

RewardKind = Literal["reward", "state_reward"]


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
    """Return v = (I - γP)^{-1} r for a discount γ, shape (S,).

    It is the sum of g/(1 - γ) and a part that tends to b, so it is accurate for γ close to 1. With
    durations, each step is discounted once, for any duration.

    Parameters
    ----------
    discount : float
        γ, in [0, 1).
    """
    check_discount(discount, "gain and bias")
    return chain._limits.discounted(chain.reward, discount)


def bisimulation_distance(chain: RewardProcess, discount: float = 0.999) -> FloatArray:
    """Return the paper's d_π, max_a |q(s, a) - q(s', a)| for discounted values q, shape (S, S).

    Parameters
    ----------
    discount : float
        In [0, 1).

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


def asymptotic_variance(chain: RewardProcess, of: RewardKind = "reward") -> float:
    """Return the asymptotic variance, lim Var(Σ_{t<n} R_t)/n.

    The standard error of a mean reward over n steps is √(variance/n); with durations, over n units
    of time.

    Parameters
    ----------
    of : {"reward", "state_reward"}
        Use the observed reward, which depends on the action and may depend on the next state, or
        the expected reward r(s_t). Both agree for a chain made from a matrix.
    """
    chain._require_unichain("one variance", "recurrent_classes to look at each class alone")
    check_choice("of", of, get_args(RewardKind))
    table = chain._outcomes
    state, reward, durations = table.state, table.reward, table.duration
    if of == "state_reward":
        reward = chain.reward[state]
        durations = None if chain.durations is None else chain.durations[state]
    times = 1.0 if durations is None else durations
    # Roots of probabilities avoid underflow of probabilities and overflow of squares.
    weight = np.sqrt(chain.stationary_distribution[state]) * np.sqrt(table.p)
    with np.errstate(over="ignore", invalid="ignore"):
        ahead = chain.bias[table.after] - chain.bias[state]
        excess = np.where(weight > 0.0, (reward - chain.gain * times) + ahead, 0.0)
        squares: FloatArray = (weight * excess) ** 2
        return float(finite(squares.sum(keepdims=True))[0]) / chain.mean_duration
