"""`UnichainEnv` and `UnichainVectorEnv`: the suite's environments by mnemonic.

They are `TabularEnv` and `TabularVectorEnv` with an MDP of `make_mdp`. The ids are
``Unichain-<mnemonic>-v0``, and ``Unichain-v0`` with ``mnemonic=``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from unichain_gym.conventions import InfoLevel, RenderMode, refuse_unknown
from unichain_gym.descriptions import describe_suite
from unichain_gym.env import TabularEnv
from unichain_gym.errors import InvalidArgumentError
from unichain_gym.mdp import TabularMDP
from unichain_gym.streams import MNEMONICS, make_mdp
from unichain_gym.vector_env import TabularVectorEnv

DEFAULT_MNEMONIC = "h36c"


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

{describe_suite()}

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
        raise InvalidArgumentError(f"needs a list of mnemonics, such as ['h6']; got {mnemonics!r}")
    for mnemonic in given:
        _register(f"Unichain-{mnemonic}-v0", id_mnemonic=mnemonic)


def _register(env_id: str, **kwargs: str) -> None:
    one, many = (f"unichain_gym.suite:Unichain{kind}Env" for kind in ("", "Vector"))
    gym.register(env_id, entry_point=one, vector_entry_point=many, kwargs=kwargs)
