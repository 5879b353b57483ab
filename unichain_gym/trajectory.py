"""One path of a chain, drawn several steps at a time.

An outcome of a state is an action, a next state and a reward at once. All paths of k steps from
each state are tabulated, and bisection of their cumulative probabilities draws one of them: one
draw for k steps. k is as large as the cost of the tables allows, and 1 if the chain has more
outcomes than the path has steps. If it has many more, a state is tabulated at its first visit, so
that work and memory depend on visited states only. (For many paths see `unichain_gym.population`.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from unichain_gym.interface import FloatArray, IntArray, RewardProcess
from unichain_gym.outcomes import draw_thresholds, read_count, read_generator, require_room
from unichain_gym.summary import html_table

DRAWS = 2**16
MOST_STEPS = 10  # of a draw
MOST_PATHS = 10_000  # in the tables, which must fit into the cache
_SHOWN = 10  # steps, in a notebook
PATH_COST = 0.4  # of tabulating a path, in draws
FEW_VISITS = 50  # outcomes for each step, above which most states are not visited

# For one state: thresholds of its paths, and the number of its first path.
Table = tuple[list[float], int]
# For some states: the number of outcomes of each; next state, probability and number of all.
Outcomes = tuple[IntArray, IntArray, FloatArray, IntArray]


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
        The observed reward of each step, or without actions the ``reward`` of its state.
    durations : ndarray of float, shape (n,), or None
        The time of each step, likewise; None if every step takes 1.
    state_names, action_names : sequence, optional
        For the table of a notebook.

    Examples
    --------
    >>> from unichain_gym import make_mdp
    >>> path = make_mdp("x3").induce([1, 1, 1]).simulate(20, seed=0)
    >>> path
    Trajectory(n_steps=20)
    >>> int(path.states[-1]), float(path.rewards[-1])  # absorbed
    (2, 0.0)
    """

    states: IntArray
    actions: IntArray | None
    rewards: FloatArray
    durations: FloatArray | None = None
    state_names: Sequence[str | int] | None = None
    action_names: Sequence[str | int] | None = None

    def __repr__(self) -> str:
        return f"Trajectory(n_steps={self.rewards.size})"

    def _repr_html_(self) -> str:
        """Return the first steps for notebooks."""
        n, actions, names = self.rewards.size, self.actions, self.action_names
        states = [
            s if self.state_names is None else self.state_names[s]
            for s in self.states[: _SHOWN + 1].tolist()
        ]
        rows: list[Sequence[str]] = [("step", "state", "action", "reward", "next state")]
        for t in range(min(_SHOWN, n)):
            taken = "" if actions is None else f"{names[actions[t]] if names else actions[t]}"
            paid = f"{self.rewards[t]:.6g}"
            rows.append((f"{t}", f"{states[t]}", taken, paid, f"{states[t + 1]}"))
        if n > _SHOWN:
            rows.append(("…", "", "", "", f"{n - _SHOWN} more steps"))
        return html_table(f"Trajectory, {n} steps: states, actions, rewards", rows)


