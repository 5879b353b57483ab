"""Total reward over a finite number of steps, from every state.

With the terminal values v_0, the total over n steps is v_n = r + P v_{n-1}, that is

    v_n = Σ_{t<n} P^t r + P^n v_0

(Puterman, 1994, Markov Decision Processes, chapter 4). Its increments d_t = v_{t+1} - v_t
follow d_{t+1} = P d_t from d_0 = r + P v_0 - v_0. Over a whole period of the chain they add up
to what tends to the period times the gain g = P* r, and never depart from it again: P lengthens
no difference. So a long horizon is not followed to its end, but to where that is certain.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym.arrays import FloatArray
from unichain_gym.elimination import finite
from unichain_gym.errors import ConvergenceError, InvalidArgumentError
from unichain_gym.interface import RewardProcess
from unichain_gym.outcomes import read_count, read_reals
from unichain_gym.stepwise import (
    DENSE_FLOP,
    DOUBLING_STATES,
    SPARSE_CALL,
    SPARSE_FLOP,
    STEP_WORK,
    normalized,
    square,
)

# How near to the end of the horizon an early stop must be, relative to the largest value.
SETTLED = 1e-12
# Work after which it is worth finding the gain to stop early.
PATIENCE = 1e8


def _read_terminal(terminal: ArrayLike | None, n_states: int) -> FloatArray:
    """Return the terminal values (S,), 0 by default, or raise `InvalidArgumentError`."""
    if terminal is None:
        return np.zeros(n_states)
    end = read_reals(terminal, "terminal", InvalidArgumentError)
    if end.shape != (n_states,) or not np.isfinite(end).all():
        raise InvalidArgumentError(
            f"terminal must be {n_states} finite numbers, one a state; got {terminal!r}"
        )
    return end


def finite_horizon_value(
    chain: RewardProcess,
    n_steps: int,
    terminal: ArrayLike | None = None,
    *,
    all_horizons: bool = False,
) -> FloatArray:
    """Return the expected total reward of n steps from each state, v_n = r + P v_{n-1}.

    It is n g + b, but for a part that fades: P^n (v_0 - b). Long horizons of large chains are not
    followed to their end, but to where the rest is certain, within 1e-12 of the largest value.

    Parameters
    ----------
    chain : MarkovChain
    n_steps : int
        n, the number of rewards.
    terminal : array_like, shape (S,), optional
        v_0, what it is worth to end in a state; nothing by default.
    all_horizons : bool
        Return v_0 … v_n.

    Returns
    -------
    ndarray, shape (S,), or (n_steps + 1, S) for all horizons

    Raises
    ------
    InvalidArgumentError
        If n_steps is no integer of at least 0, or terminal does not fit.
    ConvergenceError
        If it takes more than `STEP_WORK` multiplications, or exceeds the range of doubles.
    """
    n_steps = read_count("n_steps", n_steps)
    S = chain.reward.size
    end = _read_terminal(terminal, S)
    P = normalized(chain.transition_matrix)
    doubling_cost = 2.0 * max(1, n_steps.bit_length()) * S**3 * DENSE_FLOP
    with np.errstate(over="ignore", invalid="ignore"):
        if all_horizons:
            return finite(_all_values(P, chain.reward, end, n_steps))
        if S <= DOUBLING_STATES and doubling_cost < n_steps * _step_cost(P):
            return finite(_by_doubling(P.toarray(), chain.reward, end, n_steps))
        return finite(_by_increments(chain, P, end, n_steps))


def _step_cost(P: sparse.csr_array) -> float:
    return SPARSE_CALL + int(P.nnz) * SPARSE_FLOP


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
    """Add up increments, until what is left of the horizon is certain."""
    value, period = terminal.copy(), chain.period
    increment = chain.reward + P @ terminal - terminal
    work = 0.0
    # What is left of the horizon after this many steps is a number of whole periods.
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
                    "multiplications; over very many steps it is n_steps * gain_vector + bias, "
                    "but for a bounded part"
                )
        n_steps -= block
        value += total
        if block == period and n_steps and work > PATIENCE:
            limit = chain.gain_vector
            settled = value + n_steps * limit
            off = np.abs(total - period * limit).max() * (n_steps / period)
            if off <= SETTLED * np.abs(settled).max():
                return settled
        block = period
    return value


def _all_values(
    P: sparse.csr_array, reward: FloatArray, terminal: FloatArray, n_steps: int
) -> FloatArray:
    """Return v_0 … v_n for n = n_steps, shape (n_steps + 1, S).

    By doubling, v_{k+j} = Σ_{t<k} P^t r + P^k v_j for all j < k at once, as long as that is
    cheaper than a sparse product for each step.
    """
    S = reward.size
    v = np.empty((n_steps + 1, S))
    v[0] = terminal
    doublings = max(1, n_steps.bit_length())
    if n_steps * _step_cost(P) <= (doublings * S**3 + n_steps * S**2) * DENSE_FLOP:
        for n in range(n_steps):
            v[n + 1] = reward + P @ v[n]
        return v
    power, total, k = P.toarray(), reward, 1
    while k <= n_steps:
        n = min(k, n_steps + 1 - k)
        v[k : k + n] = total + v[:n] @ power.T
        k += n
        if k <= n_steps:
            total = total + power @ total
            power = square(power)
    return v
