"""Reading and checking the numbers of MDPs and chains."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from operator import index
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unichain_gym.arrays import FloatArray, IntArray
from unichain_gym.errors import (
    InvalidArgumentError,
    InvalidModelError,
    ModelTooLargeError,
    UnichainError,
)
from unichain_gym.rounding import drop_residues, sum_tolerance

MAX_DENSE_STATES = 5_000  # a dense matrix of so many takes 0.2 GB

Scalar = TypeVar("Scalar", bound=np.generic)


def read_reals(
    values: ArrayLike, what: str, error: type[UnichainError] = InvalidModelError
) -> FloatArray:
    """Return ``values`` as an array of float64, or raise ``error`` if they are no real numbers."""
    return np.asarray(read_floats(values, what, error), dtype=np.float64)


def read_floats(
    values: ArrayLike, what: str, error: type[UnichainError] = InvalidModelError
) -> NDArray[np.floating[Any]]:
    """Return ``values`` as `read_reals` does, but leave float16 and float32 as they are."""
    try:
        array = np.asarray(values)
        if np.iscomplexobj(array):
            raise TypeError("got complex ones")
        return (
            array
            if array.dtype in (np.float16, np.float32)
            else array.astype(np.float64, copy=False)
        )
    except (TypeError, ValueError) as problem:
        raise error(f"{what} must be an array of real numbers: {problem}") from problem


def read_integers(values: ArrayLike, what: str) -> IntArray:
    """Return ``values`` as an array of int64, or raise `InvalidModelError` if one is not whole."""
    if isinstance(values, np.ndarray) and np.issubdtype(values.dtype, np.integer):
        return values.astype(np.int64, copy=False)
    array = read_reals(values, what)
    wrong = ~((np.floor(array) == array) & (np.abs(array) < 2.0**53))
    if wrong.any():
        raise InvalidModelError(f"{what} must hold integers; got {float(array[wrong].flat[0])!r}")
    return array.astype(np.int64)


def read_names(names: Sequence[Any] | None, n_states: int) -> tuple[str | int, ...] | None:
    """Return the names of the states, all text or all integers, or raise `InvalidModelError`."""
    if names is None:
        return None
    given = names.tolist() if isinstance(names, np.ndarray) else names
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != n_states:
        raise InvalidModelError(
            f"state_names must hold one name for each of the {n_states} states; got "
            f"{reprlib.repr(given)}"
        )
    read: tuple[str | int, ...]
    if all(isinstance(name, str) for name in given):
        read = tuple(str(name) for name in given)
    else:
        require_integers(InvalidModelError, **{f"state_names[{i}]": n for i, n in enumerate(given)})
        read = tuple(index(name) for name in given)
    if len(set(read)) < n_states:
        twice = next(name for i, name in enumerate(read) if name in read[:i])
        raise InvalidModelError(f"state_names must differ; two states are called {twice!r}")
    return read


def read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the array, made read-only: what is kept must not change under later answers."""
    array.flags.writeable = False
    return array


def require_integers(error: type[UnichainError], low: int | None = None, **values: Any) -> None:
    """Raise ``error`` for the first of the named values that is no integer, or is below ``low``."""
    for name, value in values.items():
        try:
            index(value)
        except TypeError:
            raise error(f"{name} must be an integer; got {value!r}") from None
        if low is not None and value < low:
            raise error(f"{name} must be at least {low}; got {value}")


def read_count(name: str, value: int) -> int:
    """Return an integer of at least 0, or raise `InvalidArgumentError`."""
    require_integers(InvalidArgumentError, **{name: value})
    if value < 0:
        raise InvalidArgumentError(f"{name} must not be negative; got {value}")
    return int(value)


def check_discount(discount: float, instead: str) -> None:
    """Raise `InvalidArgumentError` unless a discount is in [0, 1)."""
    if not 0.0 <= discount < 1.0:
        raise InvalidArgumentError(
            f"discount must be at least 0 and below 1; got {discount!r}. For the undiscounted "
            f"case use {instead}"
        )


def require_dense(what: str, n: int) -> None:
    """Raise `ModelTooLargeError` if a dense matrix over n states would be too large."""
    if n > MAX_DENSE_STATES:
        raise ModelTooLargeError(
            f"{what} of {n} states is a dense array of {n * n * 8 / 1e9:.1f} GB; the limit is "
            f"{MAX_DENSE_STATES} states"
        )


