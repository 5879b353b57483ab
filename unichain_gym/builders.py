"""Outcome lists: read from arrays or transitions, padded into tables, or made dense."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unichain_gym.errors import InvalidModelError, ModelTooLargeError, brief
from unichain_gym.interface import BoolArray, FloatArray, IntArray, OutcomeModel
from unichain_gym.labels import Labels, find_labels, look_up
from unichain_gym.outcomes import (
    check_choice,
    in_double,
    read_array,
    read_floats,
    read_reals,
    require_room,
    sums_to_one,
)
from unichain_gym.structure import group_sums

MAX_ENTRIES = 10**8
COLUMNS = "state", "action", "next_state", "probability", "reward"
LISTED = (
    f"transitions are tuples ({', '.join(COLUMNS)}[, duration]), or a table of these columns, at "
    "least one"
)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """A list of n outcomes; each array has shape (n,). Probabilities may be of lower precision."""

    n_states: int
    n_actions: int
    state: IntArray
    action: IntArray
    next_state: IntArray
    probability: NDArray[np.floating[Any]]
    reward: FloatArray
    duration: FloatArray | None = None

    def describe(self, i: int) -> str:
        """Return the name of outcome i for a message."""
        return f"state {self.state[i]}, action {self.action[i]}, to state {self.next_state[i]}"


def require_outcomes(outcomes: Outcomes, allowed: BoolArray, remedy: str) -> None:
    """Raise `InvalidModelError` for the first allowed action (S, A) that leads nowhere."""
    row = outcomes.state * outcomes.n_actions + outcomes.action
    leads = np.zeros(allowed.size, dtype=bool)
    leads[row[outcomes.probability != 0.0]] = True
    missing = allowed.ravel() & ~leads
    if missing.any():
        state, action = divmod(int(np.argmax(missing)), outcomes.n_actions)
        raise InvalidModelError(
            f"the outcomes of state {state}, action {action} sum to 0.0, not 1; {remedy}"
        )


def pad_outcomes(outcomes: Outcomes) -> dict[str, Any]:
    """Gather a list of outcomes into the padded tables (S, A, K) of an MDP, by name.

    Outcomes that differ only in probability merge; zero probabilities drop. Negative probabilities
    merge only with negative ones, so that no sum hides them. A padding entry has next state = state
    and zeros elsewhere.
    """
    S, A = outcomes.n_states, outcomes.n_actions
    row = outcomes.state * A + outcomes.action
    given = in_double(outcomes.probability, row, S * A, outcomes.describe)
    listed = {"next_state": outcomes.next_state, "reward": outcomes.reward}
    if outcomes.duration is not None:
        listed["durations"] = outcomes.duration
    keys: list[NDArray[Any]] = [row, *listed.values(), given < 0.0]
    keys = [key[given != 0.0] for key in keys]
    order = np.lexsort(keys[::-1])
    keys = [key[order] for key in keys]
    is_first = np.arange(order.size) == 0
    for key in keys:
        is_first[1:] |= key[1:] != key[:-1]
    merged = np.bincount(np.cumsum(is_first) - 1, weights=given[given != 0.0][order])
    row, *values = (key[is_first] for key in keys[:-1])

    K = max(1, int(np.bincount(row, minlength=1).max()))
    slot = row * K + np.arange(row.size) - np.searchsorted(row, row)
    stays = np.repeat(np.arange(S, dtype=np.int64), A * K)
    tables: dict[str, Any] = {"durations": None}
    for name, column in {**dict(zip(listed, values, strict=True)), "probability": merged}.items():
        table = stays if name == "next_state" else np.zeros(stays.size)
        table[slot] = column
        tables[name] = table.reshape(S, A, K)
    return tables


def read_arrays(
    P: Any, R: Any, durations: Any, allowed: ArrayLike | None, order: str
) -> tuple[Outcomes, Labels]:
    """Read P (S, A, S) or one sparse (S, S) per action, and R (S, A), (S, A, S) or (S,).

    With order "ass" dense arrays of three dimensions are (A, S, S). R and durations may be sparse,
    like P or of shape (S, A). Entries outside ``allowed`` (S, A) are ignored.
    """
    check_choice("order", order, ("sas", "ass"))
    axes = (0, 1, 2) if order == "sas" else (1, 0, 2)
    matrices = _sparse_matrices(P, "P")
    if matrices is not None:
        S, A = matrices[0].shape[0], len(matrices)
        columns: Any = _read_sparse(matrices)
    else:
        dense = _read_dense(P, order).transpose(axes)
        S, A = dense.shape[:2]
        places = np.nonzero(dense)
        columns = (*places, dense[places])
    marks = np.ones((S, A)) if allowed is None else read_array(allowed, "allowed")
    if marks.shape != (S, A) or not np.isin(marks, (0, 1)).all():
        got = f"shape {marks.shape} and dtype {marks.dtype}"
        raise InvalidModelError(f"allowed must be boolean, of shape ({S}, {A}); got {got}")
    has = marks.astype(bool)
    if not has.all():
        columns = tuple(column[has[columns[:2]]] for column in columns)
    state, action, successor, probability = columns
    outcomes = Outcomes(S, A, state, action, successor, probability, np.zeros(state.size))
    duration = None if durations is None else _read_values(durations, "durations", outcomes, order)
    outcomes = replace(outcomes, reward=_read_values(R, "R", outcomes, order), duration=duration)
    remedy = "add them, or if the state lacks the action, mark it with allowed=, boolean, shape"
    require_outcomes(outcomes, has, f"{remedy} ({S}, {A})")
    # A list of tables has an extra first axis; one table is (S, A).
    by_state = "state", "action"
    outer = by_state if order == "sas" else by_state[::-1]
    axes_of_R = outer if isinstance(R, list | tuple) else by_state
    labels = find_labels("P", P, *outer, "state") + find_labels("R", R, *axes_of_R, "state")
    return outcomes, labels + find_labels("allowed", allowed, *by_state)


def _read_values(values: Any, what: str, of: Outcomes, order: str) -> FloatArray:
    """Return a number for each outcome, from an array or from sparse matrices like R."""
    S, A = of.n_states, of.n_actions
    matrices = _sparse_matrices(values, what)
    if matrices is not None:
        shapes = [matrix.shape for matrix in matrices]
        if shapes != [(S, S)] * A:
            raise InvalidModelError(
                f"{what} as a list of sparse matrices needs one ({S}, {S}) for each of the {A} "
                f"actions; got {shapes}"
            )
        rows = sparse.csr_array(sparse.vstack(matrices))
        rows.data = read_reals(rows.data, what)
        found: Any = rows[of.action * S + of.state, of.next_state]
        return np.ravel(found.toarray() if hasattr(found, "toarray") else found)
    array = read_reals(values.toarray() if hasattr(values, "toarray") else values, what)
    if array.shape == (S,):
        return array[of.state]
    if array.shape == (S, A):
        return array[of.state, of.action]
    by_outcome = (S, A, S) if order == "sas" else (A, S, S)
    if array.shape == by_outcome:
        first = (of.state, of.action) if order == "sas" else (of.action, of.state)
        return array[(*first, of.next_state)]
    hint = f"; pass {what}.T" if array.shape == (A, S) else ""
    raise InvalidModelError(
        f"{what} has shape ({S}, {A}), {by_outcome} or ({S},) for {S} states and {A} actions, or "
        f"is a list of one sparse ({S}, {S}) matrix per action; got {array.shape}{hint}"
    )


def _sparse_matrices(values: Any, what: str) -> list[Any] | None:
    """Return a list as matrices if one of its items is sparse; otherwise None."""
    if not isinstance(values, list | tuple) or not any(map(sparse.issparse, values)):
        return None
    return [
        m if sparse.issparse(m) else np.atleast_2d(read_floats(m, f"{what}[{a}]"))
        for a, m in enumerate(values)
    ]


def _read_sparse(matrices: list[Any]) -> tuple[Any, ...]:
    """Return state, action, next state and probability of the entries of one matrix per action."""
    S = matrices[0].shape[0]
    for a, matrix in enumerate(matrices):
        if matrix.shape != (S, S):
            raise InvalidModelError(
                f"transition matrices must be ({S}, {S}) like the first; that of action {a} is "
                f"{matrix.shape}"
            )
    entries = [sparse.coo_array(matrix) for matrix in matrices]
    state = np.concatenate([m.row for m in entries])
    successor = np.concatenate([m.col for m in entries])
    action = np.repeat(np.arange(len(entries)), [m.data.size for m in entries])
    data = read_floats(np.concatenate([m.data for m in entries]), "P")
    into, out_of = (
        group_sums(action * S + end, data.astype(np.float64, copy=False), len(entries) * S)
        for end in (successor, state)
    )
    if sums_to_one(into, S) and not sums_to_one(out_of[out_of != 0.0], S):
        raise InvalidModelError(
            "the columns of P sum to 1 and its rows do not: pass [matrix.T for matrix in P]"
        )
    return state.astype(np.int64), action, successor.astype(np.int64), data


def _read_dense(P: Any, order: str) -> NDArray[np.floating[Any]]:
    """Return P as an array, or raise an error that names the order that P seems to have."""
    dense = read_floats(P, "P, unless a list of one sparse matrix per action,")
    fits = {
        "sas": dense.ndim == 3 and dense.shape[0] == dense.shape[2],
        "ass": dense.ndim == 3 and dense.shape[1] == dense.shape[2],
    }
    if not fits[order]:
        shape, other = ("(S, A, S)", "ass") if order == "sas" else ("(A, S, S)", "sas")
        raise InvalidModelError(
            f"P has shape {shape} in order {order!r}, or is a list of one sparse (S, S) matrix "
            f"per action; got shape {dense.shape}" + f", which fits order={other!r}" * fits[other]
        )
    n = dense.shape[2]
    total = dense.sum(axis=2, dtype=np.float64)
    if not sums_to_one(total[total != 0.0], n):
        for axis in (0, 1):
            x, y, z = np.moveaxis(dense, axis, 2).shape
            orders = " or ".join(["'sas'"] * (x == z) + ["'ass'"] * (y == z))
            if orders and sums_to_one(dense.sum(axis=axis, dtype=np.float64), z):
                raise InvalidModelError(
                    f"P sums to 1 over axis {axis}, but its last axis must be the next state: pass "
                    f"np.moveaxis(P, {axis}, 2), of order {orders}"
                )
    return dense


def read_transitions(
    transitions: Any,
    n_states: int,
    state_names: Sequence[str | int] | None,
    action_names: Sequence[str | int] | None,
) -> tuple[Outcomes, Sequence[str | int] | None]:
    """Return the outcomes and the action names, in order of appearance, of transitions."""
    state, action, successor, probability, reward, *rest = _read_columns(transitions)
    state, successor = (look_up(column, state_names, "state") for column in (state, successor))
    if action_names is None and all(isinstance(name, str) for name in action.flat):
        action_names = tuple(dict.fromkeys(str(name) for name in action.flat))
    action = look_up(action, action_names, "action")
    given = np.column_stack([read_floats(c, "transitions") for c in (state, action, successor)])
    bound = np.array([n_states, 2.0**31, n_states])
    wrong = ~((np.floor(given) == given) & (given >= 0.0) & (given < bound)).all(axis=1)
    p, r = read_floats(probability, "transitions"), read_reals(reward, "transitions")
    if wrong.any():
        i = int(np.argmax(wrong))
        entries = (*given[i].tolist(), float(p[i]), float(r[i]))
        raise InvalidModelError(
            f"transition {i} is {entries}; states are 0 to {n_states - 1}, actions are integers "
            "from 0"
        )
    s, a, following = given.astype(np.int64).T
    n_actions = int(a.max()) + 1 if action_names is None else len(action_names)
    what = f"a table of {n_states} states and actions 0 to {n_actions - 1}; number actions without"
    require_room(f"{what} gaps: it", n_states, n_actions)
    durations = (read_reals(column, "transitions") for column in rest)
    outcomes = Outcomes(n_states, n_actions, s, a, following, p, r, *durations)
    listed = np.zeros((n_states, n_actions), dtype=bool)
    listed[s, a] = True
    require_outcomes(outcomes, listed, "leave out the transitions of an action that it lacks")
    return outcomes, action_names


def _read_columns(transitions: Any) -> list[NDArray[Any]]:
    named = getattr(transitions, "columns", getattr(transitions, "dtype", np.dtype(float)).names)
    if named is not None:
        missing = ", ".join(name for name in COLUMNS if name not in list(named))
        if missing:
            columns = ", ".join(COLUMNS)
            raise InvalidModelError(
                f"a table of transitions has columns {columns}; it lacks {missing}"
            )
        names = (*COLUMNS, "duration") if "duration" in list(named) else COLUMNS
        return [read_array(transitions[name], f"transitions[{name!r}]") for name in names]
    if not isinstance(transitions, np.ndarray):
        if not isinstance(transitions, Iterable) or isinstance(transitions, str | bytes):
            raise InvalidModelError(f"{LISTED}; got {brief(transitions)}")
        transitions = list(transitions)
    table = read_array(transitions, "transitions")
    if table.ndim != 2 or table.shape[1] not in (5, 6) or not len(table):
        raise InvalidModelError(f"{LISTED}; got an array of shape {table.shape}")
    if table.dtype.kind in "biufc":
        return list(table.T)
    # With text among the numbers, each column is read separately.
    return [np.array(column) for column in zip(*transitions, strict=True)]


def dense_arrays(mdp: OutcomeModel) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return dense arrays of an MDP, as `TabularMDP.from_arrays` takes them.

    `TabularMDP.from_arrays` reads them back. It needs ``allowed=mdp.allowed_actions`` if states
    lack actions, and ``durations=mdp.expected_duration`` if steps take time; all gains stay the
    same.

    Returns
    -------
    P : ndarray, shape (S, A, S)
        Rows of zeros where a state lacks an action.
    R : ndarray, shape (S, A, S)
        The expected reward of each transition; 0 where it is impossible.
    initial : ndarray, shape (S,)

    Raises
    ------
    ModelTooLargeError
        If P would have more than 10^8 entries.
    """
    S, A, K = mdp.next_state.shape
    if S * A * S > MAX_ENTRIES:
        size = f"{2 * S * A * S * 8 / 1e9:.1f} GB"
        raise ModelTooLargeError(
            f"dense arrays of {S} states and {A} actions would take {size}; use the outcome table"
        )
    place = np.repeat(np.arange(S * A) * S, K) + mdp.next_state.ravel()
    p = mdp.probability.ravel()
    P = group_sums(place, p, S * A * S)
    R = group_sums(place, p * mdp.reward.ravel(), S * A * S)
    np.divide(R, P, out=R, where=P > 0.0)
    return P.reshape(S, A, S), R.reshape(S, A, S), mdp.initial_distribution.copy()
