"""Features that people use, each a line, beside values in closed form."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_allclose
from scipy.linalg import solve_discrete_lyapunov

from lstd_agent import RadialBasis, RandomFourier, SeminormLSTDAgent
from lstd_agent.arrays import FloatArray
from lstd_agent.errors import FitWarning

MOTION = np.array([[1.0, 0.2], [-0.2, 0.7]])


def pushed(n_trials: int, t_max: int) -> tuple[FloatArray, FloatArray]:
    """Trials of x' = A x + noise that pay -x^T x."""
    rng = np.random.default_rng(0)
    states = [rng.uniform(-2.0, 2.0, (n_trials, 2))]
    for _ in range(t_max + 1):
        states.append(states[-1] @ MOTION.T + rng.normal(0.0, [0.0, 0.1], (n_trials, 2)))
    observed = np.stack(states, axis=1)
    return observed, -np.square(observed[:, :-1]).sum(axis=2)


OBSERVED, REWARDS = pushed(400, 60)


def of_centers() -> Any:
    return RadialBasis.kmeans(OBSERVED[:, :20].reshape(-1, 2), 40, seed=1)


def of_fourier() -> Any:
    return RandomFourier(80, width=2.0, seed=1)


def of_pipeline() -> Any:
    pipeline = pytest.importorskip("sklearn.pipeline")
    steps = pytest.importorskip("sklearn.preprocessing")
    made = pipeline.make_pipeline(steps.StandardScaler(), steps.PolynomialFeatures(2))
    return made.fit(OBSERVED.reshape(-1, 2))


def of_last_layer() -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Linear(2, 100), torch.nn.Tanh())
    return lambda x: body(torch.as_tensor(x, dtype=torch.float32))


@pytest.mark.parametrize("recipe", [of_centers, of_fourier, of_pipeline, of_last_layer])
def test_features_of_a_line_have_the_values_of_the_closed_form(recipe: Any) -> None:
    agent = SeminormLSTDAgent(recipe(), n_anchors=1, backup="one_step")
    for i in range(8):
        agent.add_trials(OBSERVED[i::8], REWARDS[i::8])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # of corners that few trials start in
        agent.fit()
    # b(x) = -x^T M x + constant, M the sum of A^T^t A^t.
    M = solve_discrete_lyapunov(MOTION.T, np.eye(2))
    a, b = np.array([[1.5, 0.5]]), np.array([[-0.5, 0.5]])
    right = -float((a @ M @ a.T - b @ M @ b.T)[0, 0])
    found = agent.compare(a, b, 0)
    assert abs(found.difference - right) < 3.0 * found.standard_error + 0.03 * abs(right)
    assert found.standard_error < 0.1 * abs(right)


def test_pictures_have_values_through_a_function_of_them() -> None:
    """A bright column moves to the left by one a step, and pays minus its place."""
    n_trials, t_max, width = 6, 24, 24
    start = np.linspace(2, 17, n_trials).astype(int)
    place = np.maximum(start[:, None] - np.arange(t_max + 2), 0)
    pictures = np.zeros((n_trials, t_max + 2, width, width, 3), dtype=np.uint8)
    trial, t = np.indices(place.shape)
    pictures[trial, t, :, place] = 255

    def seen(rows: Any) -> Any:
        column = rows.reshape(-1, width, width, 3)[:, 0, :, 0].argmax(axis=1)
        return np.stack((column, column**2), axis=1)

    agent = SeminormLSTDAgent(seen, n_anchors=1, backup="one_step")
    space = spaces.Box(0, 255, (width, width, 3), np.uint8)
    agent.add_trials(pictures, -1.0 * place[:, :-1], observation_space=space)
    assert agent.kept_trials.observations.dtype == np.uint8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # there are few trials
        agent.fit()
    values = agent.predict(pictures[:, 0], 0)
    assert_allclose(values - values[0], -0.5 * (start * (start + 1) - 6.0), atol=1e-6)
