"""Features that do not suffice for vectors: fits that need less of them tell, and by how much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lstd_agent import LambdaReturn, Polynomial, SeminormLSTDAgent, TileCoding
from lstd_agent.errors import FitWarning

STEP = 0.1  # of time
LOW, HIGH = [-2.5], [2.5]
RIGHT = 55.63  # of starts 1.5 and -1.5, by a grid of 2,601 points


def well(n: int, t_max: int, seed: int = 0) -> tuple[Any, Any]:
    """Return trials in a double well, left and right; the right one pays 1 in a unit of time."""
    rng = np.random.default_rng(seed)
    x = np.empty((n, t_max + 2, 1))
    x[:, 0, 0] = np.array([-1.5, -0.5, 0.5, 1.5])[np.arange(n) % 4]
    for t in range(t_max + 1):
        push = 0.25 * STEP**0.5 * rng.normal(size=(n, 1))
        x[:, t + 1] = x[:, t] + 0.1 * STEP * (x[:, t] - x[:, t] ** 3) + push
    here = x[:, :-1, 0]
    return x, STEP * ((here > 0.0) + 0.1 * here)


def fitted(features: Any, n: int = 200, **options: Any) -> SeminormLSTDAgent:
    return SeminormLSTDAgent(features, **options).add_trials(*well(n, 1499)).fit()


def test_coarse_tiles_are_warned_of_and_as_uncertain_as_they_are_wrong() -> None:
    """Tiles are left slowly in small steps: single steps forget the well too soon."""
    tiles = TileCoding(LOW, HIGH, 6, 4)
    with pytest.warns(FitWarning, match="the features do not suffice: .* with more features or lo"):
        agent = fitted(tiles)
    found = agent.compare([1.5], [-1.5])
    assert abs(found.difference - RIGHT) < 3.0 * found.standard_error
    assert found.standard_error < 0.6 * RIGHT
    values = agent.predict([[1.5], [-1.5]])
    errors = agent.standard_errors([[1.5], [-1.5]])
    assert (np.abs(values - np.array([0.5, -0.5]) * RIGHT) < 3.0 * errors).all()


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
def test_longer_targets_are_nearer_as_the_warning_says() -> None:
    tiles, ways = TileCoding(LOW, HIGH, 6, 4), list[Any]([{"backup": LambdaReturn(0.9)}, {}])
    found = [fitted(tiles, **options).compare([1.5], [-1.5]) for options in ways]
    off = [abs(each.difference - RIGHT) for each in found]
    assert off[0] < 0.25 * off[1]


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # of rare crossings
def test_features_that_suffice_stay_as_certain_as_they_are() -> None:
    agent = fitted(Polynomial(9, scale=2.5))
    found = agent.compare([1.5], [-1.5])
    assert abs(found.difference - RIGHT) < 3.0 * found.standard_error < 0.3 * RIGHT
    assert agent.diagnostics().bent == 0.0


def test_what_many_observations_ask_takes_no_memory_of_their_square() -> None:
    agent = SeminormLSTDAgent(Polynomial(3)).add_trials(*well(40, 99))
    with pytest.warns(FitWarning):
        agent.fit()
    assert agent.standard_errors(np.linspace(-2.0, 2.0, 50_000)[:, None]).shape == (50_000,)
