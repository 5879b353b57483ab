"""Restricting chains and MDPs to reachable states.

No transition leaves the set of reachable states. So the restricted chain is a chain with the same
law from the same start. An MDP keeps the states that any policy can reach. The MDP of a chain keeps
the states that its policy can reach, and loses actions that lead out of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym.interface import FloatArray, IntArray, OutcomeModel, RewardProcess
from unichain_gym.labels import read_states
from unichain_gym.structure import outcome_graph, search_breadth_first


def reach(
    P: sparse.csr_array,
    initial: FloatArray,
    from_: ArrayLike | None = None,
    names: Sequence[str | int] | None = None,
) -> tuple[IntArray, FloatArray]:
    """Return the reachable states, sorted, and the start distribution.

    The start is ``initial``, or uniform over the states ``from_``, by number, name or mask. Only
    the sparsity pattern of P is used.
    """
    start = initial
    if from_ is not None:
        states = np.unique(read_states(from_, initial.size, names))
        start = np.zeros(initial.size)
        start[states] = 1.0 / states.size
    depth, _ = search_breadth_first(P, np.flatnonzero(start))
    return np.flatnonzero(depth >= 0), start


def reachable_chain(chain: RewardProcess, from_: ArrayLike | None = None) -> RewardProcess:
    """Return the chain on the states that a start can reach; see `TabularMDP.reachable`.

    Its `mdp` has the same states; actions that lead out of them are removed.
    """
    P, mdp = chain.transition_matrix, chain.mdp
    states, start = reach(P, chain.initial_distribution, from_, chain.state_names)
    arrays = {"policy": chain.policy, "durations": chain.durations}
    return type(chain)(
        P[states][:, states],
        chain.reward[states],
        start[states],
        mdp=None if mdp is None else restrict_mdp(mdp, states, start),
        state_names=pick(chain.state_names, states),
        drop_below=0.0,
        **{k: None if array is None else array[states] for k, array in arrays.items()},
    )


def reachable_mdp(mdp: OutcomeModel, from_: ArrayLike | None = None) -> OutcomeModel:
    """Return the MDP restricted to the states that some policy can reach.

    Its `state_names` are the names or numbers of the states in this MDP.

    Parameters
    ----------
    from_ : states, optional
        The new initial distribution is uniform over these states, by number, name or mask. By
        default the MDP keeps its own.
    """
    graph = outcome_graph(mdp.next_state, mdp.probability > 0.0)
    states, start = reach(graph, mdp.initial_distribution, from_, mdp.state_names)
    return restrict_mdp(mdp, states, start)


def pick(names: Sequence[str | int], states: IntArray) -> tuple[str | int, ...]:
    """Return the names of some states."""
    return tuple(names[state] for state in states.tolist())


def restrict_mdp(mdp: OutcomeModel, states: IntArray, start: FloatArray) -> OutcomeModel:
    """Return an MDP of some of the states, without the actions that may lead out of them.

    ``states`` (n,) are sorted, and each has an action that stays among them; ``start`` (S,) is the
    initial distribution, 0 elsewhere.
    """
    new = np.full(mdp.n_states, -1)
    new[states] = np.arange(states.size)
    probability = mdp.probability[states].copy()
    next_state = new[mdp.next_state[states]]
    leads_out = np.any((next_state < 0) & (probability > 0.0), axis=2)
    probability[leads_out] = 0.0
    # Outcomes of probability zero need a valid next state too.
    own = np.arange(states.size)[:, None, None]
    names = range(mdp.n_states) if mdp.state_names is None else mdp.state_names
    return replace(
        mdp,
        next_state=np.where(next_state < 0, own, next_state),
        probability=probability,
        reward=np.where(leads_out[:, :, None], 0.0, mdp.reward[states]),
        initial_distribution=start[states],
        durations=None if mdp.durations is None else mdp.durations[states],
        state_names=pick(names, states),
        drop_below=0.0,
    )
