"""Features of pairs: of an observation and an action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import FloatArray, States
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import with_ones
from lstd_agent.trials.encoding import VectorEncoding

PairFeatures = Callable[[Any, Any], ArrayLike]
"""Features (n, d) of vectors (n, k) and actions (n,) from 0."""


class PairFeatureRows:
    """Features of observations with each of A actions.

    Parameters
    ----------
    encoding : VectorEncoding
    n_actions : int
    features : callable, optional
        Of pairs. By default the encoding's features and a constant, apart for each action.
    """

    def __init__(
        self, encoding: VectorEncoding, n_actions: int, features: PairFeatures | None
    ) -> None:
        self._encoding = encoding
        self._n_actions = n_actions
        self._features = features

    def __call__(self, states: States) -> FloatArray:
        """Return features (n, A, D) of encoded observations (n, k)."""
        n, A = len(states), self._n_actions
        living = np.asarray(np.isfinite(np.asarray(states, dtype=np.float64)).all(axis=1))
        if self._features is None:
            f = with_ones(self._encoding.features(states))
            d = f.shape[1]
            apart = np.zeros((n, A, A, d))
            apart[:, np.arange(A), np.arange(A)] = f[:, None]
            rows: FloatArray = apart.reshape(n, A, A * d)
        else:
            finite = np.where(living[:, None], states, 0.0)
            rows = np.stack([self._of_action(finite, a) for a in range(A)], axis=1)
        rows[~living] = 0.0
        return rows

    def _of_action(self, states: FloatArray, action: int) -> FloatArray:
        assert self._features is not None
        # Copies: a function may compute in place, and return the same array for each action.
        rows = np.array(self._features(states.copy(), np.full(len(states), action)), np.float64)
        if rows.ndim != 2 or len(rows) != len(states) or not np.isfinite(rows).all():
            raise InvalidInputError(
                f"pair_features of {len(states)} observations and actions must be {len(states)} "
                f"rows of finite numbers; got shape {rows.shape}"
            )
        return rows
