"""Hitting a set of states: probability, mean and variance of the time, and reward.

For targets B, and states C that must not be visited before, the probability of a hit is the
least nonnegative solution of

    f = 1 on B,    f = 0 on C,    f(s) = Σ_s' P(s, s') f(s') elsewhere.

For the time τ until a hit, of mean h = E τ, the law of total variance gives

    Var τ(s) = Σ_s' P(s, s') ((1 + h(s') - h(s))² + Var τ(s')),

the sum of squared steps of the martingale t + h(s_t). It has no cancellation, unlike E τ² - (E τ)².
(Kemeny & Snell, 1960, Finite Markov Chains, theorems 3.3.5 and 3.3.7; Norris, 1997, Markov Chains,
theorem 1.3.2.) The graph of possible transitions decides where the probability is exactly 1 or
exactly 0.

The diameter of an MDP (Jaksch, Ortner & Auer, 2010, J. Mach. Learn. Res. 11, definition 1) is

    D = max_{s ≠ s'} min_π E[steps from s until s' is reached under π].

For each target the minimum is a stochastic shortest path, found by policy iteration from a policy
of shortest paths. This policy reaches the target with probability 1, and so do all better policies
(Bertsekas & Tsitsiklis, 1991, Math. Oper. Res. 16).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym.elimination import finite
from unichain_gym.errors import InvalidArgumentError, InvalidModelError, ModelTooLargeError
from unichain_gym.interface import BoolArray, FloatArray, OutcomeModel, RewardProcess
from unichain_gym.labels import read_states
from unichain_gym.linear import Solver, find_solver
from unichain_gym.pairs import Pairs
from unichain_gym.structure import edges, group_sums, keep_edges, row_sums, search_breadth_first

MAX_TARGETS = 1_000
# An action of a shortest path is replaced only for a gain above rounding.
IMPROVEMENT = 1e-10


def hitting_probability(
    chain: RewardProcess, targets: ArrayLike, avoiding: ArrayLike | None = None
) -> FloatArray:
    """Return the probability of ever reaching one of the target states, shape (S,).

    Exactly 1 where a hit is certain, including the targets, and exactly 0 where it is impossible.
    (Norris, 1997, theorem 1.3.2.)

    Parameters
    ----------
    targets, avoiding : states
        The states to reach, and the states that must not be visited before, where the answer is 0.
        Each is one state or several, by number or name, or a mask of shape (S,).

    Raises
    ------
    InvalidModelError
        If a state does not exist, or is in both arguments.
    """
    P = chain.transition_matrix
    is_target = _mask(chain, targets)
    is_avoided = _mask(chain, avoiding) if avoiding is not None else np.zeros_like(is_target)
    if (is_target & is_avoided).any():
        state = np.argmax(is_target & is_avoided)
        raise InvalidModelError(f"state {state} is in both targets and avoiding")
    may_hit, may_miss = _possibilities(P, is_target, is_target | is_avoided)
    f = np.where(may_hit, 1.0, 0.0)
    is_open = may_hit & may_miss
    if is_open.any():
        f[is_open] = _solver_on(P, is_open).solve((P @ np.where(is_open, 0.0, f))[is_open])
    return f


def hitting_time(
    chain: RewardProcess, target: ArrayLike, *, given_hit: bool = False, in_time: bool = False
) -> FloatArray:
    """Return the expected steps until one of the target states is reached, shape (S,).

    h = 1 + P h, and 0 on the target; infinite if the target may never be reached.

    Parameters
    ----------
    target : states
        One or several, by number or name, or a mask of shape (S,). A recurrent class, such as
        ``chain.recurrent_classes[0]``, gives the time to enter this class.
    given_hit : bool
        Average only over paths that reach the target: E[τ | τ < ∞]. NaN if no path reaches it.
    in_time : bool
        Add up the durations of the steps instead of counting them; not with given_hit.

    Raises
    ------
    InvalidArgumentError
        If in_time and given_hit are both True.

    Examples
    --------
    A walk ends at 0 or at 3; walks from 1 that end at 0 are shorter:

    >>> from unichain_gym import MarkovChain
    >>> P = [[1, 0, 0, 0], [0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 0, 1]]
    >>> walk = MarkovChain(P, [0, 1, 1, 0], [0, 1, 0, 0], state_names=["ruin", "1", "2", "riches"])
    >>> walk.hitting_time("ruin", given_hit=True).round(9).tolist()
    [0.0, 1.666666667, 2.666666667, nan]
    >>> walk.hitting_reward(["ruin", "riches"]).round(9).tolist()
    [0.0, 2.0, 2.0, 0.0]
    """
    if not given_hit:
        durations = chain.durations if in_time else None
        added = np.ones(chain.n_states) if durations is None else durations
        return _until_hit(chain, target)[0](added, np.inf)
    if in_time:
        raise InvalidArgumentError(
            "given_hit=True counts steps: how long they take may depend on whether the "
            "target is hit; leave out in_time=True"
        )
    # E[τ; τ < ∞] = f + P E[τ; τ < ∞] off the target, f being the probability of a hit.
    f = hitting_probability(chain, target)
    time = np.where(f > 0.0, 0.0, np.nan)
    on_way = (f > 0.0) & ~_mask(chain, target)
    if on_way.any():
        time[on_way] = _solver_on(chain.transition_matrix, on_way).solve(f[on_way]) / f[on_way]
    return time


def hitting_reward(chain: RewardProcess, target: ArrayLike) -> FloatArray:
    """Return the expected total reward before one of the target states is reached, shape (S,).

    w = r + P w, and 0 on the target. NaN if the target may never be reached: the total may have no
    limit.

    Parameters
    ----------
    target : states
        As for `hitting_time`.
    """
    return _until_hit(chain, target)[0](chain.reward, np.nan)


def hitting_time_variance(chain: RewardProcess, target: ArrayLike) -> FloatArray:
    """Return the variance of the steps until one of the target states is reached, shape (S,).

    0 on the target. NaN if the target may never be reached: mean and second moment are infinite,
    and the variance does not exist.

    Parameters
    ----------
    target : states
        As for `hitting_time`.
    """
    sums, is_way = _until_hit(chain, target)
    way, steps = np.flatnonzero(is_way), np.zeros(is_way.size)
    mean, rows = sums(np.ones(is_way.size), np.inf), chain.transition_matrix[way]
    row, column = edges(rows)
    # Multiply by the root of the probability first: the square alone may overflow.
    with np.errstate(over="ignore"):
        step = np.sqrt(rows.data) * (1.0 + (mean[column] - mean[way[row]]))
        steps[way] = finite(group_sums(row, step**2, way.size))
    return sums(steps, np.nan)


def _mask(chain: RewardProcess, states: ArrayLike) -> BoolArray:
    mask = np.zeros(chain.reward.size, dtype=bool)
    mask[read_states(states, mask.size, chain.state_names)] = True
    return mask


def _until_hit(
    chain: RewardProcess, target: ArrayLike
) -> tuple[Callable[[FloatArray, float], FloatArray], BoolArray]:
    """Return a function that sums over the steps to a hit, and where it does: on the way, (S,).

    The function takes what each state adds, (S,), and the sum if the target may be missed.
    """
    P, is_target = chain.transition_matrix, _mask(chain, target)
    _, may_miss = _possibilities(P, is_target, is_target)
    is_way = ~(is_target | may_miss)
    solver = _solver_on(P, is_way) if is_way.any() else None

    def sums(added: FloatArray, if_missed: float) -> FloatArray:
        total = np.where(may_miss, if_missed, 0.0)
        if solver is not None:
            total[is_way] = finite(solver.solve(added[is_way]))
        return total

    return sums, is_way


def _solver_on(P: sparse.csr_array, inside: BoolArray) -> Solver:
    """Return a solver of x = c + P x on some states, with x = 0 outside of them."""
    rows = P[inside]
    return find_solver(rows[:, inside], row_sums(rows[:, ~inside]))


def _possibilities(
    P: sparse.csr_array, is_target: BoolArray, is_end: BoolArray
) -> tuple[BoolArray, BoolArray]:
    """Return masks (S,) of the states from which a walk may hit a target, and may miss it."""
    row, _ = edges(P)
    backward = sparse.csr_array(keep_edges(P, ~is_end[row]).T)
    may_hit = search_breadth_first(backward, np.flatnonzero(is_target))[0] >= 0
    may_miss = search_breadth_first(backward, np.flatnonzero(~may_hit))[0] >= 0
    return np.asarray(may_hit), np.asarray(may_miss)


def find_diameter(mdp: OutcomeModel) -> float:
    """Return the diameter of an MDP, the largest of all least expected hitting times.

    Infinite if some state cannot be reached from another.

    Raises
    ------
    ModelTooLargeError
        Beyond 1,000 states: each target takes a policy iteration.
    """
    S = mdp.n_states
    if S > MAX_TARGETS:
        raise ModelTooLargeError(
            f"the diameter takes a policy iteration for each of {S} target states; the limit is "
            f"{MAX_TARGETS} states. For one target and one policy there is chain.hitting_time"
        )
    pairs = mdp._pairs
    place = pairs.Q.indices, pairs.source
    backward = sparse.csr_array((np.ones(pairs.Q.nnz), place), shape=(S, S))
    largest = 0.0
    for target in range(S) if S > 1 else ():
        largest = max(largest, float(_shortest_times(pairs, backward, target).max()))
        if np.isinf(largest):
            break
    return largest


def _shortest_times(pairs: Pairs, backward: sparse.csr_array, target: int) -> FloatArray:
    """Return the least expected number of steps to a target state, shape (S,)."""
    depth, _ = search_breadth_first(backward, np.array([target]))
    if (depth < 0).any():
        return np.full(depth.size, np.inf)
    others = np.delete(np.arange(depth.size), target)
    nearest = np.minimum.reduceat(depth[pairs.Q.indices], pairs.Q.indptr[:-1])
    rows, times = pairs.leaders(-nearest.astype(np.float64)), np.zeros(depth.size)
    while True:
        own = pairs.Q[rows[others]]
        solver = find_solver(own[:, others], row_sums(own[:, [target]]))
        times[others] = solver.solve(np.ones(others.size))
        ahead = pairs.Q @ times
        best = pairs.leaders(-ahead)
        is_better = ahead[best] < ahead[rows] * (1.0 - IMPROVEMENT)
        is_better[target] = False
        if not is_better.any():
            return times
        rows = np.where(is_better, best, rows)