def simulate(chain: RewardProcess, n_steps: int, seed: int | np.random.Generator) -> Trajectory:
    """Draw one path from the initial distribution; for many see `unichain_gym.simulate_counts`.

    The initial distribution is the MDP's; ``dataclasses.replace(mdp, initial_distribution=...)``
    gives an MDP with another.

    Parameters
    ----------
    n_steps : int
        Number of transitions.
    seed : int or numpy.random.Generator
        A seed, or a generator to draw from.
    """
    n_steps = read_count("n_steps", n_steps)
    require_room("a path", n_steps)
    rng = read_generator(seed, "seed")
    thresholds = draw_thresholds(chain.initial_distribution)
    start = int(np.searchsorted(thresholds, rng.random(), side="right"))
    mdp, n = chain.mdp, chain.n_states
    size = chain.transition_matrix.data.size if mdp is None else mdp.probability.size
    if size > FEW_VISITS * n_steps:
        visited = _VisitedTables(chain)
        drawn = _draw(visited, visited.after, start, n_steps, rng)
        after, outcome = np.array([visited.after, visited.number], dtype=np.int64)[:, drawn]
    else:
        n_tabulated = n_steps if size <= n_steps else 0
        tables, paths = _tabulate(*list_outcomes(chain, 0, n), n_tabulated)
        drawn = _draw(tables, paths[0, :, -1].tolist(), start, -(-n_steps // paths.shape[2]), rng)
        after, outcome = paths.take(drawn, axis=1).reshape(2, -1)[:, :n_steps]
    states = np.concatenate(([start], after))
    if mdp is None or chain.policy is None:
        times = None if chain.durations is None else chain.durations[states[:-1]]
        return Trajectory(states, None, chain.reward[states[:-1]], times, chain.state_names)
    action, k = np.divmod(outcome, mdp.next_state.shape[2])
    taken = states[:-1], action, k
    times = None if mdp.durations is None else mdp.durations[taken]
    names = chain.state_names, mdp.action_names
    return Trajectory(states, action, mdp.reward[taken], times, *names)


def list_outcomes(chain: RewardProcess, first: int, stop: int) -> Outcomes:
    """Return the outcomes of some states, numbered a K + k by actions, or by next state."""
    mdp, policy, P = chain.mdp, chain.policy, chain.transition_matrix
    if mdp is None or policy is None:
        indptr = P.indptr[first : stop + 1]
        after: IntArray = P.indices[indptr[0] : indptr[-1]].astype(np.int64)
        n = np.diff(indptr).astype(np.int64)
        return n, after, P.data[indptr[0] : indptr[-1]], after
    p = (policy[first:stop, :, None] * mdp.probability[first:stop]).reshape(stop - first, -1)
    row, number = np.nonzero(p)
    after = mdp.next_state[first:stop].reshape(p.shape)[row, number]
    return np.bincount(row, minlength=stop - first).astype(np.int64), after, p[row, number], number


class _VisitedTables(dict[int, Table]):
    """The tables of the states that were asked for; next states and numbers of their outcomes."""

    def __init__(self, chain: RewardProcess) -> None:
        self._chain = chain
        self.after: list[int] = []
        self.number: list[int] = []

    def __missing__(self, state: int) -> Table:
        count, after, p, number = list_outcomes(self._chain, state, state + 1)
        table = self[state] = _thresholds(count, p).tolist(), len(self.after)
        self.after += after.tolist()
        self.number += number.tolist()
        return table


def _thresholds(count: IntArray, p: FloatArray) -> FloatArray:
    """Return cumulative sums of rows of ``count`` positive probabilities, the last out of reach."""
    thresholds, first = np.empty_like(p), np.cumsum(count) - count
    for width in np.unique(count):
        entries = first[count == width][:, None] + np.arange(width)
        thresholds[entries] = p[entries].cumsum(axis=1)
    thresholds[first + count - 1] = np.inf
    return thresholds


def _tabulate(
    count: IntArray, after: IntArray, p: FloatArray, number: IntArray, n_steps: int
) -> tuple[list[Table], IntArray]:
    """Return the table of each state, and the next states and outcomes of all paths, (2, n, k)."""
    state, first = np.repeat(np.arange(count.size), count), np.cumsum(count) - count
    n_paths, k = count, 1
    while k < MOST_STEPS:
        more = np.bincount(state, n_paths[after], count.size).astype(np.int64)
        if more.sum() > min(MOST_PATHS, n_steps / (PATH_COST * k * (k + 1))):
            break
        n_paths, k = more, k + 1
    path, q = np.arange(p.size)[:, None], p
    for _ in range(k - 1):
        end = after[path[:, -1]]
        before = np.repeat(np.arange(end.size), count[end])
        ahead = np.arange(before.size) + (first[end] - np.cumsum(count[end]) + count[end])[before]
        path, q = np.column_stack((path[before], ahead)), q[before] * p[ahead]
    thresholds = _thresholds(n_paths, q).tolist()
    bounds = pairwise([0, *np.cumsum(n_paths).tolist()])
    return [(thresholds[a:b], a) for a, b in bounds], np.stack((after[path], number[path]))


def _draw(
    tables: list[Table] | _VisitedTables,
    ends: list[int],
    state: int,
    n: int,
    rng: np.random.Generator,
) -> IntArray:
    """Draw n paths one after the other, and return their numbers; ``ends`` says where each ends."""
    drawn = np.empty(n, dtype=np.int64)
    for start in range(0, n, DRAWS):
        numbers = []
        for u in rng.random(min(DRAWS, n - start)).tolist():
            thresholds, first = tables[state]
            j = first + bisect_right(thresholds, u)
            state = ends[j]
            numbers.append(j)
        drawn[start : start + DRAWS] = numbers
    return drawn
