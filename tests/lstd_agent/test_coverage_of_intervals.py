"""Nominal 95 % intervals hold the exact values about as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from lstd_agent import OneHot, SeminormLSTDAgent
from unichain_gym import TabularMDP, TabularVectorEnv

N_REPETITIONS = 40


@pytest.mark.slow
def test_intervals_of_a_start_that_is_left_at_once_hold_its_value() -> None:
    """10 or 6 for the first step into a coin of gain 1/2; anchors are searched anew each time.

    Of 40 intervals 38 are expected to hold it, and 33 or more in all but one of 1,000 runs.
    """
    outcomes = [(0, 0, 1, 1, 10), (1, 0, 1, 0.5, 0), (1, 0, 2, 0.5, 0), (2, 0, 1, 0.5, 1)]
    outcomes += [(2, 0, 2, 0.5, 1), (3, 0, 2, 1, 6)]
    mdp = TabularMDP.from_transitions(outcomes, [0.5, 0, 0, 0.5])
    exact = mdp.induce(np.zeros(4, dtype=int)).bias
    held = np.zeros(3)
    for seed in range(N_REPETITIONS):
        agent = SeminormLSTDAgent(OneHot())
        agent.collect(TabularVectorEnv(mdp, 20), np.zeros(4, dtype=int), 400, 40, seed=seed).fit()
        main = agent.main_reference_
        start = np.array([0, 3])
        error = agent.predict(start, 0) - (exact[start] - exact[main])
        held[:2] += np.abs(error) <= 1.96 * agent.standard_errors(start, 0)
        found = agent.compare(0, 3)
        held[2] += abs(found.difference - exact[0] + exact[3]) <= 1.96 * found.standard_error
    assert (held >= 33).all(), held
