"""Cases with known right values only: estimated gains, and options chosen by the data.

The method and the choices may change, but the answers must stay right.
"""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Discrete

from lstd_agent import LambdaReturn, OneHot, Polynomial, RadialBasis, SeminormLSTDAgent
from unichain_gym import TabularMDP

from .cases import Case, case, chain_of, counted
from .vectors import (
    ONE,
    TWO,
    autoregression,
    autoregression_gain,
    autoregression_values,
    backlogs,
)


def gain_of(chain, n_trials, t_max):
    """The right gain, and 6 standard deviations of the mean reward of half the timesteps."""
    n = n_trials * (t_max + 1) / 2
    return chain.gain, 1e-9 + 6.0 * np.sqrt(chain.asymptotic_variance() / n)


def truth_of(chain, agent, at, t_max=60, n_trials=900, **options):
    gain = gain_of(chain, n_trials, t_max)
    return Case(
        agent=agent, at=at, frozen=(), truth=chain.bias[np.asarray(at)], gain=gain, **options
    )


def by_default(chain, features, **options):
    return counted(chain, features, **{"backup": "auto", "gain": None, **options})


@case
def defaults_of_a_small_chain():
    chain = chain_of("h6")
    return truth_of(chain, by_default(chain, OneHot()), [0, 1, 2, 3, 4, 5], warns=False)


@case
def defaults_of_a_long_start():
    chain = chain_of("h36c")
    agent = by_default(chain, OneHot(), t_max=200)
    return truth_of(chain, agent, [0, 1, 8, 16, 30], t_max=200, warns=False)


@case
def defaults_of_a_cyclic_chain():
    chain = chain_of("c35c")
    return truth_of(chain, by_default(chain, OneHot(), t_max=80), [0, 5, 10], t_max=80)


@case
def a_number_of_neighborhoods_by_the_data():
    P = 0.2 * np.eye(21) + 0.3 * np.eye(21, k=1) + 0.5 * np.eye(21, k=-1)
    P[0, 0], P[20, 20] = 0.7, 0.5
    start = np.eye(21)[[0, 20]].mean(axis=0)
    chain = TabularMDP.from_arrays(P[:, None], -np.arange(21.0)[:, None], start).induce([0] * 21)
    agent = by_default(chain, OneHot(), n_anchors="auto", t_max=200)
    return truth_of(chain, agent, [0, 1, 20], t_max=200, warns=False)


@case
def an_estimated_gain_of_one_step():
    chain = chain_of("r36c")
    agent = by_default(chain, OneHot(), backup="one_step", anchors=[0, 6])
    return truth_of(chain, agent, [0, 1, 2, 3])


@case
def an_estimated_gain_of_lambda_returns():
    chain = chain_of("c10")
    agent = by_default(chain, OneHot(), backup=LambdaReturn(0.9), anchors=[0, 5])
    return truth_of(chain, agent, [0, 1, 2, 3, 4, 5])


@case
def an_estimated_gain_of_settled_trials():
    chain = chain_of("h6")
    make = SeminormLSTDAgent.average_reward
    agent = counted(chain, OneHot(), gain=None, make=make, t_max=100)
    return truth_of(chain, agent, chain.recurrent_states, t_max=100, t=100)


def logged(trials, features, **options):
    """Trials in ten rounds, with all defaults."""
    agent = SeminormLSTDAgent(features, **options)
    observations, rewards = trials
    for i in range(10):
        agent.add_trials(observations[i::10], rewards[i::10])
    return agent.fit()


@case
def defaults_of_an_autoregression():
    agent = logged(autoregression(30, 1, n=100, t_max=60), Polynomial(2))
    gain = autoregression_gain(1), 0.6
    return Case(agent=agent, at=ONE, frozen=(), truth=autoregression_values(ONE), gain=gain)


@case
def defaults_of_two_dimensions():
    agent = logged(autoregression(31, 2, n=100, t_max=60), Polynomial(2))
    gain = autoregression_gain(2), 0.8
    return Case(agent=agent, at=TWO, frozen=(), truth=autoregression_values(TWO), gain=gain)


@case
def defaults_of_a_backlog():
    trials = backlogs(32, n=100, t_max=150)
    agent = logged(trials, RadialBasis.grid([0.0], [21.0], 8))
    at, truth = [[0.0], [5.0], [20.0]], [0.0, -46.9, -688.0]
    return Case(agent=agent, at=at, t=None, frozen=(), truth=truth, off=40.0)


@case
def defaults_of_a_log_cut_short():
    """A queue: a job comes with .45 a minute, one goes with .6; from about 4 or 12 jobs."""
    rng = np.random.default_rng(33)
    observations, rewards = [], []
    for k in range(200):
        seen, paid = [min(int(rng.poisson(12 if k % 2 else 4)), 59)], []
        for _ in range(int(rng.integers(60, 240))):
            n = seen[-1]
            paid.append(-(n + 2.5 * (n > 8)))
            seen.append(n + int(rng.random() < 0.45) - int(rng.random() < 0.6 and n > 0))
        observations.append(np.array(seen))
        rewards.append(np.array(paid))
    agent = SeminormLSTDAgent(OneHot())
    agent.add_trials(observations, rewards, t_max=100, observation_space=Discrete(60)).fit()
    gain, truth = (-1.665, 0.5), [0.0, -513.4]
    return Case(agent=agent, at=[4, 12], frozen=(), truth=truth, off=100.0, gain=gain)


@case
def trials_that_have_not_settled():
    agent = logged(backlogs(34, n=40, t_max=20), Polynomial(2, scale=20.0))
    return Case(agent=agent, at=[[20.0]], frozen=(), warns=True)
