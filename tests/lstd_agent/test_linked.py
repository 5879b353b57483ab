"""Linked systems: solved backwards in time, held to exact values.

Independent figures are those of λ = 0 in `test_backups.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lstd_agent.system.fit_system import fit_system
from numpy.testing import assert_allclose
from study.exact_systems import ExactStatistics

from lstd_agent import OneHot, SeminormLSTDAgent
from unichain_gym import TabularMDP, make_mdp, simulate_counts


@pytest.mark.parametrize("anchors", [[0], [0, 1], [0, 7, 40], list(range(81))])
def test_exact_statistics_and_features_that_represent_it_give_the_bias(anchors: Any) -> None:
    chain = make_mdp("h6").induce(np.array([0, 1, 0, 1, 0, 1]))
    features = np.random.default_rng(0).normal(size=(6, 6))
    statistics = ExactStatistics(chain, features, chain.stepwise_distributions(80))
    system = fit_system(statistics, np.array(anchors), chain.gain)
    found = features @ system.weights[0] + system.offsets[0]
    exact = chain.relative_value(system.references.main)
    transient = chain.transient_states
    assert_allclose(found[transient], exact[transient], atol=1e-6 * np.ptp(exact))


def test_batches_agree_on_the_main_reference_where_two_states_are_visited_alike() -> None:
    # A fair coin: which of its sides the last neighborhood visits most is a matter of chance.
    mdp = TabularMDP.from_arrays(np.full((2, 1, 2), 0.5), [[0.0], [1.0]], [0.5, 0.5])
    counts = [simulate_counts(mdp.induce([0, 0]), 50, 40, seed) for seed in range(4, 12)]
    agent = SeminormLSTDAgent(OneHot(), 1)
    for portion in counts:
        agent.add(portion)
    agent.fit()
    assert agent.standard_errors([0, 1]).max() < 0.1
    assert agent.standard_errors([agent.main_reference_])[0] < 0.001
