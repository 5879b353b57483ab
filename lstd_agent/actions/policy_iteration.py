"""`PolicyIteration`: from samples to policies that are best from the start on.

Howard's policy iteration with frequencies in place of probabilities: run trials of the policy with
a few exploratory actions, evaluate it, improve it, repeat until nothing changes. The bias, unlike
the gain, also shows which action is better *during the start*.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import closing
from typing import TYPE_CHECKING, Any, get_args

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike

from lstd_agent.actions.improver import CountedImprover, Improver, Judged, VectorImprover
from lstd_agent.actions.record import Iteration, SavedSearch, Undecided, earned, means_of
from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError, NotFittedError, check_choice, check_integer
from lstd_agent.features.tables import Features
from lstd_agent.features.vectors import Polynomial
from lstd_agent.figure_style import COLORS, DASHES, WIDTH, new_figure, styled
from lstd_agent.packing import Makers, function, read, refusing, write
from lstd_agent.persistence import MAKERS
from lstd_agent.trials.collect import AnyEnv, Explore, Request, check_explore
from lstd_agent.trials.encoding import ObservationKind, make_encoding
from lstd_agent.trials.policies import Policy, as_given, discrete_actions, in_words, make_actor
from lstd_agent.trials.recording import Recording
from lstd_agent.trials.store import Termination
from lstd_agent.trials.workers import EnvSource, collect, make_env, spaces_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Self

_OPTIONS = "t_max", "n_trials", "n_errors", "on_termination", "observations"

# The types of its file.
_MAKERS: Makers = {**MAKERS, SavedSearch: SavedSearch, Iteration: Iteration}

# A policy is worse if its trials earn less by so many standard errors. Vector environments made
# here run at least so many trials at a time (few copies are slow), in at most so many shards.
_WORSE, _FEWEST_COPIES, _SHARDS = 3.0, 1000, 20


class PolicyIteration:
    """Searches for a policy of the largest gain and, with that gain, of the largest bias.

    Parameters
    ----------
    env : Env, VectorEnv, str or callable
        A continuing task with Discrete actions; an id, or a function that makes an environment.
        ``info["action_mask"]`` may give the available actions, and ``info["duration"]`` the time of
        a step; the gain is then per unit of time.
    t_max : int
        The last timestep of a trial, well beyond the time that the task takes to settle.
    n_trials : int
        Trials of an iteration.
    explore, on_termination, observations
        See `SeminormLSTDAgent`, and its method ``collect``.
    features : Features, optional
        For vector observations; counted ones need none.
    pair_features : callable, optional
        Maps vectors (n, k) and actions (n,) from 0 to features of pairs (n, d). By default
        ``features`` and a constant, separately for each action.
    n_errors : float
        The advantage of an action must exceed this many standard errors of the mean of r - g τ +
        v(s') over the transitions of the two actions. With 0 the best action by all samples is
        taken, and chance may keep changing equally good actions.
    policy : array_like or OptimalPolicy, optional
        Actions (S,) of Discrete observations for the first iteration. By default that iteration
        takes all actions uniformly, at all timesteps.
    seed : int, optional
        The same seed and environment give the same search, interrupted or not.

    Attributes
    ----------
    iterations : list of Iteration
        The record.
    converged : bool
        Whether the last iteration changed nothing (for vectors: at most 10 of 1000 observations).
        The policy need not be optimal: see ``undecided``.
    undecided : list of Undecided
        The actions that are not worse than the current policy's by 3 standard errors, including
        errors of successors' values: equally good, tried too rarely or never, or not existing. For
        vectors, at up to 1000 visited observations. Run `iterate` to decide more of them.
    policy_ : ndarray or callable
        The best policy so far.

    Notes
    -----
    Memory: for counted observations 32 bytes for each different (s, a, s'); for vectors all trials
    so far. A running round of trials takes about 10 bytes for each of its timesteps.

    Examples
    --------
    >>> import unichain_gym
    >>> search = PolicyIteration("Unichain-h6-v0", t_max=100, n_trials=500, seed=0).run()
    >>> search.converged, search.policy_.tolist(), search.undecided
    (True, [1, 1, 1, 1, 1, 1], [])
    """

    def __init__(
        self,
        env: AnyEnv | EnvSource,
        t_max: int,
        n_trials: int = 2000,
        *,
        explore: Explore = 1,
        features: Features | None = None,
        pair_features: Callable[[Any, Any], ArrayLike] | None = None,
        n_errors: float = 1.0,
        policy: ArrayLike | None = None,
        on_termination: Termination = "raise",
        observations: ObservationKind = "auto",
        seed: int | None = None,
    ) -> None:
        self.env = env
        self.t_max = check_integer("t_max", t_max, 1)
        self.n_trials = check_integer("n_trials", n_trials, 2)
        self.explore = check_explore(explore, t_max)
        least: Any = n_errors
        if not isinstance(least, numbers.Real) or not 0.0 <= float(least) < np.inf:
            raise InvalidInputError(f"n_errors must be a number of at least 0; got {n_errors!r}")
        self.n_errors = float(n_errors)
        self.on_termination = check_choice("on_termination", on_termination, get_args(Termination))
        self.observations = observations
        seed = None if seed is None else check_integer("seed", seed, 0)
        self.entropy: Any = np.random.SeedSequence(seed).entropy
        self.iterations: list[Iteration] = []
        self.converged = False
        self._tried: list[Any] = []
        self._judged: Judged | None = None
        self._begins_with_policy = policy is not None
        self._improver = self._make_improver(features, pair_features, policy)

    def _make_improver(self, features: Any, pair_features: Any, policy: Any) -> Improver:
        """Return the improver; raise if features or a policy do not fit the task."""
        space, action_space = spaces_of(self.env)
        actions, ends = discrete_actions(action_space), self.on_termination == "absorb"
        given = Polynomial(0) if features is None else features  # counted states need none
        encoding: Any = make_encoding(space, given, ends, self.observations)
        has_features = features is not None or pair_features is not None
        if not encoding.is_counted:
            if policy is not None:
                raise InvalidInputError("policy= is an array of actions of Discrete observations")
            if not has_features:
                told = f"observations of {space} cannot be counted: give features= of them"
                raise InvalidInputError(told)
            return VectorImprover(encoding, actions, self.n_errors, pair_features)
        if has_features:
            told = "counted observations need no features: leave them out, or give "
            told += "observations='vectors'"
            raise InvalidInputError(told)
        if policy is not None:
            policy = as_given(policy)
            make_actor(policy, space, action_space, None)
            if np.ndim(policy) != 1:
                raise InvalidInputError(f"policy= is an array of actions (S,); got {policy!r}")
            policy = np.append(np.asarray(policy) - actions[1], [0] * ends).astype(np.int64)
        return CountedImprover(encoding.without_features(), actions, self.n_errors, policy)

    def run(
        self,
        n_iterations: int = 20,
        *,
        progress: bool | None = None,
        workers: int = 1,
        executor: Executor | None = None,
    ) -> Self:
        """Iterate until nothing changes, or there are ``n_iterations``, those so far included.

        An interrupt loses only the trials of the current iteration: run again to go on. For other
        arguments see `SeminormLSTDAgent.collect`; the search does not depend on them.
        """
        check_integer("n_iterations", n_iterations, 1)
        while not self.converged and len(self.iterations) < n_iterations:
            self.iterate(progress=progress, workers=workers, executor=executor)
        return self

    def iterate(
        self, *, progress: bool | None = None, workers: int = 1, executor: Executor | None = None
    ) -> Iteration:
        """Run the trials of one iteration, evaluate their policy, and improve it.

        For arguments see `SeminormLSTDAgent.collect`.
        """
        number, improver = len(self.iterations), self._improver
        source = np.random.SeedSequence(self.entropy, spawn_key=(number,))
        seed = int(source.generate_state(1, np.uint64)[0]) >> 1
        policy = improver.policy()
        how: Any = {"progress": progress, "workers": workers, "executor": executor}
        how |= {"batched": True if callable(policy) else None, "shard_size": self._shard_size()}
        how |= {"explore": self.explore, "wherever": improver.unknown()}
        request = Request(self.n_trials, self.t_max, seed, **how)
        # Whole iterations only, so that an interrupted search continues as if uninterrupted.
        rounds: list[Any] = []
        recording = Recording(improver.encoding, 0)  # trials are kept whole
        keep = lambda trials: rounds.append((improver.reduced(trials), means_of(trials)))  # noqa: E731
        collect(self.env, recording, policy, keep, request)
        figures, self._judged = earned([means for _, means in rounds]), None
        improver.add([kept for kept, _ in rounds], figures)
        gain, start_value = improver.evaluate_start()
        self._tried.append(improver.snapshot())
        changes, n_trials = improver.improve(), self.n_trials * (number + 1)
        n_steps, found = n_trials * (self.t_max + 1), (gain, start_value)
        done = Iteration(number, n_trials, n_steps, *found, n_changes=changes, **figures)
        self.iterations.append(done)
        self.converged = changes <= improver.few_changes
        return done

    def _shard_size(self) -> int | None:
        """Return how many trials a vector environment made here runs at a time."""
        if isinstance(self.env, gym.Env | VectorEnv):
            return None
        with closing(make_env(self.env, 1)) as sample:
            is_vector = isinstance(sample, VectorEnv)
        return max(_FEWEST_COPIES, -(-self.n_trials // _SHARDS)) if is_vector else None

    @property
    def policy_(self) -> Policy:
        """The best policy so far, as `SeminormLSTDAgent.collect` takes it.

        The latest one whose trials did not earn significantly less than an earlier policy's: an
        array of actions (S,) for Discrete observations, otherwise a function of batches. Unvisited
        states have the first action.
        """
        self._check_run("policy")
        first = 0 if self._begins_with_policy else 1
        tried, records = self._tried[first:], self.iterations[first:]
        if not self.converged or not tried:
            # It has no trials of its own, but all samples show that it is better than the last.
            tried, records = [*tried, self._improver.snapshot()], [*records, self.iterations[-1]]
        rewards, errors = np.array([(each.reward, each.reward_error) for each in records]).T
        top = int(np.argmax(rewards))
        worse = rewards[top] - rewards > _WORSE * np.hypot(errors, errors[top])
        policy: Policy = self._improver.policy(tried[int(np.flatnonzero(~worse)[-1])])
        return policy

    def _check_run(self, what: str) -> None:
        if not self.iterations:
            raise NotFittedError(f"there is no {what} yet: call run first")

    def action_values(self, observations: Any) -> FloatArray:
        """Return action values of the current policy, shape (m, A) or (A,).

        They are relative to one state's value, and NaN if not determined. ``observations`` are a
        batch of m, or one.
        """
        self._check_run("action value")
        states, shape = self._improver.encoding.encode_any(observations)
        q: FloatArray = self._improver.action_values(states)
        return q.reshape(*shape, q.shape[1])

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return f"<PolicyIteration after {len(self.iterations)} iterations, {state}>"

    def __str__(self) -> str:
        return self.summary()

    @property
    def undecided(self) -> list[Undecided]:
        """The undecided actions; see above."""
        return self._evidence()[0]

    def _evidence(self) -> Judged:
        self._check_run("policy")
        self._judged = self._judged or self._improver.judged()
        return self._judged

    def summary(self) -> str:
        """Return the evidence for the current policy, as text."""
        (_, account), last = self._evidence(), self.iterations[-1]
        n = last.n_changes
        changes = "nothing" if n == 0 else f"{n} action{'s' * (n > 1)}"
        head = f"policy iteration: iteration {last.number} changed {changes}\n{last.n_trials} "
        head += f"trials: gain {last.gain:.6g}, start value {last.start_value:.6g}"
        return "\n".join([head, *account])

    @styled
    def plot(self, optimum: tuple[float, float] | None = None) -> Figure:
        """Return a figure of gain, start value and changes over samples.

        ``optimum`` is the largest gain and, with that, the largest mean bias of the start.
        """
        figure = new_figure(WIDTH, 7.5)
        axes: Any = figure.subplots(3, 1, sharex=True)
        n_steps = [each.n_steps for each in self.iterations]
        shown = [(each.gain, each.start_value, each.n_changes) for each in self.iterations]
        labels = "gain", "start value (in units of reward)", "changed actions"
        for axis, values, label in zip(axes, zip(*shown, strict=True), labels, strict=True):
            axis.plot(n_steps, values, "o-", color=COLORS[0], label="by samples")
            axis.set_ylabel(label)
        for axis, value in zip(axes, optimum or (), strict=False):
            axis.axhline(value, color=COLORS[-1], linestyle=DASHES[1], label="optimum")
            axis.legend()
        axes[-1].set_xlabel("timesteps")
        axes[-1].yaxis.get_major_locator().set_params(integer=True)
        return figure

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the search with its samples and record to the file ``path``, to go on later.

        The environment and functions are not written.
        """
        options, improver = {name: getattr(self, name) for name in _OPTIONS}, self._improver
        record = tuple(self.iterations), self.converged, self._begins_with_policy
        head = options, self.explore, self.entropy, improver.encoding.space, improver.numbers
        write(path, SavedSearch(*head, *record, tuple(self._tried), improver.samples), _MAKERS)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        env: AnyEnv | EnvSource,
        *,
        explore: Explore | None = None,
        features: Features | None = None,
        pair_features: Callable[[Any, Any], ArrayLike] | None = None,
    ) -> Self:
        """Read a search from the file ``path`` that `save` wrote, to go on with `run`.

        ``env``, ``features`` and ``pair_features`` are the same as before; ``explore`` is needed if
        it was a function, which a file does not hold.

        Raises
        ------
        InvalidInputError
            If the file is not a search's, is damaged, or is one of other observations.
        """
        saved = read(path, SavedSearch, "policy iteration", _MAKERS)
        explore = saved.explore if explore is None else explore
        if explore is function:
            told = f"the search in {path} explores by a function: give it to load(..., explore=...)"
            raise InvalidInputError(told)
        given: Any = {"explore": explore, "features": features, "pair_features": pair_features}
        search = cls(env, **saved.options, **given)
        improver = search._improver
        if (improver.encoding.space, improver.numbers) != (saved.space, saved.actions):
            told = f"the search in {path} is one of observations of {saved.space} and actions "
            told += f"{in_words(saved.actions)}; the environment has {improver.encoding.space} and "
            raise InvalidInputError(f"{told}{in_words(improver.numbers)}")
        search.entropy, search.iterations = saved.entropy, list(saved.iterations)
        search.converged, search._tried = saved.converged, list(saved.tried)
        search._begins_with_policy = saved.begins_with_policy
        with refusing(path):
            improver.restore(*saved.samples)
        return search
