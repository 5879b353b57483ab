"""The pieces of work that rows compare, and the tasks that they are measured on."""

from __future__ import annotations

import warnings
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from scipy import sparse
from scipy.sparse.linalg import splu

import unichain_gym
from benchmark.timing import Work, need
from lstd_agent import (
    GaussianFeatures,
    KeptTrials,
    OneHot,
    RadialBasis,
    RandomFourier,
    SeminormLSTDAgent,
    TileCoding,
)
from lstd_agent.arrays import IntArray
from lstd_agent.errors import FitWarning
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
    how: Any = {"n_trials": n, "t_max": t_max, "seed": 0}
    return lambda: SeminormLSTDAgent(GaussianFeatures(10)).collect(envs, policy, **how)


def actions_of(chain: MarkovChain) -> IntArray:
    """Return the actions of the deterministic policy that made a chain."""
    assert chain.policy is not None
    return np.asarray(chain.policy.argmax(axis=1))


def solve_policy(mdp: TabularMDP, policy: IntArray) -> None:
    """Compute the quantities of the exact rows."""
    chain = mdp.induce(policy)
    assert np.isfinite(chain.gain + chain.bias.sum() + chain.stationary_distribution.sum())


class Plane(gym.Env[Any, Any]):
    """The spaces of the oscillator below."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)


def oscillator(n_trials: int, t_max: int) -> KeptTrials:
    """Return trials of a damped oscillator with random forces; its reward is minus its energy."""
    rng = np.random.default_rng(0)
    position, velocity = rng.uniform(-1.0, 1.0, (2, n_trials))
    states = np.empty((n_trials, t_max + 2, 2), dtype=np.float32)
    for t in range(t_max + 2):
        states[:, t, 0], states[:, t, 1] = position, velocity
        push = 0.1 * rng.normal(size=n_trials)
        velocity = np.clip(0.97 * velocity - 0.1 * position + push, -1.0, 1.0)
        position = np.clip(position + 0.1 * velocity, -1.0, 1.0)
    return KeptTrials.of(states, -np.square(states[:, :-1], dtype=np.float64).sum(axis=2))


def features_of(kind: str, size: int) -> Any:
    """Return features in the plane: so many tiles or random cosines, or 49 bumps."""
    if kind == "tiles":
        n_tiles = round((size / N_TILINGS) ** 0.5) - 1
        return TileCoding([-1.0, -1.0], [1.0, 1.0], n_tiles, N_TILINGS)
    if kind == "dense":
        return RandomFourier(size, 0.3)
    return RadialBasis.grid([-1.0, -1.0], [1.0, 1.0], 7)


def fitting(agent: SeminormLSTDAgent) -> Work:
    """Return the work of fitting an agent to its trials."""

    def fit() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # of values that many features leave open
            agent.fit()

    return fit


def vector_fits(kind: str, size: int) -> tuple[Work, Work]:
    """Return a fit, and a ridge regression on the same features, with so many of a kind."""
    trials = oscillator(size, 20) if kind == "trials" else oscillator(300, 200)
    features = features_of(kind, size)
    agent = SeminormLSTDAgent(features, anchors=[0, 10], backup="one_step")
    agent.attach(Plane()).add(trials)
    ridge = need("sklearn.linear_model").Ridge(1e-6, fit_intercept=False)

    def regress() -> None:
        rows = features(trials.observations[:, :-1].reshape(-1, 2))
        ridge.fit(rows, trials.rewards.ravel())

    return fitting(agent), regress


def bare_fits(kind: str, size: int) -> tuple[Work, Work]:
    """Return a fit by default, and one bare solve: features once, one least squares."""
    trials, features = oscillator(300, 200), features_of(kind, size)
    agent = SeminormLSTDAgent(features)
    agent.attach(Plane()).add(trials)
    n, T = trials.rewards.shape

    def solve() -> None:
        rows = features(trials.observations.reshape(n * (T + 1), 2))
        here = np.arange(n * (T + 1)).reshape(n, T + 1)[:, :-1].ravel()
        f, change = rows[here], rows[here] - rows[here + 1]
        target = f.T @ (trials.rewards.ravel() - trials.rewards.mean())
        X: Any = f.T @ change
        if sparse.issparse(X):
            ridge = 1e-8 * n * T * sparse.eye_array(len(target))
            splu(sparse.csc_array(X + ridge)).solve(target)
        else:
            np.linalg.lstsq(X, target, rcond=1e-10)

    return fitting(agent), solve


def one_hot_fits(n_states: int) -> tuple[Work, Work]:
    """Return a fit by default to one-hot states, and one sparse solve of the pooled chain."""
    chain = unichain_gym.make_mdp(f"h{n_states}").induce(policy_of(n_states))
    counts = unichain_gym.simulate_counts(chain, 10_000, 100, 0)
    agent = SeminormLSTDAgent(OneHot()).add(counts)
    N = counts.transition_counts.sum(axis=0).reshape(n_states, n_states)

    def solve() -> None:
        P = sparse.csr_array(N / np.maximum(N.sum(axis=1, keepdims=True), 1))
        A = sparse.csc_array(sparse.eye_array(n_states) * (1.0 + 1e-9) - P)
        splu(A).solve(np.asarray(counts.reward_sums.sum(axis=0)).ravel())

    return fitting(agent), solve
