"""`MarkovChain`: what a policy induces, and every exact quantity of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from unichain_gym.errors import MulticlassError

if TYPE_CHECKING:
    from unichain_gym.mdp import TabularMDP

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class MarkovChain:
    """The Markov chain of a policy: transition matrix P (CSR), reward r and start p^0."""

    def __init__(
        self,
        transition_matrix: sparse.csr_array,
        reward: ArrayLike,
        initial_distribution: ArrayLike,
        *,
        mdp: TabularMDP | None = None,
        policy: FloatArray | None = None,
    ) -> None:
        self.transition_matrix = sparse.csr_array(transition_matrix)
        self.reward: FloatArray = np.asarray(reward, dtype=np.float64)
        self.initial_distribution: FloatArray = np.asarray(initial_distribution, dtype=np.float64)
        self.mdp = mdp
        self.policy = policy

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return int(self.reward.size)

    @cached_property
    def recurrent_classes(self) -> list[IntArray]:
        """The recurrent classes, each a sorted array of states."""
        n, label = connected_components(self.transition_matrix, connection="strong")
        P = self.transition_matrix.tocoo()
        leaving = np.zeros(n, dtype=bool)
        leaving[label[P.row[label[P.row] != label[P.col]]]] = True
        return [np.flatnonzero(label == k) for k in np.flatnonzero(~leaving)]

    @cached_property
    def recurrent_states(self) -> IntArray:
        """All recurrent states, sorted."""
        return np.sort(np.concatenate(self.recurrent_classes))

    @cached_property
    def transient_states(self) -> IntArray:
        """All transient states, sorted."""
        return np.setdiff1d(np.arange(self.n_states), self.recurrent_states)

    @cached_property
    def stationary_distribution(self) -> FloatArray:
        """p* (S,)."""
        if len(self.recurrent_classes) > 1:
            raise MulticlassError("several recurrent classes")
        C = self.recurrent_classes[0]
        A = self.transition_matrix[C][:, C].toarray().T - np.eye(C.size)
        A[-1] = 1.0
        p = np.zeros(self.n_states)
        p[C] = np.linalg.solve(A, np.eye(C.size)[-1])
        return p

    @cached_property
    def gain(self) -> float:
        """g = p* r."""
        return float(self.stationary_distribution @ self.reward)

    @cached_property
    def bias(self) -> FloatArray:
        """Solution b of (I - P) b = r - g with p* b = 0."""
        n = self.n_states
        A = np.eye(n) - self.transition_matrix.toarray() + self.stationary_distribution
        return np.asarray(np.linalg.solve(A, self.reward - self.gain))

    def relative_value(self, reference: int) -> FloatArray:
        """b - b(reference)."""
        return self.bias - self.bias[reference]

    def stepwise_distributions(self, t_max: int) -> FloatArray:
        """p^t for t = 0 … t_max, shape (t_max + 1, S)."""
        p = np.empty((t_max + 1, self.n_states))
        p[0] = self.initial_distribution
        for t in range(t_max):
            p[t + 1] = p[t] @ self.transition_matrix
        return p

    def mixing_time(self, tol: float = 1e-10) -> int:
        """First t with total variation between p^t and p* at most tol."""
        p = self.initial_distribution
        t = 0
        while 0.5 * np.abs(p - self.stationary_distribution).sum() > tol:
            p = p @ self.transition_matrix
            t += 1
        return t

    def max_absorption_time(self, tol: float = 1e-8) -> int:
        """First t at which the Frobenius norm of P_tr^t is at most tol."""
        tr = self.transient_states
        P = self.transition_matrix[tr][:, tr].toarray()
        power = np.eye(tr.size)
        t = 0
        while np.linalg.norm(power) > tol:
            power = power @ P
            t += 1
        return t

    def bisimulation_distance(self, discount: float = 0.999) -> FloatArray:
        """d(s, s') = max_a |q(s, a) - q(s', a)|."""
        assert self.mdp is not None
        P = self.transition_matrix.toarray()
        v = np.linalg.solve(np.eye(self.n_states) - discount * P, self.reward)
        mdp = self.mdp
        successors = np.einsum("sak,sak->sa", mdp.probability, v[mdp.next_state])
        q = mdp.expected_reward + discount * successors
        return np.asarray(np.abs(q[:, None] - q[None]).max(axis=2))
