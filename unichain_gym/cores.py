"""Recurrent cores by letter: the small MDPs that streams of transient states feed into.

========  ======  =======  ==============================================================
letter    states  actions  source
========  ======  =======  ==============================================================
``h``     3       2        Hordijk, Dekker & Kallenberg (1985), Howard's taxicab problem
``c``     5       2        Strens (2000), the chain problem
``x``     1       2        an absorbing state with reward 0: the end of an episodic task
``r``     6       2        Strehl & Littman (2008), RiverSwim; numbers of Osband et al. (2013)
``q``     44      2        Sutton & Barto (2018), example 10.2, access-control queuing
``m``     4       3        Puterman (1994), machine replacement; numbers of Hillier & Lieberman
``g``     10      2        Archibald, McKinnon & Thomas (1995), Garnet: a random MDP
========  ======  =======  ==============================================================

Whatever the (deterministic, stationary) policy, each has one recurrent class; of the random
core ``g`` that holds for the default arguments and is not promised for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb

import numpy as np

from unichain_gym.errors import InvalidModelError
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import require_integers


def taxicab() -> TabularMDP:
    """Return core ``h``: Howard's taxicab problem in the form of Hordijk et al. (1985)."""
    P = [
        [[0.5, 0.25, 0.25], [0.0625, 0.75, 0.1875]],
        [[0.5, 0.0, 0.5], [0.0625, 0.875, 0.0625]],
        [[0.25, 0.25, 0.5], [0.125, 0.75, 0.125]],
    ]
    R = [[8.0, 2.75], [16.0, 15.0], [7.0, 4.0]]
    return TabularMDP.from_arrays(P, R, np.full(3, 1 / 3), name="h3")


def strens_chain() -> TabularMDP:
    """Return core ``c``: the five-state chain of Strens (2000) with slip probability 0.2."""
    n, slip = 5, 0.2
    P = np.zeros((n, 2, n))
    R = np.zeros((n, 2, n))
    for s in range(n):
        forward = min(s + 1, n - 1)
        for action, p_forward in enumerate((1.0 - slip, slip)):
            P[s, action, forward] += p_forward
            P[s, action, 0] += 1.0 - p_forward
        R[s, :, 0] = 2.0
        R[s, :, forward] = 10.0 if s == n - 1 else 0.0
    return TabularMDP.from_arrays(P, R, np.full(n, 1 / n), name="c5")


def absorbing_state() -> TabularMDP:
    """Return core ``x``: one absorbing state with two actions and reward 0."""
    return TabularMDP.from_arrays(np.ones((1, 2, 1)), np.zeros((1, 2)), [1.0], name="x1")


def river_swim(n_states: int = 6) -> TabularMDP:
    """Return core ``r``: RiverSwim, a swim against the current to a distant reward.

    Action 0 (left, with the current) always moves one state down. Action 1 (right) moves up
    with probability 0.35 and down with 0.05, else stays; from the first state up with 0.6,
    from the last one down with 0.4. Left pays 0.005 in the first state, right pays 1 in the
    last one. The task is that of Strehl & Littman (2008); these numbers, the usual ones, are
    those of Osband, Russo & Van Roy (2013).

    Parameters
    ----------
    n_states : int
        Length of the river, at least 2.

    Returns
    -------
    TabularMDP

    Raises
    ------
    InvalidModelError
        If there are fewer than two states.
    """
    require_integers(InvalidModelError, n_states=n_states)
    if n_states < 2:
        raise InvalidModelError(f"RiverSwim needs n_states of at least 2; got {n_states}")
    state = np.arange(n_states)
    P = np.zeros((n_states, 2, n_states))
    P[state, 0, np.maximum(state - 1, 0)] = 1.0
    up = np.full(n_states, 0.35)
    down = np.full(n_states, 0.05)
    up[0], down[0] = 0.6, 0.0
    up[-1], down[-1] = 0.0, 0.4
    P[state, 1, state] = 1.0 - up - down
    P[state[:-1], 1, state[1:]] = up[:-1]
    P[state[1:], 1, state[:-1]] = down[1:]
    R = np.zeros((n_states, 2))
    R[0, 0], R[-1, 1] = 0.005, 1.0
    return TabularMDP.from_arrays(P, R, np.full(n_states, 1 / n_states), name=f"r{n_states}")


