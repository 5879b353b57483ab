"""Evaluate a policy from sampled trials alone, beside the exact answer where there is one.

    python scripts/evaluate_policy.py Unichain-h36c-v0
    python scripts/evaluate_policy.py Unichain-c10-v0 --policy random:3 --features gaussian:4
    python scripts/evaluate_policy.py FrozenLake-v1 --restart
    python scripts/evaluate_policy.py my_package:MyEnv-v0 --t-max 300 --policy policy.npy --json

Runs trials of the environment, learns the relative value (bias) of every state, and prints the
gain, the timestep neighbourhoods and the values. An environment with an exact model
(env.unwrapped.mdp; with --restart, the table P of FrozenLake and its like) also gets exact values,
errors and a default for --t-max; any other needs Discrete observations and actions. Time limits
give way to --t-max.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from evaluation_report import as_text, plot, results, save

import unichain_gym
from lstd_agent import GaussianFeatures, OneHot, Restart, SeminormLSTDAgent
from lstd_agent.errors import EvaluationError, InvalidInputError, TerminationError
from unichain_gym.errors import MissingDependencyError, UnichainError

# Copies that step together: numpy's overhead fades with many; objects cost memory and a reset
# each. Ctrl-C keeps the trials of finished rounds, so a round must not take long either.
NATIVE_COPIES = 2000
SINGLE_COPIES = 32


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, evaluate, and show the result; return the exit status."""
    parser = command_line()
    args = parser.parse_args(argv)
    try:
        return evaluate(args)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except TerminationError as error:
        hint = ". Here, --restart has it start again" if "terminated" in str(error) else ""
        parser.error(f"{error}{hint}")
    except (EvaluationError, UnichainError, gym.error.Error, ImportError, OSError) as error:
        parser.error(str(error))


def evaluate(args: argparse.Namespace) -> int:
    """Run the trials, fit the agent, and put the result where the arguments ask for it."""
    check_destinations(args)
    register_if_mnemonic(args.env_id)
    env = gym.make(args.env_id)
    policy = read_policy(args.policy, env)
    mdp = exact_model(env, args.restart)
    first_state = int(env.observation_space.start)
    env.close()
    chain = None if mdp is None else mdp.induce(policy)
    t_max = args.t_max if args.t_max is not None else default_t_max(chain)

    agent = SeminormLSTDAgent(
        read_features(args.features, args.seed),
        n_anchors=args.n_anchors,
        reference=args.reference,
        tail=args.tail,
    )
    envs = make_copies(args.env_id, args.trials, t_max, args.restart)
    interrupted = False
    try:
        agent.collect(envs, policy, args.trials, t_max, seed=args.seed, progress=None)
    except KeyboardInterrupt:
        interrupted = True
        finished = (
            f"{agent.n_trials} trials finished" if agent.n_trials else "no trial has finished"
        )
        print(f"interrupted: {finished}", file=sys.stderr)
        if agent.n_trials == 0:
            return 130
    finally:
        envs.close()
    agent.fit()

    report = {
        "env_id": args.env_id,
        "n_trials": agent.n_trials,
        "t_max": t_max,
        "seed": args.seed,
        **results(agent, chain, first_state),
    }
    if args.save:
        save(args.save, report, agent, policy)
    if args.plot:
        plot(args.plot, report, agent.statistics.distributions)
    print(json.dumps(report, default=np.ndarray.tolist) if args.json else as_text(report))
    return 130 if interrupted else 0


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("env_id", help="Gymnasium id, or module:id to import a module that registers it")
    add(
        "--policy",
        default="uniform",
        metavar="uniform|random:SEED|FILE",
        help="all actions alike (default); a random deterministic policy; or a .npy or .json file "
        "of an action for each state, or of action probabilities, a row for each state",
    )
    add("--trials", type=at_least(1), default=10_000, metavar="N", help="default: 10000")
    add(
        "--t-max",
        type=at_least(0),
        metavar="T",
        help="last timestep of a trial (default: ten times the exact mixing time)",
    )
    add(
        "--features",
        default="one-hot",
        metavar="one-hot|gaussian:D|FILE",
        help="one for each state (default); D random ones, N(index of the state, 1); or a .npy "
        "or .json file with a row for each state",
    )
    add(
        "--n-anchors",
        type=anchor_number,
        default=2,
        metavar="N|stepwise",
        help="wanted number of neighbourhoods, at most (default: 2), or one for each timestep",
    )
    add(
        "--reference",
        choices=["occupancy", "most_common"],
        default="occupancy",
        help="rule for reference states (default: occupancy; the paper's is most_common)",
    )
    add(
        "--tail",
        choices=["window"],
        default="window",
        help="fit the last neighbourhood to all of its timesteps",
    )
    add(
        "--restart",
        action="store_true",
        help="start again where the environment terminates, which makes it continuing",
    )
    add("--seed", type=at_least(0), default=0, metavar="SEED", help="default: 0")
    add("--save", type=Path, metavar="FILE.npz", help="write results, policy and weights")
    add("--plot", type=Path, metavar="FILE.png", help="draw values, and occupancy over time")
    add("--json", action="store_true", help="print one JSON document instead of tables")
    return parser


