r"""Many timesteps at once: transitions between (timestep, state) pairs, by counts.

Targets of a timestep follow from those of the next, so that all of a block of timesteps are a
sparse triangular system, :math:`(I - \lambda P) T = c`, with a row for each timestep and state that
was visited. Most trials spend most of their time in few states: one system is solved where a loop
would be over thousands of timesteps of a few transitions each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.trials.counts import TransitionCounts

_NOTHING = sparse.csr_array((0, 0))


@dataclass(frozen=True, eq=False)
class Block:
    """Transitions of the timesteps from ``start`` up to ``stop``, in rows in order of time.

    Attributes
    ----------
    start, stop : int
    t, state : ndarray of int, shape (k,)
        Of each row; a terminal state has none.
    visits, rewards : ndarray, shape (k,)
        Numbers of samples, and mean rewards.
    inner : csr_array, shape (k, k)
        Frequencies of the rows that come next; of a single timestep there are none.
    outer : csr_array, shape (k, l)
        Frequencies of l transitions to where there is no row: beyond the block, to a terminal
        state, or to where no trial went on from.
    reached_t, reached : ndarray of int, shape (l,)
        The timesteps and states that those lead to. Of states, a slice may stand for all.
    n_samples : int
        Those of a terminal state included; 0 where the above is exact.
    """

    start: int
    stop: int
    t: IntArray
    state: IntArray
    visits: FloatArray
    rewards: FloatArray
    inner: sparse.csr_array
    outer: sparse.csr_array
    reached_t: IntArray
    reached: IntArray | slice
    n_samples: int

    @classmethod
    def of(cls, counts: TransitionCounts, start: int, stop: int, terminal: int | None) -> Block:
        """Return what counts tell of the timesteps."""
        S, N, R = counts.n_states, counts.transition_counts, counts.reward_sums
        here, paid = (slice(M.indptr[start], M.indptr[stop]) for M in (N, R))
        t, paid_t = (
            np.repeat(np.arange(start, stop), np.diff(M.indptr[start : stop + 1])) for M in (N, R)
        )
        state, next_state = np.divmod(N.indices[here].astype(np.int64), S)
        count = N.data[here]
        n_samples = int(count.sum())
        if terminal is not None:
            living = state != terminal
            t, state, next_state, count = (x[living] for x in (t, state, next_state, count))
        rows, row = np.unique(t * S + state, return_inverse=True)
        k = rows.size
        visits = np.bincount(row, weights=count, minlength=k).astype(np.float64)
        rewards = np.zeros(k)
        place, has = _find(rows, paid_t * S + R.indices[paid])
        rewards[place[has]] = R.data[paid][has]
        share, inner = count / visits[row], _NOTHING
        if stop - start > 1:
            following, goes_on = _find(rows, (t + 1) * S + next_state)
            places = row[goes_on], following[goes_on]
            inner = sparse.csr_array((share[goes_on], places), shape=(k, k))
            ends = ~goes_on
            t, next_state, row, share = t[ends], next_state[ends], row[ends], share[ends]
        outer = sparse.csr_array((share, (row, np.arange(row.size))), shape=(k, row.size))
        of_rows = rows // S, rows % S, visits, rewards / visits
        return cls(start, stop, *of_rows, inner, outer, t + 1, next_state, n_samples)

    @classmethod
    def single(
        cls,
        t: int,
        states: IntArray,
        visits: FloatArray,
        rewards: FloatArray,
        transitions: sparse.csr_array,
        n_samples: int,
    ) -> Block:
        """Return a single timestep, with frequencies (k, S) of all states that come next."""
        k, S = transitions.shape
        rows = np.full(k, t), states, visits, rewards
        ends = transitions, np.full(S, t + 1), slice(None)
        return cls(t, t + 1, *rows, _NOTHING, *ends, n_samples)

    @property
    def n_first(self) -> int:
        """How many rows are of the first timestep; they come first."""
        if self.is_single:
            return len(self.t)
        return int(np.searchsorted(self.t, self.start, side="right"))

    @property
    def is_single(self) -> bool:
        """Whether there is one timestep, which its rows leave."""
        return self.stop - self.start == 1

    def following(self, own: FloatArray, beyond: FloatArray, unknown: FloatArray) -> FloatArray:
        """Return what comes after each row, on average, shape (k, q).

        Parameters
        ----------
        own : ndarray, shape (k, q)
            Values of the rows; of a single timestep they do not matter.
        beyond : ndarray, shape (S, q)
            Values of states at the timestep after the block.
        unknown : ndarray, shape (S, q)
            Values of states in the block that are no rows.
        """
        outside = beyond[self.reached]
        if self.is_single:
            return np.asarray(self.outer @ outside)
        leaves = (self.reached_t == self.stop)[:, None]
        outside = np.where(leaves, outside, unknown[self.reached])
        return np.asarray(self.inner @ own + self.outer @ outside)

    def solver(self, decay: float) -> Callable[[FloatArray], FloatArray]:
        """Return the function that solves (I - λ P) T = c for T."""
        if self.inner.nnz == 0:
            return lambda c: c
        from scipy.sparse.linalg import splu  # takes long to import

        system = sparse.csc_array(sparse.eye_array(len(self.t)) - decay * self.inner)
        # Triangular as it is: any other order would fill it in.
        solve: Callable[[FloatArray], FloatArray] = splu(
            system, permc_spec="NATURAL", diag_pivot_thresh=0.0
        ).solve
        return solve


def _find(rows: IntArray, wanted: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the places of numbers among ascending ones, and whether each is there."""
    place = np.minimum(np.searchsorted(rows, wanted), max(rows.size - 1, 0))
    return place, rows[place] == wanted if rows.size else np.zeros(wanted.size, dtype=bool)
