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

import unichain_gym
from lstd_agent import GaussianFeatures, OneHot, Restart, SeminormLSTDAgent
from lstd_agent.errors import EvaluationError, InvalidInputError, TerminationError
from lstd_agent.study.exact import ExactStatistics, full_distributions
from lstd_agent.study.metrics import StepwiseErrors
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
        choices=["settled", "window"],
        default="settled",
        help="fit the last neighbourhood to its second half (default) or to all of it",
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


def results(
    agent: SeminormLSTDAgent, chain: unichain_gym.MarkovChain | None, first_state: int
) -> dict[str, Any]:
    """Return everything learned, beside everything exact there is, as numbers and columns."""
    neighborhoods = agent.neighborhoods_
    visits = agent.statistics.visits.sum(axis=0)
    observation = first_state + np.arange(visits.size)
    estimated = agent.predict(observation)
    gain = {"estimated": agent.gain_}
    states = {"state": observation, "visits": visits, "estimated": estimated}
    report = {
        "gain": gain,
        "main_reference": agent.main_reference_,
        "neighborhoods": {
            "anchor": np.array([k.anchor for k in neighborhoods]),
            "stop": np.array([k.stop for k in neighborhoods]),
            "reference": np.array([k.reference for k in neighborhoods]) + first_state,
            "samples": np.array([k.n_samples for k in neighborhoods]),
            "rank": np.array([k.rank for k in neighborhoods]),
        },
        "states": states,
    }
    if chain is not None:
        gain["exact"] = chain.gain
        recurrent = np.isin(np.arange(chain.n_states), chain.recurrent_states)
        states["class"] = np.where(recurrent, "recurrent", "transient")
        states["exact"] = chain.relative_value(agent.main_reference_)
        states["error"] = estimated - states["exact"]
        p = full_distributions(chain, agent.statistics.t_max)
        errors = StepwiseErrors(ExactStatistics(chain, agent.statistics.features, p))
        report["total_rems"] = float(errors.rems(agent.system_).sum())
        report["total_repb"] = float(errors.repb(agent.system_).sum())
    return report


def as_text(report: dict[str, Any]) -> str:
    """Return the report as text for people."""
    gain, states = report["gain"], report["states"]
    shown = {name: states[name] for name in ("state", "class", "visits") if name in states}
    shown |= {name: states[name] for name in ("estimated", "exact", "error") if name in states}
    lines = [
        f"{report['env_id']}: {report['n_trials']} trials of timesteps 0 to {report['t_max']}",
        "",
        "gain " + ", ".join(f"{name} {value:.6f}" for name, value in gain.items()),
        "",
        "timestep neighbourhoods",
        table(report["neighborhoods"]),
        "",
        f"relative value of each state to state {report['main_reference']}",
        table(shown),
    ]
    if "total_rems" in report:
        totals = f"total rems {report['total_rems']:.4g}, total repb {report['total_repb']:.4g}"
        lines += ["", totals]
    return "\n".join(lines)


def table(columns: dict[str, np.ndarray[Any, Any]]) -> str:
    """Return columns as right-aligned text under their names."""
    cells = [
        [name, *(f"{x:.4f}" if isinstance(x, float) else str(x) for x in column.tolist())]
        for name, column in columns.items()
    ]
    widths = [max(map(len, column)) for column in cells]
    rows = zip(*cells, strict=True)
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def save(
    path: Path, report: dict[str, Any], agent: SeminormLSTDAgent, policy: np.ndarray[Any, Any]
) -> None:
    """Write the report, and what it was made of, as plain arrays (no pickle)."""
    arrays: dict[str, Any] = {}
    for name, value in report.items():
        if isinstance(value, dict):
            arrays |= {f"{name}_{part}": array for part, array in value.items()}
        else:
            arrays[name] = value
    system = agent.system_
    with path.open("wb") as file:
        np.savez(
            file,
            **arrays,
            policy=policy,
            features=agent.statistics.features,
            weights=system.weights,
            offsets=system.offsets,
            occupancy=agent.statistics.distributions,
        )


def plot(path: Path, report: dict[str, Any], occupancy: np.ndarray[Any, Any]) -> None:
    """Draw estimated against exact values by state, and occupancy over time with the anchors."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    states = report["states"]
    state = states["state"]
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    figure.suptitle(f"{report['env_id']}, {report['n_trials']} trials")
    values, times = figure.subplots(1, 2)

    if "exact" in states:
        values.plot(state, states["exact"], "o", ms=8, mfc="none", color="0.3", label="exact")
    values.plot(state, states["estimated"], ".", color="tab:red", label="estimated")
    values.set(xlabel="state", ylabel=f"relative value to state {report['main_reference']}")
    values.legend()

    # Logarithmic in time, since the start is where the distribution moves.
    edges = np.unique(np.geomspace(1, len(occupancy) + 1, 400).astype(int)) - 1
    shown = np.where(occupancy > 0, occupancy, np.nan)[edges[:-1]]
    bounds = np.append(state, state[-1] + 1) - 0.5
    norm = LogNorm(0.5 / report["n_trials"], 1)
    mesh = times.pcolormesh(edges, bounds, shown.T, norm=norm, cmap="viridis")
    anchors = report["neighborhoods"]["anchor"]
    bottom, top = bounds[[0, -1]]
    times.vlines(anchors, bottom, top, color="tab:red", lw=min(1.5, 10 / len(anchors)))
    times.plot(anchors, np.full(len(anchors), top), "v", color="tab:red", clip_on=False)
    times.set_xscale("symlog", linthresh=1)
    times.set(xlabel="timestep (red: anchors)", xlim=edges[[0, -1]], ylabel="state")
    figure.colorbar(mesh, ax=times, label="share of trials in the state")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
