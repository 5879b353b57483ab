"""Environments by name, and their exact models: ids, mnemonics, ids of a module to import."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from typing import Any, Literal

import gymnasium as gym

import unichain_gym
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.kept import in_words
from unichain_gym import TabularMDP

_BYTES_PER_STATE = 500  # of a model's tables and an induced chain

# A core's letter, the number of states, and perhaps a letter for the number of streams.
_MNEMONIC = re.compile(r"[a-z]\d+[a-z]?")


def find_id(name: str) -> str:
    """Return the registered id of an id, a mnemonic such as ``"h36c"``, or ``module:id``."""
    if not isinstance(name, str):
        raise InvalidInputError(f"an environment is a mnemonic or an id; got {name!r}")
    module, _, env_id = name.rpartition(":")
    if module:
        import_here(module, name)
    if _MNEMONIC.fullmatch(env_id) and env_id not in gym.registry:
        env_id = f"Unichain-{env_id}"
    if re.fullmatch(r"Unichain-\w+", env_id):
        env_id += "-v0"
    mnemonic = re.fullmatch(r"Unichain-(\w+)-v0", env_id)
    if mnemonic and env_id not in gym.registry:
        number = re.search(r"\d+", mnemonic[1])
        needed, free = int(number[0] if number else 0) * _BYTES_PER_STATE, available_memory()
        if needed > free:
            raise InvalidInputError(
                f"{mnemonic[1]} would take about {in_words(needed)} of memory, and "
                f"{in_words(free)} are free: take fewer states"
            )
        unichain_gym.register_mnemonics([mnemonic[1]])
    try:
        gym.spec(env_id)
    except (gym.error.NameNotFound, gym.error.NamespaceNotFound) as error:
        raise InvalidInputError(f"{error} `unichain list` shows the suite's ids") from None
    except gym.error.Error:  # without a version it is the latest; or else `gym.make` says more
        versions = [each for each in gym.registry if each.rpartition("-v")[0] == env_id]
        env_id = max(versions, key=lambda each: gym.spec(each).version or 0, default=env_id)
    return env_id


def has_table(env: gym.Env[Any, Any]) -> bool:
    """Whether an environment carries its model as a table P, as Gymnasium's toy-text ones do."""
    return hasattr(env.unwrapped, "P")


def exact_model(
    env: gym.Env[Any, Any], on_termination: Literal["restart", "absorb"] | None
) -> TabularMDP | None:
    """Return the environment's `TabularMDP`, or that of a table P; else None.

    ``on_termination`` says how states of a table that end an episode continue; None: not read.
    """
    mdp = getattr(env.unwrapped, "mdp", None)
    if isinstance(mdp, TabularMDP):
        return mdp
    if not has_table(env):
        return None
    if on_termination is None and any(
        outcome[3]
        for actions in env.unwrapped.P.values()  # type: ignore[attr-defined]
        for outcomes in (actions.values() if isinstance(actions, dict) else actions)
        for outcome in outcomes
    ):
        return None
    return TabularMDP.from_gymnasium(env, on_termination=on_termination or "restart")


def model_of(name: str) -> TabularMDP:
    """Return the exact model of a mnemonic or an id; episodes of a table P start again."""
    with gym.make(find_id(name), disable_env_checker=True) as env:
        mdp = exact_model(env, "restart")
    if mdp is None:
        told = f"{name} has no exact model: neither env.unwrapped.mdp nor a table env.unwrapped.P"
        raise InvalidInputError(told)
    return mdp


def import_here(module: str, text: str) -> Any:
    """Import a module that a text names, from the current folder too, as ``python -m`` does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(module)
    except Exception as error:
        told = f"cannot import {module} of {text!r}: {type(error).__name__}: {error}"
        raise InvalidInputError(told) from error


def available_memory() -> int:
    """Return how many bytes of memory are free; 4 GiB if the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            facts = dict(line.split(":", 1) for line in lines)
        return int(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return 4 * 2**30
