"""The suite: streams of transient states around a recurrent core, by mnemonic.

`unichain_gym.descriptions.STREAMS` explains mnemonics and the order of states. The source is the
paper's section ``env_nbwpval`` and its figure ``unichain_generic``.

`UnichainEnv` and `UnichainVectorEnv` are `TabularEnv` and `TabularVectorEnv` with an MDP of
`make_mdp`. The ids are ``Unichain-<mnemonic>-v0``, and ``Unichain-v0`` with ``mnemonic=``.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike

from unichain_gym.conventions import InfoLevel, RenderMode, check_mdp, refuse_unknown
from unichain_gym.cores import CORES
from unichain_gym.descriptions import describe_suite
from unichain_gym.env import TabularEnv
from unichain_gym.errors import InvalidArgumentError, InvalidMnemonicError, InvalidModelError, brief
from unichain_gym.interface import FloatArray, IntArray
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import read_array, read_reals, require_integers, require_room
from unichain_gym.vector_env import TabularVectorEnv

DEFAULT_MNEMONIC = "h36c"
_PATTERN = re.compile(r"([a-z])([1-9]\d*)([b-z]?)")

MNEMONICS = tuple(mnemonic for core in CORES.values() for mnemonic in core.mnemonics)
"""The mnemonics with a registered id."""


@dataclass(frozen=True)
class Mnemonic:
    """A parsed mnemonic: core letter, number of states and number of streams."""

    core: str
    n_states: int
    n_streams: int

    @classmethod
    def parse(cls, text: str) -> Mnemonic:
        """Read a mnemonic such as ``"h36c"``, or raise `InvalidMnemonicError`."""
        match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidMnemonicError(
                f"{brief(text)} is not a mnemonic: write a core letter ({', '.join(CORES)}), the "
                "number of states, and for several streams a letter (b two, c three, …), as in "
                f"'h36c'{_nearest(text)}"
            )
        core, n_states, stream = match.groups()
        if core not in CORES:
            known = f"{', '.join(CORES)}{_nearest(text)}"
            raise InvalidMnemonicError(
                f"unknown core letter {core!r} in {text!r}; known cores: {known}"
            )
        return cls(core, int(n_states), ord(stream) - ord("a") + 1 if stream else 1)

    def __str__(self) -> str:
        stream = "" if self.n_streams == 1 else chr(ord("a") + self.n_streams - 1)
        return f"{self.core}{self.n_states}{stream}"

    def stream_length(self, core_states: int) -> int:
        """Return the transient states of a stream, or raise `InvalidMnemonicError`."""
        n_transient = self.n_states - core_states
        length, rest = divmod(n_transient, self.n_streams)
        shortest = 0 if self.n_streams == 1 else 1
        if rest == 0 and length >= shortest:
            return length
        lengths = sorted({max(shortest, length), max(shortest, length + 1)})
        sizes = (core_states + n * self.n_streams for n in lengths)
        nearest = ", ".join(str(Mnemonic(self.core, size, self.n_streams)) for size in sizes)
        problem = (
            f"leaves {n_transient} for transient states, which does not divide evenly among "
            f"{self.n_streams} streams"
        )
        if n_transient < 0:
            problem = f"has {self.n_states} states, but core {self.core!r} alone has {core_states}"
        raise InvalidMnemonicError(f"'{self}' {problem}; the nearest valid ones: {nearest}")


def make_mdp(
    mnemonic: str,
    advance_probs: ArrayLike | None = None,
    stream_rewards: ArrayLike | None = None,
    entry_state: int | Sequence[int] = 0,
    core_options: Mapping[str, Any] | None = None,
) -> TabularMDP:
    """Build the unichain MDP that a mnemonic names.

    Parameters
    ----------
    mnemonic : str
        Core letter, number of states, stream letter: ``"h36c"``, ``"c10"``, ``"x9d"``.
    advance_probs, stream_rewards, entry_state
        As in `attach_streams`; without effect for a mnemonic without transient states.
    core_options : mapping, optional
        Keyword arguments of the core's function in `unichain_gym.cores`, for instance
        ``{"n_states": 20, "branching": 4, "seed": 1}`` for core ``g``. They may change the core's
        number of states, which is part of the mnemonic's number.

    Raises
    ------
    InvalidMnemonicError, InvalidModelError
        If the mnemonic, an option or a number is invalid, or there are more than 10^9 outcomes.
    """
    parsed = Mnemonic.parse(mnemonic)
    build = CORES[parsed.core].build
    if not isinstance(core_options, Mapping | None):
        raise InvalidModelError(
            f"core_options must be a dict of options; got {brief(core_options)}"
        )
    options = dict(core_options or {})
    known = list(inspect.signature(build).parameters)
    refuse_unknown(InvalidModelError, f"core {parsed.core!r}", "option", options, known)
    core = build(**options)
    _check_size(core, parsed.n_states)
    length = parsed.stream_length(core.n_states)
    # Always build a stream, so that wrong arguments raise an error without streams too.
    shape, numbers = (parsed.n_streams, max(1, length)), (advance_probs, stream_rewards)
    around = attach_streams(core, *shape, *numbers, entry_state, name=mnemonic)
    return around if length else core


def attach_streams(
    core: TabularMDP,
    n_streams: int,
    length: int | Sequence[int],
    advance_probs: ArrayLike | None = None,
    stream_rewards: ArrayLike | None = None,
    entry_state: int | Sequence[int] = 0,
    *,
    name: str | None = None,
) -> TabularMDP:
    """Put streams of transient states in front of a core.

    In a transient state, action a advances by one with probability ``advance_probs[a]`` and
    stays otherwise; either way it pays ``stream_rewards[a]``, and takes the time 1. The MDP has
    sum(length) + core.n_states states, and starts uniformly in a transient one.

    Parameters
    ----------
    core : TabularMDP
        The recurrent MDP that the streams enter; its number of actions A is kept.
    n_streams : int
        At least 1.
    length : int or sequence of n_streams int
        Transient states in each stream, at least 1.
    advance_probs, stream_rewards : array_like of float, shape (A,) or (n_streams, A), optional
        Probabilities in (0, 1], by default evenly spaced from 0.3 to 0.6, the paper's numbers;
        rewards, by default evenly spaced from 0 to 1.
    entry_state : int or sequence of n_streams int
        The core's state that each stream enters.
    name : str, optional

    Raises
    ------
    InvalidModelError
        If a number is out of range or does not fit the core, or there are more than 10^9 outcomes.
    """
    check_mdp(core)
    require_integers(InvalidModelError, low=1, n_streams=n_streams)
    _check_size(core, n_streams)
    A = core.n_actions
    advance_probs = np.linspace(0.3, 0.6, A) if advance_probs is None else advance_probs
    stream_rewards = np.linspace(0.0, 1.0, A) if stream_rewards is None else stream_rewards
    advance = _by_stream_and_action("advance_probs", advance_probs, n_streams, A)
    pay = _by_stream_and_action("stream_rewards", stream_rewards, n_streams, A)
    if not ((advance > 0.0) & (advance <= 1.0)).all():
        given = np.asarray(advance_probs).tolist()
        raise InvalidModelError(f"advance_probs must be above 0 and at most 1 each; got {given}")
    lengths = _by_stream("length", length, n_streams, 1, None)
    entries = _by_stream("entry_state", entry_state, n_streams, 0, core.n_states - 1)

    n = int(lengths.sum())
    S = n + core.n_states
    K = max(2, core.next_state.shape[2])
    _check_size(core, S)
    next_state = np.broadcast_to(np.arange(S)[:, None, None], (S, A, K)).copy()
    probability, reward, durations = np.zeros((S, A, K)), np.zeros((S, A, K)), None
    stream = np.repeat(np.arange(n_streams), lengths)
    follower = np.arange(1, n + 1)
    follower[np.cumsum(lengths) - 1] = n + entries
    next_state[:n, :, 1] = follower[:, None]
    probability[:n, :, 0] = 1.0 - advance[stream]
    probability[:n, :, 1] = advance[stream]
    reward[:n, :, :2] = pay[stream, :, None]

    in_core = slice(n, None), slice(None), slice(core.next_state.shape[2])
    next_state[in_core] = core.next_state + n
    probability[in_core], reward[in_core] = core.probability, core.reward
    if core.durations is not None:
        durations = np.ones((S, A, K))
        durations[in_core] = core.durations
    initial = np.where(np.arange(S) < n, 1.0 / n, 0.0)
    name = name or f"{core.name} with {n_streams} streams"
    tables = next_state, probability, reward
    names = core.action_names
    return TabularMDP(*tables, initial, name, action_names=names, durations=durations)


def _check_size(core: TabularMDP, n_states: int) -> None:
    _, A, K = core.next_state.shape
    require_room("the table of outcomes", n_states, A, max(2, K))


def _nearest(text: str) -> str:
    close = difflib.get_close_matches(str(text).lower(), MNEMONICS)
    return f"; the nearest valid ones: {', '.join(close)}" if close else ""


def _by_stream_and_action(what: str, values: ArrayLike, n_streams: int, A: int) -> FloatArray:
    array = read_reals(values, what)
    if array.shape not in ((A,), (n_streams, A)):
        raise InvalidModelError(
            f"{what} needs one number for each action, shape ({A},), or for each stream too, shape "
            f"({n_streams}, {A}); got shape {array.shape}"
        )
    if not np.isfinite(array).all():
        raise InvalidModelError(f"{what} must be finite; got {array.tolist()}")
    return np.broadcast_to(array, (n_streams, A))


def _by_stream(
    what: str, values: int | Sequence[int], n_streams: int, low: int, high: int | None
) -> IntArray:
    array = read_array(values, what)
    if array.shape not in ((), (n_streams,)) or not np.issubdtype(array.dtype, np.integer):
        raise InvalidModelError(
            f"{what} must be one integer or one for each of the {n_streams} streams; got "
            f"{brief(values)}"
        )
    if (array < low).any() or (high is not None and (array > high).any()):
        bounds = f"at least {low}" if high is None else f"{low} to {high}"
        raise InvalidModelError(f"{what} must be {bounds}; got {brief(values)}")
    return np.broadcast_to(array.astype(np.int64), (n_streams,))


class UnichainEnv(TabularEnv):
    """A unichain MDP by mnemonic: streams of transient states around a recurrent core."""

    def __init__(
        self,
        mnemonic: str | None = None,
        *,
        id_mnemonic: str | None = None,
        render_mode: RenderMode | None = None,
        info_level: InfoLevel = "minimal",
        **mdp_options: Any,
    ) -> None:
        mdp = _make(type(self), mnemonic, id_mnemonic, mdp_options)
        super().__init__(mdp, render_mode=render_mode, info_level=info_level)


class UnichainVectorEnv(TabularVectorEnv):
    """``num_envs`` copies of a `UnichainEnv` in lockstep.

    `UnichainEnv` describes the environments and their arguments, and `TabularVectorEnv` the
    arguments ``max_episode_steps`` and ``autoreset_mode``.

    Examples
    --------
    >>> import gymnasium as gym, unichain_gym
    >>> envs = gym.make_vec("Unichain-h6-v0", num_envs=3, max_episode_steps=50)
    >>> envs
    UnichainVectorEnv(Unichain-h6-v0, num_envs=3)
    >>> envs.max_episode_steps
    50
    """

    def __init__(
        self,
        num_envs: int = 1,
        mnemonic: str | None = None,
        *,
        id_mnemonic: str | None = None,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: RenderMode | None = None,
        info_level: InfoLevel = "minimal",
        **mdp_options: Any,
    ) -> None:
        mdp = _make(type(self), mnemonic, id_mnemonic, mdp_options)
        limits = {"max_episode_steps": max_episode_steps, "autoreset_mode": autoreset_mode}
        shown = {"render_mode": render_mode, "info_level": info_level}
        super().__init__(mdp, num_envs, **limits, **shown)  # type: ignore[arg-type]


UnichainEnv.__doc__ = f"""{UnichainEnv.__doc__}

