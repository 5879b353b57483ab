"""Evaluate a policy from sampled trials alone, beside the exact answer where there is one.

Runs trials of the environment, learns the relative value (bias) of every state, and prints the
gain, the timestep neighborhoods, and the values with their standard errors. States that no trial
visited get no value. An environment with an exact model (env.unwrapped.mdp; with --restart, the
table P of FrozenLake and its like, on which trials are run, too) also gets exact values, errors and
a default for --t-max; any other needs Discrete observations and actions. --t-max replaces time
limits.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym

from lstd_agent import SeminormLSTDAgent
from lstd_agent.commands.arguments import (
    add_environment_argument,
    add_output_arguments,
    add_quiet_argument,
    add_trial_arguments,
    new_parser,
    read_arguments,
)
from lstd_agent.commands.evaluation_report import (
    as_arrays,
    as_text,
    draw_report,
    results,
    visits_of,
)
from lstd_agent.commands.outputs import as_json, check_picture, check_writable, put_out, saved
from lstd_agent.commands.running import at_least, interrupted_status, run, say
from lstd_agent.commands.trial_inputs import (
    check_cost,
    default_t_max,
    hinting_at_restart,
    make_copies,
    model_or_hint,
    read_features,
    read_policy,
)
from lstd_agent.environments import find_id
from lstd_agent.figure_style import picture
from lstd_agent.results import one_line, provenance

_EXAMPLES = """examples:
  unichain evaluate h36c
  unichain evaluate c10 --policy random:3 --features gaussian:4
  unichain evaluate FrozenLake-v1 --restart --policy optimal
  unichain evaluate my_package:MyEnv-v0 --t-max 300 --policy policy.npy --json"""


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Parse the command line, evaluate, and show the result; return the exit status."""
    args = read_arguments(command_line(prog), argv, prog or "evaluate_policy.py")
    return run(lambda: evaluate(args))


def evaluate(args: argparse.Namespace) -> int:
    """Run the trials, fit the agent, and put the result where the arguments ask for it."""
    check_destinations(args)
    env_id = find_id(args.env_id)
    with gym.make(env_id) as env:
        mdp = model_or_hint(env, args.restart)
        policy = read_policy(args.policy, env, mdp)
        spaces: Any = (env.observation_space, env.action_space)
        first_state, first_action = (int(space.start) for space in spaces)
    chain = None
    if mdp is not None and not (args.no_exact and args.t_max is not None):
        chain = mdp.induce(policy - first_action if policy.ndim == 1 else policy)
    t_max = args.t_max if args.t_max is not None else default_t_max(chain)
    is_native = first_state == first_action == 0
    envs = make_copies(env_id, args.trials, t_max, args.restart, mdp if is_native else None)

    agent = SeminormLSTDAgent(
        read_features(args.features, args.seed),
        n_anchors=args.n_anchors,
        reference=args.reference,
        calibration=args.calibration,
    )
    status = collect(args, agent, envs, policy, t_max)
    if agent.n_trials == 0:
        return status
    try:
        agent.fit()
        report = {
            "env_id": args.env_id,
            "n_trials": agent.n_trials,
            "t_max": t_max,
            "seed": args.seed,
            **results(agent, None if args.no_exact else chain, first_state),
            "provenance": provenance(args.argv, seed=args.seed),
        }
        contents = {}
        if args.save:
            contents[args.save] = as_arrays(report, agent, policy)
        if args.plot:
            figure = draw_report(report, visits_of(agent.counts).toarray() / agent.n_trials)
            origin = one_line(report["provenance"])
            contents[args.plot] = picture(figure, args.plot.suffix, origin)
        put_out(as_json(report) if args.json else as_text(report), contents)
    except (KeyboardInterrupt, MemoryError, OSError):
        if args.save and samples_path(args.save).exists():
            say(f"the samples of {agent.n_trials} trials are in {samples_path(args.save)}")
        raise
    return status


def collect(
    args: argparse.Namespace, agent: SeminormLSTDAgent, envs: Any, policy: Any, t_max: int
) -> int:
    """Run the trials, and save those that finished; return the exit status so far."""
    status = 0
    try:
        with hinting_at_restart():
            check_cost(envs, policy, args.trials, t_max, args.max_minutes, quiet=args.quiet)
            agent.collect(envs, policy, args.trials, t_max, seed=args.seed, progress=not args.quiet)
    except KeyboardInterrupt as interrupt:
        status = interrupted_status(interrupt)
        told = f"{agent.n_trials} trials" if agent.n_trials else "no trial has"
        say(f"interrupted: {told} finished")
    finally:
        envs.close()
        if (
            args.save
            and agent.n_trials
            and not saved(agent.save, samples_path(args.save), "the samples are")
        ):
            status = 1
    return status


def samples_path(save: Path) -> Path:
    """Return where the samples go: beside the results."""
    return save.with_suffix(".samples.npz")


def command_line(prog: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = new_parser(prog, __doc__, _EXAMPLES)
    add_environment_argument(parser)
    add = parser.add_argument
    add(
        "--policy",
        default="uniform",
        metavar="uniform|random:SEED|optimal|FILE",
        help="all actions alike (default); a random deterministic policy; a bias-optimal policy of "
        "the exact model; or a .npy or .json file of an action for each state, or of action "
        "probabilities, a row for each state",
    )
    add("--trials", type=at_least(1), default=10_000, metavar="N", help="default: 10000")
    add(
        "--t-max",
        type=at_least(0),
        metavar="T",
        help="last timestep of a trial (default: ten times the exact mixing time)",
    )
    add_system_arguments(parser)
    add_trial_arguments(parser, "what", "values and errors")
    add(
        "--save",
        type=Path,
        metavar="FILE.npz",
        help="write results, policy and weights; FILE.samples.npz, written before the fit, is the "
        "agent with its samples (SeminormLSTDAgent.load)",
    )
    add_output_arguments(parser, "values, and occupancy over time", "tables")
    add_quiet_argument(parser)
    return parser


def add_system_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is fitted: --features, --n-anchors, --reference and --calibration."""
    add = parser.add_argument
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
        metavar="N|auto|stepwise",
        help="wanted number of neighborhoods, at most (default: 2); as many as predict held-out "
        "trials best; or one for each timestep",
    )
    add(
        "--reference",
        choices=["occupancy", "most_common"],
        default="occupancy",
        help="rule for reference states (default: occupancy; the paper's is most_common)",
    )
    add(
        "--calibration",
        choices=["linked", "references"],
        default="linked",
        help="solve the system backwards in time (default), or link it by reference states",
    )


def anchor_number(text: str) -> int | Literal["auto"] | None:
    """Read ``--n-anchors``: a number, "auto", or None for stepwise."""
    if text == "auto":
        return "auto"
    return None if text == "stepwise" else at_least(1)(text)


def check_destinations(args: argparse.Namespace) -> None:
    """Raise, before the work begins, the error that writing its result would meet."""
    if args.save:
        check_writable(args.save)
        check_writable(samples_path(args.save))
    if args.plot:
        check_picture(args.plot)
