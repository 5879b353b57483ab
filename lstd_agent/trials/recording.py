"""Recording: from steps, one by one or in lockstep, to a portion of trials: counted, or kept.

`LockstepTrials` run together, one call a timestep. `SequentialTrials` run one after the other. Both
check each step. A trial that terminates stays in the terminal state for the rest of its timesteps.
Timestep and batch are part of the key of a counted transition, so one pass counts many timesteps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, TerminationError
from lstd_agent.trials.counted import CountedTrials, Portion, TrialSample, ordered
from lstd_agent.trials.counts import LARGEST_KEY, ActionCounts, grouped, total
from lstd_agent.trials.encoding import Encoding, first_refused
from lstd_agent.trials.kept import KeptTrials, check_range, check_timed, checked_durations, padded
from lstd_agent.trials.spaces import MAX_REWARD, real_array

# How many transitions are counted at a time: of trials in lockstep at least, of others at most.
_BLOCK, _CHUNK = 2**13, 2**18

NEVER = (
    "the evaluator is for continuing tasks, which never terminate. Make the task continuing, for "
    "instance by starting again where it would end (lstd_agent.Restart), or take the end for an "
    'absorbing state without reward, by the option on_termination="absorb"'
)


@dataclass(frozen=True, eq=False)
class Recording:
    """How trials are recorded: counted in batches if observations are, else (or with 0) kept.

    With ``n_actions`` transitions are also counted by action.
    """

    encoding: Encoding
    n_batches: int = 1
    n_actions: int = 0

    def counter(self, first: int) -> Counter | None:
        """Return the counter of trials from number ``first`` on; None if trials are kept."""
        is_counted = self.encoding.is_counted and self.n_batches
        return Counter(self, first) if is_counted else None

    def portion_of(self, trials: KeptTrials, first: int, n_stored: int) -> Portion:
        """Return encoded trials as a portion; ``n_stored`` counted ones are kept whole."""
        counter = self.counter(first)
        if counter is None:
            return trials
        # Batches do not depend on the order of a log's trials.
        trials = trials.take(ordered(trials))
        counter.count(trials)
        sample = TrialSample.of(trials, n_stored, first) if n_stored else None
        return counter.portion(trials.n_trials, sample)

    def by_action(self, trials: KeptTrials, batch: Any = 0) -> ActionCounts:
        """Count transitions with a known action (not -1), not in the terminal state, by batch."""
        states, action = (x.astype(np.int64) for x in (trials.observations, trials.part("actions")))
        known = (action >= 0) & (np.arange(trials.t_max + 1) < trials.all_lengths[:, None])
        if self.encoding.ends:
            known &= states[:, :-1] != self.encoding.terminal
        parts: Any = states[:, :-1], action, states[:, 1:], trials.rewards, trials.durations
        parts = [None if part is None else part[known] for part in parts]
        of_batch = np.broadcast_to(batch, action.shape)[known], max(1, self.n_batches)
        how: Any = self.encoding.n_states, self.n_actions, *parts, *of_batch
        return ActionCounts.of(*how)


class Counter:
    """Counts transitions of trials: trial i is in batch ``(first + i) % n_batches``."""

    def __init__(self, recording: Recording, first: int = 0) -> None:
        self._how, self._first, self._t = recording, first, 0
        # Entries of the matrices of transitions, rewards and durations: rows, columns and values.
        self._entries: tuple[list[Any], ...] = [], [], []
        self._taken: ActionCounts | None = None

    def count(self, trials: KeptTrials) -> None:
        """Count the next timesteps of n trials, whose observations are states (n, k + 1)."""
        S, B, n, own = self._how.encoding.n_states, self._how.n_batches, trials.n_trials, trials.own
        states = np.asarray(trials.observations.T, dtype=np.int64)
        batch = (self._first + np.arange(n)) % B
        numbers = [part.T for part in (trials.rewards, trials.durations) if part is not None]
        if self._how.n_actions and trials.actions is not None:
            self._taken = total(self._taken, self._how.by_action(trials, batch[:, None]))
        if own is not None and own.all():
            own = None
        step = max(1, min(_CHUNK // n, (LARGEST_KEY - 1) // (B * S**2)))
        for t in range(0, trials.t_max + 1, step):
            here = slice(t, t + step)
            state, following = states[:-1][here], states[1:][here]
            # Rows are timesteps and batches, and keys are (row S + s) S + s'.
            n_rows = B * len(state)
            left = np.arange(n_rows, step=B)[:, None] * S + batch * S + state
            parts: Any = [left, left * S + following, *(part[here] for part in numbers)]
            parts = [part.ravel() if own is None else part[own.T[here]] for part in parts]
            visited, _, *sums = grouped(parts[0], n_rows * S, *parts[2:])
            moves = S**2, *grouped(parts[1], n_rows * S**2)
            found = [moves, *((S, visited, each) for each in sums)]
            for entries, (width, places, values) in zip(self._entries, found, strict=False):
                row, column = np.divmod(places, width)
                entries.append((row + self._t * B, column, values))
            self._t += len(state)

    def portion(self, n_trials: int, sample: TrialSample | None = None) -> CountedTrials:
        """Return the counted trials, which are complete."""
        S, B, T, matrices = self._how.encoding.n_states, self._how.n_batches, self._t, []
        for entries, width in zip(self._entries, (S**2, S, S), strict=True):
            if entries:  # in order
                row, column, value = (np.concatenate(parts) for parts in zip(*entries, strict=True))
                start = np.append(0, np.cumsum(np.bincount(row, minlength=B * T)))
                matrices.append(sparse.csr_array((value, column, start), shape=(B * T, width)))
        N, R, *times = matrices
        n_by_batch = np.bincount((self._first + np.arange(n_trials)) % B, minlength=B)
        return CountedTrials(S, n_by_batch, N, R, sample, self._taken, *times)


Taken: TypeAlias = tuple[IntArray, BoolArray]
"""Actions of n trials (n,), from 0, and which were exploratory."""


class LockstepTrials:
    """Trials that are observed together, from encoded states (n, ...) on."""

    def __init__(
        self, recording: Recording, states: States, first: int = 0, n_stored: int = 0
    ) -> None:
        recording.encoding.check_features(states)
        self.n_timesteps, self.states = 0, states
        self.living: BoolArray = np.ones(len(states), dtype=bool)
        self.is_timed: bool | None = None  # not known before the first step
        self._encoding, self._counter = recording.encoding, recording.counter(first)
        self._n_whole = len(states) if self._counter is None else min(n_stored, len(states))
        # Timesteps that wait to be counted: states, rewards, actions, exploratory ones, durations.
        self._states: list[States] = [states]
        self._waiting: list[tuple[Any, ...]] = []
        self._whole: list[dict[str, Any]] = []  # parts of trials that are kept whole

    def advance(
        self,
        reward: FloatArray,
        next_state: States,
        terminated: BoolArray | None = None,
        taken: Taken | None = None,
        duration: Any = None,
    ) -> None:
        """Record the next timestep of n trials; trials that have terminated are ignored."""
        living, have_ended = self.living, self._encoding.ends and not self.living.all()
        if have_ended:
            reward = np.where(living, reward, 0.0)
            if np.shape(duration) == reward.shape:
                duration = np.where(living, duration, 1.0)
        where = f"at timestep {self.n_timesteps} of trial {{0}} of the round"
        check_range("rewards", reward, where)
        if duration is not None:
            duration = np.array(checked_durations(duration, reward.shape, where))
        check_timed(self.is_timed, duration)
        if terminated is not None and terminated.any():
            _refuse_unless_it_ends(self._encoding, living & terminated, self.n_timesteps)
            self.living, have_ended = living & ~terminated, True
        if have_ended:
            next_state = next_state.copy()
            next_state[~self.living] = self._encoding.terminal
        self._states.append(next_state)
        # A copy: an environment may write its next rewards into the same array.
        self._waiting.append((np.array(reward), *(taken or (None, None)), duration))
        self.states, self.is_timed = next_state, duration is not None
        self.n_timesteps += 1
        if self._counter is not None and len(self._waiting) * len(reward) >= _BLOCK:
            self._count()

    def _count(self) -> None:
        """Count the waiting timesteps, and keep those of some trials."""
        columns = [self._states, *zip(*self._waiting, strict=True)]
        parts: list[Any] = [c[-1] if c[-1] is None else np.stack(c).swapaxes(0, 1) for c in columns]
        states, rewards, actions, explored, durations = parts
        block, n = KeptTrials(states, rewards, None, actions, explored, durations), self._n_whole
        if self._counter is not None:
            self._counter.count(block)
        if n:
            some = {name: part[:n].copy() for name, part in vars(block).items() if part is not None}
            new = some["observations"][:, 1 if self._whole else 0 :]
            self._whole.append(some | {"observations": self._encoding.compact(new)})
        self._states, self._waiting = self._states[-1:], []

    def finish(self, t_max: int | None = None) -> Portion:
        """Return the trials, over timesteps 0 to t_max: if all have terminated, they rest."""
        n = self.n_timesteps
        if t_max is not None and n <= t_max and not self.living.any():
            nothing, times = np.zeros(len(self.states)), 1.0 if self.is_timed else None
            for _ in range(n, t_max + 1):
                self.advance(nothing, self.states, None, None, times)
        elif t_max not in (None, n - 1):
            raise _other_length(n, t_max)
        if self._waiting:
            self._count()
        if not self._whole and self._counter is not None:
            return self._counter.portion(len(self.states))
        parts = {
            name: np.ascontiguousarray(np.concatenate([p[name] for p in self._whole], axis=1))
            for name in self._whole[0]
        }
        if "actions" in parts:
            actions = parts["actions"]
            parts["actions"] = actions.astype(np.min_scalar_type(int(actions.max())))
            if not parts["explored"].any():
                del parts["explored"]
        whole = KeptTrials(**parts)
        if self._counter is None:
            return whole
        return self._counter.portion(len(self.states), TrialSample.of(whole, self._n_whole))


class SequentialTrials:
    """Trials that are observed one after the other, up to t_max, or as long as the first."""

    def __init__(self, recording: Recording, t_max: int | None) -> None:
        self.recording, self.encoding, self.t_max = recording, recording.encoding, t_max
        self._hold, self._is_checked = self.encoding.hold, False
        # States, parts of `KeptTrials`, and whether it terminated, of each finished trial.
        self.finished: list[tuple[States, dict[str, Any], bool]] = []
        self.drop()

    @property
    def n_timesteps(self) -> int:
        """Timesteps of the trial under way so far."""
        return len(self._steps)

    @property
    def last(self) -> Any:
        """The last held observation of the trial under way."""
        return self._held[-1]

    def start(self, observation: Any, is_timed: bool | None = None) -> None:
        """Start a trial; ``is_timed`` says whether others have durations, if that is known."""
        self.drop()
        held: Any = self._hold(observation)
        if not self._is_checked:
            self.encoding.check_features(self.encoding.encode_held([held]))
            self._is_checked = True
        self._held.append(held)
        self._is_timed = "durations" in self.finished[0][1] if self.finished else is_timed

    def advance(
        self,
        reward: Any,
        observation: Any,
        terminated: bool,
        taken: Taken | None = None,
        duration: Any = None,
    ) -> None:
        """Record the next timestep of the trial under way."""
        if type(reward) is not float:
            reward = float(as_rewards(reward, (), len(self._steps)))
        if not -MAX_REWARD <= reward <= MAX_REWARD:
            check_range("rewards", np.array(reward), f"at timestep {len(self._steps)}")
        if duration is not None or self._is_timed:
            check_timed(self._is_timed, duration)
            where = f"at timestep {len(self._steps)}"
            duration = float(checked_durations(duration, (), where))
        if terminated:
            _refuse_unless_it_ends(self.encoding, np.ones(1, dtype=bool), len(self._steps))
            self.terminated = True
        else:
            self._held.append(self._hold(observation))
        self._is_timed = duration is not None
        self._steps.append((reward, duration) if taken is None else (reward, duration, *taken))

    def end(self) -> None:
        """Finish the trial under way, or raise if it is longer or shorter than the others."""
        n = self.n_timesteps
        if self.t_max is None and self.terminated:
            told = f"the first trial terminated at timestep {n - 1}: give t_max to attach()"
            raise InvalidInputError(told)
        t_max = n - 1 if self.t_max is None else self.t_max
        if n > t_max + 1 or (n < t_max + 1 and not self.terminated):
            raise _other_length(n, t_max)
        try:
            states = self.encoding.compact(self.encoding.encode_held(self._held))
        except InvalidInputError as error:
            t = first_refused(self.encoding.encode_held, ([held] for held in self._held))
            told = (
                f"{error} at timestep {t}. This trial is lost (drop_trial() of a loop forgets it)"
            )
            raise InvalidInputError(told) from None
        if self.terminated:  # one more state, as in trials that go on
            states = np.append(states, states[-1:], axis=0)
        names = "rewards", "durations", "actions", "explored"
        columns = zip(names, zip(*self._steps, strict=True), strict=False)
        parts = {name: np.array(part).ravel() for name, part in columns if part[0] is not None}
        self.finished.append((states, parts, self.terminated))
        self.t_max = t_max
        self.drop()

    def portion(self, first: int, n_stored: int) -> Portion:
        """Return the finished trials."""
        states, parts, ended = zip(*self.finished, strict=True)
        flat: dict[str, Any] = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        if "explored" in flat and not flat["explored"].any():
            del flat["explored"]
        assert self.t_max is not None
        how = np.array([len(each["rewards"]) for each in parts]), np.array(ended), self.t_max
        trials = padded(np.concatenate(states), *how, self.encoding.terminal, **flat)
        return self.recording.portion_of(trials, first, n_stored)

    def drop(self) -> None:
        """Forget the trial under way."""
        self.terminated, self._is_timed = False, None
        self._held: list[Any] = []
        self._steps: list[tuple[Any, ...]] = []  # rewards, durations, and actions if taken


def as_rewards(reward: Any, shape: tuple[int, ...], t: int) -> FloatArray:
    """Return the rewards of n trials (n,), or of a single one (), as an array, checked."""
    try:
        rewards = real_array(reward, "rewards")
        if rewards.shape == shape:
            return rewards
    except InvalidInputError:
        pass
    n = shape[0] if shape else 1
    many = f"rewards of {n} trials are {n} numbers" if shape else "a reward is one number"
    told = f"{many}; got {reward!r} at timestep {t} (see gymnasium.wrappers.TransformReward)"
    raise InvalidInputError(told)


def _other_length(n: int, t_max: int | None) -> InvalidInputError:
    told = f"this trial has timesteps 0 to {n - 1}, the others 0 to {t_max}: was it truncated? "
    told += "Raise the environment's max_episode_steps. drop_trial() drops it"
    return InvalidInputError(told)


def _refuse_unless_it_ends(encoding: Encoding, terminated: BoolArray, t: int) -> None:
    """Raise `TerminationError` unless the encoding has an end."""
    if not encoding.ends and terminated.any():
        told = f"trial {int(np.argmax(terminated))} of the round terminated at timestep {t}"
        raise TerminationError(f"{told}: {NEVER}")
