"""Counts of transitions, by table and by sorting, held to a plain loop."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lstd_agent.trials.counted import CountRecorder


@pytest.mark.parametrize("n_states", [1, 7, 300, 70_000, 3_000_000])
@pytest.mark.parametrize("n_trials", [1, 5_000])
def test_every_transition_is_counted_and_every_reward_added(n_states: int, n_trials: int) -> None:
    rng = np.random.default_rng(n_states)
    recorder = CountRecorder(n_states)
    expected: list[tuple[Counter[int], Counter[int]]] = []
    for _ in range(3):
        # Few different states, at both ends of their range.
        state, following = n_states - 1 - rng.integers(min(n_states, 40), size=(2, n_trials))
        following %= n_states
        state[::2] = 0
        reward = rng.standard_normal(n_trials)
        recorder.record(state, reward, following)
        pairs = Counter((state * n_states + following).tolist())
        paid: Counter[int] = Counter()
        for s, r in zip(state.tolist(), reward.tolist(), strict=True):
            paid[s] += r
        expected.append((pairs, paid))
    counts = recorder.sums(n_trials)
    for t, (pairs, paid) in enumerate(expected):
        for matrix, entries in (
            (counts.transition_counts, pairs),
            (counts.reward_sums, paid),
        ):
            row = slice(matrix.indptr[t], matrix.indptr[t + 1])
            columns = sorted(entries)
            assert matrix.indices[row].tolist() == columns
            assert_allclose(matrix.data[row], [entries[c] for c in columns], rtol=1e-12, atol=1e-12)
