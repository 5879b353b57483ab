"""`UnichainEnv`: a `TabularMDP` as a Gymnasium environment, one outcome a step.

Being in state s and taking action a, a uniform draw u selects outcome k of the MDP's table
when thresholds[k - 1] <= u < thresholds[k] (`TabularMDP.outcome_thresholds`); the vector
environment maps draws in the same way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from operator import index
from typing import Any

import gymnasium as gym
import numpy as np

from unichain_gym.errors import InvalidArgumentError, UnichainError
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import draw_thresholds
from unichain_gym.start import check_snapshot, check_states, draw_start, restore_generator
from unichain_gym.streams import make_mdp

INFO_LEVELS = ("minimal", "full")


class TabularEnv(gym.Env[Any, Any]):
    """Any `TabularMDP` as a continuing Gymnasium environment.

    `UnichainEnv` is this class with an MDP made from a mnemonic; its docstring describes
    spaces, start, rewards, end and information, which are the same here.

    Parameters
    ----------
    mdp : TabularMDP
        The model to step through.
    render_mode : {"rgb_array", "ansi"}, optional
        What `render` returns.
    info_level : {"minimal", "full"}
        Whether ``info`` tells the timestep and the class of the state.

    Raises
    ------
    InvalidArgumentError
        If the render mode or the information level is unknown.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  (Gymnasium's declaration)
        "render_modes": ["rgb_array", "ansi"],
        "render_fps": 4,
    }

    def __init__(
        self, mdp: TabularMDP, *, render_mode: str | None = None, info_level: str = "minimal"
    ) -> None:
        modes = self.metadata["render_modes"]
        if render_mode is not None and render_mode not in modes:
            raise InvalidArgumentError(
                f"unknown render_mode {render_mode!r}; it is one of {', '.join(modes)}, or None"
            )
        self.mdp = mdp
        self.render_mode = render_mode
        self.info_level = check_info_level(info_level)
        self.observation_space = gym.spaces.Discrete(mdp.n_states)
        self.action_space = gym.spaces.Discrete(mdp.n_actions)
        self._start_thresholds = draw_thresholds(mdp.initial_distribution)
        # Outcomes as Python lists, many times faster to read one by one than arrays; made when
        # a state and action are first visited, so that a large MDP costs nothing up front.
        self._outcomes: dict[tuple[int, int], tuple[list[float], list[int], list[float]]] = {}
        self._state: int | None = None
        self._timestep = 0
        self._last_action: int | None = None
        self._last_reward: float | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Start again from the initial distribution, or from where ``options`` says.

        Parameters
        ----------
        seed : int, optional
            Seeds the environment's generator; without it the generator goes on.
        options : dict, optional
            ``{"state": s}`` starts in state s, ``{"distribution": p}`` in a state drawn from p,
            shape (S,).

        Returns
        -------
        observation : int
        info : dict

        Raises
        ------
        InvalidArgumentError
            If an option is unknown or the state out of range.
        InvalidModelError
            If the distribution does not sum to 1 or has a negative entry.
        """
        super().reset(seed=seed)
        state = draw_start(self.mdp, self._start_thresholds, options or {}, 1, self.np_random)
        self._state = int(state[0])
        self._timestep = 0
        self._last_action = self._last_reward = None
        return self._state, self._info()

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take an action.

        Parameters
        ----------
        action : int
            0 to A - 1.

        Returns
        -------
        observation : int
            The next state.
        reward : float
            The model's r(s, a, s').
        terminated, truncated : bool
            Always False: the task continues.
        info : dict

        Raises
        ------
        InvalidArgumentError
            If the action is no integer in range.
        UnichainError
            If the environment was never reset.
        """
        state = self._state
        if state is None:
            raise UnichainError("this environment has no state; call reset() before step()")
        try:
            a = index(action)
            outcomes = self._outcomes[state, a]
        except (KeyError, TypeError):
            a = self._check_action(action)
            outcomes = self._outcomes[state, a] = self._read_outcomes(state, a)
        thresholds, successors, rewards = outcomes
        k = bisect_right(thresholds, self.np_random.random())
        self._state = successors[k]
        self._timestep += 1
        self._last_action = a
        self._last_reward = rewards[k]
        return successors[k], rewards[k], False, False, self._info()

    def render(self) -> Any:
        """Return the current state as a picture or a line, as ``render_mode`` says.

        Returns
        -------
        ndarray of uint8, shape (H, W, 3), str or None
            For "rgb_array", for "ansi", and without a render mode.

        Raises
        ------
        UnichainError
            If the environment was never reset.
        MissingDependencyError
            If "rgb_array" is asked for and the extra ``plot`` is not installed.
        """
        if self.render_mode is None:
            gym.logger.warn("render() does nothing without a render_mode; pass one to gym.make()")
            return None
        if self._state is None:
            raise UnichainError("this environment has no state; call reset() before render()")
        from unichain_gym.rendering import render_ansi, render_rgb

        if self.render_mode == "ansi":
            return render_ansi(self.mdp, self._state, self._last_action, self._last_reward)
        return render_rgb(self.mdp, self._state, self._last_action)

    def get_state(self) -> dict[str, Any]:
        """Return everything that decides what happens next: state, timestep and generator."""
        return {
            "state": self._state,
            "timestep": self._timestep,
            "last_action": self._last_action,
            "last_reward": self._last_reward,
            "generator": self.np_random.bit_generator.state,
        }

    def set_state(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot that `get_state` took, of this or an equal environment.

        Raises
        ------
        InvalidArgumentError
            If the snapshot is incomplete or does not fit; nothing changes then.
        """
        check_snapshot(snapshot, "last_action", "last_reward")
        state = snapshot["state"]
        if state is not None:
            state = int(check_states(self.mdp, state, 1, "the snapshot's state")[0])
        restore_generator(self.np_random, snapshot["generator"])
        self._state = state
        self._timestep = snapshot["timestep"]
        self._last_action = snapshot["last_action"]
        self._last_reward = snapshot["last_reward"]

    @cached_property
    def P(self) -> dict[int, dict[int, list[tuple[float, int, float, bool]]]]:
        """The model as in Gymnasium's toy-text environments.

        ``P[s][a]`` lists ``(probability, next_state, reward, terminated)``; outcomes of
        probability zero are left out.
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
        """Return the action as an int, or raise `InvalidArgumentError`."""
        A = self.mdp.n_actions
        try:
            a = index(action)
        except TypeError:
            a = -1
        if not 0 <= a < A:
            raise InvalidArgumentError(f"an action is an integer from 0 to {A - 1}; got {action!r}")
        return a

    def _read_outcomes(self, state: int, action: int) -> tuple[list[float], list[int], list[float]]:
        """Return thresholds, next states and rewards up to the last possible outcome."""
        thresholds = self.mdp.outcome_thresholds[state, action]
        n = int(np.isfinite(thresholds).sum()) + 1
        return (
            thresholds[:n].tolist(),
            self.mdp.next_state[state, action, :n].tolist(),
            self.mdp.reward[state, action, :n].tolist(),
        )

    def _info(self) -> dict[str, Any]:
        if self.info_level == "minimal":
            return {}
        return {
            "timestep": self._timestep,
            "state_class": str(self.mdp.state_classes[self._state]),
        }


class UnichainEnv(TabularEnv):
    """A unichain MDP by mnemonic: streams of transient states around a recurrent core.

    ## Description
    A mnemonic such as ``h36c`` is the letter of a recurrent core, the number of states, and a
    letter for the number of streams (none: one, ``b``: two, ``c``: three, …). The transient
    states divide evenly among the streams and are numbered first, stream after stream, the
    farthest from the core first; the core's states come last. Every stream enters the core at
    the core's first state (see ``entry_state``).

    In a transient state, action a advances by one state with probability ``advance_probs[a]``
    and stays where it is otherwise. With two actions these are 0.3 and 0.6; with more, they
    are evenly spaced between.

    The cores, with P(s'|s, a) and r(s, a) or r(s, a, s'):

    * ``h`` (3 states, 2 actions), Howard's taxicab problem:

      | s | a | P(0), P(1), P(2)      | r    |
      |---|---|-----------------------|------|
      | 0 | 0 | 0.5, 0.25, 0.25       | 8    |
      | 0 | 1 | 0.0625, 0.75, 0.1875  | 2.75 |
      | 1 | 0 | 0.5, 0, 0.5           | 16   |
      | 1 | 1 | 0.0625, 0.875, 0.0625 | 15   |
      | 2 | 0 | 0.25, 0.25, 0.5       | 7    |
      | 2 | 1 | 0.125, 0.75, 0.125    | 4    |

    * ``c`` (5, 2), Strens' chain: action 0 goes one state forward with probability 0.8 and back
      to state 0 with 0.2, action 1 the other way round. From the last state, forward means
      staying, which pays 10; elsewhere forward pays 0. Going back pays 2.
    * ``x`` (1, 2): absorbing, reward 0.
    * ``r`` (6, 2), RiverSwim: action 0 moves down by one; in state 0 it stays and pays 0.005.
      Action 1 moves up with 0.35, down with 0.05 and stays with 0.6; in state 0 it moves up
      with 0.6 and stays with 0.4; in state 5 it moves down with 0.4, stays with 0.6 and pays 1.
    * ``q`` (44, 2), access-control queuing: 10 servers, customers of priority 1, 2, 4 or 8 with
      probability 1/4 each. State 4 · (free servers) + (index of the priority). Action 1 accepts
      the customer if a server is free, which pays the priority; action 0 rejects. Then each busy
      server becomes free with probability 0.06.
    * ``m`` (4, 3), machine replacement: new, minor wear, major wear, inoperable. Action 0 keeps
      the machine running: from 0 to 0, 1, 2, 3 with 0, 7/8, 1/16, 1/16; from 1 to 1, 2, 3 with
      3/4, 1/8, 1/8; from 2 to 2, 3 with 1/2, 1/2; rewards 0, -1, -3. Action 1 overhauls in state
      2: to state 1 for -4. Action 2 replaces in states 1 and 2: to state 0 for -6. Elsewhere
      actions 1 and 2 act like action 0, and in state 3 every action replaces.
    * ``g`` (10, 2), Garnet: three random successors for each state and action, standard normal
      rewards, the same for the same ``seed`` in ``core_options``.

    ## Action Space
    ``Discrete(A)``, A being the core's number of actions: 2, for core ``m`` 3.

    ## Observation Space
    ``Discrete(S)``: the state. Observations are Python ints.

    ## Starting State
    Uniform over the transient states; over all states if there are none.
    ``reset(options={"state": s})`` and ``reset(options={"distribution": p})`` start elsewhere.

    ## Rewards
    In a transient state, action a pays ``stream_rewards[a]`` whatever its outcome: 0 and 1 with
    two actions, evenly spaced from 0 to 1 with more. In the core, as above.

    ## Episode End
    None: the task continues and ``terminated`` and ``truncated`` are always False. Pass
    ``max_episode_steps`` to ``gymnasium.make`` for episodes of a fixed length.

    ## Information
    ``info`` is empty unless ``info_level="full"``: then it holds ``"timestep"`` (0 at reset) and
    ``"state_class"``, "transient" or "recurrent" under policies that take every action.

    ## Arguments
    ```python
    gymnasium.make("unichain_gym:Unichain-v0", mnemonic="h36c", advance_probs=(0.3, 0.6))
    ```

    * ``mnemonic``: as above. The ids ``Unichain-<mnemonic>-v0`` set it.
    * ``advance_probs``, ``stream_rewards``: a number for each action, or a list of those for
      each stream.
    * ``entry_state``: the core's state, from 0, that streams enter, or one for each stream.
    * ``core_options``: a dict of the core's own numbers, see `unichain_gym.cores`.
    * ``render_mode``: "rgb_array" or "ansi"; with pygame installed, Gymnasium shows the pictures
      of "rgb_array" in a window for "human".
    * ``info_level``: "minimal" or "full".

    ``gymnasium.make_vec`` gives the native `UnichainVectorEnv` with the same arguments, apart
    from ``render_mode``. `TabularEnv` takes any `TabularMDP`.

    ## References
    * V. Dewanto and M. Gallagher. Discounting-free policy evaluation from transient and
      recurrent states. arXiv:2204.04324, 2022.
    * A. Hordijk, R. Dekker and L. Kallenberg. Sensitivity analysis in discounted Markovian
      decision problems. OR Spektrum 7, 1985.
    * M. Strens. A Bayesian framework for reinforcement learning. ICML, 2000.
    * A. Strehl and M. Littman. An analysis of model-based interval estimation for Markov
      decision processes. Journal of Computer and System Sciences 74, 2008.
    * I. Osband, D. Russo and B. Van Roy. (More) efficient reinforcement learning via posterior
      sampling. NeurIPS, 2013.
    * R. Sutton and A. Barto. Reinforcement learning: an introduction, 2nd ed. MIT Press, 2018.
    * M. Puterman. Markov decision processes. Wiley, 1994.
    * F. Hillier and G. Lieberman. Introduction to operations research. McGraw-Hill.
    * T. Archibald, K. McKinnon and L. Thomas. On the generation of Markov decision processes.
      Journal of the Operational Research Society 46, 1995.
    * S. Bhatnagar, R. Sutton, M. Ghavamzadeh and M. Lee. Natural actor-critic algorithms.
      Automatica 45, 2009.

    ## Version History
    * v0: initial version.
    """

    def __init__(
        self,
        mnemonic: str = "h36c",
        *,
        render_mode: str | None = None,
        info_level: str = "minimal",
        **mdp_options: Any,
    ) -> None:
        mdp = make_mdp(mnemonic, **mdp_options)
        super().__init__(mdp, render_mode=render_mode, info_level=info_level)


def check_info_level(info_level: str) -> str:
    """Return ``info_level``, or raise `InvalidArgumentError` if there is no such level."""
    if info_level not in INFO_LEVELS:
        raise InvalidArgumentError(
            f"unknown info_level {info_level!r}; it is one of {', '.join(INFO_LEVELS)}"
        )
    return info_level
