"""Restricting chains and MDPs to the states that can be reached.

What can be reached is closed: no transition leaves it. So the restricted chain is a chain, with
the same law from the same start. An MDP is restricted to what can be reached under any policy;
the MDP of a chain to what one policy can reach, where other actions may lead out, and are then
actions that the state lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym.arrays import FloatArray, IntArray
from unichain_gym.errors import InvalidModelError
from unichain_gym.interface import OutcomeModel
from unichain_gym.structure import search_breadth_first

Model = TypeVar("Model", bound=OutcomeModel)


def reach(
    P: sparse.csr_array, initial: FloatArray, from_: ArrayLike | None = None
) -> tuple[IntArray, FloatArray]:
    """Return the states that can be reached, sorted, and the distribution to start from.

    Parameters
    ----------
    P : csr_array, shape (S, S)
        An entry (s, s') is an edge from s to s'; its value does not matter.
    initial : ndarray, shape (S,)
        Where to start unless ``from_`` says it.
    from_ : int or array_like of int, optional
        Start uniformly over these states.
    """
    start = initial
    if from_ is not None:
        states = np.unique(check_states(from_, initial.size))
        start = np.zeros(initial.size)
        start[states] = 1.0 / states.size
    depth, _ = search_breadth_first(P, np.flatnonzero(start))
    return np.flatnonzero(depth >= 0), start


def check_states(states: ArrayLike, n_states: int) -> IntArray:
    """Return one state or several as an array (n,), or raise `InvalidModelError`."""
    array = np.atleast_1d(np.asarray(states))
    if array.ndim != 1 or not array.size or not np.issubdtype(array.dtype, np.integer):
        raise InvalidModelError(f"states must be integers, one or several; got {states!r}")
    wrong = array[(array < 0) | (array >= n_states)]
    if wrong.size:
        raise InvalidModelError(f"state {wrong[0]} does not exist; states are 0 to {n_states - 1}")
    return array.astype(np.int64)


def check_state(state: ArrayLike, n_states: int) -> int:
    """Return one state, or raise `InvalidModelError`."""
    states = check_states(state, n_states)
    if states.size > 1:
        raise InvalidModelError(f"one state is needed; got {state!r}")
    return int(states[0])


def pick(names: Sequence[str | int], states: IntArray) -> tuple[str | int, ...]:
    """Return the names of some states."""
    return tuple(names[state] for state in states.tolist())


def restrict_mdp(mdp: Model, states: IntArray, start: FloatArray) -> Model:
    """Return an MDP of some of the states, without the actions that may lead out of them.

    Parameters
    ----------
    mdp : TabularMDP
        The MDP.
    states : ndarray of int, shape (n,)
        The states to keep, sorted. Each needs an action that stays among them.
    start : ndarray, shape (S,)
        The initial distribution; 0 elsewhere.
    """
    new = np.full(mdp.n_states, -1)
    new[states] = np.arange(states.size)
    probability = mdp.probability[states].copy()
    next_state = new[mdp.next_state[states]]
    leads_out = np.any((next_state < 0) & (probability > 0.0), axis=2)
    probability[leads_out] = 0.0
    # Outcomes of probability zero must lead somewhere too.
    own = np.arange(states.size)[:, None, None]
    names = range(mdp.n_states) if mdp.state_names is None else mdp.state_names
    return replace(
        mdp,
        next_state=np.where(next_state < 0, own, next_state),
        probability=probability,
        reward=np.where(leads_out[:, :, None], 0.0, mdp.reward[states]),
        initial_distribution=start[states],
        state_names=pick(names, states),
        drop_below=0.0,
    )
