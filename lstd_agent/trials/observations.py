"""Observations of any Gymnasium space as rows of an array.

A Discrete observation is the number of its state. Every other space is flattened to a vector,
as `gymnasium.spaces.flatten` does it for a single observation, but for whole batches: numbers
as they are, choices one-hot, the parts of a Dict or Tuple side by side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lstd_agent.arrays import BoolArray, IntArray
from lstd_agent.errors import InvalidInputError


def flatten_batch(space: Space[Any], batch: Any) -> NDArray[Any]:
    """Return a batch of observations of ``space`` as vectors, shape (n, k).

    Numbers keep the type in which they come, so that pictures of bytes stay bytes.

    Parameters
    ----------
    space : Space
        Of a single observation: Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple.
    batch : array, dict or tuple
        n observations as a vector environment returns them.

    Returns
    -------
    ndarray, shape (n, k)
        A copy: an environment may write its next observations into the same array.

    Raises
    ------
    InvalidInputError
        If the space has no flat form of fixed length, or does not hold a choice.
    """
    if isinstance(space, spaces.Dict):
        parts = [flatten_batch(part, batch[key]) for key, part in space.spaces.items()]
        return np.concatenate(parts, axis=1)
    if isinstance(space, spaces.Tuple):
        parts = [flatten_batch(part, b) for part, b in zip(space.spaces, batch, strict=True)]
        return np.concatenate(parts, axis=1)
    check_flattens(space)
    array = np.array(batch)
    if isinstance(space, spaces.Discrete):
        return _one_hot(array - space.start, int(space.n), space)
    if isinstance(space, spaces.MultiDiscrete):
        columns = (array - space.start).reshape(len(array), -1)
        sizes = space.nvec.ravel()
        one_hot = [_one_hot(column, n, space) for n, column in zip(sizes, columns.T)]  # noqa: B905
        return np.concatenate(one_hot, axis=1)
    flat = array.reshape(len(array), -1)
    if flat.dtype.kind not in "fiub":
        raise TypeError("observations must be real numbers")
    return flat.astype(np.uint8) if flat.dtype.kind == "b" else flat


def flat_size(space: Space[Any]) -> int:
    """Return the number of components of a flattened observation, or raise if there is none."""
    if isinstance(space, spaces.Dict):
        return sum(flat_size(part) for part in space.values())
    if isinstance(space, spaces.Tuple):
        return sum(flat_size(part) for part in space.spaces)
    check_flattens(space)
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return math.prod(space.shape or ())


def check_flattens(space: Space[Any]) -> None:
    """Raise `InvalidInputError` unless a space without members has vectors of fixed length."""
    flat = spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box
    if not isinstance(space, flat):
        raise InvalidInputError(
            f"observations of {space} have no flat form of fixed length; wrap the environment so "
            "that it observes a Discrete, Box, MultiDiscrete, MultiBinary, Dict or Tuple space"
        )


def _one_hot(choice: NDArray[Any], n: int, space: Space[Any]) -> NDArray[np.uint8]:
    """Return choices (m,) from 0 to n - 1 as rows of one 1, shape (m, n)."""
    rows = np.arange(n) == choice[:, None]
    if not rows.any(axis=1).all():
        raise InvalidInputError(f"an observation has a choice that {space} does not hold")
    return np.asarray(rows, dtype=np.uint8)


def as_batch(observation: Any) -> Any:
    """Return a single observation as a batch of one."""
    if isinstance(observation, dict):
        return {key: as_batch(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(as_batch(part) for part in observation)
    return np.asarray(observation)[None]


def batch_size(batch: Any) -> int:
    """Return the number of observations in a batch."""
    if isinstance(batch, dict):
        return batch_size(next(iter(batch.values())))
    return batch_size(batch[0]) if isinstance(batch, tuple) else len(batch)


def part_sizes(batch: Any) -> set[int]:
    """Return the lengths of all axes of the observations in a batch, and numbers of members."""
    if isinstance(batch, dict):
        return {len(batch)}.union(*(part_sizes(part) for part in batch.values()))
    if isinstance(batch, tuple):
        return {len(batch)}.union(*(part_sizes(part) for part in batch))
    return set(np.shape(batch)[1:])


def take(batch: Any, index: IntArray | int) -> Any:
    """Return one observation of a batch, or a batch of some."""
    if isinstance(batch, dict):
        return {key: take(part, index) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(take(part, index) for part in batch)
    return batch[index]


def replace(batch: Any, index: IntArray, observations: list[Any]) -> Any:
    """Return a copy of a batch with the observations at ``index`` replaced."""
    if isinstance(batch, dict):
        return {
            key: replace(part, index, [o[key] for o in observations]) for key, part in batch.items()
        }
    if isinstance(batch, tuple):
        return tuple(
            replace(part, index, [o[i] for o in observations]) for i, part in enumerate(batch)
        )
    changed = batch.copy()
    changed[index] = np.stack([np.asarray(o) for o in observations])
    return changed


def is_batch(space: Space[Any], observation: Any) -> bool:
    """Tell a batch of observations of ``space`` from a single one."""
    if isinstance(space, spaces.Dict):
        return _first_is_batch(space.items(), observation)
    if isinstance(space, spaces.Tuple):
        return _first_is_batch(enumerate(space.spaces), observation)
    return np.ndim(observation) > len(space.shape or ())


def _first_is_batch(members: Any, observation: Any) -> bool:
    for key, member in members:
        try:
            return is_batch(member, observation[key])
        except (TypeError, LookupError):
            return False  # whatever it is, encoding it says what is wrong
    return False


def stack(space: Space[Any], observations: list[Any]) -> Any:
    """Return single observations of ``space`` as a batch."""
    if isinstance(space, spaces.Dict):
        return {key: stack(part, [o[key] for o in observations]) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        for observation in observations:
            if len(observation) != len(space.spaces):
                raise ValueError(f"{observation!r} does not have {len(space.spaces)} members")
        members = enumerate(space.spaces)
        return tuple(stack(part, [o[i] for o in observations]) for i, part in members)
    return np.stack([np.asarray(o) for o in observations])


def one_or_many(space: Space[Any], observations: Any) -> tuple[Any, bool]:
    """Return an observation, a batch or a list of them as a batch, and whether it was one."""
    if isinstance(observations, list) and isinstance(space, spaces.Dict | spaces.Tuple):
        try:
            observations = stack(space, observations)
        except (TypeError, ValueError, LookupError) as error:
            raise InvalidInputError(
                f"a list of observations of {space} has one of them in each place: {error}"
            ) from error
    if is_batch(space, observations):
        return observations, False
    return as_batch(observations), True


def where_ended(observations: NDArray[Any], ends: bool) -> BoolArray:
    """Tell where logged trials (m, n, k), of a task that ends or not, are over: at NaN."""
    if observations.dtype.kind != "f":
        return np.zeros(observations.shape[:2], dtype=bool)
    ended: BoolArray = np.isnan(observations).any(axis=2)
    if ended.any() and not ends:
        trial, t = np.argwhere(ended)[0]
        raise InvalidInputError(
            f"observation {t} of trial {trial} is NaN, which marks the end of a trial: with "
            "on_termination='absorb' trials may end"
        )
    if (ended[:, :-1] & ~ended[:, 1:]).any() or ended[:, 0].any():
        raise InvalidInputError("a trial does not start at its end, and goes not on after it")
    return ended
