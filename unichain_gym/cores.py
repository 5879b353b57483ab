"""Recurrent cores by letter: the small recurrent MDPs that transient streams feed into.

========  ======  =====================================================================
letter    states  source
========  ======  =====================================================================
``h``     3       Hordijk, Dekker & Kallenberg (1985), Howard's taxicab problem
``c``     5       Strens (2000), the chain problem
``x``     1       an absorbing state with reward 0: the terminal state of episodic tasks
========  ======  =====================================================================
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unichain_gym.mdp import TabularMDP


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


CORES: dict[str, Callable[[], TabularMDP]] = {
    "h": taxicab,
    "c": strens_chain,
    "x": absorbing_state,
}
