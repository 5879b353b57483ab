"""Trials as they are observed: the one way from transitions into counts.

`LockstepTrials` run together, one call a timestep. `SequentialTrials` run one after the other,
as a plain environment makes them; finished ones are kept until there are enough of them to be
played in lockstep. Either way a `Round` comes out. A trial that terminates stays in the
terminal state for the rest of its timesteps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.errors import InvalidInputError, TerminationError
from lstd_agent.trials.encoding import Domain, States, Sums


@dataclass(frozen=True, eq=False)
class Round:
    """What a round of trials leaves behind.

    Attributes
    ----------
    counts : TransitionCounts or MomentSums
    states : ndarray, shape (n_stored, t_max + 1) or (n_stored, t_max + 1, k)
        The states of its first trials.
    """

    counts: Sums
    states: States


class LockstepTrials:
    """Trials that are observed together, timestep by timestep.

    Parameters
    ----------
    domain : Domain
    states : ndarray, shape (n,) or (n, k)
        In which they start, encoded.
    n_stored : int
        How many of them to keep whole.
    """

    def __init__(self, domain: Domain, states: States, n_stored: int) -> None:
        self.n_timesteps = 0
        self._domain = domain
        self._state = states
        self._n_stored = n_stored
        self._stored: list[States] = []
        self._recorder = domain.recorder()
        self._living: BoolArray | None = None

    @property
    def states(self) -> States:
        """The current states."""
        return self._state

    @property
    def living(self) -> BoolArray:
        """Which trials have not terminated, shape (n,)."""
        return np.ones(len(self._state), dtype=bool) if self._living is None else self._living

    def advance(
        self, reward: FloatArray, next_state: States, terminated: BoolArray | None = None
    ) -> None:
        """Record the next timestep of all trials.

        Parameters
        ----------
        reward : ndarray, shape (n,)
        next_state : ndarray, shape (n,) or (n, k)
        terminated : ndarray of bool, shape (n,), optional
            What a trial that has terminated before observes does not matter.
        """
        if self._living is not None:
            reward = np.where(self._living, reward, 0.0)
        if terminated is not None and terminated.any():
            _refuse_unless_it_ends(self._domain, self.living & terminated, self.n_timesteps)
            self._living = self.living & ~terminated
        if self._living is not None:
            next_state = next_state.copy()
            next_state[~self._living] = self._domain.terminal
        self._recorder.record(self._state, reward, next_state)
        # A copy: a view would keep all the trials' states.
        self._stored.append(self._state[: self._n_stored].astype(self._domain.dtype))
        self._state = next_state
        self.n_timesteps += 1

    def finish(self) -> Round:
        """Return what the trials leave behind, all of them over the same timesteps."""
        counts = self._recorder.counts(len(self._state))
        if not np.isfinite(counts.reward_sums.sum()):
            raise InvalidInputError("a trial was paid a reward that is not finite")
        return Round(counts, np.ascontiguousarray(np.stack(self._stored).swapaxes(0, 1)))


class SequentialTrials:
    """Trials that are observed one after the other.

    Parameters
    ----------
    domain : Domain
    t_max : int or None
        The last timestep; None takes it from the first trial that ends.
    """

    def __init__(self, domain: Domain, t_max: int | None) -> None:
        self.t_max = t_max
        self._domain = domain
        self._finished: list[tuple[States, FloatArray]] = []
        self._states: list[States] = []
        self._rewards: list[float] = []
        self._terminated = False

    @property
    def n_finished(self) -> int:
        """Number of finished trials."""
        return len(self._finished)

    @property
    def n_timesteps(self) -> int:
        """Timesteps of the trial under way so far."""
        return len(self._rewards)

    @property
    def states(self) -> States | None:
        """The current state, as a batch of one; None before a trial starts."""
        return self._states[-1] if self._states else None

    @property
    def terminated(self) -> bool:
        """Whether the trial under way has terminated."""
        return self._terminated

    def start(self, state: States) -> None:
        """Start a trial in a state (a batch of one), in place of any that is under way."""
        self._states, self._rewards, self._terminated = [state], [], False

    def advance(self, reward: float, next_state: States, terminated: bool) -> None:
        """Record the next timestep of the trial under way."""
        if not math.isfinite(reward):
            raise InvalidInputError(
                f"rewards must be finite; got {reward} at timestep {self.n_timesteps}"
            )
        if terminated:
            _refuse_unless_it_ends(self._domain, np.ones(1, dtype=bool), self.n_timesteps)
            next_state = np.full_like(next_state, self._domain.terminal)
            self._terminated = True
        self._states.append(next_state)
        self._rewards.append(reward)

    def end(self) -> None:
        """Finish the trial under way.

        Raises
        ------
        InvalidInputError
            If it is not as long as the others.
        """
        n = self.n_timesteps
        if self.t_max is None and self._terminated:
            raise InvalidInputError(
                f"the first trial terminated at timestep {n - 1}, so it does not tell how long "
                "trials are: give t_max to attach()"
            )
        if self.t_max is None:
            self.t_max = n - 1
        n_missing = self.t_max + 1 - n
        if n_missing < 0 or (n_missing > 0 and not self._terminated):
            raise InvalidInputError(
                f"this trial has timesteps 0 to {n - 1}, the others 0 to {self.t_max}: all "
                "trials must have the same t_max (was it truncated? then raise the "
                "environment's max_episode_steps). Drop it with drop_trial()"
            )
        states = np.concatenate([*self._states, *[self._states[-1]] * n_missing])
        rewards = np.concatenate((np.asarray(self._rewards), np.zeros(n_missing)))
        self._finished.append((states, rewards))
        self.drop()

    def drop(self) -> None:
        """Forget the trial under way."""
        self._states, self._rewards, self._terminated = [], [], False

    def finish(self, n_stored: int) -> Round:
        """Return what the finished trials leave behind, and forget them."""
        states = np.stack([states for states, _ in self._finished], axis=1)
        rewards = np.stack([rewards for _, rewards in self._finished], axis=1)
        self._finished = []
        lockstep = LockstepTrials(self._domain, states[0], n_stored)
        for reward, next_state in zip(rewards, states[1:], strict=True):
            lockstep.advance(reward, next_state)
        return lockstep.finish()


def _refuse_unless_it_ends(domain: Domain, terminated: BoolArray, t: int) -> None:
    """Raise `TerminationError` unless the task is one that terminates."""
    if not domain.ends and terminated.any():
        raise TerminationError(
            f"trial {int(np.argmax(terminated))} of the round terminated at timestep {t}: the "
            "evaluator is for continuing tasks, which never terminate. Make the task continuing, "
            "for instance by starting again where it would end (lstd_agent.Restart), or take the "
            'end for an absorbing state without reward: on_termination="absorb"'
        )