def read_generator(rng: np.random.Generator | int) -> np.random.Generator:
    """Return a generator, or one of a seed, or raise `InvalidArgumentError`."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"rng must be a generator, such as numpy.random.default_rng(0), or a seed; got {rng!r}"
        ) from None


def draw_thresholds(p: FloatArray) -> FloatArray:
    """Return cumulative sums of p (..., n) that turn a uniform draw u into an index drawn from p.

    Index ``k`` is drawn when ``thresholds[k - 1] <= u < thresholds[k]``. From the last index
    with positive probability on, the threshold is infinite: a sum that rounding leaves below 1
    can therefore never select an index of probability zero.
    """
    thresholds = np.cumsum(p, axis=-1)
    later_mass = np.cumsum(p[..., ::-1], axis=-1)[..., ::-1]
    is_last = np.ones(p.shape, dtype=bool)
    is_last[..., :-1] = later_mass[..., 1:] == 0.0
    thresholds[is_last] = np.inf
    return thresholds


def read_distribution(values: ArrayLike, what: str, drop_below: float | None = None) -> FloatArray:
    """Return a distribution over states (S,) in double, rounding seen to; it is not checked yet."""
    p = read_floats(values, what)
    row = np.zeros(p.shape, dtype=np.int64)

    def place(i: int) -> str:
        return f"{what} of state {i}"

    return drop_residues(p, row, 1, place, drop_below)


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


def read_table(
    next_state: ArrayLike,
    probability: ArrayLike,
    reward: ArrayLike,
    initial: ArrayLike,
    drop_below: float | None,
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an MDP by the names of its fields, checked, as read-only copies."""
    following = np.array(read_integers(next_state, "next_state"), order="C")
    given = read_floats(probability, "probability")
    r = np.array(read_reals(reward, "reward"), order="C")
    start = np.array(read_distribution(initial, "initial_distribution", drop_below))
    if following.ndim != 3 or not following.shape == given.shape == r.shape:
        raise InvalidModelError(
            "next_state, probability and reward must share one shape (S, A, K); got "
            f"{following.shape}, {given.shape} and {r.shape}"
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
            f"initial_distribution must have shape ({S},), one entry a state; got {start.shape}"
        )
    check_distribution(start, "initial_distribution")
    fields = {"next_state": following, "probability": p, "reward": r, "initial_distribution": start}
    return {name: read_only(array) for name, array in fields.items()}


def _check_outcomes(next_state: IntArray, probability: FloatArray, reward: FloatArray) -> None:
    """Raise `InvalidModelError` for the first invalid entry of an outcome table (S, A, K).

    A row of zeros, an action that the state lacks, is valid unless the state has no other.
    """
    S, _, K = next_state.shape
    # A NaN makes the least probability NaN, and fails its comparison.
    in_range = next_state.min() >= 0 and next_state.max() < S
    if not in_range or not (probability.min() >= 0.0) or not np.isfinite(reward).all():
        _refuse_outcome(next_state, probability, reward)
    total = probability.sum(axis=2)
    idle = np.flatnonzero((total == 0.0).all(axis=1))
    if idle.size:
        raise InvalidModelError(
            f"state {idle[0]} has no action; each state needs one (a state without a way out has "
            "an action that stays, with probability 1)"
        )
    off = (np.abs(total - 1.0) > sum_tolerance(K)) & (total > 0.0)
    if off.any():
        s, a = np.unravel_index(np.argmax(off), off.shape)
        raise InvalidModelError(
            f"the outcomes of state {s}, action {a} sum to {float(total[s, a])!r} (residual "
            f"{total[s, a] - 1.0:.3g}), not 1; normalize them or add the missing outcome"
        )


def _refuse_outcome(next_state: IntArray, probability: FloatArray, reward: FloatArray) -> None:
    """Raise `InvalidModelError` for the first outcome of a table (S, A, K) that is none."""
    S = len(next_state)
    for mask, problem in (
        ((next_state < 0) | (next_state >= S), f"leads to a state outside 0 to {S - 1}"),
        (~(probability >= 0.0), "has an invalid probability"),
        (~np.isfinite(reward), "has a reward that is not finite"),
    ):
        if mask.any():
            s, a, k = np.unravel_index(np.argmax(mask), mask.shape)
            hint = (
                ". If the state lacks the action, leave the transition out, or mark it in "
                "from_arrays(..., allowed=)"
            )
            raise InvalidModelError(
                f"outcome {k} of state {s}, action {a} {problem}: next state "
                f"{next_state[s, a, k]}, probability {float(probability[s, a, k])!r}, reward "
                f"{float(reward[s, a, k])!r}" + hint * bool(reward[s, a, k] == -np.inf)
            )