{describe_suite(CORES.values())}

## Example
>>> import gymnasium as gym, unichain_gym
>>> env = gym.make("Unichain-h36c-v0", info_level="full")
>>> env.reset(seed=0, options={{"state": 32}})
(32, {{'timestep': 0, 'state_class': 'transient'}})
>>> env.unwrapped.P[32][1]
[(0.4, 32, 1.0, False), (0.6, 33, 1.0, False)]
"""


def _make(
    cls: type, mnemonic: str | None, id_mnemonic: str | None, options: Mapping[str, Any]
) -> TabularMDP:
    """Build the MDP of an environment's arguments; ``mnemonic`` must not contradict the id."""
    if id_mnemonic is not None and mnemonic not in (None, id_mnemonic):
        one = f"Unichain-{id_mnemonic}-v0 is the environment {id_mnemonic!r}"
        raise InvalidArgumentError(f"{one}; for mnemonic={mnemonic!r} make 'Unichain-v0'")
    own = inspect.signature(cls).parameters.values()
    keywords = [p.name for p in own if p.kind is not p.VAR_KEYWORD and p.name != "id_mnemonic"]
    known = list(dict.fromkeys([*keywords, *inspect.signature(make_mdp).parameters]))
    refuse_unknown(InvalidArgumentError, cls.__name__, "argument", options, known)
    if mnemonic is None:
        mnemonic = DEFAULT_MNEMONIC if id_mnemonic is None else id_mnemonic
    return make_mdp(mnemonic, **options)


def register_envs() -> None:
    """Register every id with Gymnasium; the import of `unichain_gym` calls it."""
    _register("Unichain-v0")
    register_mnemonics(MNEMONICS)


def register_mnemonics(mnemonics: Iterable[str]) -> None:
    """Register ``Unichain-<mnemonic>-v0``; `gymnasium.make` refuses invalid mnemonics.

    Parameters
    ----------
    mnemonics : iterable of str

    Raises
    ------
    InvalidArgumentError
        If they are no list, such as one mnemonic alone.
    """
    try:
        given: list[Any] = [None] if isinstance(mnemonics, str) else list(mnemonics)
    except TypeError:
        given = [None]
    if not all(isinstance(each, str) for each in given):
        raise InvalidArgumentError(
            f"needs a list of mnemonics, such as ['h6']; got {brief(mnemonics)}"
        )
    for mnemonic in given:
        _register(f"Unichain-{mnemonic}-v0", id_mnemonic=mnemonic)


def _register(env_id: str, **kwargs: str) -> None:
    one, many = (f"unichain_gym.suite:Unichain{kind}Env" for kind in ("", "Vector"))
    gym.register(env_id, entry_point=one, vector_entry_point=many, kwargs=kwargs)
