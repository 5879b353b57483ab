"""Fits to trials of vectors, each beside a ridge regression on the same features."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lstd_agent import KeptTrials, RadialBasis, RandomFourier, SeminormLSTDAgent, TileCoding
from lstd_agent.benchmarks.timing import Work, need
from lstd_agent.errors import FitWarning
from lstd_agent.system.solvers import SolverName

N_TILINGS = 8

# From so many dense features on, singular values take minutes.
_MANY = 2_000


class Plane(gym.Env[Any, Any]):
    """Tells the space of the oscillator below."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)


def oscillator(n_trials: int, t_max: int) -> KeptTrials:
    """Return trials of a damped oscillator that is pushed about, and pays minus its energy."""
    rng = np.random.default_rng(0)
    position, velocity = rng.uniform(-1.0, 1.0, (2, n_trials))
    states = np.empty((n_trials, t_max + 2, 2), dtype=np.float32)
    for t in range(t_max + 2):
        states[:, t, 0], states[:, t, 1] = position, velocity
        push = 0.1 * rng.normal(size=n_trials)
        velocity = np.clip(0.97 * velocity - 0.1 * position + push, -1.0, 1.0)
        position = np.clip(position + 0.1 * velocity, -1.0, 1.0)
    return KeptTrials.of(states, -np.square(states[:, :-1], dtype=np.float64).sum(axis=2))


def vector_fits(kind: str, size: int) -> tuple[Work, Work]:
    """Return a fit, and a ridge regression on the same features, with so many of a kind."""
    trials = oscillator(size, 20) if kind == "trials" else oscillator(300, 200)
    features: Any
    if kind == "tiles":
        n_tiles = round((size / N_TILINGS) ** 0.5) - 1
        features = TileCoding([-1.0, -1.0], [1.0, 1.0], n_tiles, N_TILINGS)
    elif kind == "dense":
        features = RandomFourier(size, 0.3)
    else:
        features = RadialBasis.grid([-1.0, -1.0], [1.0, 1.0], 7)
    solver: SolverName = "qr" if kind == "dense" and size >= _MANY else "svd"
    agent = SeminormLSTDAgent(features, anchors=[0, 10], backup="one_step", solver=solver)
    agent.attach(Plane()).add(trials)

    def fit() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # of what many features leave open
            agent.fit()

    ridge = need("sklearn.linear_model").Ridge(1e-6, fit_intercept=False)

    def regress() -> None:
        rows = features(trials.observations[:, :-1].reshape(-1, 2))
        ridge.fit(rows, trials.rewards.ravel())

    return fit, regress
