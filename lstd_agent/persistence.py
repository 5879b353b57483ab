"""An agent in a file: its options, spaces, trials, and whether it was fitted.

Weights are left out: they follow from the trials, and `SeminormLSTDAgent.load` fits again. See
`lstd_agent.packing` for the file itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from lstd_agent.backups import LambdaReturn, MultiStep
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import Kernel, is_sparse
from lstd_agent.features.tables import GaussianFeatures, OneHot, Standardized, is_table
from lstd_agent.features.vectors import (
    FourierBasis,
    Polynomial,
    RadialBasis,
    RandomFourier,
    TileCoding,
)
from lstd_agent.packing import Makers, function
from lstd_agent.system.distances import MMD
from lstd_agent.trials.counted import CountedTrials, TrialSample
from lstd_agent.trials.counts import ActionCounts
from lstd_agent.trials.encoding import are_counted
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.spaces import Numbering, flat_size

if TYPE_CHECKING:
    from lstd_agent.trials.store import TrialStore

# Limits for any file: states, numbers of a table, and dense features.
_MOST_STATES, _MOST_NUMBERS, _MOST_DENSE = 2**22, 2**27, 2**13

# The number of features of vectors (k,), of kinds that a few numbers make many of.
_N_FEATURES: dict[type, Callable[[Any, int], int]] = {
    TileCoding: lambda f, k: f.n_tilings * (f.n_tiles + 1) ** np.size(f.low),
    FourierBasis: lambda f, k: (f.order + 1) ** np.size(f.low),
    Polynomial: lambda f, k: math.comb(k + min(f.degree, _MOST_DENSE), k),
    GaussianFeatures: lambda f, k: f.d,
    RandomFourier: lambda f, k: f.d,
}


@dataclass(frozen=True, eq=False)
class SavedAgent:
    """The content of an agent's file.

    A function among the options is `lstd_agent.packing.function`, and None as a policy. ``actions``
    are the number of Discrete actions and the first of them. ``is_fitted`` is of all these trials.
    """

    options: dict[str, Any]
    space: Space[Any] | None
    actions: tuple[int, int] | None
    policy: NDArray[Any] | None
    trials: CountedTrials | KeptTrials | None
    is_fitted: bool

    @classmethod
    def of(cls, options: dict[str, Any], store: TrialStore, is_fitted: bool) -> SavedAgent:
        """Return the content of a file for options and trials."""
        encoding, features, anchors = store.encoding, store.features, options["anchors"]
        options = {**options, "anchors": None if anchors is None else np.asarray(anchors).tolist()}
        rows = None if encoding is None else encoding.table_rows
        inner = features.features if isinstance(features, Standardized) else features
        if encoding is not None and rows is not None and type(inner) not in MAKERS:
            # The values of a function on counted observations are a table.
            features, options["standardize"] = rows[: -1 if encoding.ends else None], False
        elif is_table(features) and not is_sparse(features):
            features = np.asarray(features)
        options["features"] = features
        has_array = store.policy is not None and not callable(store.policy)
        policy = np.asarray(store.policy) if has_array else None
        space, portion = None if encoding is None else encoding.space, store.batches.portion
        return cls(options, space, store.actions, policy, portion, is_fitted)

    def with_functions(self, path: Any, **given: Any) -> SavedAgent:
        """Return the same with the functions that the file does not hold; raise if they differ."""
        options = dict(self.options)
        for name, value in given.items():
            held = whole = options[name]
            if isinstance(held, Standardized):  # mean and deviation are the file's
                held = held.features
                value = value.features if isinstance(value, Standardized) else value
            if held is function and value is None:
                told = f"the agent in {path} has a function for its {name}, which a file does not "
                raise InvalidInputError(f"{told}hold: pass it as load(path, {name}=...)")
            if held is not function and value is not None:
                raise InvalidInputError(f"{path} holds the agent's {name}: load it without {name}=")
            if value is not None:
                options[name] = value if whole is function else replace(whole, features=value)
        return replace(self, options=options)

    def check_sizes(self) -> None:
        """Raise `InvalidInputError` if a few numbers of the file would take too much memory."""
        if self.space is None:
            return
        if not isinstance(self.space, Space):
            raise InvalidInputError(f"its space is {self.space!r}")
        numbering, k, n_states = Numbering.of(self.space), flat_size(self.space), 0
        if are_counted(self.space, self.options["observations"]):
            assert numbering is not None
            n_states, k = numbering.n, len(numbering.low)
        features, n, is_dense = self.options["features"], n_states or 1, False
        while isinstance(features, Standardized):
            features = features.features
        if type(features) in _N_FEATURES:
            n, is_dense = _N_FEATURES[type(features)](features, k), type(features) is not TileCoding
        n_actions = 0 if self.actions is None else self.actions[0]
        table = n * n_states if is_dense else n
        most = max(table, n_states * n_actions)
        if n_states > _MOST_STATES or most > _MOST_NUMBERS or (is_dense and n > _MOST_DENSE):
            told = (
                f"{n} features of {n_states or 'vectors of'} {self.space} and {n_actions} actions"
            )
            raise InvalidInputError(f"{told} exceed the limits of a file")

    def restore(self, store: TrialStore) -> None:
        """Put the trials into an empty store with these options."""
        kinds = CountedTrials | KeptTrials | None
        if not isinstance(self.trials, kinds) or not isinstance(self.is_fitted, bool):
            raise InvalidInputError("it holds no trials")
        store._restore(self.space, self.actions, self.policy, self.trials)


MAKERS: Makers = {
    **{kind: kind for kind in (OneHot, GaussianFeatures, Standardized, Kernel, MMD)},
    **{kind: kind for kind in (RadialBasis, Polynomial, TileCoding, FourierBasis, RandomFourier)},
    **{kind: kind for kind in (MultiStep, LambdaReturn, SavedAgent)},
    KeptTrials: KeptTrials.of,
    CountedTrials: CountedTrials.checked,
    TrialSample: TrialSample.checked,
    ActionCounts: lambda **parts: ActionCounts(**parts).checked(),
}
"""The types in an agent's file, each with a constructor that checks."""
