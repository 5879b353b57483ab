"""Inputs of the commands that run trials: policy, features, length, copies, and the cost."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from lstd_agent import GaussianFeatures, OneHot, Restart, SeminormLSTDAgent
from lstd_agent.commands.running import MOST_FEATURES, at_least, say
from lstd_agent.environments import exact_model, has_table
from lstd_agent.errors import InvalidInputError, TerminationError
from unichain_gym import MarkovChain, TabularMDP, TabularVectorEnv
from unichain_gym.errors import ConvergenceError, PeriodicChainError
from unichain_gym.optimal import OptimalPolicy

# Copies that step together: many make NumPy's overhead small; objects cost memory and a reset each.
# Ctrl-C keeps the trials of finished rounds, so a round must not take long either. Standard errors
# come from rounds, of which there should be twenty.
NATIVE_COPIES = 2000
SINGLE_COPIES = 32
N_ROUNDS = 20

# Fewer steps than these are done before their cost could be told.
_CHEAP_STEPS = 300_000


def model_or_hint(env: gym.Env[Any, Any], restart: bool) -> TabularMDP | None:
    """Return the exact model, if there is one.

    Raises
    ------
    InvalidInputError
        If the environment's table says that episodes end, and they are not to start again.
    """
    mdp = exact_model(env, "restart" if restart else None)
    if mdp is None and has_table(env):
        name = env.spec.id if env.spec else str(env)
        raise InvalidInputError(
            f"episodes of {name} end, and the evaluator is for continuing tasks. Here, --restart "
            "has it start again"
        )
    return mdp


@contextmanager
def hinting_at_restart() -> Iterator[None]:
    """Add a hint at ``--restart`` to the error of a trial that terminates."""
    try:
        yield
    except TerminationError as error:
        hint = ". Here, --restart has it start again" if "terminated" in str(error) else ""
        raise TerminationError(f"{error}{hint}") from error


def read_policy(text: str, env: gym.Env[Any, Any], mdp: TabularMDP | None) -> np.ndarray[Any, Any]:
    """Return actions (S,) or action probabilities (S, A) as ``--policy`` says."""
    observations, actions = env.observation_space, env.action_space
    if not isinstance(observations, gym.spaces.Discrete) or not isinstance(
        actions, gym.spaces.Discrete
    ):
        raise InvalidInputError(
            f"observations and actions must be Discrete; got {observations} and {actions}. "
            "Evaluate other spaces in Python, with lstd_agent.SeminormLSTDAgent"
        )
    S, A = int(observations.n), int(actions.n)
    if text == "uniform":
        return np.full((S, A), 1.0 / A)
    if text.startswith("random:"):
        seed = named_number("--policy random:SEED", text, at_least(0))
        return np.random.default_rng(seed).integers(A, size=S) + int(actions.start)
    if text == "optimal":
        if mdp is None:
            raise InvalidInputError(
                "--policy optimal needs an exact model, and this environment has none: find a "
                "policy with unichain improve"
            )
        return np.asarray(best_policy(mdp).policy) + int(actions.start)
    return _read_array("--policy", text)


def best_policy(mdp: TabularMDP) -> OptimalPolicy:
    """Return a bias-optimal policy; a gain-optimal one where steps take time.

    There the bias-optimal policies depend on more than mean durations.
    """
    return mdp.optimal_policy("bias" if mdp.durations is None else "gain")


def read_features(text: str, seed: int) -> Any:
    """Return the features that ``--features`` names."""
    if text == "one-hot":
        return OneHot()
    if text.startswith("gaussian:"):
        number = at_least(1, MOST_FEATURES)
        return GaussianFeatures(named_number("--features gaussian:D", text, number), seed)
    return _read_array("--features", text)


def named_number(what: str, text: str, number: Callable[[str], int]) -> int:
    """Return the integer after the colon of ``text``."""
    try:
        return number(text.partition(":")[2])
    except argparse.ArgumentTypeError as error:
        raise InvalidInputError(f"{what} {error}") from None


def _read_array(what: str, name: str) -> np.ndarray[Any, Any]:
    """Read an array of numbers from a .npy or .json file."""
    path = Path(name)
    if path.suffix not in (".npy", ".json"):
        raise InvalidInputError(f"{what} needs a keyword or a .npy or .json file; got {name!r}")
    try:
        array: np.ndarray[Any, Any]
        if path.suffix == ".npy":
            array = np.load(path)
        else:
            array = np.array(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InvalidInputError(f"{what} cannot read {name}: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        raise InvalidInputError(f"{what} cannot read {name}: {error}") from None
    if not np.issubdtype(array.dtype, np.number):
        raise InvalidInputError(f"{what} needs an array of numbers; {name} holds {array.dtype}")
    return array


def default_t_max(chain: MarkovChain | None) -> int:
    """Return ten times the mixing time, as in the paper's experiments."""
    if chain is None:
        raise InvalidInputError(
            "this environment has no exact model that tells a mixing time: say with --t-max how "
            "long a trial is, well beyond the time that the system takes to settle"
        )
    try:
        return max(1, 10 * chain.mixing_time())
    except (PeriodicChainError, ConvergenceError) as error:
        raise InvalidInputError(f"say with --t-max how long a trial is: {error}") from error


