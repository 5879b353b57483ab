"""Statistics of counted states whose features are many and sparse, such as one a state."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from lstd_agent.arrays import IntArray
from lstd_agent.features.rows import Rows, is_sparse
from lstd_agent.statistics.count_equations import transitions
from lstd_agent.statistics.equations import SparseEquations
from lstd_agent.trials.counts import TransitionCounts

# Features are taken for sparse if there are at least so many, and so small a part is not zero.
_FEWEST_SPARSE = 1000
_LARGEST_DENSITY = 0.02


def sparse_features(features: Rows) -> sparse.csr_array | None:
    """Return features (S, d) as a sparse matrix, or None where that does not pay.

    They must sum to the same for each state, as tiles and states do, so that they can represent
    a constant.
    """
    if features.shape[1] < _FEWEST_SPARSE:
        return None
    n_nonzero = features.nnz if is_sparse(features) else np.count_nonzero(features)
    if n_nonzero > _LARGEST_DENSITY * np.prod(features.shape, dtype=np.float64):
        return None
    total = features.sum(axis=1)
    constant = total[0] != 0.0 and np.allclose(total, total[0], rtol=1e-12)
    return sparse.csr_array(features) if constant else None


class SparseCounts:
    """What `lstd_agent.system.sparse` asks of counts.

    Parameters
    ----------
    counts : TransitionCounts
        Of a task that does not end.
    visits : csr_array, shape (t_max + 1, S)
    sparse_features : csr_array, shape (S, d)
    """

    def __init__(
        self,
        counts: TransitionCounts,
        visits: sparse.csr_array,
        sparse_features: sparse.csr_array,
    ) -> None:
        self._counts, self._visits = counts, visits
        self.sparse_features = sparse_features

    def sparse_equations(self, window: IntArray) -> SparseEquations:
        """Equations of a window (start, stop) with an open end."""
        F = self.sparse_features
        start, stop = window
        visits = self._visits[start:stop].sum(axis=0)
        rewards = self._counts.reward_sums[start:stop].sum(axis=0)
        Ft = sparse.csr_array(F.T)
        Z = sparse.csr_array(Ft @ sparse.diags_array(visits.astype(np.float64)) @ F)
        y = Ft @ np.stack((rewards, visits), axis=1)
        X = sparse.csr_array(Z - Ft @ self._pairs(start, stop - 1) @ F)
        leaving = sparse.csr_array(Ft @ self._pairs(stop - 1, stop))
        return SparseEquations(X, Z, y, leaving, int(visits.sum()))

    def _pairs(self, start: int, stop: int) -> sparse.csr_array:
        """Return the numbers of transitions of a window as a matrix (S, S)."""
        S = self._counts.n_states
        _, count, state, next_state = transitions(self._counts, np.array([[start, stop]]))
        return sparse.csr_array((count.astype(np.float64), (state, next_state)), shape=(S, S))
