"""A callback for Stable-Baselines3: what the policy that is being learned earns from its start on.

Mean episode rewards, which learners report, mix the start with the long run by the length of an
episode. Here the current policy is evaluated every n steps, and both are told apart: the gain, and
the mean bias of the start, which is what a start earns above the gain in all. Needs the extra
``sb3``; nothing else in this package imports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from lstd_agent.agent import SeminormLSTDAgent
from lstd_agent.errors import MissingDependencyError, check_integer
from lstd_agent.features.tables import Features
from lstd_agent.trials.collect import AnyEnv
from lstd_agent.trials.workers import EnvSource

try:
    from stable_baselines3.common.callbacks import BaseCallback
except ImportError as error:
    raise MissingDependencyError(
        'this callback needs Stable-Baselines3: pip install "unichain-gym[sb3]"'
    ) from error


@dataclass(frozen=True, eq=False)
class PolicyEvaluation:
    """What an evaluation of the policy found.

    Attributes
    ----------
    n_steps : int
        Steps learned from until then.
    gain, gain_error : float
        Average reward in the long run, of a step, or of a unit of time where the environment tells
        ``info["duration"]``; and its standard error.
    start_value, start_value_error : float
        Mean bias of the start, which is what it earns above the gain in all, and its standard
        error. Policies of about the same gain compare by it.
    agent : SeminormLSTDAgent
        The fitted evaluator, for everything else: values, standard errors, diagnostics.
    """

    n_steps: int
    gain: float
    gain_error: float
    start_value: float
    start_value_error: float
    agent: SeminormLSTDAgent


class StartValueCallback(BaseCallback):
    """Evaluates the current policy every so many steps, on an environment of its own.

    What it finds is in `evaluations`, and in the learner's log as ``start/gain``,
    ``start/start_value`` and, with ``_error`` after these names, their standard errors. The
    learner's own steps, draws and generators are left alone, but for those of torch where the
    policy draws its actions.

    Parameters
    ----------
    env : Env, VectorEnv, id or function
        A continuing task, as `SeminormLSTDAgent.collect` takes it; not the one that is learned on.
    features : Features
        Of the evaluator.
    every : int
        Steps of learning between evaluations, which begin before the first.
    n_trials, t_max : int
        Trials of an evaluation, each over timesteps 0 to t_max.
    deterministic : bool
        Whether the policy's most likely action is taken, or one is drawn.
    seed : int, optional
        The same for each evaluation, so that policies meet the same chances.
    verbose : int
        1 prints a line an evaluation.
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
        SeminormLSTDAgent(features, **options)  # says now what is wrong with the options
        self.evaluations: list[PolicyEvaluation] = []
        self._env = env
        self._features = features
        self._every = check_integer("every", every, 1)
        self._n_trials = check_integer("n_trials", n_trials, 2)
        self._t_max = check_integer("t_max", t_max, 1)
        self._deterministic = deterministic
        self._seed = seed
        self._options = options
        self._next = 0

    def _on_training_start(self) -> None:
        self._next = self.num_timesteps
        self._evaluate_if_due()

    def _on_step(self) -> bool:
        """Evaluate if it is time; never ends the learning."""
        self._evaluate_if_due()
        return True

    def _evaluate_if_due(self) -> None:
        if self.num_timesteps < self._next:
            return
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

    def evaluate(self, model: Any, n_steps: int = 0) -> PolicyEvaluation:
        """Evaluate a model as the callback does.

        Parameters
        ----------
        model : stable_baselines3 model
        n_steps : int
            To be noted with what is found.

        Returns
        -------
        PolicyEvaluation
        """
        policy = partial(model.predict, deterministic=self._deterministic)
        agent = SeminormLSTDAgent(self._features, **self._options)
        agent.collect(self._env, policy, self._n_trials, self._t_max, self._seed, batched=True)
        agent.fit()
        gain, start = (agent.gain_, agent.gain_error_), (agent.start_bias_, agent.start_bias_error_)
        return PolicyEvaluation(n_steps, *gain, *start, agent)
