"""`PolicyIteration`: from samples to policies that are best from the start on.

Run trials of the policy with a few exploratory actions, evaluate it, improve it, repeat until
nothing changes. The bias tells which action is better *during the start* too, of which a gain
does not know.

Howard's policy iteration with frequencies in place of probabilities. One-step equations hold for
transitions of any behaviour, so that the samples of earlier policies stay of use for later ones.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.actions.advantages import Advantages, Undecided
from lstd_agent.actions.counted_improver import CountedSamples
from lstd_agent.actions.record import (
    Iteration,
    SavedSearch,
    best_of,
    checked_iteration,
    draw_learning,
)
from lstd_agent.actions.task import Task, make_improver
from lstd_agent.actions.vector_improver import VectorSamples
from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError, NotFittedError, check_choice, check_integer
from lstd_agent.features.tables import Features
from lstd_agent.packing import Makers, function, read, refusing, write
from lstd_agent.persistence import MAKERS
from lstd_agent.trials.collect import AnyEnv, Request
from lstd_agent.trials.encoding import ObservationKind
from lstd_agent.trials.policies import Explore, Policy, check_explore
from lstd_agent.trials.store import Termination
from lstd_agent.trials.workers import EnvSource

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Self

_OPTIONS = "t_max", "n_trials", "n_errors", "on_termination", "observations"

# What its file may hold, beside what an agent's may.
_MAKERS: Makers = {
    **MAKERS,
    SavedSearch: SavedSearch,
    Iteration: checked_iteration,
    CountedSamples: CountedSamples,
    VectorSamples: VectorSamples,
}


class PolicyIteration:
    """Searches for a policy of the largest gain and, with that, of the largest bias.

    Parameters
    ----------
    env : Env, VectorEnv, str or callable
        A continuing task with Discrete actions; an id, or a function that makes an environment.
        Where states lack actions, ``info["action_mask"]`` tells which they have; where steps take
        time, ``info["duration"]`` tells how long, and the gain is that of a unit of time.
    t_max : int
        The last timestep of a trial, well beyond the time that the task takes to settle.
    n_trials : int
        Trials of an iteration.
    explore : int, float or callable
        How trials are explored in their first half; see `SeminormLSTDAgent.collect`.
    features : Features, optional
        Of vector observations; those that are counted need none.
    pair_features : callable, optional
        Of vector observations (n, k) and actions (n,) from 0, to features of pairs (n, d). By
        default ``features`` and a constant, apart for each action.
    n_errors : float
        By how many standard errors the advantage of an action must exceed 0: those of the mean of
        r - g τ + v(s') over the transitions of the two actions. With 0, what is better by all
        samples is taken, which makes most of so many, and chance may go on changing what is alike.
    policy : array_like, optional
        Actions (S,) of Discrete observations to begin with. Without it the first iteration tries
        out all actions alike, at all timesteps.
    on_termination : {"raise", "absorb"}
        As for `SeminormLSTDAgent`.
    observations : {"auto", "counted", "vectors"}
        As for `SeminormLSTDAgent`.
    seed : int, optional
        The same seed and environment give the same search, interrupted or not.

    Attributes
    ----------
    iterations : list of Iteration
        The record.
    converged : bool
        Whether the last iteration changed nothing: by all samples no action is better by more than
        ``n_errors`` standard errors. (Of vectors, it changed at most 10 of 1000 observations.)
        That the policy is the best is another matter: see ``undecided``.
    undecided : list of Undecided
        The actions that 3 standard errors, those of successors' values included, do not tell to be
        worse than the current policy's, with difference and error: those that are alike, those
        that were tried too little, and those that were never tried, or do not exist. Of vectors,
        at up to 1000 observations that were met. Run `iterate` to tell more of them apart.
    policy_ : ndarray or callable
        The best policy so far.

    Notes
    -----
    Memory: of counted observations 32 bytes for each different (s, a, s') that was met; of vectors
    all trials so far, with 17 bytes a timestep beside the observation.

    Methods
    -------
    run(n_iterations)
        Iterate until nothing changes.
    iterate()
        Run, evaluate and improve once.
    action_values
        What actions are worth under the current policy.
    save, load
        To go on later.
    summary
        How sure the current policy is, as text; ``print(search)`` shows it.
    plot
        The record as a figure.

    Examples
    --------
    >>> import unichain_gym
    >>> search = PolicyIteration("Unichain-h6-v0", t_max=100, n_trials=500, seed=0).run()
    >>> search.converged
    True
    >>> search.policy_.tolist()
    [1, 1, 1, 1, 1, 1]
    >>> search.undecided
    []
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
        self.n_errors = _check_n_errors(n_errors)
        self.on_termination = check_choice("on_termination", on_termination, get_args(Termination))
        self.observations = observations
        seed = None if seed is None else check_integer("seed", seed, 0)
        self.entropy: Any = np.random.SeedSequence(seed).entropy
        self.iterations: list[Iteration] = []
        self.converged = False
        self._tried: list[Any] = []
        self._judged: tuple[int, Advantages] | None = None
        self._begins_with_policy = policy is not None
        self._task = Task(env, self.n_trials)
        ends = on_termination == "absorb"
        self._improver = make_improver(
            self._task.spaces, ends, observations, self.n_errors, features, pair_features, policy
        )

    def run(
        self,
        n_iterations: int = 20,
        *,
        progress: bool | None = None,
        workers: int = 1,
        executor: Executor | None = None,
    ) -> Self:
        """Iterate until nothing changes.

        An interrupt loses the trials of the iteration under way and nothing else; run again to go
        on.

        Parameters
        ----------
        n_iterations : int
            At most, those so far included.
        progress : bool or None
            Show a progress bar of each iteration; None shows one on a terminal only.
        workers, executor
            As in `SeminormLSTDAgent.collect`, of an environment that workers can make: an id or a
            function. The search does not depend on them.
        """
        check_integer("n_iterations", n_iterations, 1)
        while not self.converged and len(self.iterations) < n_iterations:
            self.iterate(progress=progress, workers=workers, executor=executor)
        return self

    def iterate(
        self,
        *,
        progress: bool | None = None,
        workers: int = 1,
        executor: Executor | None = None,
    ) -> Iteration:
        """Run the trials of one iteration, evaluate their policy, and improve it.

        Parameters
        ----------
        progress, workers, executor
            As in `run`.

        Returns
        -------
        Iteration
        """
        number, improver = len(self.iterations), self._improver
        source = np.random.SeedSequence(self.entropy, spawn_key=(number,))
        request = Request(
            self.n_trials,
            self.t_max,
            int(source.generate_state(1, np.uint64)[0]) >> 1,
            batched=True if callable(improver.policy()) else None,
            progress=progress,
            workers=workers,
            executor=executor,
            explore=self.explore,
            wherever=improver.unknown(),
        )
        # Whole iterations only, so that a search that was interrupted goes on as if it was not.
        earned = improver.add(self._task.run(improver, request))
        gain, start_value = improver.evaluate_start()
        self._tried.append(improver.snapshot())
        changes = improver.improve()
        n_trials = len(earned.whole) * (number + 1)
        done = Iteration(
            number=number,
            n_trials=n_trials,
            n_steps=n_trials * (self.t_max + 1),
            gain=gain,
            start_value=start_value,
            n_changes=changes,
            **earned.figures(),
        )
        self.iterations.append(done)
        self.converged = changes <= improver.few_changes
        return done

    @property
    def policy_(self) -> Policy:
        """The best policy so far, as `SeminormLSTDAgent.collect` takes it.

        The latest one, unless its trials earned significantly less than those of another before:
        then the latest of those that did not. A policy of Discrete observations
        is an array of actions (S,), of others a function of batches. States that were never met
        have the first action.
        """
        return self._improver.policy(self._best())

    def _best(self) -> Any:
        if not self.iterations:
            raise NotFittedError("there is no policy yet: call run first")
        latest, first = self._improver.snapshot(), 0 if self._begins_with_policy else 1
        tried, records = self._tried[first:], self.iterations[first:]
        if not self.converged or not tried:
            # It has no trials of its own, and is better than the last by all samples.
            tried, records = [*tried, latest], [*records, self.iterations[-1]]
        return tried[best_of(records)]

    def action_values(self, observations: Any) -> FloatArray:
        """Return action values of the current policy, relative to one state's value.

        Parameters
        ----------
        observations : one observation, or a batch of m

        Returns
        -------
        ndarray, shape (m, A) or (A,)
            NaN where the samples do not tell.

        Raises
        ------
        NotFittedError
            Before `run`.
        """
        if not self.iterations:
            raise NotFittedError("there are no action values yet: call run first")
        states, shape = self._improver.encoding.encode_any(observations)
        q = self._improver.action_values(states)
        return q.reshape(*shape, q.shape[1])

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return f"<PolicyIteration after {len(self.iterations)} iterations, {state}>"

    def __str__(self) -> str:
        return self.summary()

    @property
    def undecided(self) -> list[Undecided]:
        """The actions that are not told from the current policy's; see above."""
        encoding = self._improver.encoding
        return self._advantages.undecided(encoding.decode, self._improver.first_action)

    @property
    def _advantages(self) -> Advantages:
        n = len(self.iterations)
        if not n:
            raise NotFittedError("there is no policy yet: call run first")
        if self._judged is None or self._judged[0] != n:
            self._judged = n, self._improver.advantages()
        return self._judged[1]

    def summary(self) -> str:
        """Return how sure the current policy is, as text.

        Returns
        -------
        str

        Raises
        ------
        NotFittedError
            Before `run`.
        """
        advantages = self._advantages
        last = self.iterations[-1]
        n = last.n_changes
        changes = "nothing" if n == 0 else f"{n} action{'s' * (n > 1)}"
        lines = [
            f"policy iteration: iteration {last.number} changed {changes}",
            f"{last.n_trials} trials: gain {last.gain:.6g}, start value {last.start_value:.6g}",
            *advantages.account(self.undecided),
        ]
        return "\n".join(lines)

    def plot(self, optimum: tuple[float, float] | None = None) -> Figure:
        """Return a figure of gain, start value and changes over samples.

        Parameters
        ----------
        optimum : (float, float), optional
            The largest gain and, with that, the largest mean bias of the start, if known.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        MissingDependencyError
            Without matplotlib.
        """
        return draw_learning(self.iterations, optimum)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the search to a file, samples and record included, to go on later.

        The environment is not written, nor are features that are functions.

        Parameters
        ----------
        path : path
        """
        saved = SavedSearch(
            options={name: getattr(self, name) for name in _OPTIONS},
            explore=self.explore,
            entropy=self.entropy,
            space=self._improver.encoding.space,
            iterations=tuple(self.iterations),
            converged=self.converged,
            begins_with_policy=self._begins_with_policy,
            tried=tuple(self._tried),
            samples=self._improver.samples,
        )
        write(path, saved, _MAKERS)

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
        """Read a search from a file that `save` wrote, to go on with `run`.

        Parameters
        ----------
        path : path
        env : Env, VectorEnv, str or callable
            The same task.
        explore : callable, optional
            Where it was a function, which a file does not hold.
        features, pair_features : optional
            The same as before.

        Returns
        -------
        PolicyIteration

        Raises
        ------
        InvalidInputError
            If the file is not a search's, is damaged, or is one of other observations.
        """
        saved = read(path, SavedSearch, "policy iteration", _MAKERS)
        if explore is None:
            explore = saved.explore
        if explore is function:
            raise InvalidInputError(
                f"the search in {path} explores by a function, which a file does not hold: pass "
                "it as load(path, env, explore=...)"
            )
        with refusing(path):
            saved.check()
            check_explore(explore, check_integer("t_max", saved.options["t_max"], 1))
            if set(saved.options) != set(_OPTIONS):
                raise InvalidInputError(f"its options are {', '.join(map(str, saved.options))}")
        search = cls(
            env, explore=explore, features=features, pair_features=pair_features, **saved.options
        )
        if search._improver.encoding.space != saved.space:
            raise InvalidInputError(
                f"the search in {path} is one of observations of {saved.space}; the environment "
                f"has {search._improver.encoding.space}"
            )
        search.entropy, search.iterations = saved.entropy, list(saved.iterations)
        search.converged = saved.converged
        search._begins_with_policy, search._tried = saved.begins_with_policy, list(saved.tried)
        with refusing(path):
            search._improver.restore(saved.samples, saved.tried)
        return search


def _check_n_errors(n_errors: Any) -> float:
    if isinstance(n_errors, numbers.Real) and 0.0 <= float(n_errors) < np.inf:
        return float(n_errors)
    raise InvalidInputError(f"n_errors must be a number of at least 0; got {n_errors!r}")
