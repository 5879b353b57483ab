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
from lstd_agent.arrays import FloatArray
from lstd_agent.commands.running import MOST_FEATURES, at_least, say
from lstd_agent.environments import exact_model, has_table
from lstd_agent.errors import InvalidInputError, TerminationError
from unichain_gym import MarkovChain, TabularMDP, TabularVectorEnv
from unichain_gym.errors import ConvergenceError, PeriodicChainError
from unichain_gym.optimal import OptimalPolicy

# How many copies step together. Many copies make NumPy's overhead small, but a copy that is an
# object costs memory and a reset. Ctrl-C keeps the trials of finished rounds, so a round must be
# short. Standard errors compare rounds: twenty are wanted. To measure the cost of fewer steps than
# _CHEAP_STEPS takes longer than the steps.
NATIVE_COPIES, SINGLE_COPIES, N_ROUNDS, _CHEAP_STEPS = 2000, 32, 20, 300_000


def model_or_hint(env: gym.Env[Any, Any], restart: bool) -> TabularMDP | None:
    """Return the exact model, if there is one; refuse a table whose episodes end."""
    mdp = exact_model(env, "restart" if restart else None)
    if mdp is None and has_table(env):
        name = env.spec.id if env.spec else str(env)
        told = f"episodes of {name} end, and the evaluator is for continuing tasks. "
        raise InvalidInputError(f"{told}Here, --restart has it start again")
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
    spaces = observations, actions = env.observation_space, env.action_space
    if not all(isinstance(space, gym.spaces.Discrete) for space in spaces):
        told = f"observations and actions must be Discrete; got {observations} and {actions}. "
        told += "Evaluate other spaces in Python, with lstd_agent.SeminormLSTDAgent"
        raise InvalidInputError(told)
    S, A, first = int(observations.n), int(actions.n), int(actions.start)  # type: ignore[attr-defined]
    if text == "uniform":
        return np.full((S, A), 1.0 / A)
    if text.startswith("random:"):
        seed = named_number("--policy random:SEED", text, at_least(0))
        return np.random.default_rng(seed).integers(A, size=S) + first
    if text == "optimal":
        if mdp is None:
            told = "--policy optimal needs an exact model, and this environment has none: find a "
            told += "policy with unichain improve"
            raise InvalidInputError(told)
        return np.asarray(best_policy(mdp).policy) + first
    return _read_array("--policy", text)


def best_policy(mdp: TabularMDP) -> OptimalPolicy:
    """Return a bias-optimal policy; a gain-optimal one where steps take time."""
    # With durations, bias-optimal policies depend on more than mean durations.
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
    read: Any = np.load if path.suffix == ".npy" else lambda p: json.loads(p.read_text("utf-8"))
    try:
        array = np.array(read(path))
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"{what} cannot read {name}: {reason}") from None
    if not np.issubdtype(array.dtype, np.number):
        raise InvalidInputError(f"{what} needs an array of numbers; {name} holds {array.dtype}")
    return array


def default_t_max(chain: MarkovChain | None) -> int:
    """Return ten times the mixing time, as in the paper's experiments."""
    if chain is None:
        told = "this environment has no exact model for a mixing time: say with --t-max how "
        told += "long a trial is, well beyond the time that the system takes to settle"
        raise InvalidInputError(told)
    try:
        return max(1, 10 * chain.mixing_time())
    except (PeriodicChainError, ConvergenceError) as error:
        raise InvalidInputError(f"say with --t-max how long a trial is: {error}") from error


def make_copies(
    args: argparse.Namespace, t_max: int, mdp: TabularMDP | None, n_rounds: int = N_ROUNDS
) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Make a vector environment that runs the trials in at least so many rounds.

    Episodes that start again are run on the environment's table, if it has one (``mdp``): the law
    of trials is the same, and they take seconds instead of minutes.
    """
    spec = gym.spec(args.registered_id)
    n_copies = min(NATIVE_COPIES, -(-args.trials // n_rounds))
    if args.restart and mdp is not None:
        return TabularVectorEnv(mdp, n_copies)
    if args.restart or spec.vector_entry_point is None:
        n_copies = min(SINGLE_COPIES, n_copies)
    options: Any = {"vectorization_mode": "sync", "wrappers": [Restart]} if args.restart else {}
    if spec.max_episode_steps is not None:
        options["max_episode_steps"] = t_max + 1
    return gym.make_vec(args.registered_id, num_envs=n_copies, **options)


def check_cost(args: argparse.Namespace, envs: Any, policy: FloatArray, t_max: int) -> None:
    """Say how long the trials will take, unless it is short; refuse more than ``--max-minutes``."""
    n_steps, few = args.trials * (t_max + 1), min(t_max, 9)
    if n_steps < _CHEAP_STEPS:
        return
    start = time.perf_counter()
    SeminormLSTDAgent(OneHot()).collect(envs, policy, n_trials=envs.num_envs, t_max=few, seed=0)
    rate = envs.num_envs * (few + 1) / (time.perf_counter() - start)
    minutes = n_steps / rate / 60.0
    cost = f"{args.trials:,} trials of {t_max + 1:,} timesteps are {n_steps:.3g} steps, about "
    cost += f"{minutes:.0f} minutes at the {rate:.2g} steps a second of this machine"
    if minutes > args.max_minutes:
        told = f"{cost}: give a smaller --t-max (without it, ten times the mixing time is taken)"
        told += f" or fewer --trials, or allow more than --max-minutes {args.max_minutes:g}"
        raise InvalidInputError(told)
    if minutes > 1.0 and not args.quiet:
        say(cost)
