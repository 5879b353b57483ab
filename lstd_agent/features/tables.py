"""State features f(s): tables and functions of observations.

For countable observations features are a table, one row a state. Anything that can fill the
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
from scipy import sparse

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.features.rows import Rows, as_rows


@runtime_checkable
class TableBuilder(Protocol):
    """Makes a feature table for any number of states."""

    def table(self, n_states: int) -> Rows:
        """Return the features (n_states, d), dense or sparse."""


@runtime_checkable
class Transformer(Protocol):
    """A fitted scikit-learn transformer."""

    def transform(self, X: NDArray[Any]) -> Any:
        """Return the features (n, d) of observations (n, k)."""


Features: TypeAlias = (
    ArrayLike
    | sparse.sparray
    | sparse.spmatrix
    | TableBuilder
    | Transformer
    | Callable[[NDArray[Any]], Any]
)
"""What the agent takes as features."""


@dataclass(frozen=True)
class OneHot:
    """One feature a state: every value function is representable.

    Methods
    -------
    table(n_states)
        The features of so many states.

    Examples
    --------
    >>> from lstd_agent import OneHot
    >>> OneHot().table(2).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def table(self, n_states: int) -> Rows:
        """Return the identity matrix, in CSR form.

        Parameters
        ----------
        n_states : int

        Returns
        -------
        csr_array, shape (n_states, n_states)
        """
        return sparse.eye_array(n_states, format="csr")


@dataclass(frozen=True)
class GaussianFeatures:
    """Random features f_i(s) ~ N(index(s), 1), those of the paper (section ``state_fea_ker``).

    Parameters
    ----------
    d : int
        Number of features.
    seed : int
        The same seed gives the same table.

    Methods
    -------
    table(n_states)
        The features of so many states.

    Examples
    --------
    >>> from lstd_agent import GaussianFeatures
    >>> GaussianFeatures(3, seed=1).table(36).shape
    (36, 3)
    """

    d: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_integer("the number of features d", self.d, 1)
        check_integer("seed", self.seed, 0)

    def table(self, n_states: int) -> FloatArray:
        """Draw the features (n_states, d).

        Parameters
        ----------
        n_states : int

        Returns
        -------
        ndarray, shape (n_states, d)
        """
        rng = np.random.default_rng(self.seed)
        return np.arange(n_states)[:, None] + rng.standard_normal((n_states, self.d))


def is_table(features: Features) -> bool:
    """Tell a table, one row a state, from everything that makes features."""
    return not (isinstance(features, TableBuilder | Transformer) or callable(features))


def feature_table(features: Features, observations: NDArray[np.generic]) -> Rows:
    """Return the features of all observations that there are, a row each.

    Parameters
    ----------
    features : Features
        A table, a builder, a function of observations, or a transformer of them as (S, k).
    observations : ndarray, shape (S,) or (S, k)

    Returns
    -------
    ndarray or csr_array, shape (S, d)
        A copy of a table that was given: writing to that one changes nothing here.

    Raises
    ------
    InvalidInputError
        If the table has the wrong shape or holds a number that is not finite.
    """
    n_states = len(observations)
    table: Any
    if isinstance(features, str | type):
        raise InvalidInputError(
            "features are an array, a function, a transformer or a builder such as OneHot(); got "
            f"{features!r}"
        )
    if isinstance(features, TableBuilder):
        table = features.table(n_states)
    elif isinstance(features, Transformer):
        table = features.transform(observations.reshape(n_states, -1))
    else:
        table = features(observations) if callable(features) else features
    return as_rows(table, n_states)


def vector_features(features: Features) -> Callable[[FloatArray], Rows]:
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
        return _Checked(features.transform)
    if callable(features) and not isinstance(features, TableBuilder | type):
        return _Checked(features)
    raise InvalidInputError(
        f"{type(features).__name__} features need Discrete observations; for vectors give a "
        "function, a transformer, RadialBasis, Polynomial or TileCoding"
    )


class _Checked:
    """A function of observations (n, k), checked to return features (n, d) of always one d."""

    def __init__(self, compute: Callable[[FloatArray], Any]) -> None:
        self._compute = compute
        self._d: int | None = None

    def __call__(self, observations: FloatArray) -> Rows:
        rows = as_rows(self._compute(observations), len(observations))
        self._d = self._d or rows.shape[1]
        if rows.shape[1] != self._d:
            raise InvalidInputError(
                f"a function of observations returned {self._d} features before, and "
                f"{rows.shape[1]} of {len(observations)} observations: it must return as many of "
                "any"
            )
        return rows
