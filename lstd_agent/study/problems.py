"""The random problems of the study: a policy, a feature table and samples for each seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.features.tables import GaussianFeatures
from lstd_agent.study.exact import full_distributions
from lstd_agent.trials.counts import TransitionCounts
from unichain_gym import MarkovChain, TabularMDP, make_mdp
from unichain_gym.population import simulate_counts

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class SampleTask(Generic[Settings]):
    """One set of samples: an environment and a seed, and what rows depend on beside their key."""

    env: str
    seed: int
    settings: Settings


def largest_first(environments: Sequence[str], n_seeds: int) -> Iterator[tuple[str, int, int]]:
    """Yield each environment with its number of states and each seed, what takes longest first."""
    sizes = {env: make_mdp(env).n_states for env in environments}
    for env in sorted(environments, key=lambda env: -sizes[env]):
        for seed in range(n_seeds):
            yield env, sizes[env], seed


def random_chain(environment: str, seed: int) -> MarkovChain:
    """Return the chain that a `random_policy` induces in an environment, given by its mnemonic."""
    mdp = make_mdp(environment)
    return mdp.induce(random_policy(mdp, seed))


def random_problem(environment: str, seed: int) -> tuple[MarkovChain, FloatArray]:
    """Return the `random_chain`, and its p^t for ten times its mixing time, (t_max + 1, S)."""
    chain = random_chain(environment, seed)
    return chain, full_distributions(chain, 10 * chain.mixing_time())


def random_policy(mdp: TabularMDP, seed: int) -> IntArray:
    """Return a deterministic policy drawn uniformly at random, shape (S,)."""
    policy_seed, _ = np.random.SeedSequence(seed).spawn(2)
    rng = np.random.default_rng(policy_seed)
    n_allowed = mdp.allowed_actions.sum(axis=1)
    if (n_allowed == mdp.n_actions).all():
        return rng.integers(mdp.n_actions, size=mdp.n_states)
    chosen = rng.integers(n_allowed)  # the how-many-th of the allowed ones
    rank = mdp.allowed_actions.cumsum(axis=1) - 1
    return np.asarray(np.argmax(mdp.allowed_actions & (rank == chosen[:, None]), axis=1))


def random_features(n_states: int, n_features: int, seed: int) -> FloatArray:
    """Return the paper's Gaussian features (section ``state_fea_ker``), shape (S, d)."""
    _, feature_seed = np.random.SeedSequence(seed).spawn(2)
    return GaussianFeatures(n_features, int(feature_seed.generate_state(1)[0])).table(n_states)


def population_counts(
    chain: MarkovChain, n_trials: int, t_max: int, rng: np.random.Generator
) -> TransitionCounts:
    """Return the counts of trials that are drawn all at once, by counts."""
    drawn = simulate_counts(chain, n_trials, t_max, rng)
    return TransitionCounts(
        drawn.n_states, drawn.n_trials, drawn.transition_counts, drawn.reward_sums
    )
