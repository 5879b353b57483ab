"""Reading and checking models: the outcome table of an MDP, the transition matrix of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym.errors import InvalidModelError, brief
from unichain_gym.interface import BoolArray, FloatArray, IntArray, OutcomeModel
from unichain_gym.labels import Names, agree_on_names, find_labels
from unichain_gym.outcomes import (
    drop_residues,
    read_floats,
    read_integers,
    read_only,
    read_reals,
    sum_tolerance,
    sums_to_one,
)
from unichain_gym.structure import edges, group_sums, row_sums
from unichain_gym.summary import abbreviate
from unichain_gym.unichain import maximal_end_components


def read_chain(
    P: Any,
    reward: ArrayLike,
    initial: ArrayLike,
    state_names: Sequence[Any] | None,
    drop_below: float | None,
) -> tuple[sparse.csr_array, FloatArray, FloatArray, Names | None]:
    """Return matrix (S, S), reward (S,) and start (S,) as checked read-only copies, and names."""
    matrix = _read_matrix(P, drop_below)
    r = read_only(np.array(read_reals(reward, "reward")))
    start = np.array(read_distribution(initial, "initial_distribution", drop_below))
    _check_chain(matrix, r, start)
    labels = find_labels("transition_matrix", P, "state", "state")
    labels += find_labels("reward", reward, "state")
    labels += find_labels("initial_distribution", initial, "state")
    return matrix, r, read_only(start), agree_on_names("state", r.size, state_names, labels)


def _read_matrix(values: Any, drop_below: float | None) -> sparse.csr_array:
    if not sparse.issparse(values):
        values = read_floats(values, "transition_matrix")
    if values.ndim != 2:
        raise InvalidModelError(f"transition_matrix has shape (S, S); got {values.shape}")
    precision = values.dtype if values.dtype in (np.float16, np.float32) else np.float64
    if precision == np.float16:
        values = values.astype(np.float32)  # SciPy has no matrices of float16
    P: sparse.csr_array = sparse.csr_array(values, copy=True)
    data = read_floats(P.data, "transition_matrix").astype(precision, copy=False)
    if precision == np.float64 and drop_below == 0.0:
        P.data = data
    else:
        row, column = edges(P)
        place = "from state {} to {}".format
        doubles = drop_residues(
            data, row, P.shape[0], lambda i: place(row[i], column[i]), drop_below
        )
        P = sparse.csr_array((doubles, P.indices, P.indptr), shape=P.shape)
    P.sum_duplicates()
    P.eliminate_zeros()
    for part in (P.data, P.indices, P.indptr):
        read_only(part)
    return P


def _check_chain(P: sparse.csr_array, reward: FloatArray, initial: FloatArray) -> None:
    S = reward.size
    if S == 0 or P.shape != (S, S) or reward.shape != (S,) or initial.shape != (S,):
        got = f"{P.shape}, {reward.shape} and {initial.shape}"
        raise InvalidModelError(
            "a chain needs a transition matrix (S, S), a reward (S,) and a start (S,), S > 0; got "
            f"{got}"
        )
    if not np.isfinite(reward).all():
        state = int(np.argmax(~np.isfinite(reward)))
        raise InvalidModelError(f"the reward of state {state} is {reward[state]}; make it finite")
    bad = np.flatnonzero(~(np.isfinite(P.data) & (P.data > 0.0)))
    if bad.size:
        state = int(np.searchsorted(P.indptr, bad[0], side="right")) - 1
        raise InvalidModelError(
            f"the probability of going from state {state} to {P.indices[bad[0]]} is "
            f"{float(P.data[bad[0]])!r}; it must be finite and not negative"
        )
    total = row_sums(P)
    off = np.abs(total - 1.0) > sum_tolerance(int(np.diff(P.indptr).max()))
    if off.any():
        state = int(np.argmax(off))
        remedy = "normalize the row"
        if sums_to_one(group_sums(edges(P)[1], P.data, S), S):
            remedy = "the columns of the matrix sum to 1 instead: pass its transpose"
        raise InvalidModelError(
            f"the transition probabilities of state {state} sum to {float(total[state])!r}, not 1; "
            f"{remedy}"
        )
    check_distribution(initial, "initial_distribution")


def read_distribution(values: ArrayLike, what: str, drop_below: float | None = None) -> FloatArray:
    """Return an unchecked distribution over states (S,) in double, without rounding errors."""
    p = read_floats(values, what)
    row = np.zeros(p.shape, dtype=np.int64)
    return drop_residues(p, row, 1, lambda i: f"{what} of state {i}", drop_below)


def check_distribution(p: FloatArray, what: str) -> None:
    """Raise `InvalidModelError` unless ``p`` (S,) is a probability distribution."""
    if not np.isfinite(p).all() or (p < 0.0).any():
        state = int(np.argmax(~(p >= 0.0)))
        raise InvalidModelError(
            f"{what} must be finite and not negative; state {state} has {float(p[state])!r}"
        )
    residual = float(p.sum()) - 1.0
    if abs(residual) > sum_tolerance(p.size):
        raise InvalidModelError(f"{what} sums to {1.0 + residual!r}, not 1; normalize it")


def read_table(mdp: OutcomeModel, drop_below: float | None) -> dict[str, Any]:
    """Return the fields of an MDP by name, as checked read-only copies."""
    following = np.array(read_integers(mdp.next_state, "next_state"), order="C")
    given = read_floats(mdp.probability, "probability")
    r = np.array(read_reals(mdp.reward, "reward"), order="C")
    initial = mdp.initial_distribution
    start = np.array(read_distribution(initial, "initial_distribution", drop_below))
    if following.ndim != 3 or not following.shape == given.shape == r.shape:
        got = f"{following.shape}, {given.shape} and {r.shape}"
        raise InvalidModelError(
            f"next_state, probability and reward must share one shape (S, A, K); got {got}"
        )
    if 0 in following.shape:
        raise InvalidModelError(
            f"an MDP needs a state, an action and an outcome; got (S, A, K) {following.shape}"
        )
    S, A, K = following.shape
    row = np.broadcast_to(np.arange(S * A).reshape(S, A, 1), (S, A, K))

    def place(i: int) -> str:
        s, a, k = np.unravel_index(i, (S, A, K))
        return f"state {s}, action {a}, to state {following[s, a, k]}"

    p = np.array(drop_residues(given, row, S * A, place, drop_below), order="C")
    _check_outcomes(following, p, r)
    if start.shape != (S,):
        raise InvalidModelError(
            f"initial_distribution must have shape ({S},), one entry a state; got "
            f"{start.shape or brief(mdp.initial_distribution)}"
        )
    check_distribution(start, "initial_distribution")
    is_possible = p > 0.0
    tau = read_durations(mdp.durations, is_possible)
    if tau is not None:
        timeless = (tau == 0.0).all(axis=2) & is_possible.any(axis=2)
        kept = maximal_end_components(following, is_possible, timeless) >= 0
        if kept.any():
            where = abbreviate(np.flatnonzero(kept))
            raise InvalidModelError(
                f"a policy can stay in {where} for ever while no time passes; give a step a "
                "duration"
            )
    fields = {"next_state": following, "probability": p, "reward": r, "initial_distribution": start}
    return {name: read_only(array) for name, array in fields.items()} | {"durations": tau}


def read_durations(values: ArrayLike | None, possible: BoolArray) -> FloatArray | None:
    """Return durations as a checked read-only copy, 0 if impossible; None if all are 1."""
    if values is None:
        return None
    tau = np.array(read_reals(values, "durations"), order="C")
    if tau.shape != possible.shape:
        raise InvalidModelError(f"durations have shape {possible.shape}; got {tau.shape}")
    wrong = possible & ~((tau >= 0.0) & np.isfinite(tau))
    if wrong.any():
        first = np.argwhere(wrong)[0].tolist()
        words = zip(("state", "action", "outcome"), first, strict=False)
        place = ", ".join(f"{word} {i}" for word, i in words)
        value = float(tau[tuple(first)])
        raise InvalidModelError(
            f"the duration of {place} is {value!r}; a duration is finite and not negative"
        )
    tau[~possible] = 0.0
    return None if (tau[possible] == 1.0).all() else read_only(tau)


def _check_outcomes(next_state: IntArray, probability: FloatArray, reward: FloatArray) -> None:
    """Raise `InvalidModelError` for the first invalid entry of an outcome table (S, A, K).

    A row of zeros (the state lacks the action) is valid if the state has another action.
    """
    S, _, K = next_state.shape
    for mask, problem in (
        ((next_state < 0) | (next_state >= S), f"leads to a state outside 0 to {S - 1}"),
        (~(probability >= 0.0), "has an invalid probability"),
        (~np.isfinite(reward), "has a reward that is not finite"),
    ):
        if mask.any():
            s, a, k = np.unravel_index(np.argmax(mask), mask.shape)
            p, r = float(probability[s, a, k]), float(reward[s, a, k])
            hint = (
                ". If the state lacks the action, leave the transition out, or mark it in "
                "from_arrays(..., allowed=)"
            )
            raise InvalidModelError(
                f"outcome {k} of state {s}, action {a} {problem}: next state "
                f"{next_state[s, a, k]}, probability {p!r}, reward {r!r}" + hint * (r == -np.inf)
            )
    total = probability.sum(axis=2)
    idle = np.flatnonzero((total == 0.0).all(axis=1))
    if idle.size:
        raise InvalidModelError(
            f"state {idle[0]} has no action; each state needs one, if only one that stays"
        )
    off = (np.abs(total - 1.0) > sum_tolerance(K)) & (total > 0.0)
    if off.any():
        s, a = np.unravel_index(np.argmax(off), off.shape)
        raise InvalidModelError(
            f"the outcomes of state {s}, action {a} sum to {float(total[s, a])!r} (residual "
            f"{total[s, a] - 1.0:.3g}), not 1; normalize them or add the missing outcome"
        )