def access_control(
    n_servers: int = 10,
    free_prob: float = 0.06,
    priorities: Sequence[float] = (1.0, 2.0, 4.0, 8.0),
) -> TabularMDP:
    """Return core ``q``: access-control queuing (Sutton & Barto 2018, example 10.2).

    At each step one customer asks for a server. Action 1 accepts it, which pays its priority
    and occupies a server; action 0 turns it away. Without a free server it is turned away in
    any case. Then every busy server, the one just taken included, becomes free with
    probability ``free_prob``, and the next customer's priority is drawn uniformly.

    State ``len(priorities) * n_free + i``: ``n_free`` servers are free and a customer of
    ``priorities[i]`` is waiting; state 0 is the full house that streams run into.

    Parameters
    ----------
    n_servers : int
        Number of servers, at least 1.
    free_prob : float
        Probability in (0, 1] that a busy server becomes free during a step.
    priorities : sequence of float
        What the kinds of customers pay.

    Returns
    -------
    TabularMDP

    Raises
    ------
    InvalidModelError
        If an argument is out of range.
    """
    require_integers(InvalidModelError, n_servers=n_servers)
    if n_servers < 1 or not 0.0 < free_prob <= 1.0 or len(priorities) < 1:
        raise InvalidModelError(
            "access control needs n_servers of at least 1, free_prob above 0 and at most 1, and "
            f"a priority; got {n_servers}, {free_prob} and {list(priorities)}"
        )
    n, kinds = n_servers, len(priorities)
    # releases[f, f'] = Pr(f' servers are free after the releases | f were before them)
    releases = np.zeros((n + 1, n + 1))
    for busy in range(n + 1):
        for k in range(busy + 1):
            binomial = comb(busy, k) * free_prob**k * (1 - free_prob) ** (busy - k)
            releases[n - busy, n - busy + k] = binomial
    free = np.arange(n + 1)
    P = np.zeros((n + 1, kinds, 2, n + 1, kinds))
    P[:, :, 0] = releases[free, None, :, None] / kinds
    P[:, :, 1] = releases[np.maximum(free - 1, 0), None, :, None] / kinds
    P[0, :, 1] = P[0, :, 0]
    R = np.zeros((n + 1, kinds, 2))
    R[1:, :, 1] = priorities
    S = (n + 1) * kinds
    return TabularMDP.from_arrays(
        P.reshape(S, 2, S), R.reshape(S, 2), np.full(S, 1 / S), name=f"q{S}"
    )


def machine_replacement() -> TabularMDP:
    """Return core ``m``: when to replace a machine that deteriorates.

    States: 0 good as new, 1 minor wear, 2 major wear, 3 inoperable. Actions: 0 keep it
    running, 1 overhaul it (back to state 1), 2 replace it (back to state 0). Rewards are minus
    the cost of the week in thousands: running costs 0, 1 and 3 in states 0, 1 and 2, an
    overhaul 4, a replacement 6. The kind of problem is Puterman's (1994); the
    numbers are the prototype example of Hillier & Lieberman, *Introduction to Operations
    Research*, chapter on Markov decision processes, which publishes what each policy costs.

    An overhaul is for state 2 only, a new machine cannot be replaced, and an inoperable one
    must be: there, any action does what the example allows (keep, keep, replace).
    """
    wear = np.array([[0, 14, 1, 1], [0, 12, 2, 2], [0, 0, 8, 8]]) / 16
    new, minor = np.eye(4)[0], np.eye(4)[1]
    P = [
        [wear[0], wear[0], wear[0]],
        [wear[1], wear[1], new],
        [wear[2], minor, new],
        [new, new, new],
    ]
    cost = np.array([[0, 0, 0], [1, 1, 6], [3, 4, 6], [6, 6, 6]])
    return TabularMDP.from_arrays(P, -cost, np.full(4, 1 / 4), name="m4")


def garnet(n_states: int = 10, n_actions: int = 2, branching: int = 3, seed: int = 0) -> TabularMDP:
    """Return core ``g``: a random MDP of the Garnet family (Archibald et al. 1995).

    Each state and action leads to ``branching`` distinct successors, drawn uniformly, with the
    probabilities into which ``branching - 1`` uniform points cut the unit interval. As in
    Bhatnagar et al. (2009), each outcome's reward is a standard normal draw; here it is fixed
    with the rest of the model.

    Parameters
    ----------
    n_states, n_actions : int
        Size of the MDP.
    branching : int
        Successors of a state and action, 1 to ``n_states``.
    seed : int
        Decides the model: the same numbers give the same MDP.

    Returns
    -------
    TabularMDP

    Raises
    ------
    InvalidModelError
        If a size or the seed is out of range.
    """
    require_integers(
        InvalidModelError, n_states=n_states, n_actions=n_actions, branching=branching, seed=seed
    )
    if n_actions < 1 or not 1 <= branching <= n_states:
        raise InvalidModelError(
            "Garnet needs n_actions of at least 1 and branching between 1 and n_states; got "
            f"n_actions {n_actions}, branching {branching} and n_states {n_states}"
        )
    if seed < 0:
        raise InvalidModelError(f"seed must not be negative; got {seed}")
    rng = np.random.default_rng(seed)
    shape = (n_states, n_actions)
    states = np.broadcast_to(np.arange(n_states), (*shape, n_states))
    successors = rng.permuted(states, axis=2)[..., :branching]
    cuts = np.sort(rng.random((*shape, branching - 1)), axis=2)
    probability = np.diff(cuts, axis=2, prepend=0.0, append=1.0)
    reward = rng.standard_normal((*shape, branching))
    initial = np.full(n_states, 1 / n_states)
    return TabularMDP(successors, probability, reward, initial, name=f"g{n_states}")


CORES: dict[str, Callable[..., TabularMDP]] = {
    "h": taxicab,
    "c": strens_chain,
    "x": absorbing_state,
    "r": river_swim,
    "q": access_control,
    "m": machine_replacement,
    "g": garnet,
}
"""Core letter to the function that builds the core; its parameters are the core's options."""
