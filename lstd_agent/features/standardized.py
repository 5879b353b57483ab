"""`Standardized`: features of observations in units of the samples' own standard deviations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.features.parameters import as_vectors, frozen_array
from lstd_agent.features.tables import TableBuilder, is_table


@dataclass(frozen=True, eq=False)
class Standardized:
    """Features f((s - mean) / deviation), with mean and deviation of the samples.

    An agent measures them on the trials that it has when it first needs features, and keeps
    them from then on, in its files too. Where all observations of a small space are counted,
    they are measured on those, once each.

    Parameters
    ----------
    features : callable or transformer
        Of standardized observations (n, k).
    mean, deviation : array_like, shape (k,), optional
        Where they are known already. Components that do not vary have a deviation of 1.

    Attributes
    ----------
    is_measured : bool
        Whether mean and deviation are known.

    Methods
    -------
    measured(samples)
        These features, with mean and deviation of samples.

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
            raise InvalidInputError(
                "only functions and transformers of observations can be standardized; got "
                f"{self.features!r}"
            )
        if (self.mean is None) != (self.deviation is None):
            raise InvalidInputError("give both mean and deviation, or none of them")
        if self.mean is None or self.deviation is None:
            return
        mean, deviation = (
            np.atleast_1d(frozen_array(name, values))
            for name, values in (("mean", self.mean), ("deviation", self.deviation))
        )
        if mean.ndim != 1 or mean.shape != deviation.shape or not (deviation > 0.0).all():
            raise InvalidInputError(
                "mean and deviation must be equally long vectors, deviation positive; got "
                f"{self.mean!r} and {self.deviation!r}"
            )
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "deviation", deviation)

    @property
    def is_measured(self) -> bool:
        """Whether mean and deviation are known."""
        return self.mean is not None

    def measured(self, samples: ArrayLike) -> Standardized:
        """Return these features with mean and deviation of samples (m, k), at least one.

        Parameters
        ----------
        samples : array_like, shape (m, k)

        Returns
        -------
        Standardized

        Raises
        ------
        InvalidInputError
            If there is no sample, or a number is not finite.
        """
        x = as_vectors(frozen_array("samples", samples))
        if not len(x):
            raise InvalidInputError("there are no samples to measure mean and deviation on")
        deviation = x.std(axis=0)
        # What rounding leaves of a component that does not vary is no deviation.
        varies = deviation > 1e-12 * np.abs(x).max(axis=0)
        return replace(self, mean=x.mean(axis=0), deviation=np.where(varies, deviation, 1.0))

    def __call__(self, observations: NDArray[np.generic]) -> Any:
        """Return the features (n, d) of observations (n, k)."""
        if self.mean is None or self.deviation is None:
            raise NotFittedError(
                "mean and deviation are not known yet: collect trials first, or use "
                "measured(samples)"
            )
        mean = np.asarray(self.mean, dtype=np.float64)
        deviation = np.asarray(self.deviation, dtype=np.float64)
        x = (as_vectors(observations, mean.size) - mean) / deviation
        compute = getattr(self.features, "transform", self.features)
        return compute(x)
