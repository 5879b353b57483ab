"""Hitting a set of states: how probably, how soon, and how the time until then is spread.

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
from scipy import sparse

from unichain_gym.arrays import BoolArray, FloatArray, IntArray
from unichain_gym.elimination import finite
from unichain_gym.linear import find_solver
from unichain_gym.structure import edges, group_sums, row_sums, search_breadth_first


def hitting_probabilities(P: sparse.csr_array, targets: IntArray, avoided: IntArray) -> FloatArray:
    """Return the probability of ever hitting a target before any avoided state.

    Parameters
    ----------
    P : csr_array, shape (S, S)
        Transition matrix without stored zeros.
    targets, avoided : ndarray of int
        States, without a common one.

    Returns
    -------
    ndarray, shape (S,)
    """
    n = P.shape[0]
    is_target, is_avoided = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    is_target[targets] = True
    is_avoided[avoided] = True
    # The walk ends where it is decided, so nothing leads on from there.
    row, column = edges(P)
    goes_on = ~(is_target | is_avoided)[row]
    backward = sparse.csr_array((P.data[goes_on], (column[goes_on], row[goes_on])), shape=P.shape)
    may_hit = _leads_to(backward, is_target)
    may_miss = _leads_to(backward, ~may_hit)
    f = np.where(may_hit, 1.0, 0.0)
    unknown = np.flatnonzero(may_hit & may_miss)
    if unknown.size:
        rows = P[unknown]
        elsewhere = np.setdiff1d(np.arange(n), unknown, assume_unique=True)
        leaving = rows[:, elsewhere]
        solver = find_solver(rows[:, unknown], row_sums(leaving))
        f[unknown] = solver.solve(leaving @ f[elsewhere])
    return f


def _leads_to(backward: sparse.csr_array, states: BoolArray) -> BoolArray:
    """Return which states have a way to some of the given ones, themselves included; (S,)."""
    depth, _ = search_breadth_first(backward, np.flatnonzero(states))
    return np.asarray(depth >= 0)


def hitting_times(P: sparse.csr_array, target: IntArray) -> FloatArray:
    """Return the expected number of steps until a target state is reached, shape (S,).

    Infinite for states that may never reach one. (h = 0 on the target, h = 1 + P h elsewhere.)
    """
    to_target, _ = search_breadth_first(sparse.csr_array(P.T), target)
    is_target = to_target == 0
    # A walk that stops at the target can miss it only by way of a state that cannot reach it.
    row, column = edges(P)
    goes_on = ~is_target[row]
    backward = sparse.csr_array((P.data[goes_on], (column[goes_on], row[goes_on])), shape=P.shape)
    to_lost, _ = search_breadth_first(backward, np.flatnonzero(to_target < 0))
    h = np.where(to_lost >= 0, np.inf, 0.0)
    unknown = np.flatnonzero(~is_target & np.isfinite(h))
    if unknown.size:
        rows = P[unknown]
        block, leave = rows[:, unknown], row_sums(rows[:, np.flatnonzero(is_target)])
        h[unknown] = find_solver(block, leave).solve(np.ones(unknown.size))
    return h


def hitting_time_variances(P: sparse.csr_array, targets: IntArray, mean: FloatArray) -> FloatArray:
    """Return the variance of the number of steps until a target is hit, shape (S,).

    Parameters
    ----------
    P : csr_array, shape (S, S)
        Transition matrix without stored zeros.
    targets : ndarray of int
        States.
    mean : ndarray, shape (S,)
        The expected number of steps, infinite where the targets may be missed.

    Returns
    -------
    ndarray, shape (S,)
        NaN where the mean is infinite.
    """
    variance = np.where(np.isfinite(mean), 0.0, np.nan)
    is_unknown = np.isfinite(mean)
    is_unknown[targets] = False
    unknown = np.flatnonzero(is_unknown)
    if unknown.size:
        rows = P[unknown]
        leave = row_sums(rows[:, np.unique(targets)])
        solver = find_solver(rows[:, unknown], leave)
        source = step_variances(rows, unknown, mean)
        variance[unknown] = finite(solver.solve(source))
    return variance


def step_variances(rows: sparse.csr_array, states: IntArray, mean: FloatArray) -> FloatArray:
    """Return Σ_s' P(s, s') (1 + h(s') - h(s))² for some states s.

    Parameters
    ----------
    rows : csr_array, shape (n, S)
        The rows of P of these states, none of which may go where `mean` is infinite.
    states : ndarray of int, shape (n,)
        The states.
    mean : ndarray, shape (S,)
        h, the expected time until a hit.
    """
    row, column = edges(rows)
    # The root of the probability first: the square alone may exceed the range of doubles.
    with np.errstate(over="ignore"):
        step = np.sqrt(rows.data) * (1.0 + (mean[column] - mean[states[row]]))
        return finite(group_sums(row, step**2, states.size))
