"""`TabularVectorEnv`: many copies of a `TabularMDP` that step together, in numpy.

A step is a fixed number of passes over the copies. Time limit and autoreset keep the conventions of
Gymnasium's `SyncVectorEnv`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from unichain_gym import conventions
from unichain_gym.conventions import RENDER_METADATA, InfoLevel, RenderMode
from unichain_gym.drawing import render_state
from unichain_gym.errors import InvalidArgumentError, UnichainError
from unichain_gym.interface import BoolArray, FloatArray, IntArray
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import (
    check_choice,
    draw_thresholds,
    read_array,
    require_integers,
    require_room,
)


class TabularVectorEnv(VectorEnv[IntArray, IntArray, Any]):
    """Any `TabularMDP` as ``num_envs`` continuing environments that step together.

    Each has the law of `TabularEnv`. All share one generator, so the result of a seed depends on
    ``num_envs``. The task does not end; a time limit truncates episodes, and the autoreset mode
    restarts them. All returned arrays are fresh.

    Parameters
    ----------
    mdp : TabularMDP
    num_envs : int
        At least 1.
    max_episode_steps : int, optional
        Steps after which an environment reports ``truncated``; without it, none ever does.
    autoreset_mode : AutoresetMode or {"NextStep", "SameStep", "Disabled"}
        The restart of a truncated environment. "NextStep", Gymnasium's default: its next step
        ignores the action and starts a new episode, with reward 0. "SameStep": it starts at once;
        ``infos["final_obs"]`` and ``infos["final_info"]`` have the last state. "Disabled":
        ``reset`` it, with ``options={"reset_mask": truncated}``, before the next step.
    render_mode : {"rgb_array", "ansi"}, optional
        The form of the result of `render` for each environment.
    info_level : {"minimal", "full"}
        As in `TabularEnv`. Each entry of ``infos`` is an array, first axis ``num_envs``, and the
        same name with a leading underscore is the mask of environments that have it.

    Attributes
    ----------
    single_observation_space, single_action_space, observation_space, action_space
        The spaces of one environment and of all: states and actions, from 0.

    Examples
    --------
    Two environments whose action 1 pays 1 at each step, for episodes of two steps:

    >>> from unichain_gym import TabularVectorEnv, make_mdp
    >>> envs = TabularVectorEnv(make_mdp("h36c"), num_envs=2, max_episode_steps=2)
    >>> observations, infos = envs.reset(seed=0, options={"state": [0, 11]})
    >>> observations
    array([ 0, 11])
    >>> for _ in range(3):
    ...     observations, rewards, terminated, truncated, infos = envs.step([1, 1])
    ...     print(rewards, truncated)
    [1. 1.] [False False]
    [1. 1.] [ True  True]
    [0. 0.] [False False]
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  (Gymnasium's declaration)
        **RENDER_METADATA,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        mdp: TabularMDP,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: RenderMode | None = None,
        info_level: InfoLevel = "minimal",
    ) -> None:
        require_integers(InvalidArgumentError, low=1, num_envs=num_envs)
        if max_episode_steps is not None:
            require_integers(InvalidArgumentError, low=1, max_episode_steps=max_episode_steps)
        self._masks = conventions.read_settings(mdp, render_mode, info_level)
        require_room("num_envs", num_envs)
        self.mdp, self.num_envs, self.max_episode_steps = mdp, num_envs, max_episode_steps
        self.render_mode: RenderMode | None = render_mode
        self.info_level: InfoLevel = info_level
        if not isinstance(autoreset_mode, AutoresetMode):
            check_choice("autoreset_mode", autoreset_mode, [m.value for m in AutoresetMode])
        self._autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self._autoreset_mode}
        self.single_observation_space = gym.spaces.Discrete(mdp.n_states)
        self.single_action_space = gym.spaces.Discrete(mdp.n_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._start_thresholds = draw_thresholds(mdp.initial_distribution)
        self._outcomes = LockstepOutcomes(mdp, num_envs)
        if info_level == "full":
            self._class_names = mdp.state_classes.astype(object)
        self._everywhere = np.ones(num_envs, dtype=bool)
        self._draws = np.empty(num_envs)
        self._states: IntArray | None = None
        # An environment's timestep is the difference, so a step increments one number only.
        self._steps, self._first_step = 0, np.zeros(num_envs, dtype=np.int64)
        # The last actions for `render`, -1 for no action; kept only with a render mode.
        self._last_action: IntArray = np.full(num_envs, -1)
        self._last_reward: FloatArray = np.zeros(num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[IntArray, dict[str, Any]]:
        """Start all environments again, or the environments that a mask names.

        Parameters
        ----------
        seed : int, optional
            Seeds the one generator of all environments.
        options : dict, optional
            ``"state"`` (one, or one for each environment) or ``"distribution"``, as in
            `TabularEnv.reset`, and ``"reset_mask"``, bool of shape (num_envs,): which to start
            again. The returned ``infos`` are of these.
        """
        seed, options = conventions.read_reset(seed, options)
        super().reset(seed=seed)
        n, what = self.num_envs, "options['reset_mask']"
        given = options.pop("reset_mask", self._everywhere)
        mask = read_array(given, what, InvalidArgumentError)
        if mask.dtype != np.bool_ or mask.shape != (n,):
            got = f"{mask.dtype} of shape {mask.shape}"
            raise InvalidArgumentError(f"{what} must be bool of shape ({n},); got {got}")
        if not mask.any():
            raise InvalidArgumentError(f"{what} names no environment; leave reset() out then")
        if self._states is None and not mask.all():
            raise UnichainError("reset() all environments before some of them")
        # Drawn for all, so that masked and full resets use the same draws.
        thresholds, rng = self._start_thresholds, self.np_random
        start = conventions.draw_start(self.mdp, thresholds, options, n, rng)
        self._states = np.where(mask, start, start if self._states is None else self._states)
        self._begin(mask)
        return self._states.copy(), self._infos(self._states, mask)

    def step(
        self, actions: ArrayLike
    ) -> tuple[IntArray, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Take an action in every environment; see `gymnasium.vector.VectorEnv.step`.

        The action of an environment that starts again is ignored. ``truncations`` are True where
        the time limit is reached. If the model has durations, ``infos["duration"]`` is the time of
        each step; of an environment that starts again in the same step it is in ``"final_info"``.

        Raises
        ------
        InvalidArgumentError, UnichainError
            If an action is wrong; if an environment was never reset, or has ended and autoreset
            is disabled.
        """
        if self._states is None:
            raise UnichainError("these environments have no state; call reset() before step()")
        restarting = self._at_limit()
        if restarting is not None and self._autoreset_mode is AutoresetMode.DISABLED:
            i, call = int(np.argmax(restarting)), 'reset(options={"reset_mask": truncated})'
            raise UnichainError(
                f"environment {i} is truncated and autoreset is disabled; call {call}"
            )
        chosen = conventions.read_actions(self.mdp, self._masks, self._states, actions, restarting)
        self.np_random.random(out=self._draws)
        rewards = self._outcomes.advance(self._states, chosen, self._draws)
        durations = self._outcomes.durations()
        stepped = self._everywhere if restarting is None else ~restarting
        self._steps += 1
        if self.render_mode is not None:
            self._last_action, self._last_reward = chosen.copy(), rewards.copy()
        if restarting is not None:
            self._restart(restarting, self._draws[restarting])
            rewards[restarting] = 0.0
        infos: dict[str, Any] = {}
        truncations = self._at_limit()
        if truncations is None:
            truncations = np.zeros(self.num_envs, dtype=bool)
        elif self._autoreset_mode is AutoresetMode.SAME_STEP:
            # Where environments were before they started again.
            final = np.full(self.num_envs, None, dtype=object)
            final[truncations] = self._states[truncations].tolist()
            infos = {"final_obs": final, "final_info": self._infos(self._states, truncations)}
            infos |= {f"_{name}": truncations.copy() for name in infos}
            if durations is not None:
                of_last = {"duration": np.where(truncations, durations, 0.0)}
                infos["final_info"] |= {**of_last, "_duration": truncations.copy()}
                stepped = ~truncations
            self._restart(truncations, self.np_random.random(np.count_nonzero(truncations)))
        infos |= self._infos(self._states, self._everywhere)
        if durations is not None:
            infos |= {"duration": np.where(stepped, durations, 0.0), "_duration": stepped.copy()}
        terminations = np.zeros(self.num_envs, dtype=bool)
        return self._states.copy(), rewards, terminations, truncations, infos

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture or a line of each environment, or None; see `TabularEnv.render`."""
        if self.render_mode is None:
            gym.logger.warn("render() does nothing without a render_mode: gym.make_vec() takes it")
            return None
        if self._states is None:
            raise UnichainError("these environments have no state; call reset() before render()")
        shown = (a.tolist() for a in (self._states, self._last_action, self._last_reward))
        return tuple(
            render_state(self.mdp, self.render_mode, state, *((a, r) if a >= 0 else (None, None)))
            for state, a, r in zip(*shown, strict=True)
        )

    def get_state(self) -> dict[str, Any]:
        """Return a snapshot; see `TabularEnv.get_state`."""
        return {
            "state": None if self._states is None else self._states.copy(),
            "timestep": self._steps - self._first_step,
            "generator": self.np_random.bit_generator.state,
        }

    def set_state(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot; see `TabularEnv.set_state`."""
        states, timesteps = conventions.read_snapshot(self.mdp, snapshot, (self.num_envs,))
        conventions.restore_generator(self.np_random, snapshot["generator"])
        self._states = states
        self._steps, self._first_step = 0, -timesteps
        self._last_action = np.full(self.num_envs, -1)

    def _at_limit(self) -> BoolArray | None:
        if self.max_episode_steps is None:
            return None
        ended: BoolArray = self._steps - self._first_step >= self.max_episode_steps
        return ended if ended.any() else None

    def _begin(self, mask: BoolArray) -> None:
        self._first_step[mask], self._last_action[mask] = self._steps, -1

    def _restart(self, mask: BoolArray, draws: FloatArray) -> None:
        assert self._states is not None
        self._states[mask] = np.searchsorted(self._start_thresholds, draws, side="right")
        self._begin(mask)

    def _infos(self, states: IntArray, where: BoolArray) -> dict[str, Any]:
        """Return the infos of the environments in ``where``, fresh, in Gymnasium's form."""
        if self.info_level == "minimal" and self._masks is None:
            return {}
        infos: dict[str, Any] = {}
        if self.info_level == "full":
            infos["timestep"] = self._steps - self._first_step
            infos["state_class"] = self._class_names.take(states)
        if self._masks is not None:
            infos["action_mask"] = self._masks[states]
        if where is not self._everywhere:
            for values in infos.values():
                values[~where] = None if values.dtype == object else 0
        return infos | {f"_{name}": where.copy() for name in infos}


class LockstepOutcomes:
    """The outcome table of an MDP, searched for the draws of ``n`` copies at once by bisection.

    Row s * A + a of each table has `width` slots, a power of 2; the padding at its end is never
    drawn.
    """

    def __init__(self, mdp: TabularMDP, n: int) -> None:
        rows = mdp.outcome_thresholds.reshape(mdp.n_states * mdp.n_actions, -1)
        n_outcomes = int(np.isfinite(rows).sum(axis=1).max()) + 1
        self._n_actions = mdp.n_actions
        self._width = width = 1 << (n_outcomes - 1).bit_length()

        def widen(table: NDArray[Any], fill: float) -> NDArray[Any]:
            padding = ((0, 0), (0, width - n_outcomes))
            kept = table.reshape(rows.shape)[:, :n_outcomes]
            return np.pad(kept, padding, constant_values=fill).ravel()

        # Shifted by a row, so that the search looks at thresholds before the current slot.
        thresholds = np.concatenate((np.zeros(width), widen(rows, np.inf)))
        halves = [width >> level for level in range(1, width.bit_length())]
        self._bisection = [(half, thresholds[width - half :]) for half in halves]
        self._next_state, self._reward = widen(mdp.next_state, 0), widen(mdp.reward, 0.0)
        self._duration = None if mdp.durations is None else widen(mdp.durations, 0.0)
        self._gap = np.empty(n)
        self._slot = np.empty(n, dtype=np.int64)

    def advance(self, states: IntArray, actions: IntArray, draws: FloatArray) -> FloatArray:
        """Move ``states`` (n,), in place, to the outcomes that draws select; return the rewards.

        The caller has checked states and actions; draws are in [0, 1). Mode "clip" only saves
        NumPy's check of indices.
        """
        slot, gap = self._slot, self._gap
        np.multiply(states, self._n_actions, out=slot)
        slot += actions
        slot *= self._width
        slot += self._width - 1
        is_below = gap.view(np.int64)
        for half, thresholds in self._bisection:
            thresholds.take(slot, out=gap, mode="clip")
            np.subtract(draws, gap, out=gap)
            np.right_shift(is_below, 63, out=is_below)  # the sign: -1 below the threshold
            if half > 1:
                is_below *= half
            slot += is_below
        self._next_state.take(slot, out=states, mode="clip")
        return self._reward.take(slot, mode="clip")

    def durations(self) -> FloatArray | None:
        """Return how long the last step took, (n,); None if every step takes 1."""
        return None if self._duration is None else self._duration.take(self._slot, mode="clip")
