"""Names of states and actions, and arguments given by name: labels of tables, states, masks.

An object with ``axes`` is a pandas object. Its labels are names of states or actions, unless they
are the row numbers 0, 1, 2, …. Contradicting labels are refused; nothing is reordered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unichain_gym.errors import InvalidArgumentError, InvalidModelError, UnichainError, brief
from unichain_gym.interface import FloatArray, IntArray
from unichain_gym.outcomes import nearest_name, read_array, read_reals, require_integers

Names = tuple[str | int, ...]
Labels = list[tuple[str, str, Sequence[Any]]]
"""For each labeled axis: "state" or "action", the argument, and the labels."""


def find_labels(what: str, values: Any, *kinds: str) -> Labels:
    """Return the labels of a pandas object, or of a list of them, whose axes have these kinds."""
    if isinstance(values, list | tuple):
        parts = [(f"{what}[{i}]", part) for i, part in enumerate(values) if hasattr(part, "axes")]
        return [found for name, part in parts for found in find_labels(name, part, *kinds[1:])]
    axes = getattr(values, "axes", None)
    if not isinstance(axes, list):
        return []
    of = (f"the rows of {what}", f"the columns of {what}") if len(axes) > 1 else (f"{what}",)
    return [(kind, name, axis.tolist()) for kind, name, axis in zip(kinds, of, axes, strict=False)]


def agree_on_names(
    kind: str, n: int, names: Sequence[Any] | None, labels: Iterable[tuple[str, str, Sequence[Any]]]
) -> Names | None:
    """Return the names of the n states or actions, or raise `InvalidModelError`.

    ``labels`` of the kind must agree with ``names`` and with one another. The numbers 0 to n - 1 in
    order are no names, but they contradict the same numbers in another order.
    """
    known, source = _read_names(f"{kind}_names", names, kind, n), f"{kind}_names"
    plain = list(range(n))
    of_kind = [(what, found) for each, what, found in labels if each == kind]
    for what, found in sorted(of_kind, key=lambda labeled: labeled[1] == plain):
        if found == plain and (known is None or set(known) != set(plain)):
            continue
        read = _read_names(f"the labels of {what}", found, kind, n)
        if known is None:
            known, source = read, what
        elif read is not None and read != known:
            i = next(i for i in range(n) if read[i] != known[i])
            raise InvalidModelError(
                f"{what} and {source} disagree on the {kind}s: number {i} is {read[i]!r} and "
                f"{known[i]!r}. Bring both in one order, by .reindex, or pass numbers alone, by "
                ".to_numpy()"
            )
    return known


def _read_names(what: str, names: Sequence[Any] | None, kind: str, n: int) -> Names | None:
    """Return distinct names as a tuple, all text or all integers."""
    if names is None:
        return None
    given = names.tolist() if isinstance(names, np.ndarray) else names
    if isinstance(given, str | bytes) or not isinstance(given, Sequence) or len(given) != n:
        raise InvalidModelError(
            f"{what} must hold one name for each of the {n} {kind}s; got {brief(given)}"
        )
    if all(isinstance(name, str) for name in given):
        read: Names = tuple(map(str, given))
    else:
        numbered = {f"{what}[{i}]": name for i, name in enumerate(given)}
        require_integers(InvalidModelError, **numbered)
        read = tuple(map(index, given))
    if len(set(read)) < n:
        twice = next(name for i, name in enumerate(read) if name in read[:i])
        raise InvalidModelError(f"{what} must differ; two {kind}s are called {twice!r}")
    return read


def look_up(
    values: NDArray[Any],
    names: Sequence[str | int] | None,
    kind: str,
    error: type[UnichainError] = InvalidModelError,
) -> NDArray[Any]:
    """Return an array with text names replaced by their numbers."""
    if values.dtype.kind not in "UO" or not all(isinstance(v, str) for v in values.flat):
        return values
    numbers = {name: i for i, name in enumerate(names or ()) if isinstance(name, str)}
    for name in values.flat:
        if name not in numbers:
            none = f"{kind}s have no names here, only numbers: name them by {kind}_names="
            problem = f"no {kind} is called so" if numbers else none
            raise error(f"{kind} {str(name)!r}: {problem}{nearest_name(name, numbers)}")
    return np.array([numbers[v] for v in values.flat], dtype=np.int64).reshape(values.shape)


def read_states(
    states: ArrayLike, n_states: int, names: Sequence[str | int] | None = None
) -> IntArray:
    """Return states, by number, name or mask (S,), as numbers; raise `InvalidModelError`."""
    array = np.atleast_1d(look_up(read_array(states, "states"), names, "state"))
    if array.dtype == np.bool_ and array.shape == (n_states,):
        array = np.flatnonzero(array)
    if array.ndim != 1 or not array.size or not np.issubdtype(array.dtype, np.integer):
        raise InvalidModelError(
            f"states must be integers or names, one or several, or a mask of {n_states} booleans "
            f"with at least one True; got {brief(states)}"
        )
    wrong = array[(array < 0) | (array >= n_states)]
    if wrong.size:
        raise InvalidModelError(f"state {wrong[0]} does not exist; states are 0 to {n_states - 1}")
    return array.astype(np.int64)


def read_state(state: ArrayLike, n_states: int, names: Sequence[str | int] | None = None) -> int:
    """Return the number of one state, or raise `InvalidModelError`."""
    states = read_states(state, n_states, names)
    if states.size > 1:
        raise InvalidModelError(f"one state is needed; got {brief(state)}")
    return int(states[0])


def read_state_values(
    what: str, values: ArrayLike | None, n_states: int, names: Sequence[str | int] | None
) -> FloatArray:
    """Return finite numbers (S,), zeros for None, or raise `InvalidArgumentError`."""
    if values is None:
        return np.zeros(n_states)
    array = read_reals(values, what, InvalidArgumentError)
    if array.shape != (n_states,) or not np.isfinite(array).all():
        raise InvalidArgumentError(
            f"{what} must be {n_states} finite numbers, one a state; got {brief(values)}"
        )
    if labels := find_labels(what, values, "state"):
        agree_on_names("state", n_states, range(n_states) if names is None else names, labels)
    return array
