"""Cases of vector observations: trials whose law is known, and features of all kinds."""

from __future__ import annotations

import numpy as np

from lstd_agent import (
    FourierBasis,
    LambdaReturn,
    MultiStep,
    Polynomial,
    RadialBasis,
    RandomFourier,
    SeminormLSTDAgent,
    TileCoding,
)

from .cases import SHAPE, VALUES, Case, case, of_trials

BACKLOG_GAIN = -0.1038
BUMPS = RadialBasis.grid([0.0], [21.0], 8)
WORK = [[0.0], [2.0], [5.0], [10.0], [20.0]]


def backlogs(seed, n=16, t_max=60, start=20.0):
    """Work that waits: a step brings up to 1.4 units, does one, and costs what is waiting."""
    rng = np.random.default_rng(seed)
    work, seen, paid = np.full(n, start), [], []
    for _ in range(t_max + 1):
        seen.append(work)
        paid.append(-work)
        work = np.maximum(0.0, work + rng.uniform(0.0, 1.4, n) - 1.0)
    return np.stack([*seen, work], axis=1)[..., None], np.stack(paid, axis=1)


def autoregression(seed, k, n=16, t_max=30, a=0.8, start=4.0):
    """x' = a x + noise of size 1 in k dimensions, from 0 to ``start``; pays Σ (x + x²)."""
    rng = np.random.default_rng(seed)
    x, seen, paid = start * rng.random((n, k)), [], []
    for _ in range(t_max + 1):
        seen.append(x)
        paid.append((x + x**2).sum(axis=1))
        x = a * x + rng.normal(size=(n, k))
    return np.stack([*seen, x], axis=1), np.stack(paid, axis=1)


def autoregression_values(at, a=0.8):
    """The bias of `autoregression`, up to a constant: Σ x / (1 - a) + x² / (1 - a²)."""
    x = np.asarray(at)
    return (x / (1 - a) + x**2 / (1 - a**2)).sum(axis=1)


def autoregression_gain(k, a=0.8):
    return k / (1 - a**2)


def drains(n=16, t_max=30):
    """Work of i / 2 units drains by one a step; an empty queue has a unit in every other trial."""
    rng = np.random.default_rng(3)
    work, seen, paid = np.arange(n) / 2.0, [], []
    for _ in range(t_max + 1):
        seen.append(work)
        paid.append(-work)
        work = np.where(work >= 1.0, work - 1.0, rng.integers(2, size=n))
    return np.stack([*seen, work], axis=1)[..., None], np.stack(paid, axis=1)


ONE = [[0.0], [1.0], [2.0], [3.0]]
TWO = [[0.0, 0.0], [1.0, 0.0], [1.0, 2.0], [2.0, 2.0]]
THREE = [[0.0, 0.0, 0.0], [1.0, 0.0, 2.0], [2.0, 2.0, 2.0], [2.0, 1.0, 0.0]]


@case
def backlog_one_neighborhood():
    agent = of_trials(backlogs(0), BUMPS, anchors=[0], gain=BACKLOG_GAIN)
    return Case(agent=agent, at=WORK)


@case
def backlog_two_anchors():
    agent = of_trials(backlogs(1), BUMPS, anchors=[0, 25], gain=BACKLOG_GAIN)
    return Case(agent=agent, at=WORK[2:])


@case
def backlog_lambda():
    agent = of_trials(
        backlogs(2), BUMPS, anchors=[0, 25], gain=BACKLOG_GAIN, backup=LambdaReturn(0.9)
    )
    return Case(agent=agent, at=WORK[2:])


@case
def backlog_five_steps():
    agent = of_trials(backlogs(3), BUMPS, anchors=[0, 10, 30], gain=BACKLOG_GAIN,
                      backup=MultiStep(5))  # fmt: skip
    return Case(agent=agent, at=WORK[3:])


@case
def backlog_of_random_starts():
    observations, rewards = backlogs(4, start=np.linspace(0.0, 20.0, 16))
    agent = of_trials((observations, rewards), BUMPS, anchors=[0], gain=BACKLOG_GAIN)
    return Case(agent=agent, at=WORK)


@case
def autoregression_one_dimension():
    agent = of_trials(autoregression(0, 1), Polynomial(2), anchors=[0], gain=autoregression_gain(1))
    return Case(agent=agent, at=ONE, truth=autoregression_values(ONE))


@case
def autoregression_two_dimensions():
    agent = of_trials(
        autoregression(1, 2), Polynomial(2), anchors=[0, 8], gain=autoregression_gain(2)
    )
    return Case(agent=agent, at=TWO, truth=autoregression_values(TWO))


@case
def autoregression_three_dimensions():
    agent = of_trials(
        autoregression(2, 3), Polynomial(2), anchors=[0, 8], gain=autoregression_gain(3),
        backup=LambdaReturn(0.6),
    )  # fmt: skip
    return Case(agent=agent, at=THREE, truth=autoregression_values(THREE))


