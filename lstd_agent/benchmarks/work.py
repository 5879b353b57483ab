"""The pieces of work that rows compare, and what they are measured on."""

from __future__ import annotations

import warnings
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lstd_agent import (
    GaussianFeatures,
    KeptTrials,
    RadialBasis,
    RandomFourier,
    SeminormLSTDAgent,
    TileCoding,
)
from lstd_agent.arrays import IntArray
from lstd_agent.benchmarks.timing import Work, need
from lstd_agent.errors import FitWarning
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.statistics.equations import Moments
from lstd_agent.study.problems import population_counts, random_chain, random_features
from unichain_gym import MarkovChain, TabularMDP

# The environment of most rows, and how many copies of it step together.
ENV, VECTOR = "h100", 50_000

N_TILINGS = 8  # as in Sutton & Barto (2018), section 10.1

VectorEnv: TypeAlias = gym.vector.VectorEnv[Any, Any, Any]


def policy_of(n_states: int) -> IntArray:
    """Return a random deterministic policy for two actions."""
    return np.random.default_rng(0).integers(2, size=n_states)


def stepper(env: VectorEnv, n_steps: int, dtype: type[np.integer[Any]] = np.int64) -> Work:
    """Return the work of stepping a vector environment with the same actions."""
    env.reset()
    actions = np.ones(env.num_envs, dtype=dtype)

    def work() -> None:
        for _ in range(n_steps):
            env.step(actions)

    return work


def random_numbers(n: int, n_steps: int) -> Work:
    """Return the work of drawing a double a step for n environments: the machine's limit."""
    rng, out = np.random.default_rng(0), np.empty(n)

    def work() -> None:
        for _ in range(n_steps):
            rng.random(out=out)

    return work


def collect_work(envs: VectorEnv, policy: IntArray, n: int, t_max: int) -> Work:
    """Return the work of collecting trials into a fresh agent."""
    return lambda: SeminormLSTDAgent(GaussianFeatures(10)).collect(envs, policy, n, t_max, seed=0)


def sampled(env: str, n_trials: int, t_max: int, n_features: int) -> CountStatistics:
    """Return the statistics of a simulated population."""
    chain = random_chain(env, 0)
    counts = population_counts(chain, n_trials, t_max, np.random.default_rng(0))
    return CountStatistics(counts, random_features(chain.n_states, n_features, 0))


def stepwise(t_max: int) -> IntArray:
    """Return one window for each timestep."""
    return np.asarray(np.arange(t_max + 1)[:, None] + [0, 1])


def actions_of(chain: MarkovChain) -> IntArray:
    """Return the actions of the deterministic policy that made a chain."""
    assert chain.policy is not None
    return np.asarray(chain.policy.argmax(axis=1))


def solve_policy(mdp: TabularMDP, policy: IntArray) -> None:
    """Compute what the exact rows compare."""
    chain = mdp.induce(policy)
    assert np.isfinite(chain.gain + chain.bias.sum() + chain.stationary_distribution.sum())


def moments_of(d: int) -> Moments:
    """Return the moments of a lazy cycle of 2 d states with d random features."""
    rng = np.random.default_rng(0)
    F = rng.standard_normal((2 * d, d))
    difference = 0.5 * (F - np.roll(F, -1, axis=0))
    n = len(F)
    X, Z = F.T @ difference / n, F.T @ F / n
    y = F.T @ rng.standard_normal(n) / n
    return Moments(X[None], Z[None], y[None], np.zeros(1, dtype=np.int64))


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
    agent = SeminormLSTDAgent(features, anchors=[0, 10], backup="one_step")
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
