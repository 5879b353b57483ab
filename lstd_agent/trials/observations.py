"""Observations of any Gymnasium space as rows of an array.

A Discrete observation is the number of its state. Every other space is flattened to a vector,
as `gymnasium.spaces.flatten` does it for a single observation, but for whole batches: numbers
as they are, choices one-hot, the parts of a Dict or Tuple side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError


def flatten_batch(space: Space[Any], batch: Any) -> FloatArray:
    """Return a batch of observations of ``space`` as vectors, shape (n, k).

    Parameters
    ----------
    space : Space
        Of a single observation: Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple.
    batch : array, dict or tuple
        n observations as a vector environment returns them.

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
    array = np.asarray(batch)
    if isinstance(space, spaces.Discrete):
        return _one_hot(array - space.start, int(space.n), space)
    if isinstance(space, spaces.MultiDiscrete):
        columns = (array - space.start).reshape(len(array), -1)
        sizes = space.nvec.ravel()
        one_hot = [_one_hot(column, n, space) for n, column in zip(sizes, columns.T)]  # noqa: B905
        return np.concatenate(one_hot, axis=1)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return array.reshape(len(array), -1).astype(np.float64)
    raise InvalidInputError(
        f"observations of {space} have no flat form of fixed length; wrap the environment so "
        "that it observes a Discrete, Box, MultiDiscrete, MultiBinary, Dict or Tuple space"
    )


def _one_hot(choice: NDArray[Any], n: int, space: Space[Any]) -> FloatArray:
    """Return choices (m,) from 0 to n - 1 as rows of one 1, shape (m, n)."""
    rows = np.arange(n) == choice[:, None]
    if not rows.any(axis=1).all():
        raise InvalidInputError(f"an observation has a choice that {space} does not hold")
    return np.asarray(rows, dtype=np.float64)


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
    if isinstance(observation, dict):
        key, part = next(iter(observation.items()))
        return is_batch(space[key], part)  # type: ignore[index]
    if isinstance(observation, tuple):
        return is_batch(space[0], observation[0])  # type: ignore[index]
    return np.ndim(observation) > len(space.shape or ())