@case
def autoregression_of_too_few_features():
    agent = of_trials(
        autoregression(3, 2), Polynomial(1), anchors=[0, 4, 12], gain=autoregression_gain(2)
    )
    return Case(agent=agent, at=TWO)


@case
def random_cosines():
    features = RandomFourier(8, width=5.0, seed=0)
    agent = of_trials(autoregression(4, 3), features, anchors=[0], gain=autoregression_gain(3))
    return Case(agent=agent, at=THREE)


@case
def cosines_of_a_box():
    features = FourierBasis([-6.0, -6.0], [10.0, 10.0], order=2)
    agent = of_trials(autoregression(5, 2), features, anchors=[0, 6], gain=autoregression_gain(2))
    return Case(agent=agent, at=TWO)


@case
def standardized_features():
    observations, rewards = autoregression(6, 2)
    moved = 1000.0 * observations + 5000.0
    agent = of_trials(
        (moved, rewards), Polynomial(2), anchors=[0, 8], gain=autoregression_gain(2),
        standardize=True,
    )  # fmt: skip
    at = 1000.0 * np.array(TWO) + 5000.0
    return Case(agent=agent, at=at, truth=autoregression_values(TWO))


@case
def trials_that_drain():
    features = RadialBasis.grid([0.0], [12.0], 6)
    agent = of_trials(drains(), features, anchors=[0, 12], gain=-0.25)
    return Case(agent=agent, at=[[0.5], [3.0], [6.5], [11.0]])


@case
def stepwise_vectors():
    agent = of_trials(
        autoregression(7, 1, n=60, t_max=5), Polynomial(2), gain=autoregression_gain(1),
        make=SeminormLSTDAgent.stepwise, n_batches=6,
    )  # fmt: skip
    names = (*VALUES, *SHAPE)
    return Case(agent=agent, at=ONE, frozen=names)


@case
def anchors_of_vectors():
    agent = of_trials(backlogs(8), BUMPS, n_anchors=3, gain=BACKLOG_GAIN)
    return Case(agent=agent, at=WORK[3:], t=1)


@case
def references_of_vectors():
    agent = of_trials(
        autoregression(9, 1), Polynomial(2), anchors=[0, 6], gain=autoregression_gain(1),
        calibration="references",
    )  # fmt: skip
    return Case(agent=agent, at=ONE, truth=autoregression_values(ONE))


@case
def paper_with_vectors():
    agent = of_trials(
        autoregression(10, 1), Polynomial(2), gain=autoregression_gain(1), n_anchors=2,
        make=SeminormLSTDAgent.paper,
    )  # fmt: skip
    return Case(agent=agent, at=ONE)


@case
def average_reward_of_vectors():
    agent = of_trials(
        autoregression(11, 2), Polynomial(2), gain=autoregression_gain(2),
        make=SeminormLSTDAgent.average_reward,
    )  # fmt: skip
    return Case(agent=agent, at=TWO, t=30, truth=autoregression_values(TWO))


@case
def few_tiles():
    features = TileCoding([0.0], [21.0], n_tiles=10, n_tilings=4)
    agent = of_trials(backlogs(12), features, anchors=[0], gain=BACKLOG_GAIN)
    return Case(agent=agent, at=WORK)


@case
def more_features_than_samples_tell():
    """Deterministic trials of five places: of twelve bumps a part is left open."""
    observations = np.minimum(np.arange(14), 4.0)[None, :, None].repeat(8, axis=0)
    rewards = observations[:, :-1, 0] - 4.0
    features = RadialBasis.grid([0.0], [4.0], 12)
    agent = of_trials((observations, rewards), features, anchors=[0], gain=0.0)
    at = [[0.0], [1.0], [2.0], [3.0], [4.0]]
    truth = [-10.0, -6.0, -3.0, -1.0, 0.0]
    names = "values", "determined", "coverage", "n_samples"
    return Case(agent=agent, at=at, frozen=names, truth=truth, off=1e-6)


@case
def many_tiles():
    rng = np.random.default_rng(13)
    x, v, seen, paid = rng.uniform(-3, 3, 60), np.zeros(60), [], []
    for _ in range(61):
        seen.append(np.stack((x, v), axis=1))
        paid.append(-(x**2))
        x, v = x + 0.2 * v, 0.9 * v - 0.2 * x + 0.1 * rng.normal(size=60)
    observations = np.stack([*seen, np.stack((x, v), axis=1)], axis=1)
    features = TileCoding([-3.0, -2.0], [3.0, 2.0], n_tiles=12, n_tilings=8)
    agent = SeminormLSTDAgent(features, anchors=[0], gain=-0.1, backup="one_step", n_batches=4)
    for i in range(4):
        agent.add_trials(observations[i::4], np.stack(paid, axis=1)[i::4])
    at = observations[[0, 20, 40], [0, 30, 60]]
    return Case(agent=agent.fit(), at=at, frozen=(*VALUES, *SHAPE[:3]))
