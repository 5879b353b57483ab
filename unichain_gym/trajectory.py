"""One path of a chain, put together from pieces that are drawn side by side.

An outcome of a state is an action, a next state and a reward at once; a *run* is a sequence of a
few outcomes, drawn by one uniform number. A loop over single runs draws the first states. Then many
pieces of equally many runs, each from a state that the path has visited, are drawn at once in
arrays. Wherever the path comes to the start of an unused piece, it takes the whole piece; elsewhere
it takes single runs. When few pieces are left, or single runs have cost as much as the pieces, new
pieces are drawn from the states of the longer path.

The path has the law of the chain: nothing in an unused piece has influenced the path so far, and
all pieces have the same length. (A piece that ended at a chosen state would be too short on
average.) A chain that seldom returns to a state takes single runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from unichain_gym.interface import FloatArray, IntArray, RewardProcess
from unichain_gym.labels import read_state
from unichain_gym.outcomes import draw_thresholds, read_count, read_generator, require_room
from unichain_gym.structure import edges
from unichain_gym.summary import html_table

BLOCK, SHORT = 1_000, 2_000  # draws at once; a path of fewer steps takes single steps
LONGEST_RUN, MOST_RUNS = 8, 32  # the steps of a run; the runs of a state, rounded up
MOST_CELLS = 2**19  # of runs of several steps
LISTED = 2**14  # cells that are read from lists
FIRST_RUNS = 500  # single ones, before the first pieces
# Pieces of n runs in all: as many as are left, and SPARE; or as save more single runs than they
# cost. The path so far and memory limit n.
SPARE, SPREAD, GROWTH, MOST_DRAWN = 1.1, 35, 40, 2_000_000
PIECE_LENGTH = 0.4  # times √n
SINGLE_RUN, FEW_LEFT = 8, 0.25  # runs in pieces for a single run; a share of the starts
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


def simulate(
    chain: RewardProcess,
    n_steps: int,
    seed: int | np.random.Generator,
    start: int | str | None = None,
) -> Trajectory:
    """Draw one path; for many see `unichain_gym.simulate_counts`.

    Parameters
    ----------
    n_steps : int
        Number of transitions.
    seed : int or numpy.random.Generator
        A seed, or a generator to draw from.
    start : int or str, optional
        The first state, by number or name; by default drawn from the initial distribution, the
        MDP's. ``dataclasses.replace(mdp, initial_distribution=...)`` gives an MDP with another.
    """
    n_steps = read_count("n_steps", n_steps)
    require_room("a path", n_steps)
    rng = read_generator(seed, "seed")
    table = chain._outcomes
    first = int(np.searchsorted(table.start, rng.random(), side="right"))
    if start is not None:
        first = read_state(start, chain.n_states, chain.state_names)
    drawn = table.draw(first, n_steps, rng)
    states = np.full(n_steps + 1, first)
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
    the first outcome of each state, (S + 1,); ``start`` has the thresholds of the first state.
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
        self.start = draw_thresholds(chain.initial_distribution)

    @cached_property
    def thresholds(self) -> FloatArray:
        """Cumulative probabilities within each state, the last out of reach."""
        thresholds, count = np.empty_like(self.p), np.diff(self.first)
        for width in np.flatnonzero(np.bincount(count)):
            entries = self.first[:-1][count == width][:, None] + np.arange(width)
            thresholds[entries] = self.p[entries].cumsum(axis=1)
        thresholds[self.first[1:] - 1] = np.inf
        return thresholds

    @cached_property
    def _runs(self) -> Runs:
        return Runs(self)

    def draw(self, state: int, n: int, rng: np.random.Generator) -> IntArray:
        """Draw the n outcomes of a path from a state."""
        count = np.diff(self.first)
        width = _power_of_two(count.max())
        # The table must not take much more memory than the outcomes, nor more time than it saves.
        most = min(4 * self.p.size + 10**6, max(n * width.bit_length(), MOST_CELLS))
        if n > SHORT and count.size * width <= most:
            return self._runs.draw(state, n, rng)
        columns: Any = self.first, self.thresholds, self.after
        first, thresholds, after = (
            column.tolist() if column.size <= n + 1 else memoryview(column) for column in columns
        )
        taken: list[int] = []
        while len(taken) < n:
            for u in rng.random(min(n - len(taken), BLOCK)).tolist():
                j = bisect_right(thresholds, u, first[state], first[state + 1])
                taken.append(j)
                state = after[j]
        return np.array(taken, dtype=np.int64)


class Runs:
    """The runs of a few steps from every state, as many steps as fit in `MOST_CELLS`.

    Each state has ``width`` cells. Cell i has the places i and i + n_cells; ``cut`` is the
    probability of the first one in the cell (Walker, 1977, ACM Trans. Math. Softw. 3). A place has
    a ``run``, a row of ``steps`` (n_runs, n_steps); the first cell of the state that it leads to is
    ``following``.
    """

    def __init__(self, table: OutcomeTable) -> None:
        first, n = table.first, table.first.size - 1
        row, state, p, degree = table.state, table.after, table.p, np.diff(first)
        steps = np.arange(p.size, dtype=np.int32)[:, None]
        width = _power_of_two(degree.max())
        while steps.shape[1] < LONGEST_RUN and p.size <= MOST_CELLS:
            count = degree[state]
            wider = _power_of_two(np.bincount(row, count).max())
            if wider > MOST_RUNS or n * wider > MOST_CELLS:
                break
            j = np.repeat(first[state] - np.cumsum(count) + count, count)
            j += np.arange(j.size)
            row, p = np.repeat(row, count), np.repeat(p, count) * table.p[j]
            steps = np.column_stack((np.repeat(steps, count, axis=0), j.astype(np.int32)))
            width, state = wider, table.after[j]
        begin, count = width * np.arange(n), np.bincount(row)
        cell = np.arange(row.size) + np.repeat(begin - np.cumsum(count) + count, count)
        share, run = np.zeros(n * width), np.repeat(np.cumsum(count) - count, width)
        share[cell], run[cell] = width * p, np.arange(row.size)
        order = np.argsort(share.reshape(n, width) >= 1.0, axis=1, kind="stable")
        order = (order + begin[:, None]).ravel()
        share, run = share[order], run[order]
        # A cell with less than its share is filled up by one with more. When that one has given
        # too much, it is filled up next.
        donor = np.arange(share.size)
        cell, small, large = begin, begin + 1, begin + width - 1
        for _ in range(width - 1):
            donor[cell] = large
            share[large] = left = share.take(large) - np.maximum(1.0 - share.take(cell), 0.0)
            is_spent = left < 1.0
            cell = np.where(is_spent, large, small)
            small, large = small + ~is_spent, large - is_spent
        self.width, self.steps, self.cut = width, steps, share
        self.run = np.concatenate((run, run.take(donor)))
        self.following = (width * state).astype(np.min_scalar_type(-share.size)).take(self.run)
        columns: Any = self.cut, self.following
        self._columns = [c.tolist() if c.size <= LISTED else memoryview(c) for c in columns]

    def draw(self, state: int, n: int, rng: np.random.Generator) -> IntArray:
        """Draw the n outcomes of a path from a state."""
        cuts, following = self._columns
        place, n_cells, n_runs = self.width * state, self.cut.size, -(-n // self.steps.shape[1])
        pieces, ends, size = np.zeros((1, 0), dtype=np.int64), [0], 1
        unused: dict[int, list[int]] = {}  # pieces by start
        path, length, n_left, n_starts = [pieces.ravel()], 0, FIRST_RUNS, 0
        while length < n_runs:
            taken, n_rest = [], n_runs - length
            cells, draws = self._draw_cells(min(n_left, n_rest, BLOCK), rng)
            for cell, u in zip(cells.tolist(), draws.tolist(), strict=True):
                while place in unused and n_rest > 0:
                    i = unused[place].pop()
                    if not unused[place]:
                        del unused[place]
                    taken.append(~i)
                    place = ends[i]
                    n_rest -= size
                if n_rest <= 0:
                    break
                place += cell
                if u >= cuts[place]:
                    place += n_cells
                taken.append(place)
                place = following[place]
            found = np.fromiter(taken, np.int64, len(taken))
            drawn = np.repeat(found, np.where(found < 0, size, 1))
            drawn[drawn < 0] = pieces[:, ~found[found < 0]].T.ravel()
            path.append(drawn)
            length += drawn.size
            n_left -= cells.size
            if length >= n_runs or (n_left > 0 and len(unused) >= FEW_LEFT * n_starts):
                continue
            starts, n_rest = self.following[np.concatenate(path)], n_runs - length
            n_states = np.count_nonzero(np.bincount(starts >> (self.width.bit_length() - 1)))
            n_drawn = max(SPARE * n_rest, (SPREAD * n_states * n_rest) ** 0.5)
            n_drawn = int(min(n_drawn, GROWTH * length, MOST_DRAWN))
            size, unused = 2 + int(PIECE_LENGTH * n_drawn**0.5), {}
            starts = rng.choice(starts, n_drawn // size + 1)
            pieces = self._draw_together(starts, size, rng)
            ends = self.following[pieces[-1]].tolist()
            for i, start in enumerate(starts.tolist()):
                unused.setdefault(start, []).append(i)
            n_left, n_starts = max(FIRST_RUNS, n_drawn // SINGLE_RUN), len(unused)
        outcomes = self.steps.take(self.run.take(np.concatenate(path)[:n_runs]), axis=0)
        return np.asarray(outcomes.ravel()[:n], dtype=np.int64)

    def _draw_cells(self, size: Any, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
        """Draw a cell of a row, and a uniform number that decides between its places."""
        draws = rng.random(size) * self.width
        cells = draws.astype(np.int64)
        draws -= cells
        return cells, draws

    def _draw_together(self, starts: IntArray, n: int, rng: np.random.Generator) -> IntArray:
        """Draw the places of n runs from each start, (n, n_starts)."""
        drawn, draws = self._draw_cells((n, starts.size), rng)
        at, cut = starts.copy(), np.empty(starts.size)
        for places, u in zip(drawn, draws, strict=True):
            places += at
            self.cut.take(places, out=cut, mode="clip")  # "clip" saves NumPy's check of indices
            places += self.cut.size * (u >= cut)
            self.following.take(places, out=at, mode="clip")
        return drawn


def _power_of_two(n: Any) -> int:
    """Return the least power of two of at least n."""
    return 1 << int(n - 1).bit_length()
