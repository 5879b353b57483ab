"""The chain against figures computed by independent code and published by other authors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unichain_gym import MarkovChain, TabularMDP, make_mdp

N_CHAINS, N_PUBLISHED = 24, 100


def test_every_case_of_the_reference_files_is_compared(reference: Any) -> None:
    assert len(reference("chains")["cases"]) == N_CHAINS
    assert len(reference("external_mdps")["cases"]) == N_PUBLISHED


@pytest.fixture(scope="module", params=range(N_CHAINS))
def case(request: pytest.FixtureRequest, reference: Any) -> tuple[dict[str, Any], MarkovChain]:
    figures = reference("chains")["cases"][request.param]
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
def published(reference: Any) -> Any:
    return reference("external_mdps")


@pytest.mark.parametrize("number", range(N_PUBLISHED))
def test_published_figures_of_other_peoples_mdps(published: Any, number: int) -> None:
    case = published["cases"][number]
    model = published["mdps"][case["mdp"]]
    mdp = TabularMDP.from_transitions(model["transitions"], model["initial"])
    chain = mdp.induce(case["policy"])
    assert chain.gain == pytest.approx(case["gain"], rel=1e-8, abs=1e-8)
    assert chain.bias[0] == pytest.approx(case["bias_s0"], rel=1e-8, abs=1e-8)
    assert chain.discounted_value(0.95)[0] == pytest.approx(case["discounted_095_s0"], rel=1e-8)
    # Their definition: the first t at which P^t(s0, ·) is elementwise close to p*.
    limit = chain.stationary_distribution
    p = chain.stepwise_distributions(case["mixing_time_s0"] + 1)
    is_close = (np.abs(p - limit) <= 1e-6 + 1e-5 * limit).all(axis=1)
    assert int(np.argmax(is_close)) == case["mixing_time_s0"]
