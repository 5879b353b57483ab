"""What transition counts tell of single timesteps."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from lstd_agent.statistics.backups import Step
from lstd_agent.trials.counting import TransitionCounts


def counted_step(counts: TransitionCounts, t: int, terminal: int | None) -> Step:
    """Return the frequencies and mean rewards of timestep t, a terminal state left out."""
    S, N, R = counts.n_states, counts.transition_counts, counts.reward_sums
    here = slice(N.indptr[t], N.indptr[t + 1])
    state, next_state = np.divmod(N.indices[here].astype(np.int64), S)
    count = N.data[here]
    living = state != (-1 if terminal is None else terminal)
    n_samples = int(count.sum())
    state, next_state, count = state[living], next_state[living], count[living]
    states, row = np.unique(state, return_inverse=True)
    visits = np.bincount(row, weights=count, minlength=states.size).astype(np.float64)
    rewards = np.zeros(S)
    paid = slice(R.indptr[t], R.indptr[t + 1])
    rewards[R.indices[paid]] = R.data[paid]
    transitions = sparse.csr_array((count / visits[row], (row, next_state)), shape=(states.size, S))
    return Step(states, visits, transitions, rewards[states] / visits, n_samples)
