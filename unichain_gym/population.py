"""Simulation of n independent trials at once, exact in law, at a cost that does not grow with n.

Trials of one chain are exchangeable, so the numbers n_t(s) of trials in each state describe
timestep t. Trials in one state choose among its outcomes (s', r) independently and alike, over all
actions of the policy at once, so that

    N_t(s, ·) ~ Multinomial(n_t(s), P(s, ·)),    n_{t+1}(s') = Σ_s N_t(s, s'),

with n_0 ~ Multinomial(n, p^0). This is the joint law over all timesteps of the counts of n separate
trials. A binomial draw costs the same for 10 trials and for 10^7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from unichain_gym.builders import Outcomes, pad_outcomes
from unichain_gym.chain import MarkovChain
from unichain_gym.errors import InvalidArgumentError, brief
from unichain_gym.interface import FloatArray, IntArray
from unichain_gym.outcomes import read_generator, require_integers

# Sums of counts in double precision are exact up to this number.
MAX_TRIALS = 2**53


@dataclass(frozen=True, eq=False)
class TransitionCounts:
    """Transition counts and reward sums per timestep of ``n_trials`` trials.

    Timestep t is the transition from the state at t to the state at t + 1, for t = 0 … t_max.
    Memory is linear in the visited (timestep, state, next state).

    Parameters
    ----------
    n_states : int
        Number of states S.
    n_trials : int
        Number of trials; the counts of every timestep sum to it.
    transition_counts : csr_array of int64, shape (t_max + 1, S · S)
        Entry (t, s · S + s') is N_t(s, s'), the number of transitions from s to s' at t.
    reward_sums : csr_array of float64, shape (t_max + 1, S)
        Entry (t, s) is the sum of the rewards received at t on leaving s.
    duration_sums : csr_array of float64, shape (t_max + 1, S), or None
        The sums of the durations of these steps; None if every step takes 1.

    Examples
    --------
    >>> from unichain_gym import make_mdp
    >>> counts = simulate_counts(make_mdp("x1").induce([0]), n_trials=3, t_max=1, rng=0)
    >>> counts.transition_counts.toarray().tolist(), counts.reward_sums.toarray().tolist()
    ([[3], [3]], [[0.0], [0.0]])
    """

    n_states: int
    n_trials: int
    transition_counts: sparse.csr_array
    reward_sums: sparse.csr_array
    duration_sums: sparse.csr_array | None = None


def simulate_counts(
    chain: MarkovChain, n_trials: int, t_max: int, rng: np.random.Generator | int
) -> TransitionCounts:
    """Simulate independent trials of a chain and return their counts.

    Parameters
    ----------
    chain : MarkovChain
        With an MDP, as from ``mdp.induce(policy)``, rewards are drawn by action and outcome. A
        chain without an MDP pays its ``reward`` by state.
    n_trials : int
        Number of trials, 1 to 2^53; each starts from the chain's initial distribution.
    t_max : int
        Last timestep. Its transition is included.
    rng : numpy.random.Generator or int
        The source of randomness, or a seed to make one.

    Raises
    ------
    InvalidArgumentError
        If ``n_trials`` or ``t_max`` is out of range, or ``chain`` is no chain.

    Examples
    --------
    >>> from unichain_gym import make_mdp
    >>> mdp = make_mdp("h36c")
    >>> chain = mdp.induce(np.zeros(mdp.n_states, dtype=int))
    >>> counts = simulate_counts(chain, 10**7, 500, np.random.default_rng(0))
    >>> counts.transition_counts.sum(axis=1).tolist() == [10**7] * 501
    True
    """
    require_integers(InvalidArgumentError, low=0, t_max=t_max)
    require_integers(InvalidArgumentError, low=1, high=MAX_TRIALS, n_trials=n_trials)
    if not isinstance(chain, MarkovChain):
        raise InvalidArgumentError(f"needs a chain, such as mdp.induce(policy); got {brief(chain)}")
    rng = read_generator(rng)
    S, T = chain.n_states, t_max + 1
    # Outcomes of different actions merge if they differ only in probability; those of a state are
    # sorted for `as_categories`.
    of = chain._outcomes
    columns = of.state, np.zeros_like(of.state), of.after, of.p, of.reward, of.duration
    table = pad_outcomes(Outcomes(S, 1, *columns))
    ascending = np.argsort(table["probability"][:, 0], axis=1, kind="stable")
    by_state = np.arange(S)[:, None], 0, ascending
    probability = as_categories(table["probability"][by_state])
    next_state, reward = table["next_state"][by_state], table["reward"][by_state]
    durations = None if of.duration is None else table["durations"][by_state]
    K = next_state.shape[1]

    order = np.argsort(chain.initial_distribution, kind="stable")
    population: IntArray = np.empty(S, dtype=np.int64)
    population[order] = rng.multinomial(n_trials, as_categories(chain.initial_distribution[order]))
    outcomes: list[IntArray] = []  # outcome k of a state has number state · K + k
    counts: list[IntArray] = []
    for _ in range(T):
        occupied = np.flatnonzero(population)
        drawn = rng.multinomial(population[occupied], probability[occupied])
        place, k = np.nonzero(drawn)
        outcomes.append(occupied[place] * K + k)
        counts.append(drawn[place, k])
        arrivals = np.bincount(next_state.flat[outcomes[-1]], counts[-1], minlength=S)
        population = arrivals.astype(np.int64)

    count, timestep = np.concatenate(counts), np.repeat(np.arange(T), [x.size for x in outcomes])
    outcome = np.concatenate(outcomes)
    state = outcome // K
    pair = state * S + next_state.ravel()[outcome]
    # Entries of one place add up.
    sums: list[Any] = [sparse.csr_array((count, (timestep, pair)), shape=(T, S * S))]
    for values in (reward, durations):
        paid = None if values is None else (count * values.ravel()[outcome], (timestep, state))
        sums.append(None if paid is None else sparse.csr_array(paid, shape=(T, S)))
    return TransitionCounts(S, n_trials, *sums)


def as_categories(p: FloatArray) -> FloatArray:
    """Return sorted probabilities (..., n), scaled so that rounding falls to the largest."""
    return np.asarray(p / p.sum(axis=-1, keepdims=True))
