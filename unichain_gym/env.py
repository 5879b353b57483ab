"""`TabularEnv`: a `TabularMDP` as a Gymnasium environment, one outcome a step.

In state s under action a, a uniform draw u selects outcome k of the MDP's table when thresholds[k -
1] <= u < thresholds[k] (`TabularMDP.outcome_thresholds`); the vector environment maps draws in the
same way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from operator import index
from typing import Any

import gymnasium as gym
import numpy as np

from unichain_gym import conventions
from unichain_gym.conventions import RENDER_METADATA, InfoLevel, RenderMode
from unichain_gym.drawing import render_state
from unichain_gym.errors import InvalidArgumentError, UnichainError, brief
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import draw_thresholds

_Table = tuple[list[float], list[int], list[float], list[float] | None]


class TabularEnv(gym.Env[Any, Any]):
    """Any `TabularMDP` as a continuing Gymnasium environment.

    `UnichainEnv` is this class with an MDP made from a mnemonic; its docstring describes
    spaces, start, rewards, end and information, which are the same here.

    Parameters
    ----------
    mdp : TabularMDP
    render_mode : {"rgb_array", "ansi"}, optional
        The form of the result of `render`.
    info_level : {"minimal", "full"}
        With "full", ``info`` has the timestep and the class of the state.

    Attributes
    ----------
    observation_space, action_space : gymnasium.spaces.Discrete
        The states, and the actions, from 0.

    Examples
    --------
    A working machine pays 1 and breaks with probability 0.1; a repair takes one step:

    >>> from unichain_gym import TabularEnv, TabularMDP
    >>> transitions = [(0, 0, 0, 0.9, 1.0), (0, 0, 1, 0.1, 1.0), (1, 0, 0, 1.0, -2.0)]
    >>> env = TabularEnv(TabularMDP.from_transitions(transitions, [1.0, 0.0]))
    >>> env.reset(seed=0)
    (0, {})
    >>> snapshot = env.get_state()
    >>> env.step(0)
    (0, 1.0, False, False, {})
    >>> env.set_state(snapshot)
    >>> env.step(0)
    (0, 1.0, False, False, {})
    >>> env.P[1]
    {0: [(1.0, 0, -2.0, False)]}
    """

    metadata = RENDER_METADATA

    def __init__(
        self,
        mdp: TabularMDP,
        *,
        render_mode: RenderMode | None = None,
        info_level: InfoLevel = "minimal",
    ) -> None:
        self._masks = conventions.read_settings(mdp, render_mode, info_level)
        self.mdp = mdp
        self.render_mode: RenderMode | None = render_mode
        self.info_level: InfoLevel = info_level
        self.observation_space = gym.spaces.Discrete(mdp.n_states)
        self.action_space = gym.spaces.Discrete(mdp.n_actions)
        self._start_thresholds = draw_thresholds(mdp.initial_distribution)
        # Outcomes as Python lists: single reads are many times faster than from arrays. The lists
        # of a state and action are made at the first visit, so a large MDP costs nothing up front.
        self._outcomes: dict[tuple[int, int], _Table] = {}
        self._state: int | None = None
        self._timestep = 0
        self._last_action: int | None = None
        self._last_reward: float | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Start again; see `gymnasium.Env.reset`.

        Parameters
        ----------
        seed : int, optional
            Seeds the generator; without a seed its stream continues.
        options : dict, optional
            ``{"state": s}`` starts in state s, ``{"distribution": p}`` in a state drawn from p
            (S,); by default the start is drawn from the initial distribution.
        """
        seed, chosen = conventions.read_reset(seed, options)
        super().reset(seed=seed)
        state = conventions.draw_start(self.mdp, self._start_thresholds, chosen, 1, self.np_random)
        self._state = int(state[0])
        self._timestep = 0
        self._last_action = self._last_reward = None
        return self._state, self._info()

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take an action, 0 to A - 1; see `gymnasium.Env.step`.

        The task continues: ``terminated`` and ``truncated`` are always False. If the model has
        durations, ``info["duration"]`` is the time of the step.

        Raises
        ------
        InvalidArgumentError, UnichainError
            If the state has no such action, or the environment was never reset.
        """
        state = self._state
        if state is None:
            raise UnichainError("this environment has no state; call reset() before step()")
        try:
            a = index(action)
            outcomes = self._outcomes[state, a]
        except (KeyError, TypeError):
            a = self._check_action(action)
            conventions.check_allowed(self.mdp, state, a)
            outcomes = self._outcomes[state, a] = self._read_outcomes(state, a)
        thresholds, successors, rewards, durations = outcomes
        k = bisect_right(thresholds, self.np_random.random())
        self._state, self._last_action, self._last_reward = successors[k], a, rewards[k]
        self._timestep += 1
        info = self._info()
        if durations is not None:
            info["duration"] = durations[k]
        return successors[k], rewards[k], False, False, info

    def render(self) -> Any:
        """Return the state as a picture, uint8 (H, W, 3), or with render mode "ansi" as a line."""
        if self.render_mode is None:
            gym.logger.warn("render() does nothing without a render_mode; pass one to gym.make()")
            return None
        if self._state is None:
            raise UnichainError("this environment has no state; call reset() before render()")
        last = self._last_action, self._last_reward
        return render_state(self.mdp, self.render_mode, self._state, *last)

    def get_state(self) -> dict[str, Any]:
        """Return a snapshot: state, timestep and generator."""
        last = {"last_action": self._last_action, "last_reward": self._last_reward}
        generator = self.np_random.bit_generator.state
        return {"state": self._state, "timestep": self._timestep, **last, "generator": generator}

    def set_state(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot of `get_state`, of this or an equal environment.

        Parameters
        ----------
        snapshot : dict

        Raises
        ------
        InvalidArgumentError
            If the snapshot is incomplete or does not fit; the environment then stays unchanged.
        """
        last = "last_action", "last_reward"
        states, timestep = conventions.read_snapshot(self.mdp, snapshot, (), *last)
        action, reward = (snapshot[name] for name in last)
        if action is not None:
            action = self._check_action(action)
        if reward is not None and not isinstance(reward, float):
            raise InvalidArgumentError(f"the snapshot's last_reward is no float: {brief(reward)}")
        conventions.restore_generator(self.np_random, snapshot["generator"])
        self._state = None if states is None else int(states[0])
        self._timestep = int(timestep)
        self._last_action, self._last_reward = action, reward

    @cached_property
    def P(self) -> dict[int, dict[int, list[tuple[float, int, float, bool]]]]:
        """The model as in Gymnasium's toy-text environments.

        ``P[s][a]`` lists ``(probability, next_state, reward, terminated)``; outcomes of
        probability zero are left out, and an action that the state lacks has an empty list.
        """
        columns = (self.mdp.probability, self.mdp.next_state, self.mdp.reward)
        return {
            s: {
                a: [(p, n, r, False) for p, n, r in zip(*outcomes, strict=True) if p > 0.0]
                for a, outcomes in enumerate(zip(*actions, strict=True))
            }
            for s, actions in enumerate(zip(*(c.tolist() for c in columns), strict=True))
        }

    def _check_action(self, action: Any) -> int:
        last = self.mdp.n_actions - 1
        try:
            a = index(action)
        except TypeError:
            a = -1
        if not 0 <= a <= last:
            raise InvalidArgumentError(
                f"an action is an integer from 0 to {last}; got {brief(action)}"
            )
        return a

    def _read_outcomes(self, state: int, action: int) -> _Table:
        """Return thresholds, next states, rewards and durations up to the last possible outcome."""
        mdp = self.mdp
        n = int(np.isfinite(mdp.outcome_thresholds[state, action]).sum()) + 1
        tables = mdp.outcome_thresholds, mdp.next_state, mdp.reward, mdp.durations
        columns = (None if t is None else t[state, action, :n].tolist() for t in tables)
        return tuple(columns)  # type: ignore[return-value]

    def _info(self) -> dict[str, Any]:
        if self.info_level == "minimal" and self._masks is None:
            return {}
        info: dict[str, Any] = {}
        if self.info_level == "full":
            info["timestep"] = self._timestep
            info["state_class"] = str(self.mdp.state_classes[self._state])
        if self._masks is not None:
            info["action_mask"] = self._masks[self._state].copy()
        return info