def make_copies(
    env_id: str,
    n_trials: int,
    t_max: int,
    restart: bool,
    mdp: TabularMDP | None,
    n_rounds: int = N_ROUNDS,
) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Make the vector environment to run trials in, at least so many rounds of them.

    Episodes that start again are run on the environment's table, if it has one (``mdp``): the law
    of trials is the same, and they take seconds instead of minutes.
    """
    spec = gym.spec(env_id)
    native = min(NATIVE_COPIES, -(-n_trials // n_rounds))
    if restart and mdp is not None:
        return TabularVectorEnv(mdp, native)
    single = restart or spec.vector_entry_point is None
    options: dict[str, Any] = {}
    if spec.max_episode_steps is not None:
        options["max_episode_steps"] = t_max + 1
    if restart:
        options |= {"vectorization_mode": "sync", "wrappers": [Restart]}
    return gym.make_vec(
        env_id, num_envs=min(SINGLE_COPIES, native) if single else native, **options
    )


def check_cost(
    envs: gym.vector.VectorEnv[Any, Any, Any],
    policy: np.ndarray[Any, Any],
    n_trials: int,
    t_max: int,
    max_minutes: float,
    *,
    quiet: bool,
) -> None:
    """Say how long the trials will take, by the speed of a few timesteps, if it is worth saying.

    Raises
    ------
    InvalidInputError
        If it takes more than ``max_minutes``.
    """
    n_steps = n_trials * (t_max + 1)
    if n_steps < _CHEAP_STEPS:
        return
    few = min(t_max, 9)
    start = time.perf_counter()
    SeminormLSTDAgent(OneHot()).collect(envs, policy, envs.num_envs, few, seed=0)
    rate = envs.num_envs * (few + 1) / (time.perf_counter() - start)
    minutes = n_steps / rate / 60.0
    cost = (
        f"{n_trials:,} trials of {t_max + 1:,} timesteps are {n_steps:.3g} steps, about "
        f"{_duration(minutes)} at the {rate:.2g} steps a second of this machine"
    )
    if minutes > max_minutes:
        raise InvalidInputError(
            f"{cost}: give a smaller --t-max (without it, ten times the mixing time is taken) or "
            f"fewer --trials, or allow more than {_duration(max_minutes)} with --max-minutes"
        )
    if minutes > 1.0 and not quiet:
        say(cost)


def _duration(minutes: float) -> str:
    if minutes < 120.0:
        return f"{minutes:.0f} minutes"
    return f"{minutes / 60.0:.3g} hours" if minutes < 2880.0 else f"{minutes / 1440.0:.3g} days"