def at_least(smallest: int) -> Any:
    """Return a converter of command-line text into integers from ``smallest``."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = smallest - 1
        if value < smallest:
            raise argparse.ArgumentTypeError(f"needs an integer from {smallest}; got {text!r}")
        return value

    return number


def anchor_number(text: str) -> int | None:
    """Read ``--n-anchors``: a number, or None for stepwise."""
    return None if text == "stepwise" else int(at_least(1)(text))


def register_if_mnemonic(env_id: str) -> None:
    """Let any mnemonic be an id, not only those that have one already."""
    mnemonic = re.fullmatch(r"Unichain-(\w+)-v0", env_id)
    if mnemonic and env_id not in gym.registry:
        unichain_gym.register_mnemonics([mnemonic[1]])


def exact_model(env: gym.Env[Any, Any], restart: bool) -> unichain_gym.TabularMDP | None:
    """Return the environment's model, if it has one that tells what its trials do."""
    mdp = getattr(env.unwrapped, "mdp", None)
    if isinstance(mdp, unichain_gym.TabularMDP):
        return mdp
    if restart and hasattr(env.unwrapped, "P"):
        return unichain_gym.TabularMDP.from_gymnasium(env, on_termination="restart")
    return None


def check_destinations(args: argparse.Namespace) -> None:
    """Raise before the work begins what would go wrong in writing its result."""
    for path in filter(None, (args.save, args.plot)):
        if not path.resolve().parent.is_dir():
            raise InvalidInputError(f"cannot write {path}: there is no such directory")
        if path.is_dir():
            raise InvalidInputError(f"cannot write {path}: it is a directory")
    if args.plot:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            raise MissingDependencyError(
                "--plot needs matplotlib: install the extra, pip install '.[plot]'"
            ) from None
        from matplotlib.figure import Figure

        if args.plot.suffix[1:] not in ("", *Figure().canvas.get_supported_filetypes()):
            raise InvalidInputError(f"cannot draw {args.plot}: name a .png, .pdf or .svg file")


def read_policy(text: str, env: gym.Env[Any, Any]) -> np.ndarray[Any, Any]:
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
        seed = named_number("--policy random:SEED", text, smallest=0)
        return np.random.default_rng(seed).integers(A, size=S) + int(actions.start)
    return read_array("--policy", text)


def read_features(text: str, seed: int) -> Any:
    """Return the features that ``--features`` names."""
    if text == "one-hot":
        return OneHot()
    if text.startswith("gaussian:"):
        return GaussianFeatures(named_number("--features gaussian:D", text, smallest=1), seed)
    return read_array("--features", text)


def named_number(what: str, text: str, smallest: int) -> int:
    """Return the integer after the colon of ``text``."""
    try:
        return int(at_least(smallest)(text.partition(":")[2]))
    except argparse.ArgumentTypeError as error:
        raise InvalidInputError(f"{what} {error}") from None


def read_array(what: str, name: str) -> np.ndarray[Any, Any]:
    """Read an array of numbers from a .npy or .json file."""
    path = Path(name)
    if path.suffix not in (".npy", ".json"):
        raise InvalidInputError(f"{what} needs a keyword or a .npy or .json file; got {name!r}")
    try:
        array = np.load(path) if path.suffix == ".npy" else np.array(json.loads(path.read_text()))
    except (ValueError, EOFError) as error:
        raise InvalidInputError(f"{what} cannot read {name}: {error}") from None
    if not np.issubdtype(array.dtype, np.number):
        raise InvalidInputError(f"{what} needs an array of numbers; {name} holds {array.dtype}")
    return array


def default_t_max(chain: unichain_gym.MarkovChain | None) -> int:
    """Return ten times the mixing time, as in the paper's experiments."""
    if chain is None:
        raise InvalidInputError(
            "this environment has no exact model to take a mixing time from: say with --t-max how "
            "long a trial is, well beyond the time the system takes to settle"
        )
    return max(1, 10 * chain.mixing_time())


def make_copies(
    env_id: str, n_trials: int, t_max: int, restart: bool
) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Make the vector environment to run trials in: a native one, or plain ones in sequence."""
    spec = gym.spec(env_id)
    single = restart or spec.vector_entry_point is None
    copies = min(SINGLE_COPIES if single else NATIVE_COPIES, n_trials)
    options: dict[str, Any] = {}
    if spec.max_episode_steps is not None:
        options["max_episode_steps"] = t_max + 1
    if restart:
        options |= {"vectorization_mode": "sync", "wrappers": [Restart]}
    return gym.make_vec(env_id, num_envs=copies, **options)


if __name__ == "__main__":
    sys.exit(main())
