"""One path of a chain, put together from pieces that are drawn side by side.

An outcome of a state is an action, a next state and a reward at once. A loop over single steps
draws the first states. Then many pieces of equal length, each from a state that the path has
visited, are drawn at once, step by step in arrays. Wherever the path comes to the start of an
unused piece, it takes the whole piece; elsewhere it takes single steps. When single steps have cost
as much as the pieces, new pieces are drawn from the states of the longer path.

The path has the law of the chain: nothing in an unused piece has influenced the path so far, and
all pieces have the same length. (A piece that ended at a chosen state would be too short on
average.) A chain that seldom returns to a state takes single steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from unichain_gym.interface import FloatArray, IntArray, RewardProcess
from unichain_gym.outcomes import (
    RowSearch,
    draw_thresholds,
    read_count,
    read_generator,
    require_room,
)
from unichain_gym.structure import edges
from unichain_gym.summary import html_table

BLOCK = 2**16  # of draws
SHORT = 5_000  # a path of fewer steps takes single steps
FIRST_STEPS = 500  # single ones, before the first pieces
# Pieces of n steps in all: n is limited by the path so far, by what is left of it, and by memory.
GROWTH, SPARE, MOST_STEPS = 20, 1.1, 2_000_000
PIECE_LENGTH = 0.4  # times √n
SINGLE_STEP = 8  # steps of pieces for one single step
_SHOWN = 10  # steps, in a notebook


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
    table = chain._outcomes
    drawn = table.draw(start, n_steps, rng)
    states = np.full(n_steps + 1, start)
    states[1:] = table.after[drawn]
    rewards, actions, names = table.reward[drawn], None, None
    times = None if table.duration is None else table.duration[drawn]
    if chain.mdp is not None and table.action is not None:
        actions, names = table.action[drawn], chain.mdp.action_names
    return Trajectory(states, actions, rewards, times, chain.state_names, names)


class OutcomeTable:
    """The possible outcomes of all states, state by state.

    Columns, one entry for each outcome: its state, the next state ``after``, the probability ``p``,
    reward, duration (None if all are 1) and action (None for a chain without an MDP). ``first`` is
    the first outcome of each state, (S + 1,).
    """

    def __init__(self, chain: RewardProcess) -> None:
        mdp, policy, P = chain.mdp, chain.policy, chain.transition_matrix
        taken: Any
        self.action: IntArray | None = None
        tau: FloatArray | None = chain.durations
        if mdp is None or policy is None:
            taken, self.after = edges(P)
            self.state, self.p, reward = taken, P.data, chain.reward
        else:
            state, action = np.nonzero(policy)
            p = policy[state, action, None] * mdp.probability[state, action]
            row, k = np.nonzero(p)
            self.state, self.action, self.p = state[row], action[row], p[row, k]
            taken = self.state, self.action, k
            self.after, reward, tau = mdp.next_state[taken], mdp.reward, mdp.durations
        self.reward = reward[taken]
        self.duration = None if tau is None else tau[taken]
        count = np.bincount(self.state, minlength=chain.n_states)
        self.first = np.concatenate(([0], np.cumsum(count)))
        self.width = 1 << int(count.max() - 1).bit_length()  # of rows for bisection

    @cached_property
    def thresholds(self) -> FloatArray:
        """Cumulative probabilities within each state, the last out of reach."""
        thresholds, count = np.empty_like(self.p), np.diff(self.first)
        for width in np.unique(count):
            entries = self.first[:-1][count == width][:, None] + np.arange(width)
            thresholds[entries] = self.p[entries].cumsum(axis=1)
        thresholds[self.first[1:] - 1] = np.inf
        return thresholds

    @cached_property
    def _rows(self) -> tuple[RowSearch, IntArray, IntArray]:
        """Rows of equal width: a search in their thresholds; the next row; each outcome."""
        place = np.arange(self.p.size) + (self.width * self.state - self.first[self.state])
        size = (self.first.size - 1) * self.width
        thresholds, following = np.full(size, np.inf), np.zeros(size, dtype=np.int64)
        thresholds[place], following[place] = self.thresholds, self.after * self.width
        outcome = np.zeros(size, dtype=np.int64)
        outcome[place] = np.arange(place.size)
        return RowSearch(thresholds, self.width), following, outcome

    def draw(self, state: int, n: int, rng: np.random.Generator) -> IntArray:
        """Draw the n outcomes of a path from a state."""
        columns: Any = self.first, self.thresholds, self.after
        first, thresholds, after = (
            column.tolist() if column.size <= n + 1 else memoryview(column) for column in columns
        )
        # Rows of equal width must not take much more memory than the outcomes.
        is_long = n > SHORT and (self.first.size - 1) * self.width <= 4 * self.after.size + 10**6
        pieces, ends, size = np.zeros((0, 1), dtype=np.int64), [0], 1
        unused: dict[int, list[int]] = {}  # pieces by start
        path, length = [pieces.ravel()], 0
        # Single steps before the next pieces are drawn; steps in single ones and in these pieces.
        n_left, in_singles, in_pieces = FIRST_STEPS if is_long else n, 0, 0
        while length < n:
            taken = []
            for u in rng.random(min(n_left, n - length, BLOCK)).tolist():
                while state in unused and length < n:
                    i = unused[state].pop()
                    if not unused[state]:
                        del unused[state]
                    taken.append(~i)
                    state = ends[i]
                    length += size
                if length >= n:
                    break
                j = bisect_right(thresholds, u, first[state], first[state + 1])
                taken.append(j)
                state = after[j]
                length += 1
            steps = np.array(taken, dtype=np.int64)
            is_piece = steps < 0
            outcomes = np.repeat(steps, np.where(is_piece, size, 1))
            outcomes[outcomes < 0] = pieces[~steps[is_piece]].ravel()
            path.append(outcomes)
            in_singles += (n_single := int(np.count_nonzero(~is_piece)))
            in_pieces += outcomes.size - n_single
            n_left -= n_single
            if n_left > 0 or length >= n:
                continue
            unused = {}
            if size > 1 and in_pieces < in_singles:  # the chain seldom returns
                n_left, size = length, 1
            else:
                n_wanted = max(int(SPARE * (n - length)), n // 4)
                n_steps = min(GROWTH * length, n_wanted, MOST_STEPS)
                size = 2 + int(PIECE_LENGTH * n_steps**0.5)
                starts = self.after[rng.choice(outcomes, n_steps // size + 1)]
                pieces, last = self._draw_together(starts, size, rng)
                ends = last.tolist()
                for i, start in enumerate(starts.tolist()):
                    unused.setdefault(start, []).append(i)
                n_left = max(FIRST_STEPS, n_steps // SINGLE_STEP)
            in_singles = in_pieces = 0
        return np.concatenate(path)[:n]

    def _draw_together(
        self, starts: IntArray, n: int, rng: np.random.Generator
    ) -> tuple[IntArray, IntArray]:
        """Draw n outcomes from each start, (n_starts, n), and return also the last states."""
        search, following, outcome = self._rows
        row, draws, gap = starts * self.width, np.empty(starts.size), np.empty(starts.size)
        drawn = np.empty((n, starts.size), dtype=np.int64)
        for slots in drawn:
            slots[:] = row
            search.find(slots, rng.random(out=draws), gap)
            following.take(slots, out=row, mode="clip")
        # Indices that are not contiguous would take several times as long.
        return outcome[drawn.T.copy()], row // self.width
