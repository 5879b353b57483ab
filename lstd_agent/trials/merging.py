"""Adding trials that somebody else has collected, whichever way they and one's own are kept."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from lstd_agent.arrays import States
from lstd_agent.errors import CondensedTrialsWarning, InvalidInputError
from lstd_agent.features.parameters import same_features
from lstd_agent.trials.action_counts import together
from lstd_agent.trials.batches import Batches
from lstd_agent.trials.counting import CountsLike, TransitionCounts
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.recorders import Round


def counts_of(data: CountsLike) -> TransitionCounts:
    """Return somebody's counts as such, or raise `InvalidInputError` if they are none."""
    for name in ("n_states", "n_trials", "transition_counts", "reward_sums"):
        if not hasattr(data, name):
            raise InvalidInputError(
                "add() takes TransitionCounts, KeptTrials or another agent; got "
                f"{data!r}, which has no {name}"
            )
    return TransitionCounts.of(data)


def round_of_counts(encoding: Encoding, counts: TransitionCounts) -> Round:
    """Return counts as a round of trials of these observations."""
    n_states = getattr(encoding, "n_states", "no countable")
    if n_states != counts.n_states:
        terminal = ", the terminal one included" if encoding.ends else ""
        raise InvalidInputError(
            f"the agent has {n_states} states{terminal}; got counts of {counts.n_states}"
        )
    return Round(counts, np.empty(0))


def round_of_trials(batches: Batches, encoding: Encoding, trials: KeptTrials) -> Round:
    """Return logged trials as a round, recorded as the batches' own are."""
    # Copies, as encoded states are: what becomes of arrays that were given changes nothing.
    parts = [(name, part) for name, part in vars(trials).items() if part is not None]
    copies = {name: np.array(part) for name, part in parts if name != "observations"}
    trials = KeptTrials.of(trials.observations, **copies)
    states = encoding.encode_logged(trials.observations)
    return encoding.round_of(replace(trials, observations=states), batches.n_stored_missing)


def merge_batches(mine: Batches, encoding: Encoding, theirs: Batches, other: Encoding) -> None:
    """Add the batches of trials of another agent, all or nothing.

    Counts add to counts, and kept trials to kept ones. Where one agent has moments, the other's
    kept trials are condensed.

    Parameters
    ----------
    mine, theirs : Batches
        Of the agent that gets the trials, and of the other; they may be the same.
    encoding, other : Encoding
        Of the observations of the one and of the other.

    Raises
    ------
    InvalidInputError
        If timesteps or features are not the same.
    """
    if theirs.t_max is None:
        return
    if theirs.are_moments:
        check_same_features(encoding, other, mine.trials, theirs.trials)
    mine.check_t_max(theirs.t_max)
    if mine.are_kept and theirs.are_moments:
        mine.sums[0].condense(encoding.rows).check_adds(theirs.sums[0])
        warnings.warn(
            "the other agent's trials were condensed into moments, so that those kept here are as "
            "well: the features cannot change any more, and backups are of one step",
            CondensedTrialsWarning,
            stacklevel=2,
        )
        mine.condense(encoding.rows, theirs.n_batches, theirs.n_stored_trials)
    elif mine.sums and not (mine.are_moments and theirs.are_kept):
        mine.sums[0].check_adds(theirs.sums[0])
    if theirs.are_kept:
        start = theirs.sums[0].observations[:1, 0]
        mine.check_room(encoding, theirs.n_trials, theirs.t_max, start)
    ours, added = together(*mine.taken), together(*theirs.taken)
    if ours is not None and added is not None:
        ours.check_adds(added)
    # Read before anything is added, since both may be the same.
    pairs = zip(theirs.sums, theirs.taken, strict=True)
    rounds = [Round(sums, np.empty(0), taken) for sums, taken in pairs]
    stored = theirs.stored
    for each in rounds:
        mine.add(each, encoding)
    if stored is not None:
        mine.keep(stored)


def check_same_kind(mine: Encoding, theirs: Encoding) -> None:
    """Raise unless two encodings of the same space keep observations alike."""
    if mine.ends != theirs.ends:
        options = ["absorb" if each.ends else "raise" for each in (mine, theirs)]
        raise InvalidInputError(
            f"agents with on_termination={options[0]!r} and {options[1]!r} do not merge"
        )
    if type(mine) is not type(theirs):
        raise InvalidInputError(
            "one of the agents counts its observations and the other does not: give both the "
            "same observations="
        )


def check_same_features(mine: Encoding, theirs: Encoding, *stored: States | None) -> None:
    """Raise unless two encodings have equal features: moments of others do not add up."""
    if same_features(mine.given, theirs.given):
        return
    for states in stored:
        if states is None:
            continue
        some = states.reshape(-1, states.shape[-1])[:1000]
        a, b = mine.features(some), theirs.features(some)
        if a.shape != b.shape:
            return  # adding them says so
        unlike = ~np.isclose(a, b).all(axis=1)
        if unlike.any():
            i = int(np.argmax(unlike))
            raise InvalidInputError(
                f"the two agents have different features, such as {a[i]} and {b[i]} of "
                f"observation {some[i]}: moments of different features do not add up"
            )
    if all(states is None for states in stored):
        raise InvalidInputError(
            "the two agents have features that cannot be compared: give both the same object"
        )
