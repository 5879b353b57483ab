"""The chain against figures computed by independent code and published by other authors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unichain_gym import MarkovChain, TabularMDP, make_mdp

_REFERENCE = Path(__file__).resolve().parents[1] / "reference"
CASES = json.loads((_REFERENCE / "chains.json").read_text())["cases"]
EXTERNAL = json.loads((_REFERENCE / "external_mdps.json").read_text())


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case["env"])
def case(request: pytest.FixtureRequest) -> tuple[dict[str, Any], MarkovChain]:
    figures = request.param
    return figures, make_mdp(figures["env"]).induce(figures["policy"])


def test_long_run_quantities_are_the_reference_figures(
    case: tuple[dict[str, Any], MarkovChain],
) -> None:
    figures, chain = case
    np.testing.assert_allclose(chain.reward, figures["reward"], rtol=1e-9, atol=1e-9)
    assert chain.gain == pytest.approx(figures["gain"], rel=1e-9, abs=1e-9)
    for ours, theirs in (
        (chain.bias, "bias"),
        (chain.stationary_distribution, "stationary"),
        (chain.mean_absorption_time, "mean_absorption_time"),
        (chain.bisimulation_distance(0.999)[0], "bisimulation_distance_row0"),
    ):
        np.testing.assert_allclose(ours, figures[theirs], rtol=1e-9, atol=1e-9)


def test_times_are_the_reference_times(case: tuple[dict[str, Any], MarkovChain]) -> None:
    figures, chain = case
    assert chain.mixing_time() == figures["mixing_time_tv_1e_10"]
    assert chain.mixing_time(1e-6, "worst") == figures["mixing_time_worst_tv_1e_6"]
    assert chain.max_absorption_time() == figures["max_absorption_time_1e_8"]


def test_stepwise_distributions_are_the_reference_figures(
    case: tuple[dict[str, Any], MarkovChain],
) -> None:
    figures, chain = case
    p = chain.stepwise_distributions(200)
    for t, expected in figures["stepwise"].items():
        np.testing.assert_allclose(p[int(t)], expected, rtol=1e-9, atol=1e-12)


@pytest.fixture(scope="module")
def published_mdps() -> dict[str, TabularMDP]:
    return {
        name: TabularMDP.from_transitions(mdp["transitions"], mdp["initial"], name=name)
        for name, mdp in EXTERNAL["mdps"].items()
    }


@pytest.mark.parametrize("case", EXTERNAL["cases"], ids=lambda case: case["mdp"])
def test_published_figures_of_other_peoples_mdps(
    case: dict[str, Any], published_mdps: dict[str, TabularMDP]
) -> None:
    chain = published_mdps[case["mdp"]].induce(case["policy"])
    assert chain.gain == pytest.approx(case["gain"], rel=1e-8, abs=1e-8)
    assert chain.bias[0] == pytest.approx(case["bias_s0"], rel=1e-8, abs=1e-8)
    assert chain.discounted_value(0.95)[0] == pytest.approx(case["discounted_095_s0"], rel=1e-8)
    # Their definition: the first t at which P^t(s0, ·) is elementwise close to p*.
    limit = chain.stationary_distribution
    p = chain.stepwise_distributions(case["mixing_time_s0"] + 1)
    is_close = (np.abs(p - limit) <= 1e-6 + 1e-5 * limit).all(axis=1)
    assert int(np.argmax(is_close)) == case["mixing_time_s0"]
