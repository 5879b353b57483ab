"""Hitting a set of states: how probably, how soon, with what reward, and how the time is spread.

For targets B, and states C that must not be visited before, the probability of a hit is the
least nonnegative solution of

    f = 1 on B,    f = 0 on C,    f(s) = Σ_s' P(s, s') f(s') elsewhere.

For the time τ until a hit, of mean h = E τ, the law of total variance gives

    Var τ(s) = Σ_s' P(s, s') ((1 + h(s') - h(s))² + Var τ(s')),

the sum of squared steps of the martingale t + h(s_t), in which, unlike in E τ² - (E τ)², nothing
cancels. (Kemeny & Snell, 1960, Finite Markov Chains, theorems 3.3.5 and 3.3.7; Norris, 1997,
Markov Chains, theorem 1.3.2.)

Which states are hit surely, and which never, follows from the transitions that are possible, so
that the answer there is exactly 1 and 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym.arrays import BoolArray, FloatArray, IntArray
from unichain_gym.elimination import finite
from unichain_gym.errors import InvalidArgumentError, InvalidModelError
from unichain_gym.interface import RewardProcess
from unichain_gym.labels import read_states
from unichain_gym.linear import Solver, find_solver
from unichain_gym.structure import edges, group_sums, keep_edges, row_sums, search_breadth_first


def hitting_probability(
    chain: RewardProcess, targets: ArrayLike, avoiding: ArrayLike | None = None
) -> FloatArray:
    """Return the probability of ever reaching one of the target states.

    Exactly 1 where it is sure, on the targets themselves to begin with, and exactly 0 where it is
    impossible. (Norris, 1997, theorem 1.3.2.)

    Parameters
    ----------
    chain : MarkovChain
    targets, avoiding : states
        The states to reach, and those that must not be visited before, where it is 0; each one
        state or several, by number or name, or a mask of shape (S,).

    Returns
    -------
    ndarray, shape (S,)

    Raises
    ------
    InvalidModelError
        If a state does not exist, or is both a target and to be avoided.
    """
    P = chain.transition_matrix
    targets, avoided = read_states(targets, P.shape[0], chain.state_names), np.zeros(0, np.int64)
    if avoiding is not None:
        avoided = read_states(avoiding, P.shape[0], chain.state_names)
    both = np.intersect1d(targets, avoided)
    if both.size:
        raise InvalidModelError(f"state {both[0]} is both a target and to be avoided")
    states = np.arange(P.shape[0])
    is_target = np.isin(states, targets)
    may_hit, may_miss = _possibilities(P, is_target, is_target | np.isin(states, avoided))
    f = np.where(may_hit, 1.0, 0.0)
    unknown = np.flatnonzero(may_hit & may_miss)
    if unknown.size:
        rows = P[unknown]
        elsewhere = np.setdiff1d(states, unknown, assume_unique=True)
        leaving = rows[:, elsewhere]
        solver = find_solver(rows[:, unknown], row_sums(leaving))
        f[unknown] = solver.solve(leaving @ f[elsewhere])
    return f


def hitting_time(
    chain: RewardProcess, target: ArrayLike, *, given_hit: bool = False, in_time: bool = False
) -> FloatArray:
    """Return the expected steps until one of the target states is reached, h = 1 + P h.

    0 on the target, infinite where it may never be reached.

    Parameters
    ----------
    chain : MarkovChain
    target : states
        One or several, by number or name, or a mask of shape (S,). Of a recurrent class, such as
        ``chain.recurrent_classes[0]``, it is the time until this class absorbs.
    given_hit : bool
        Average over the paths that reach the target alone: E[τ | τ < ∞]. NaN where none does.
    in_time : bool
        Add up the durations of the steps instead of counting them; not with given_hit.

    Returns
    -------
    ndarray, shape (S,)

    Raises
    ------
    InvalidArgumentError
        If in_time and given_hit are asked for together.

    Examples
    --------
    A walk that ends at 0 or at 3, and from 1 the shorter way if it is known to end at 0:

    >>> from unichain_gym import MarkovChain
    >>> P = [[1, 0, 0, 0], [0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 0, 1]]
    >>> walk = MarkovChain(P, [0, 1, 1, 0], [0, 1, 0, 0], state_names=["ruin", "1", "2", "riches"])
    >>> walk.hitting_time("ruin", given_hit=True).round(9).tolist()
    [0.0, 1.666666667, 2.666666667, nan]
    >>> walk.hitting_reward(["ruin", "riches"]).round(9).tolist()
    [0.0, 2.0, 2.0, 0.0]
    """
    if in_time:
        if given_hit:
            raise InvalidArgumentError(
                "given_hit=True counts steps: how long they take may depend on whether the "
                "target is hit; leave out in_time=True"
            )
        time, unknown, _, solver = _until_hit(chain, target)
        if solver is not None and chain.durations is not None:
            time[unknown] = solver.solve(chain.durations[unknown])
        return time
    if not given_hit:
        return _until_hit(chain, target)[0]
    # E[τ; τ < ∞] = f + P E[τ; τ < ∞] off the target, f being the probability of a hit.
    f = hitting_probability(chain, target)
    time = np.where(f > 0.0, 0.0, np.nan)
    on_target = np.isin(np.arange(f.size), read_states(target, f.size, chain.state_names))
    U = np.flatnonzero((f > 0.0) & ~on_target)
    if U.size:
        rows = chain.transition_matrix[U]
        leaving = np.flatnonzero((f == 0.0) | on_target)
        time[U] = find_solver(rows[:, U], row_sums(rows[:, leaving])).solve(f[U]) / f[U]
    return time


def hitting_reward(chain: RewardProcess, target: ArrayLike) -> FloatArray:
    """Return the expected total reward before one of the target states is reached, w = r + P w.

    0 on the target. NaN where it may never be reached: the total may have no limit there.

    Parameters
    ----------
    chain : MarkovChain
    target : states
        As for `hitting_time`.

    Returns
    -------
    ndarray, shape (S,)
    """
    time, unknown, _, solver = _until_hit(chain, target)
    total = np.where(np.isfinite(time), 0.0, np.nan)
    if solver is not None:
        total[unknown] = finite(solver.solve(chain.reward[unknown]))
    return total


def _until_hit(
    chain: RewardProcess, target: ArrayLike
) -> tuple[FloatArray, IntArray, sparse.csr_array, Solver | None]:
    """Return the hitting time (S,), where a system tells it, and its rows of P and solver."""
    P = chain.transition_matrix
    targets = read_states(target, P.shape[0], chain.state_names)
    is_target = np.isin(np.arange(P.shape[0]), targets)
    _, may_miss = _possibilities(P, is_target, is_target)
    h = np.where(may_miss, np.inf, 0.0)
    unknown = np.flatnonzero(~is_target & ~may_miss)
    rows = P[unknown]
    if not unknown.size:
        return h, unknown, rows, None
    solver = solver_until(rows, unknown, targets)
    h[unknown] = solver.solve(np.ones(unknown.size))
    return h, unknown, rows, solver


def solver_until(rows: sparse.csr_array, states: IntArray, targets: IntArray) -> Solver:
    """Return what sums over steps until a target is hit, for states (n,) that surely hit one.

    ``rows`` (n, S) are those of P; solving for 1 gives the expected number of steps.
    """
    return find_solver(rows[:, states], row_sums(rows[:, np.unique(targets)]))


def _possibilities(
    P: sparse.csr_array, is_target: BoolArray, is_end: BoolArray
) -> tuple[BoolArray, BoolArray]:
    """Return from which states (S,) a walk may hit a target before it ends, and may not do so."""
    row, _ = edges(P)
    backward = sparse.csr_array(keep_edges(P, ~is_end[row]).T)
    may_hit = _leads_to(backward, is_target)
    return may_hit, _leads_to(backward, ~may_hit)


def _leads_to(backward: sparse.csr_array, states: BoolArray) -> BoolArray:
    """Return which states have a way to some of the given ones, themselves included; (S,)."""
    depth, _ = search_breadth_first(backward, np.flatnonzero(states))
    return np.asarray(depth >= 0)


def hitting_time_variance(chain: RewardProcess, target: ArrayLike) -> FloatArray:
    """Return the variance of the steps until one of the target states is reached.

    0 on the target. NaN where the target may never be reached: there the mean and the second
    moment are infinite, and the variance does not exist. Elsewhere the second moment is the
    variance plus `hitting_time` squared.

    Parameters
    ----------
    chain : MarkovChain
    target : states
        As for `hitting_time`.

    Returns
    -------
    ndarray, shape (S,)
    """
    mean, unknown, rows, solver = _until_hit(chain, target)
    variance = np.where(np.isfinite(mean), 0.0, np.nan)
    if solver is not None:
        variance[unknown] = finite(solver.solve(step_variances(rows, unknown, mean)))
    return variance


def step_variances(rows: sparse.csr_array, states: IntArray, mean: FloatArray) -> FloatArray:
    """Return Σ_s' P(s, s') (1 + h(s') - h(s))² for some states s; h is the expected time to a hit.

    ``rows`` (n, S) are those of P; none may go where h, ``mean`` (S,), is infinite.
    """
    row, column = edges(rows)
    # The root of the probability first: the square alone may exceed the range of doubles.
    with np.errstate(over="ignore"):
        step = np.sqrt(rows.data) * (1.0 + (mean[column] - mean[states[row]]))
        return finite(group_sums(row, step**2, states.size))
