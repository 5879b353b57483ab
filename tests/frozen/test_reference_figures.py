"""Reference figures through the public interface: linked systems and windows of several steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from numpy.testing import assert_allclose

from lstd_agent import LambdaReturn, MultiStep, SeminormLSTDAgent

pytestmark = pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")


def backup_of(case: Any) -> MultiStep | LambdaReturn:
    return MultiStep(case["m"]) if "m" in case else LambdaReturn(case["lambda"])


def fitted(sample: Any, *, as_vectors: bool = False, **options: Any) -> SeminormLSTDAgent:
    """An agent of a sample: its states counted, or taken for vectors of one number."""
    table = np.array(sample["features"])
    states, rewards = np.array(sample["states"]), np.array(sample["rewards"], dtype=float)
    if as_vectors:

        def features(observed: Any) -> Any:
            return table[observed[:, 0].astype(int)]

        agent = SeminormLSTDAgent(features, gain=sample["gain"], **options)
        return agent.add_trials(states[..., None].astype(float), rewards).fit()
    agent = SeminormLSTDAgent(table, gain=sample["gain"], **options)
    return agent.add_trials(states, rewards, observation_space=Discrete(len(table))).fit()


@pytest.mark.parametrize("number", range(4))
def test_linked_systems(reference: Any, number: int) -> None:
    problem = reference("linked")["sample"][number]
    assert len(problem["cases"]) == 6
    for case in problem["cases"]:
        agent = fitted(problem, anchors=case["anchors"], backup=backup_of(case))
        assert agent.main_reference_ == case["main_reference"]
        size = max(abs(v) for row in case["values"] for v in row if v is not None)
        for anchor, row in zip(case["anchors"], case["values"], strict=True):
            seen = [s for s, v in enumerate(row) if v is not None]
            expected = [row[s] for s in seen]
            assert_allclose(agent.predict(seen, anchor), expected, rtol=0, atol=1e-9 * size)


@pytest.mark.parametrize("way", ["counts", "trials"])
@pytest.mark.parametrize("anchor", [4, 9])
def test_windows_of_several_steps(reference: Any, way: str, anchor: int) -> None:
    sample = reference("multistep")["sample"]
    table, n_cases = np.array(sample["features"]), 0
    agents: dict[Any, SeminormLSTDAgent] = {}
    for case in sample["cases"]:
        if case["way"] != way or case["window"] not in ([0, anchor], [anchor, 15]):
            continue
        n_cases += 1
        backup = backup_of(case)
        if backup not in agents:
            agents[backup] = fitted(
                sample,
                as_vectors=way == "trials",
                anchors=[0, anchor],
                calibration="references",
                backup=backup,
            )
        part = agents[backup].neighborhoods_[case["window"][0] > 0]
        assert part.window == tuple(case["window"])
        expected = np.array(case["fitted"])
        assert_allclose(table @ part.weights, expected, atol=1e-8 * np.abs(expected).max())
    assert n_cases == {4: 12, 9: 6}[anchor]
