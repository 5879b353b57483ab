"""Cases of counted observations: chains of the suite, one-hot and aggregated features."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from lstd_agent import (
    MMD,
    GaussianFeatures,
    Kernel,
    LambdaReturn,
    MultiStep,
    OneHot,
    Polynomial,
    SeminormLSTDAgent,
)
from unichain_gym import TabularMDP

from .cases import ERRORS, REFERENCES, SHAPE, VALUES, Case, case, chain_of, counted

PAPER = (*VALUES, *ERRORS, *SHAPE, *REFERENCES)


def right(chain, at):
    return chain.bias[np.asarray(at)]


@case
def one_hot_one_neighborhood():
    chain, at = chain_of("h6"), [0, 1, 2, 3, 4, 5]
    agent = counted(chain, OneHot(), n_anchors=1)
    return Case(agent=agent, at=at, truth=right(chain, at), warns=False)


@case
def one_hot_three_anchors():
    chain, at = chain_of("h6"), [0, 1, 2]
    agent = counted(chain, OneHot(), anchors=[0, 2, 7])
    return Case(agent=agent, at=at, truth=right(chain, at), warns=False)


@case
def one_hot_lambda():
    chain, at = chain_of("c10"), [0, 1, 2, 3, 4, 5]
    agent = counted(chain, OneHot(), anchors=[0, 5], backup=LambdaReturn(0.9))
    return Case(agent=agent, at=at, truth=right(chain, at), warns=False)


@case
def one_hot_lambda_one():
    chain, at = chain_of("c10"), [0, 1, 2, 3, 4, 5]
    agent = counted(chain, OneHot(), anchors=[0, 5], backup=LambdaReturn(1.0))
    return Case(agent=agent, at=at, truth=right(chain, at), warns=False)


@case
def one_hot_five_steps():
    chain, at = chain_of("m16"), list(range(8))
    agent = counted(chain, OneHot(), anchors=[0, 4, 12], backup=MultiStep(5))
    return Case(agent=agent, at=at, truth=right(chain, at))


@case
def one_hot_stepwise():
    chain, at = chain_of("r16"), list(range(16))
    agent = counted(chain, OneHot(), t_max=30, make=SeminormLSTDAgent.stepwise)
    return Case(agent=agent, at=at)


@case
def stepwise_of_few_features():
    chain, at = chain_of("h15b"), [0, 1, 2, 3, 4]
    make = SeminormLSTDAgent.stepwise
    agent = counted(chain, GaussianFeatures(4, seed=1), t_max=40, make=make)
    return Case(agent=agent, at=at)


@case
def stepwise_lambda():
    chain, at = chain_of("h15b"), [0, 1, 2, 3, 4]
    agent = counted(
        chain, GaussianFeatures(4, 1), t_max=40, n_anchors=None, backup=LambdaReturn(0.9)
    )
    return Case(agent=agent, at=at)


@case
def aggregated_one_neighborhood():
    chain, at = chain_of("h36c"), [0, 1, 2, 8, 16]
    agent = counted(chain, GaussianFeatures(6, seed=2), n_anchors=1, t_max=200)
    return Case(agent=agent, at=at)


@case
def aggregated_two_anchors():
    chain, at = chain_of("h36c"), [0, 1, 2, 8, 16]
    agent = counted(chain, GaussianFeatures(12, seed=2), anchors=[0, 30], t_max=200)
    return Case(agent=agent, at=at)


@case
def aggregated_four_anchors_lambda():
    chain, at = chain_of("h36c"), [0, 1, 2, 8, 16]
    features = np.random.default_rng(5).normal(size=(36, 8))
    agent = counted(chain, features, anchors=[0, 5, 20, 60], t_max=200, backup=LambdaReturn(0.9))
    return Case(agent=agent, at=at)


@case
def aggregated_by_groups_of_states():
    chain, at = chain_of("c35"), [0, 4, 8, 12]
    features = np.kron(np.eye(7), np.ones((5, 1)))
    agent = counted(chain, features, anchors=[0, 10], backup=LambdaReturn(0.6))
    return Case(agent=agent, at=at)


@case
def aggregated_many_steps():
    chain, at = chain_of("c35c"), [0, 5, 10]
    agent = counted(chain, GaussianFeatures(8), anchors=[0, 3, 20], t_max=80, backup=MultiStep(12))
    return Case(agent=agent, at=at)


@case
def functions_of_numbered_states():
    chain, at = chain_of("q44"), [0, 10, 20, 30, 43]
    agent = counted(chain, Polynomial(2, scale=43.0), anchors=[0, 30], t_max=100)
    return Case(agent=agent, at=at)


@case
def model_one_hot():
    chain, at = chain_of("h15b"), [0, 1, 2, 3, 4]
    agent = counted(chain, OneHot(), anchors=[0], backup="model", gain=None, t_max=80)
    names = "coverage", "determined", *SHAPE[:3]
    gain = chain.gain, 0.5
    return Case(agent=agent, at=at, truth=right(chain, at), frozen=names, gain=gain, warns=False)


@case
def model_of_a_given_gain():
    chain, at = chain_of("r36c"), [0, 1, 2, 3, 4]
    agent = counted(chain, OneHot(), anchors=[0], backup="model", t_max=80)
    return Case(agent=agent, at=at, truth=right(chain, at))


@case
def model_fitted_by_few_features():
    chain, at = chain_of("h36c"), [0, 1, 2, 8, 16]
    agent = counted(chain, GaussianFeatures(9), anchors=[0, 40], backup="model", t_max=200)
    return Case(agent=agent, at=at)


@case
def anchors_by_total_variation():
    chain, at = chain_of("h36"), [0, 1, 5, 20]
    agent = counted(chain, OneHot(), n_anchors=2, distance="tv", t_max=200)
    return Case(agent=agent, at=at, truth=right(chain, at))


@case
def anchors_by_optimal_transport():
    chain, at = chain_of("r16"), [0, 1, 2, 3]
    agent = counted(chain, GaussianFeatures(5), n_anchors=2, distance="ot", t_max=8)
    return Case(agent=agent, at=at)


@case
def anchors_by_mean_discrepancy():
    chain, at = chain_of("c35"), [0, 4, 8, 12]
    distance = MMD("quadratic", Kernel(width="median"))
    agent = counted(chain, GaussianFeatures(5), n_anchors=4, distance=distance, t_max=80)
    return Case(agent=agent, at=at)


@case
def anchors_by_a_function():
    chain, at = chain_of("h6"), [0, 1, 2]

    def apart(p, q):
        return float(np.abs(p - q).max())

    agent = counted(chain, OneHot(), n_anchors=2, distance=apart)
    return Case(agent=agent, at=at, truth=right(chain, at))


@case
def anchors_by_doubling():
    chain, at = chain_of("g40c"), [0, 1, 2, 3]
    agent = counted(chain, GaussianFeatures(6), n_anchors=4, distance="tv", search="doubling")
    return Case(agent=agent, at=at)


@case
def references_by_occupancy():
    chain, at = chain_of("h36c"), [0, 1, 2, 8]
    agent = counted(
        chain, GaussianFeatures(6, seed=2), anchors=[0, 20, 60], calibration="references",
        t_max=200,
    )  # fmt: skip
    return Case(agent=agent, at=at, frozen=PAPER)


@case
def references_by_the_papers_rule():
    chain, at = chain_of("h36c"), [0, 1, 2, 8]
    agent = counted(
        chain, GaussianFeatures(6, seed=2), anchors=[0, 20, 60], make=SeminormLSTDAgent.paper,
        t_max=200,
    )  # fmt: skip
    return Case(agent=agent, at=at, frozen=PAPER)


@case
def references_of_one_hot_states():
    chain, at = chain_of("c10"), [0, 1, 2, 3, 4]
    agent = counted(chain, OneHot(), n_anchors=2, distance="tv", make=SeminormLSTDAgent.paper)
    return Case(agent=agent, at=at, frozen=PAPER)


@case
def paper_stepwise():
    chain, at = chain_of("h6"), [0, 1, 2]
    agent = counted(chain, OneHot(), n_anchors=None, make=SeminormLSTDAgent.paper, t_max=30)
    return Case(agent=agent, at=at, frozen=PAPER)


@case
def average_reward():
    chain = chain_of("h6")
    at = chain.recurrent_states
    make = SeminormLSTDAgent.average_reward
    agent = counted(chain, OneHot(), make=make, t_max=100)
    return Case(agent=agent, at=at, t=100, truth=right(chain, at), frozen=PAPER)


@case
def average_reward_of_few_features():
    chain = chain_of("q44")
    at = [0, 10, 20, 30, 43]
    make = SeminormLSTDAgent.average_reward
    agent = counted(chain, GaussianFeatures(5, seed=3), make=make, t_max=100)
    return Case(agent=agent, at=at, t=100, frozen=PAPER)


@case
def few_trials_leave_states_unseen():
    chain, at = chain_of("h36"), list(range(0, 36, 4))
    agent = counted(chain, OneHot(), anchors=[0, 10], n_trials=1, n_rounds=6, t_max=40)
    return Case(agent=agent, at=at)


@case
def more_features_than_seen_states():
    chain, at = chain_of("h36"), list(range(0, 36, 4))
    agent = counted(
        chain, GaussianFeatures(30, seed=4), anchors=[0, 10], n_trials=1, n_rounds=6, t_max=40
    )
    return Case(agent=agent, at=at, frozen=("determined", "coverage", "errors", *SHAPE))


@case
def two_batches():
    chain, at = chain_of("h6"), [0, 1, 2]
    agent = counted(chain, OneHot(), anchors=[0, 5], n_rounds=2, n_trials=500)
    return Case(agent=agent, at=at)


@case
def many_batches():
    chain, at = chain_of("m34c"), [0, 1, 2, 10]
    agent = counted(
        chain, GaussianFeatures(7), anchors=[0, 5], n_rounds=24, n_trials=40, n_batches=24, t_max=40
    )
    return Case(agent=agent, at=at)


@case
def a_period_of_three():
    P = np.zeros((5, 1, 5))
    P[0, 0, 1], P[1, 0, [0, 2]], P[2, 0, 3], P[3, 0, 4], P[4, 0, 2] = 1, 0.5, 1, 1, 1
    mdp = TabularMDP.from_arrays(P, [[1.0], [5.0], [0.0], [3.0], [6.0]], [1, 0, 0, 0, 0])
    chain, at = mdp.induce([0] * 5), [0, 1, 2, 3, 4]
    agent = counted(chain, OneHot(), n_anchors=1)
    return Case(agent=agent, at=at, truth=right(chain, at))


@case
def a_wrong_gain():
    chain, at = chain_of("h6"), [0, 1, 2]
    agent = counted(chain, OneHot(), anchors=[0, 5], gain=chain.gain + 1.0)
    return Case(agent=agent, at=at, warns=True)


@case
def the_model_by_the_data():
    """Single steps of few features are worse by five standard errors."""
    chain, at = chain_of("h36c"), [0, 1, 2, 8, 16]
    agent = counted(chain, GaussianFeatures(6, seed=2), backup="auto", anchors=[0, 5])
    return Case(agent=agent, at=at, more={"is_model": agent.diagnostics().choice.backup == "model"})


@case
def no_model_of_hidden_states():
    """States 0 and 1 lead to 2, which pays ±5 by the start, and is left with .2 for 3 or 4."""
    rng, n, agent = np.random.default_rng(0), 3000, SeminormLSTDAgent(OneHot(), anchors=[0, 4])
    start = s = rng.integers(0, 2, n)
    seen, paid = [s], []
    for _ in range(30):
        paid.append(np.where(s == 2, np.where(start == 0, 5.0, -5.0), 1.0 * (s == 4)))
        left = np.where(rng.random(n) < 0.2, 3, 2)
        s = np.where(s < 2, 2, np.where(s == 2, left, 3 + (rng.random(n) < 0.5)))
        seen.append(s)
    states, rewards = np.transpose(seen), np.transpose(paid)
    for i in range(6):
        agent.add_trials(states[i::6], rewards[i::6], observation_space=Discrete(5))
    backup: Any = agent.fit().diagnostics().choice.backup
    return Case(agent=agent, at=[0, 1, 2, 3, 4], more={"decay": backup.decay}, warns=True)


@case
def batches_whose_tails_do_not_determine_the_gain():
    """Without one batch of h36 the gain is a mean reward; of c10, by the rows of all timesteps."""
    given: Any = {"anchors": [0, 5], "gain": None}
    agents = [
        counted(chain_of("h36"), OneHot(), n_trials=1, t_max=40, **given),
        counted(chain_of("c10"), OneHot(), n_trials=2, n_rounds=5, t_max=12, **given),
    ]
    gains = {name: [getattr(x, name) for x in agents] for name in ("gain_", "gain_error_")}
    return Case(agent=agents[0], at=[0, 1, 2], frozen=("start_bias",), more=gains)


@case
def a_long_queue_of_sparse_features():
    S = 500
    P = 0.2 * np.eye(S) + 0.3 * np.eye(S, k=1) + 0.5 * np.eye(S, k=-1)
    P[0, 0], P[-1, -1] = 0.7, 0.5
    start = np.zeros(S)
    start[[0, 20, 40]] = 1 / 3
    chain = TabularMDP.from_arrays(P[:, None], -np.arange(S)[:, None], start).induce([0] * S)
    at = [0, 5, 20, 40, 41, 300]
    agent = counted(chain, OneHot(), anchors=[0, 40], t_max=150, n_rounds=4)
    return Case(agent=agent, at=at)


@case
def a_ring_of_very_many_states():
    S = 1200
    state = np.arange(S)
    P = np.zeros((S, 1, S))
    P[state, 0, state] = 0.1
    P[state, 0, (state + 1) % S] = 0.9
    P[1150, 0] = 0.0
    P[1150, 0, [0, 1100]] = 0.02, 0.98  # most of the time the trials go round the last fifty
    start = np.zeros(S)
    start[[1000, 1120]] = 0.5
    rewards = np.cos(state / 20.0)[:, None]
    chain = TabularMDP.from_arrays(P, rewards, start).induce([0] * S)
    agent = counted(chain, OneHot(), anchors=[0, 120], t_max=200, n_rounds=4)
    return Case(agent=agent, at=[1000, 1050, 1100, 1125, 1150, 600])
