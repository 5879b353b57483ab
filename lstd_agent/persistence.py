"""An agent in a file: its options, spaces, trials, and whether it was fitted.

Weights are left out: they follow from the trials, and `SeminormLSTDAgent.load` fits again. It adds
the trials to a new agent, whose constructors check them as they check a user's. See
`lstd_agent.packing` for the file itself.
"""

from __future__ import annotations

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
from lstd_agent.trials.counted import TrialSample
from lstd_agent.trials.counts import ActionCounts, TransitionCounts
from lstd_agent.trials.kept import KeptTrials

if TYPE_CHECKING:
    from lstd_agent.trials.store import TrialStore


@dataclass(frozen=True, eq=False)
class SavedAgent:
    """The content of an agent's file.

    A function among the options is `lstd_agent.packing.function`, and None as a policy. ``actions``
    are the number of Discrete actions and the first of them. ``trials`` are kept, or the counts of
    each batch with its action counts, whose ``sample`` is whole. ``is_fitted`` is of all of them.
    """

    options: dict[str, Any]
    space: Space[Any] | None
    actions: tuple[int, int] | None
    policy: NDArray[Any] | None
    trials: KeptTrials | list[tuple[TransitionCounts, ActionCounts | None]]
    sample: TrialSample | None
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
        space, batches = None if encoding is None else encoding.space, store.batches
        trials = batches.kept if batches.are_kept else batches.counted
        return cls(options, space, store.actions, policy, trials, batches.sample, is_fitted)

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


MAKERS: Makers = {
    **{kind: kind for kind in (OneHot, GaussianFeatures, Standardized, Kernel, MMD)},
    **{kind: kind for kind in (RadialBasis, Polynomial, TileCoding, FourierBasis, RandomFourier)},
    **{kind: kind for kind in (MultiStep, LambdaReturn, SavedAgent)},
    KeptTrials: KeptTrials.of,
    TransitionCounts: lambda **parts: TransitionCounts.of(TransitionCounts(**parts)),
    TrialSample: TrialSample.of_file,
    ActionCounts: ActionCounts,
}
"""The types in an agent's file, each with a constructor that checks."""
