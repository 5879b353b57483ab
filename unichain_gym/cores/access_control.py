"""Core ``q``: access-control queuing (Sutton & Barto 2018, example 10.2)."""

from collections.abc import Sequence
from enum import IntEnum
from math import comb

import numpy as np

from unichain_gym.cores.core import Core
from unichain_gym.errors import InvalidModelError
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import require_integers

N_SERVERS = 10
FREE_PROB = 0.06
PRIORITIES = (1.0, 2.0, 4.0, 8.0)

QueueAction = IntEnum("QueueAction", ["REJECT", "ACCEPT"], start=0)


def access_control(
    n_servers: int = N_SERVERS,
    free_prob: float = FREE_PROB,
    priorities: Sequence[float] = PRIORITIES,
) -> TabularMDP:
    """Return core ``q``.

    Parameters
    ----------
    n_servers : int
        Number of servers, at least 1.
    free_prob : float
        Probability in (0, 1] that a busy server becomes free during a step.
    priorities : sequence of float
        The payment of each kind of customer.
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
    P = np.zeros((n + 1, kinds, 2, n + 1, kinds))
    P[:, :, QueueAction.REJECT] = releases[:, None, :, None] / kinds
    taken = np.maximum(np.arange(n + 1) - 1, 0)
    P[:, :, QueueAction.ACCEPT] = releases[taken, None, :, None] / kinds
    R = np.zeros((n + 1, kinds, 2))
    R[1:, :, QueueAction.ACCEPT] = priorities
    S = (n + 1) * kinds
    return TabularMDP.from_arrays(
        P.reshape(S, 2, S), R.reshape(S, 2), np.full(S, 1 / S), name=f"q{S}"
    )


ACCESS_CONTROL = Core(
    letter="q",
    name="Access-control queuing",
    build=access_control,
    actions=QueueAction,
    description=(
        f"{N_SERVERS} servers. At each step one customer asks for a server. To accept it pays its "
        "priority and occupies a server; a rejected customer leaves. Without a free server every "
        "customer is rejected. Then every busy server, including a newly taken one, becomes "
        f"free with probability {FREE_PROB}, and the next customer's priority, "
        f"{', '.join(f'{p:g}' for p in PRIORITIES)}, is drawn uniformly."
    ),
    observations=(
        f"{len(PRIORITIES)} times the number of free servers, plus the place of the waiting "
        "customer's priority, from 0. Streams enter state 0: all servers are busy."
    ),
    rewards="Accepting pays the customer's priority if a server is free; otherwise 0.",
    references=(
        "R. Sutton and A. Barto. Reinforcement learning: an introduction, 2nd ed. MIT Press, 2018.",
    ),
    mnemonics=("q44", "q64b"),
    state_names=tuple(
        f"{n_free} free, priority {p:g}" for n_free in range(N_SERVERS + 1) for p in PRIORITIES
    ),
)
