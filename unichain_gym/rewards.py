"""What rewards are worth: discounted, over finitely many steps, by action; their variance.

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

**Finite horizons.** With the terminal values v_0, the total over n steps is

    v_n = r + P v_{n-1} = Σ_{t<n} P^t r + P^n v_0

(Puterman, 1994, Markov Decision Processes, chapter 4). Its increments d_t = v_{t+1} - v_t follow
d_{t+1} = P d_t from d_0 = r + P v_0 - v_0. Their sum over a whole period of the chain tends to the
period times the gain g = P* r, and its distance to this limit never grows, since P lengthens no
difference. So the computation of a long horizon stops early, once the rest is certain.

The largest total of an MDP is v_n(s) = max_a (r(s, a) + Σ_s' p(s'|s, a) v_{n-1}(s')); the optimal
actions depend on n, the steps to go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym.elimination import finite
from unichain_gym.errors import ConvergenceError, InvalidArgumentError, InvalidModelError, brief
from unichain_gym.interface import FloatArray, IntArray, OutcomeModel, RewardProcess
from unichain_gym.labels import read_state_values
from unichain_gym.outcomes import (
    check_choice,
    check_discount,
    read_count,
    read_number,
    read_only,
    require_dense,
    require_room,
)
from unichain_gym.stepwise import (
    DENSE_FLOP,
    DOUBLING_STATES,
    SPARSE_CALL,
    SPARSE_FLOP,
    STEP_WORK,
    normalized,
    square,
)

RewardKind = Literal["reward", "state_reward"]
# The tolerance of an early stop, relative to the largest value.
SETTLED = 1e-12
# Above this work, the gain is computed for an early stop.
PATIENCE = 1e8


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


@dataclass(frozen=True, eq=False, repr=False)
class HorizonPolicy:
    """A policy that is optimal from every state over n steps: an action for each step.

    Parameters
    ----------
    actions : ndarray of int, shape (n, S)
        The action of each state at step t, when n - t rewards are to come; one of the best actions
        if several are equal up to rounding.
    values : ndarray, shape (n + 1, S)
        The largest expected total reward from step t on; the last row has the terminal values.

    Examples
    --------
    In the last step the machine runs at full speed, since a breakdown costs nothing then:

    >>> from unichain_gym import TabularMDP
    >>> transitions = [
    ...     ("runs", "slow", "runs", 1.0, 2.0), ("runs", "fast", "broken", 1.0, 3.0),
    ...     ("broken", "mend", "runs", 1.0, 0.0),
    ... ]
    >>> names = ["runs", "broken"]
    >>> mdp = TabularMDP.from_transitions(transitions, [1.0, 0.0], state_names=names)
    >>> best = mdp.optimal_policy(horizon=3)
    >>> [mdp.action_names[a] for a in best.actions[:, 0]], best.values[:, 0].tolist()
    (['slow', 'slow', 'fast'], [7.0, 5.0, 3.0, 0.0])
    """

    actions: IntArray
    values: FloatArray

    def __repr__(self) -> str:
        return f"HorizonPolicy(n_steps={len(self.actions)}, n_states={self.values.shape[1]})"


def find_horizon_policy(
    mdp: OutcomeModel, n_steps: int, terminal: ArrayLike | None, discount: float | None
) -> HorizonPolicy:
    """Return a policy that is optimal for n steps; see `TabularMDP.optimal_policy`."""
    n_steps = read_count("horizon", n_steps)
    S = mdp.n_states
    require_room("a policy of as many steps", n_steps + 1, S)
    factor = 1.0 if discount is None else read_number("discount", discount)
    if not 0.0 <= factor <= 1.0:
        raise InvalidArgumentError(f"discount must be from 0 to 1; got {brief(discount)}")
    pairs = mdp._pairs
    if n_steps * pairs.Q.nnz > STEP_WORK:
        raise ConvergenceError(
            f"a policy for each of {n_steps} steps takes more than {STEP_WORK:.0e} "
            "multiplications; over very many steps use the policy of criterion 'bias', which is "
            "as good except for the last steps"
        )
    pay = mdp.expected_reward[pairs.state, pairs.action]
    actions, values = np.empty((n_steps, S), dtype=np.int64), np.empty((n_steps + 1, S))
    values[n_steps] = read_state_values("terminal", terminal, S, mdp.state_names)
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(n_steps - 1, -1, -1):
            q = pay + factor * (pairs.Q @ values[t + 1])
            rows = pairs.leaders(q)
            actions[t], values[t] = pairs.action[rows], q[rows]
    return HorizonPolicy(read_only(actions), read_only(finite(values)))


def finite_horizon_value(
    chain: RewardProcess,
    n_steps: int,
    terminal: ArrayLike | None = None,
    *,
    all_horizons: bool = False,
) -> FloatArray:
    """Return the expected total reward of n steps from each state, v_n = r + P v_{n-1}.

    It equals n g + b + P^n (v_0 - b). For large chains, long horizons stop once the rest is certain
    within 1e-12 of the largest value.

    Parameters
    ----------
    n_steps : int
        n, the number of rewards.
    terminal : array_like, shape (S,), optional
        v_0, the value of ending in a state; 0 by default.
    all_horizons : bool
        Return v_0 … v_n.

    Returns
    -------
    ndarray, shape (S,), or (n_steps + 1, S) for all horizons

    Raises
    ------
    ConvergenceError
        If it takes more than `STEP_WORK` multiplications, or exceeds the range of doubles.
    """
    n_steps = read_count("n_steps", n_steps)
    S = chain.reward.size
    end = read_state_values("terminal", terminal, S, chain.state_names)
    P = normalized(chain.transition_matrix)
    doubling_cost = 2.0 * max(1, n_steps.bit_length()) * S**3 * DENSE_FLOP
    step_cost = SPARSE_CALL + int(P.nnz) * SPARSE_FLOP
    with np.errstate(over="ignore", invalid="ignore"):
        if all_horizons:
            require_room("the values of all horizons", n_steps + 1, S)
            values = np.empty((n_steps + 1, S))
            values[0] = end
            for n in range(n_steps):
                values[n + 1] = chain.reward + P @ values[n]
            return finite(values)
        if S <= DOUBLING_STATES and doubling_cost < n_steps * step_cost:
            return finite(_by_doubling(P.toarray(), chain.reward, end, n_steps))
        return finite(_by_increments(chain, P, end, n_steps))


def _by_doubling(
    power: FloatArray, reward: FloatArray, terminal: FloatArray, n_steps: int
) -> FloatArray:
    """Take the steps in powers of two: v_{n+k} = Σ_{t<k} P^t r + P^k v_n."""
    value, total = terminal, reward
    while True:
        if n_steps & 1:
            value = total + power @ value
        n_steps >>= 1
        if not n_steps:
            return value
        total = total + power @ total
        power = square(power)


def _by_increments(
    chain: RewardProcess, P: sparse.csr_array, terminal: FloatArray, n_steps: int
) -> FloatArray:
    """Add up increments, until the rest of the horizon is certain."""
    value, period = terminal.copy(), chain.period
    increment = chain.reward + P @ terminal - terminal
    work = 0.0
    # After these steps, a number of whole periods remains.
    block = n_steps % period
    while n_steps:
        total = np.zeros_like(value)
        for _ in range(block):
            total += increment
            increment = P @ increment
            work += P.data.size
            if work > STEP_WORK:
                raise ConvergenceError(
                    f"a finite_horizon_value with {n_steps} steps to go, of a chain of "
                    f"{len(value)} states and period {period}, takes more than {STEP_WORK:.0e} "
                    "multiplications; over very many steps use n_steps * gain_vector + bias, with "
                    "a bounded error"
                )
        n_steps -= block
        value += total
        if block == period and n_steps and work > PATIENCE:
            limit = chain._limits.limit(chain.reward)  # gain per step, not per unit of time
            settled = value + n_steps * limit
            off = np.abs(total - period * limit).max() * (n_steps / period)
            if off <= SETTLED * np.abs(settled).max():
                return settled
        block = period
    return value
