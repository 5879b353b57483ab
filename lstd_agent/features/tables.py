"""State features f(s): tables and functions of observations.

For discrete observations features are a table, one row a state. Anything that can fill the
table will do: the array itself, a builder such as `OneHot` or `GaussianFeatures` that knows
how to make one for any number of states, a function of observations, or a scikit-learn
transformer. Vector observations take the last two; `lstd_agent.features.vectors` has some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError, check_integer


@runtime_checkable
class TableBuilder(Protocol):
    """Makes a feature table for any number of states."""

    def table(self, n_states: int) -> FloatArray:
        """Return the features (n_states, d)."""


@runtime_checkable
class Transformer(Protocol):
    """A fitted scikit-learn transformer."""

    def transform(self, X: NDArray[np.generic]) -> ArrayLike:
        """Return the features (n, d) of observations (n, k)."""


Features: TypeAlias = (
    ArrayLike | TableBuilder | Transformer | Callable[[NDArray[np.generic]], ArrayLike]
)
"""What the agent takes as features."""


@dataclass(frozen=True)
class OneHot:
    """One feature a state: every value function is representable."""

    def table(self, n_states: int) -> FloatArray:
        """Return the identity matrix."""
        return np.eye(n_states)


@dataclass(frozen=True)
class GaussianFeatures:
    """Random features f_i(s) ~ N(index(s), 1), those of the paper (section ``state_fea_ker``).

    Parameters
    ----------
    d : int
        Number of features.
    seed : int
        The same seed gives the same table.
    """

    d: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_integer("the number of features d", self.d, 1)
        check_integer("seed", self.seed, 0)

    def table(self, n_states: int) -> FloatArray:
        """Draw the features (n_states, d)."""
        rng = np.random.default_rng(self.seed)
        return np.arange(n_states)[:, None] + rng.standard_normal((n_states, self.d))


def is_table(features: Features) -> bool:
    """Tell a table, one row a state, from everything that makes features."""
    return not (isinstance(features, TableBuilder | Transformer) or callable(features))


def feature_table(features: Features, n_states: int, start: int = 0) -> FloatArray:
    """Return the feature table (n_states, d) of discrete observations.

    Parameters
    ----------
    features : Features
        A table, a builder, a function of observations (n,), or a transformer of (n, 1).
    n_states : int
    start : int
        The observation of the first state.

    Returns
    -------
    ndarray, shape (n_states, d)

    Raises
    ------
    InvalidInputError
        If the table has the wrong shape or holds a number that is not finite.
    """
    observations = np.arange(start, start + n_states)
    table: Any
    if isinstance(features, str | type):
        raise InvalidInputError(
            "features are an array, a function, a transformer or a builder such as OneHot(); got "
            f"{features!r}"
        )
    if isinstance(features, TableBuilder):
        table = features.table(n_states)
    elif isinstance(features, Transformer):
        table = features.transform(observations[:, None])
    elif callable(features):
        table = features(observations)
    else:
        table = features
    return check_features(_dense(table), n_states)


def vector_features(features: Features) -> Callable[[FloatArray], FloatArray]:
    """Return features of vector observations as a checked function, (n, k) to (n, d).

    Parameters
    ----------
    features : Features
        A function of observations (n, k), or a transformer.

    Raises
    ------
    InvalidInputError
        If the features are a table, or what they return has the wrong shape or is not finite.
    """
    if isinstance(features, Transformer):
        compute: Callable[[FloatArray], Any] = features.transform
    elif callable(features) and not isinstance(features, TableBuilder):
        compute = features
    else:
        raise InvalidInputError(
            f"{type(features).__name__} features need Discrete observations; for vectors give a "
            "function, a transformer, RadialBasis, Polynomial or TileCoding"
        )
    return lambda observations: check_features(_dense(compute(observations)), len(observations))


def _dense(features: Any) -> FloatArray:
    if hasattr(features, "toarray"):  # transformers like to return sparse matrices
        features = features.toarray()
    try:
        array = np.asarray(features)
        if not np.iscomplexobj(array):
            return array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        pass
    raise InvalidInputError(f"features must be an array of real numbers; got {features!r}")


def check_features(features: FloatArray, n: int) -> FloatArray:
    """Validate features of n observations: shape (n, d) with d >= 1, finite."""
    if features.ndim != 2 or features.shape[0] != n or features.shape[1] == 0:
        raise InvalidInputError(
            f"features must have shape ({n}, d), one row an observation; got {features.shape}"
        )
    if not np.isfinite(features).all():
        row, column = np.argwhere(~np.isfinite(features))[0]
        raise InvalidInputError(
            f"features must be finite; feature {column} of observation {row} is "
            f"{features[row, column]}"
        )
    return features
