"""What a fit cannot see of features is said, and what does no harm is no warning."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from lstd_agent import SeminormLSTDAgent
from lstd_agent.arrays import FloatArray
from lstd_agent.errors import FitWarning
from lstd_agent.features.rows import FeatureSizes


def drain(n_trials: int, t_max: int) -> tuple[FloatArray, FloatArray]:
    """A level that falls by a fifth each step and pays minus itself: b(x) - b(0) = -5 x."""
    level = np.random.default_rng(0).uniform(0.0, 10.0, (n_trials, 1, 1))
    # Products round alike on all processors, and powers do not: trials are dealt by their bits.
    falls = np.multiply.accumulate(np.append(1.0, np.full(t_max + 1, 0.8)))
    observed = level * falls[None, :, None]
    return observed, -observed[:, :-1, 0]


def fitted(features: Any, **options: Any) -> SeminormLSTDAgent:
    agent = SeminormLSTDAgent(features, n_anchors=1, backup="one_step", **options)
    return agent.add_trials(*drain(100, 80)).fit()


def test_a_feature_that_hardly_varies_beside_its_size_raises_a_warning() -> None:
    with pytest.warns(FitWarning, match=r"features 0 vary too little beside their size"):
        agent = fitted(lambda x: 1e8 + x)
    assert agent.diagnostics().features.lost.tolist() == [0]


def test_different_sizes_and_constants_are_reported_and_do_no_harm() -> None:
    def features(x: Any) -> Any:
        ones = np.ones(len(x))
        return np.stack((1e9 * x[:, 0], ones, 3.0 * ones, 1e-9 * x[:, 0] ** 2, 0.0 * ones), axis=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error", FitWarning)
        agent = fitted(features, gain=0.0)
    found = agent.diagnostics()
    assert found.features.lost.size == 0
    # Sizes are measured on some trials, which depend on the last bits of the powers of 0.8, and
    # these on the processor: the largest level among them is between 5 and 10.
    pattern = r"features    5, sizes [2-9]\.\d+e-08 to [5-9]\.\d+e\+09, 2 constant, 1 always 0\n"
    assert re.search(pattern, str(found))
    assert float(agent.compare([[8.0]], [[3.0]]).difference) == pytest.approx(-25.0, rel=1e-6)


def test_sizes_of_sparse_and_dense_features_agree() -> None:
    F = np.array([[0.0, 2.0, 0.0, 1e8], [1.0, 2.0, 0.0, 1e8 + 1.0]])
    dense, rows = FeatureSizes.of(F, 1e-6), FeatureSizes.of(sparse.csr_array(F), 1e-6)
    assert str(dense) == str(rows)
    assert dense.lost.tolist() == rows.lost.tolist() == [3]
    assert "features 3 vary too little" in dense.warning
