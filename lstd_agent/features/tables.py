"""State features f(s): tables and functions of observations.

Features of countable observations are a table, one row a state. The agent takes the table itself, a
builder such as `OneHot` that makes one for any number of states, a function of observations, or a
scikit-learn transformer. Vectors take the last two; `lstd_agent.features.vectors` has some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import EvaluationError, InvalidInputError, NotFittedError, check_integer
from lstd_agent.features.rows import Rows, as_rows, as_vectors, dense, frozen_array

if TYPE_CHECKING:
    from typing_extensions import Self


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


Table: TypeAlias = ArrayLike | sparse.sparray | sparse.spmatrix
Features: TypeAlias = Table | TableBuilder | Transformer | Callable[[NDArray[Any]], Any]
"""What the agent takes as features."""

_NEAR = 1e-3  # larger differences, relative to features, are not the rounding of a network


@dataclass(frozen=True)
class OneHot:
    """One feature a state: every value function is representable.

    Examples
    --------
    >>> from lstd_agent import OneHot
    >>> OneHot().table(2).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def table(self, n_states: int) -> Rows:
        """Return the identity matrix, sparse (CSR), shape (``n_states``, ``n_states``)."""
        return sparse.eye_array(n_states, format="csr")


@dataclass(frozen=True)
class GaussianFeatures:
    """Random features f_i(s) ~ N(index(s), 1), as in the paper (section ``state_fea_ker``).

    Parameters
    ----------
    d : int
        Number of features.
    seed : int
        The same seed gives the same table.

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
        """Return drawn features of ``n_states``, shape (n_states, d)."""
        rng = np.random.default_rng(self.seed)
        return np.arange(n_states)[:, None] + rng.standard_normal((n_states, self.d))


def is_table(features: Features) -> bool:
    """Whether features are a table, one row a state, and not something that makes features."""
    return not (isinstance(features, TableBuilder | Transformer) or callable(features))


@dataclass(frozen=True, eq=False)
class Standardized:
    """Features f((s - mean) / deviation), with mean and deviation of the samples.

    An agent measures both on its trials when it first needs features, and keeps them from then on,
    in its files too. For counted observations, each state of the space counts once.

    Parameters
    ----------
    features : callable or transformer
        Of standardized observations (n, k).
    mean, deviation : array_like, shape (k,), optional
        If known already. Components that do not vary have a deviation of 1.

    Examples
    --------
    >>> from lstd_agent import Polynomial, Standardized
    >>> features = Standardized(Polynomial(1)).measured([[10.0], [30.0]])
    >>> features(np.array([[40.0]])).tolist()  # 1, and two deviations above the mean
    [[1.0, 2.0]]
    """

    features: Any
    mean: ArrayLike | None = None
    deviation: ArrayLike | None = None

    def __post_init__(self) -> None:
        if is_table(self.features) or isinstance(self.features, TableBuilder | type):
            told = f"only functions and transformers can be standardized; got {self.features!r}"
            raise InvalidInputError(told)
        if (self.mean is None) != (self.deviation is None):
            raise InvalidInputError("give both mean and deviation, or none of them")
        if self.mean is None or self.deviation is None:
            return
        mean = np.atleast_1d(frozen_array("mean", self.mean))
        deviation = np.atleast_1d(frozen_array("deviation", self.deviation))
        if mean.ndim != 1 or mean.shape != deviation.shape or not (deviation > 0.0).all():
            told = "mean and deviation must be equally long vectors, deviation positive; got "
            told += f"{self.mean!r} and {self.deviation!r}"
            raise InvalidInputError(told)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "deviation", deviation)

    @property
    def is_measured(self) -> bool:
        """Whether mean and deviation are known."""
        return self.mean is not None

    def measured(self, samples: ArrayLike) -> Self:
        """Return these features with mean and deviation of ``samples`` (m, k).

        Raises
        ------
        InvalidInputError
            If there is no sample, or a number is not finite.
        """
        x = as_vectors(frozen_array("samples", samples))
        if not len(x):
            raise InvalidInputError("there are no samples to measure mean and deviation on")
        deviation = x.std(axis=0)
        varies = deviation > 1e-12 * np.abs(x).max(axis=0)  # by more than rounding
        return replace(self, mean=x.mean(axis=0), deviation=np.where(varies, deviation, 1.0))

    def __call__(self, observations: NDArray[np.generic]) -> Any:
        """Return the features (n, d) of observations (n, k)."""
        if self.mean is None or self.deviation is None:
            told = "mean and deviation are unknown: collect trials first, or use measured(samples)"
            raise NotFittedError(told)
        mean = np.asarray(self.mean, dtype=np.float64)
        x = (as_vectors(observations, mean.size) - mean) / np.asarray(self.deviation)
        return getattr(self.features, "transform", self.features)(x)


def feature_table(features: Features, observations: NDArray[np.generic]) -> Rows:
    """Return checked features (S, d) of all observations (S,) or (S, k); a table is copied."""
    _refuse_names(features)
    n = len(observations)
    if isinstance(features, Transformer):
        return CheckedFeatures(features.transform)(observations.reshape(n, -1))
    if callable(features) and not isinstance(features, TableBuilder):
        return CheckedFeatures(features)(observations)
    return as_rows(features.table(n) if isinstance(features, TableBuilder) else features, n)


def vector_features(features: Features) -> Callable[[FloatArray], Rows]:
    """Return features of vector observations as a checked function, (n, k) to (n, d)."""
    _refuse_names(features)
    function = getattr(features, "transform", features)
    if callable(function) and not isinstance(features, TableBuilder):
        return CheckedFeatures(function)
    told = f"{type(features).__name__} features need Discrete observations; for vectors give a "
    told += "function, a transformer, RadialBasis, Polynomial or TileCoding"
    raise InvalidInputError(told)


def _refuse_names(features: Any) -> None:
    if isinstance(features, str | type):
        told = "features are an array, a function, a transformer, or made by OneHot(), "
        raise InvalidInputError(f"{told}Polynomial(2) and the like; got {features!r}")


@dataclass
class CheckedFeatures:
    """A function of observations, or with actions of pairs, that returns features (n, d).

    It is checked to return the same d. A function of one observation, or of a batch as a whole, may
    return n rows by chance. So once, where observations differ, features of the last one are
    computed alone too.
    """

    compute: Callable[..., Any]
    d: int = 0
    is_tried: bool = False

    def __call__(self, observations: NDArray[Any], *actions: NDArray[Any]) -> Rows:
        """Return the features (n, d) of observations (n, ...), or of pairs with actions (n,)."""
        n, last = len(observations), observations[-1:].copy()  # a function may compute in place
        is_new = not (self.is_tried or (observations == last).all())
        shape, example = ("(n,)", "x, x**2") if last.ndim == 1 else ("(n, k)", "x, x[:, 0] ** 2")
        hint = f": features take a batch {shape}, here {observations.shape}, of flat observations, "
        hint += f"and return (n, d), for example lambda x: np.c_[{example}]"
        if actions:
            hint = f": pair_features take batches of observations, here {observations.shape}, and "
            hint += "of actions (n,) from 0, and return (n, d)"
        try:
            rows = as_rows(self.compute(observations, *actions), n, hint)
            of_last = (last, *(each[-1:] for each in actions))
            alone = as_rows(self.compute(*of_last), 1, hint) if is_new else rows[-1:]
        except (EvaluationError, MemoryError):
            raise
        except Exception as error:  # a user's function may raise anything
            raise InvalidInputError(f"features failed with {error!r}{hint}") from error
        before, d = self.d or alone.shape[1], rows.shape[1]
        if not before == d == alone.shape[1]:
            told = "the number of features must not change: a function returned "
            raise InvalidInputError(f"{told}{before} features before, and {d} of {n} observations")
        if is_new and abs(rows[-1:] - alone).max() > _NEAR * abs(rows).max():
            told = f"features of {last[0]} are {dense(rows[-1:])[0]} in a batch of {n}, and alone "
            raise InvalidInputError(f"{told}{dense(alone)[0]}{hint}, each row by itself")
        self.d, self.is_tried = d, self.is_tried or is_new
        return rows
