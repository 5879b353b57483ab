"""`UnichainVectorEnv`: many copies of a `TabularMDP` in lockstep, in numpy.

A step is a fixed number of passes over the environments. The outcome is found by bisection in
a flat table of thresholds whose rows have a power-of-two width: one gather and one comparison
for each halving, log2(outcomes) in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from unichain_gym.arrays import BoolArray, FloatArray, IntArray
from unichain_gym.env import check_info_level
from unichain_gym.errors import InvalidArgumentError, UnichainError
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import draw_thresholds, require_integers
from unichain_gym.start import check_snapshot, check_states, draw_start, restore_generator
from unichain_gym.streams import make_mdp


class TabularVectorEnv(VectorEnv[IntArray, IntArray, Any]):
    """Any `TabularMDP` as ``num_envs`` continuing environments that step together.

    Each environment has the law of `TabularEnv`. There is one generator for all of them: a
    step draws ``num_envs`` uniforms, environment by environment, so what a seed gives depends
    on ``num_envs``. Nothing ends, so nothing is reset unless asked (`AutoresetMode.DISABLED`).
    All returned arrays are fresh.

    Parameters
    ----------
    mdp : TabularMDP
        The model to step through.
    num_envs : int
        Number of environments, at least 1.
    info_level : {"minimal", "full"}
        As in `TabularEnv`; the values are arrays of shape (num_envs,).

    Raises
    ------
    InvalidArgumentError
        If there is no environment or the information level is unknown.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  (Gymnasium's declaration)
        "autoreset_mode": AutoresetMode.DISABLED,
        "render_modes": [],
    }

    def __init__(self, mdp: TabularMDP, num_envs: int = 1, *, info_level: str = "minimal") -> None:
        require_integers(InvalidArgumentError, num_envs=num_envs)
        if num_envs < 1:
            raise InvalidArgumentError(f"num_envs must be at least 1; got {num_envs}")
        self.mdp = mdp
        self.num_envs = num_envs
        self.info_level = check_info_level(info_level)
        self.single_observation_space = gym.spaces.Discrete(mdp.n_states)
        self.single_action_space = gym.spaces.Discrete(mdp.n_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._start_thresholds = draw_thresholds(mdp.initial_distribution)

        # Row s * A + a of each table has `width` slots, of which the last are never drawn.
        rows = mdp.outcome_thresholds.reshape(mdp.n_states * mdp.n_actions, -1)
        n_outcomes = int(np.isfinite(rows).sum(axis=1).max()) + 1
        self._width = 1 << (n_outcomes - 1).bit_length()
        thresholds = self._widen(rows[:, :n_outcomes], np.inf)
        self._next_state = self._widen(mdp.next_state.reshape(rows.shape)[:, :n_outcomes], 0)
        self._reward = self._widen(mdp.reward.reshape(rows.shape)[:, :n_outcomes], 0.0)
        # Whether a draw is past the first `half` slots, from where the search stands, is told
        # by the threshold half - 1 slots on.
        halves = [self._width >> level for level in range(1, self._width.bit_length())]
        self._bisection = [(half, thresholds[half - 1 :]) for half in halves]

        self._states: IntArray | None = None
        self._steps = 0
        self._first_step = np.zeros(num_envs, dtype=np.int64)
        self._uniform = np.empty(num_envs)
        self._threshold = np.empty(num_envs)
        self._slot = np.empty(num_envs, dtype=np.int64)

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[IntArray, dict[str, Any]]:
        """Start all environments again, or those that a mask names.

        Parameters
        ----------
        seed : int, optional
            Seeds the one generator of all environments.
        options : dict, optional
            ``"reset_mask"``, a bool array of shape (num_envs,), restarts these environments
            alone. ``"state"`` (one, or one for each environment) or ``"distribution"`` (shape
            (S,)) say where to start.

        Returns
        -------
        observations : ndarray of int64, shape (num_envs,)
        infos : dict

        Raises
        ------
        InvalidArgumentError
            If an option is unknown or out of range, or the seed is not one integer.
        UnichainError
            If a mask leaves out environments that were never reset.
        """
        if isinstance(seed, list | tuple):
            raise InvalidArgumentError(
                f"there is one generator for all environments: seed is one integer; got {seed!r}"
            )
        super().reset(seed=seed)
        options = dict(options or {})
        mask = self._check_mask(options.pop("reset_mask", np.ones(self.num_envs, dtype=bool)))
        if self._states is None and not mask.all():
            raise UnichainError("reset() all environments before some of them")
        # Drawn for all, so that a masked reset gives an environment what a full one would.
        start = draw_start(self.mdp, self._start_thresholds, options, self.num_envs, self.np_random)
        self._states = start.copy() if self._states is None else np.where(mask, start, self._states)
        self._first_step[mask] = self._steps
        return self._states.copy(), self._infos()

    def step(
        self, actions: ArrayLike
    ) -> tuple[IntArray, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Take an action in every environment.

        Parameters
        ----------
        actions : array_like of int, shape (num_envs,)
            Each 0 to A - 1.

        Returns
        -------
        observations : ndarray of int64, shape (num_envs,)
        rewards : ndarray of float64, shape (num_envs,)
        terminations, truncations : ndarray of bool, shape (num_envs,)
            All False.
        infos : dict

        Raises
        ------
        InvalidArgumentError
            If the shape, the type or an action is wrong.
        UnichainError
            If the environments were never reset.
        """
        if self._states is None:
            raise UnichainError("these environments have no state; call reset() before step()")
        chosen = self._check_actions(actions)
        u, slot, threshold = self._uniform, self._slot, self._threshold
        self.np_random.random(out=u)
        np.multiply(self._states, self.mdp.n_actions, out=slot)
        np.add(slot, chosen, out=slot)
        np.multiply(slot, self._width, out=slot)
        # Slots are in range by construction: mode "clip" only spares numpy the check.
        for half, thresholds in self._bisection:
            thresholds.take(slot, out=threshold, mode="clip")
            np.add(slot, np.multiply(u >= threshold, half, dtype=np.int64), out=slot)
        self._next_state.take(slot, out=self._states, mode="clip")
        rewards = self._reward.take(slot, mode="clip")
        self._steps += 1
        n = self.num_envs
        return (
            self._states.copy(),
            rewards,
            np.zeros(n, dtype=bool),
            np.zeros(n, dtype=bool),
            self._infos(),
        )

    def get_state(self) -> dict[str, Any]:
        """Return everything that decides what happens next: states, timesteps and generator."""
        return {
            "state": None if self._states is None else self._states.copy(),
            "timestep": self._steps - self._first_step,
            "generator": self.np_random.bit_generator.state,
        }

    def set_state(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot that `get_state` took, of this or an equal environment.

        Raises
        ------
        InvalidArgumentError
            If the snapshot is incomplete or does not fit; nothing changes then.
        """
        check_snapshot(snapshot)
        states = snapshot["state"]
        if states is not None:
            states = check_states(self.mdp, states, self.num_envs, "the snapshot's state").copy()
        timesteps = np.asarray(snapshot["timestep"])
        if timesteps.shape != (self.num_envs,):
            raise InvalidArgumentError(
                f"the snapshot is of {timesteps.size} environments; these are {self.num_envs}"
            )
        restore_generator(self.np_random, snapshot["generator"])
        self._states = states
        self._steps = 0
        self._first_step = -timesteps.astype(np.int64)

    def _widen(self, rows: NDArray[Any], fill: float) -> NDArray[Any]:
        """Return rows padded to the table's width, flat."""
        padding = ((0, 0), (0, self._width - rows.shape[1]))
        return np.pad(rows, padding, constant_values=fill).ravel()

    def _check_mask(self, mask: ArrayLike) -> BoolArray:
        array = np.asarray(mask)
        if array.dtype != np.bool_ or array.shape != (self.num_envs,):
            raise InvalidArgumentError(
                f"options['reset_mask'] must be bool of shape ({self.num_envs},); got "
                f"{array.dtype} of shape {array.shape}"
            )
        return array

    def _check_actions(self, actions: ArrayLike) -> IntArray:
        array = np.asarray(actions)
        if array.shape != (self.num_envs,) or array.dtype.kind not in "iu":
            raise InvalidArgumentError(
                f"actions must be integers of shape ({self.num_envs},); got {array.dtype} of "
                f"shape {array.shape}"
            )
        chosen = array.astype(np.int64, copy=False)
        # As unsigned numbers, negative actions are huge: one pass finds both kinds.
        if chosen.view(np.uint64).max() >= self.mdp.n_actions:
            wrong = int(np.argmax((chosen < 0) | (chosen >= self.mdp.n_actions)))
            raise InvalidArgumentError(
                f"an action is an integer from 0 to {self.mdp.n_actions - 1}; environment "
                f"{wrong} got {array[wrong]}"
            )
        return chosen

    def _infos(self) -> dict[str, Any]:
        if self.info_level == "minimal":
            return {}
        assert self._states is not None
        everywhere = np.ones(self.num_envs, dtype=bool)
        return {
            "timestep": self._steps - self._first_step,
            "_timestep": everywhere,
            "state_class": self.mdp.state_classes[self._states],
            "_state_class": everywhere.copy(),
        }


class UnichainVectorEnv(TabularVectorEnv):
    """``num_envs`` copies of a `UnichainEnv`, which describes the arguments, in lockstep."""

    def __init__(
        self,
        num_envs: int = 1,
        mnemonic: str = "h36c",
        *,
        info_level: str = "minimal",
        **mdp_options: Any,
    ) -> None:
        super().__init__(make_mdp(mnemonic, **mdp_options), num_envs, info_level=info_level)
