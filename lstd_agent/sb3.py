"""A callback for Stable-Baselines3: gain and start value of the policy that is being learned.

Learners report mean episode rewards, which mix the start with the long run. The callback evaluates
the current policy every n steps and reports both apart. It needs the extra ``sb3``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

from lstd_agent.agent import SeminormLSTDAgent
from lstd_agent.errors import FitWarning, MissingDependencyError, check_integer
from lstd_agent.features.tables import Features
from lstd_agent.trials.collect import AnyEnv
from lstd_agent.trials.workers import EnvSource

try:
    from stable_baselines3.common.callbacks import BaseCallback
except ImportError as error:
    told = 'this callback needs Stable-Baselines3: pip install "unichain-gym[sb3]"'
    raise MissingDependencyError(told) from error


@dataclass(frozen=True, eq=False)
class PolicyEvaluation:
    """The result of an evaluation of the policy.

    Attributes
    ----------
    n_steps : int
        Steps of learning before the evaluation.
    gain, gain_error : float
        Average reward in the long run per step, or per unit of ``info["duration"]``; its error.
    start_value, start_value_error : float
        Mean bias of the start, with its standard error. It compares policies of equal gain.
    agent : SeminormLSTDAgent
        The fitted evaluator, for values, standard errors and diagnostics.
    """

    n_steps: int
    gain: float
    gain_error: float
    start_value: float
    start_value_error: float
    agent: SeminormLSTDAgent


class StartValueCallback(BaseCallback):
    """Evaluates the current policy every so many steps, on an environment of its own.

    Results are in `evaluations`, and in the learner's log as ``start/gain``,
    ``start/start_value`` and, with ``_error`` after these names, their standard errors. The
    learner's own steps and generators stay the same, except for torch's where the policy draws.

    Parameters
    ----------
    env : Env, VectorEnv, id or function
        A continuing task, as `SeminormLSTDAgent.collect` takes it; not the learner's own.
    features : Features
        Of the evaluator.
    every : int
        Steps of learning between evaluations. The first one comes before learning.
    n_trials, t_max, seed : int
        Trials of an evaluation, over timesteps 0 to t_max, each time with the same seed.
    deterministic : bool
        Whether to take the policy's most likely action, or to draw one.
    verbose : int
        1 prints a line for each evaluation.
    **options
        Of the evaluator, such as ``n_anchors``.

    Attributes
    ----------
    evaluations : list of PolicyEvaluation
    """

    def __init__(
        self,
        env: AnyEnv | EnvSource,
        features: Features,
        *,
        every: int,
        n_trials: int,
        t_max: int,
        deterministic: bool = True,
        seed: int | None = 0,
        verbose: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(verbose)
        SeminormLSTDAgent(features, **options)  # raises now if the options are wrong
        self.evaluations: list[PolicyEvaluation] = []
        self._features, self._options, self._deterministic = features, options, deterministic
        self._every, self._next, self._env = check_integer("every", every, 1), 0, env
        self._how: Any = {"n_trials": check_integer("n_trials", n_trials, 2), "seed": seed}
        self._how["t_max"] = check_integer("t_max", t_max, 1)

    def _on_training_start(self) -> None:
        self._next = self.num_timesteps
        self._on_step()

    def _on_step(self) -> bool:
        """Evaluate if it is time; never ends the learning."""
        if self.num_timesteps < self._next:
            return True
        self._next = self.num_timesteps + self._every
        found = self.evaluate(self.model, self.num_timesteps)
        self.evaluations.append(found)
        for name in ("gain", "gain_error", "start_value", "start_value_error"):
            self.logger.record(f"start/{name}", getattr(found, name))
        if self.verbose:
            print(
                f"{found.n_steps} steps: gain {found.gain:.4g} ± {found.gain_error:.2g}, start "
                f"value {found.start_value:.4g} ± {found.start_value_error:.2g}"
            )
        return True

    def evaluate(self, model: Any, n_steps: int = 0) -> PolicyEvaluation:
        """Evaluate a ``model`` as the callback does; ``n_steps`` is recorded in the result."""
        policy = partial(model.predict, deterministic=self._deterministic)
        agent = SeminormLSTDAgent(self._features, **self._options)
        agent.collect(self._env, policy, **self._how, batched=True)
        agent._fit()  # its warnings are given here, with the step of learning
        if found := agent.diagnostics().warnings:
            warnings.warn(f"after {n_steps} steps: {'; '.join(found)}", FitWarning, stacklevel=2)
        gain, start = (agent.gain_, agent.gain_error_), (agent.start_bias_, agent.start_bias_error_)
        return PolicyEvaluation(n_steps, *gain, *start, agent)
