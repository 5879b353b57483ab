"""Environment ids: ``Unichain-<mnemonic>-v0`` and ``Unichain-v0`` with ``mnemonic=``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium as gym

from unichain_gym.streams import MNEMONICS


def register_envs() -> None:
    """Register every id with Gymnasium; importing `unichain_gym` has done it."""
    _register("Unichain-v0", {})
    register_mnemonics(MNEMONICS)


def register_mnemonics(mnemonics: Iterable[str]) -> None:
    """Register ``Unichain-<mnemonic>-v0`` for these; bad ones are refused when they are made.

    Parameters
    ----------
    mnemonics : iterable of str
    """
    for mnemonic in mnemonics:
        _register(f"Unichain-{mnemonic}-v0", {"id_mnemonic": mnemonic})


def _register(env_id: str, kwargs: dict[str, Any]) -> None:
    gym.register(
        env_id,
        entry_point="unichain_gym.suite:UnichainEnv",
        vector_entry_point="unichain_gym.suite:UnichainVectorEnv",
        kwargs=kwargs,
    )
