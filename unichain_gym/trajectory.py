"""One path of a chain, drawn step by step.

Each step draws an outcome of its state, which is an action, a next state and a reward at once.
An outcome is found by bisection of the cumulative probabilities of its state's outcomes, which
are tabulated when the path first comes there, so that neither work nor memory depends on states
never visited. (For many paths at once see `unichain_gym.population`.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import sparse

from unichain_gym.arrays import FloatArray, IntArray
from unichain_gym.interface import OutcomeModel, RewardProcess
from unichain_gym.outcomes import draw_thresholds, read_count, read_generator, require_room

DRAWS = 2**16

# Of one state: thresholds, next states and numbers of its outcomes.
Table = tuple[list[float], list[int], list[int]]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One path of n steps.

    Parameters
    ----------
    states : ndarray of int, shape (n + 1,)
        The states, the last one included.
    actions : ndarray of int, shape (n,), or None
        The actions; None for a chain that was made from a transition matrix alone.
    rewards : ndarray of float, shape (n,)
        The reward of each step: as observed, or without actions the ``reward`` of its state.
    durations : ndarray of float, shape (n,), or None
        The time of each step, likewise; None if every step takes 1.

    Examples
    --------
    >>> from unichain_gym import make_mdp
    >>> path = make_mdp("x3").induce([1, 1, 1]).simulate(20, seed=0)
    >>> path
    Trajectory(n_steps=20)
    >>> int(path.states[-1]), float(path.rewards[-1])  # it has come to rest
    (2, 0.0)
    """

    states: IntArray
    actions: IntArray | None
    rewards: FloatArray
    durations: FloatArray | None = None

    def __repr__(self) -> str:
        return f"Trajectory(n_steps={self.rewards.size})"


def simulate(chain: RewardProcess, n_steps: int, seed: int | np.random.Generator) -> Trajectory:
    """Draw one path from the initial distribution; for many see `unichain_gym.simulate_counts`.

    Parameters
    ----------
    chain : MarkovChain
    n_steps : int
        Number of transitions.
    seed : int or numpy.random.Generator
        A seed, or a generator to draw from.

    Returns
    -------
    Trajectory

    Raises
    ------
    InvalidArgumentError
        If n_steps is no integer of at least 0, or the seed is neither.
    """
    n_steps = read_count("n_steps", n_steps)
    require_room("a path", n_steps)
    rng = read_generator(seed, "seed")
    thresholds = draw_thresholds(chain.initial_distribution)
    state = int(np.searchsorted(thresholds, rng.random(), side="right"))
    mdp, policy = chain.mdp, chain.policy
    if mdp is None or policy is None:
        states, _ = _follow(state, n_steps, rng, partial(_row, chain.transition_matrix))
        times = None if chain.durations is None else chain.durations[states[:-1]]
        return Trajectory(states, None, chain.reward[states[:-1]], times)
    states, outcome = _follow(state, n_steps, rng, partial(_outcomes, mdp, policy))
    action, k = np.divmod(outcome, mdp.next_state.shape[2])
    drawn = states[:-1], action, k
    times = None if mdp.durations is None else mdp.durations[drawn]
    return Trajectory(states, action, mdp.reward[drawn], times)


def _row(P: sparse.csr_array, state: int) -> Table:
    """Return the table of a state whose outcomes are its next states."""
    entries = slice(P.indptr[state], P.indptr[state + 1])
    ahead = P.indices[entries].tolist()
    return draw_thresholds(P.data[entries]).tolist(), ahead, ahead


def _outcomes(mdp: OutcomeModel, policy: FloatArray, state: int) -> Table:
    """Return the table of a state whose outcomes, numbered a K + k, are those of its actions."""
    probability = (policy[state, :, None] * mdp.probability[state]).ravel()
    possible = np.flatnonzero(probability)
    ahead = mdp.next_state[state].ravel()[possible]
    return draw_thresholds(probability[possible]).tolist(), ahead.tolist(), possible.tolist()


def _follow(
    state: int, n_steps: int, rng: np.random.Generator, table_of: Callable[[int], Table]
) -> tuple[IntArray, IntArray]:
    """Return the states (n_steps + 1,) and the outcomes (n_steps,) of a path."""
    tables: dict[int, Table] = {}
    states = np.empty(n_steps + 1, dtype=np.int64)
    outcomes = np.empty(n_steps, dtype=np.int64)
    states[0] = state
    for start in range(0, n_steps, DRAWS):
        stop = min(start + DRAWS, n_steps)
        visited, drawn = [], []
        for u in rng.random(stop - start).tolist():
            table = tables.get(state)
            if table is None:
                table = tables[state] = table_of(state)
            thresholds, ahead, number = table
            k = bisect_right(thresholds, u)
            state = ahead[k]
            visited.append(state)
            drawn.append(number[k])
        states[start + 1 : stop + 1] = visited
        outcomes[start:stop] = drawn
    return states, outcomes
