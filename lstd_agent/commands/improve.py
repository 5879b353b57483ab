"""Improve a policy from sampled trials alone, beside the exact optimum where there is one.

Runs trials with a few exploratory actions, evaluates their policy, improves it, and repeats until
nothing changes: for the largest gain and, among policies of that gain, the largest value of the
start. Any environment with Discrete actions will do; observations that cannot be counted need
--features. An environment with an exact model (env.unwrapped.mdp; with --restart, the table P of
FrozenLake and its like, on which trials are run, too) also gets exact figures and a default for
--t-max. --t-max replaces time limits.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from lstd_agent import (
    Iteration,
    PolicyIteration,
    Polynomial,
    RadialBasis,
    RandomFourier,
    Standardized,
)
from lstd_agent.commands.arguments import (
    add_environment_argument,
    add_output_arguments,
    add_quiet_argument,
    add_trial_arguments,
    new_parser,
    read_arguments,
)
from lstd_agent.commands.optimal import Optimum
from lstd_agent.commands.outputs import as_json, check_picture, check_writable, put_out, saved
from lstd_agent.commands.running import MOST_FEATURES, at_least, interrupted_status, run, say
from lstd_agent.commands.trial_inputs import (
    check_cost,
    default_t_max,
    hinting_at_restart,
    make_copies,
    model_or_hint,
    named_number,
)
from lstd_agent.environments import find_id
from lstd_agent.errors import InvalidInputError
from lstd_agent.figure_style import picture
from lstd_agent.results import one_line, provenance
from unichain_gym import TabularMDP

_EXAMPLES = """examples:
  unichain improve h36c
  unichain improve CliffWalking-v1 --restart --t-max 500
  unichain improve c35c --trials 500 --plot learning.png --save search.npz
  unichain improve my_package:MyEnv-v0 --t-max 300 --features grid:8 --json"""

_HEADER = "iteration    timesteps         gain   start value  changes"


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Parse the command line, search, and show the result; return the exit status."""
    args = read_arguments(command_line(prog), argv, prog or "improve_policy.py")
    return run(lambda: improve(args))


def improve(args: argparse.Namespace) -> int:
    """Search, and put the result where the arguments ask for it."""
    check_destinations(args)
    env_id = find_id(args.env_id)
    with closing(gym.make(env_id)) as env:
        mdp = model_or_hint(env, args.restart)
        space = env.observation_space
        features = None if args.features is None else read_features(args, space)
    t_max = args.t_max if args.t_max is not None else _t_max_of(mdp)
    optimum = None if mdp is None or args.no_exact else Optimum(mdp)
    status = 0
    with closing(make_copies(env_id, args.trials, t_max, args.restart, mdp, n_rounds=1)) as envs:
        search = make_search(args, envs, t_max, features)
        if isinstance(space, gym.spaces.Discrete) and isinstance(
            envs.single_action_space, gym.spaces.Discrete
        ):
            first = np.zeros((int(space.n), int(envs.single_action_space.n)))
            first[:, 0] = 1.0  # always the first action
            if mdp is None or bool(mdp.allowed_actions[:, 0].all()):
                check_cost(envs, first, args.trials, t_max, args.max_minutes, quiet=args.quiet)
        try:
            with hinting_at_restart():
                status = iterate(args, search)
        except KeyboardInterrupt as interrupt:
            status = interrupted_status(interrupt)
            if not search.iterations:
                say("interrupted: no iteration has finished")
                return status
            say(f"interrupted: {len(search.iterations)} iterations finished")
    report = make_report(args, search, t_max, optimum)
    contents = {}
    if args.plot:
        figure = search.plot(None if optimum is None else (optimum.gain, optimum.start_value))
        origin = one_line(report["provenance"])
        contents[args.plot] = picture(figure, args.plot.suffix, origin)
    put_out(as_json(report) if args.json else as_text(report), contents)
    return status


def make_search(args: argparse.Namespace, envs: Any, t_max: int, features: Any) -> PolicyIteration:
    """Return a search, or the one to go on with."""
    if args.resume:
        search = PolicyIteration.load(args.save, envs, features=features)
        if (search.t_max, search.n_trials) != (t_max, args.trials):
            raise InvalidInputError(
                f"the search in {args.save} has --t-max {search.t_max} --trials "
                f"{search.n_trials}: go on with these"
            )
        return search
    return PolicyIteration(
        envs,
        t_max,
        args.trials,
        explore=args.explore,
        features=features,
        n_errors=args.n_errors,
        seed=args.seed,
    )


def iterate(args: argparse.Namespace, search: PolicyIteration) -> int:
    """Run iterations, and save and show each; return the exit status."""
    shows, status = not args.json, 0
    if shows:
        print(_HEADER)
        for each in search.iterations:
            print(_line(each), flush=True)
    while not search.converged and len(search.iterations) < args.iterations:
        done = search.iterate(progress=False if args.quiet else None)
        if args.save:
            status = 0 if saved(search.save, args.save, "the search is") else 1
        if shows:
            print(_line(done), flush=True)
    return status


def _line(each: Iteration) -> str:
    return (
        f"{each.number:9d} {each.n_steps:12,d} {each.gain:12.6g} {each.start_value:13.6g} "
        f"{each.n_changes:8d}"
    )


def make_report(
    args: argparse.Namespace, search: PolicyIteration, t_max: int, optimum: Optimum | None
) -> dict[str, Any]:
    """Return the result."""
    policy: Any = search.policy_
    is_table = not callable(policy)
    exact = None
    if optimum is not None and is_table:
        first = int(search.env.single_action_space.start)  # type: ignore[union-attr]
        exact = optimum.of(policy - first)
    return {
        "env_id": args.env_id,
        "t_max": t_max,
        "n_trials": args.trials,
        "seed": args.seed,
        "converged": search.converged,
        "account": search.summary().splitlines(),
        "iterations": [asdict(each) for each in search.iterations],
        "policy": policy.tolist() if is_table else None,
        "exact": exact,
        "provenance": provenance(args.argv, seed=args.seed),
    }


def as_text(report: dict[str, Any]) -> str:
    """Return the text that follows the iterations."""
    n = len(report["iterations"])
    lines = [
        f"nothing changes after {n} iterations"
        if report["converged"]
        else f"stopped after {n} iterations, the last of which changed the policy"
    ]
    exact, policy = report["exact"], report["policy"]
    if exact is not None:
        if exact["exact_gain"] is None:
            lines.append("the policy has several recurrent classes, and no one gain")
        else:
            lines.append(
                f"the policy: gain {exact['exact_gain']:.8g} of {exact['optimal_gain']:.8g}, "
                f"start value {exact['exact_start_value']:.6g} of "
                f"{exact['optimal_start_value']:.6g} (exact)"
            )
        lines.append(
            f"bias-optimal actions in {exact['n_optimal_actions']} of {len(policy)} states"
        )
    lines += report["account"][2:]
    if policy is not None and len(policy) <= 200:
        lines.append(f"policy {policy}")
    return "\n".join(lines)


def _t_max_of(mdp: TabularMDP | None) -> int:
    """Return ten times the mixing time of the policy that takes all actions alike."""
    if mdp is None:
        return default_t_max(None)
    allowed = mdp.allowed_actions.astype(np.float64)
    return default_t_max(mdp.induce(allowed / allowed.sum(axis=1, keepdims=True)))


def read_features(args: argparse.Namespace, space: gym.Space[Any]) -> Any:
    """Return the features that ``--features`` names, for vectors of a space."""
    n = named_number("--features NAME:N", args.features, at_least(1, MOST_FEATURES))
    name = args.features.partition(":")[0]
    if name == "grid":
        if not isinstance(space, gym.spaces.Box) or not space.is_bounded():
            raise InvalidInputError(
                f"--features grid:N needs a bounded Box of observations; got {space}: take "
                "fourier:N or polynomial:N"
            )
        return RadialBasis.grid(space.low.ravel(), space.high.ravel(), n)
    if name == "fourier":
        return Standardized(RandomFourier(n, seed=args.seed))
    if name == "polynomial":
        return Standardized(Polynomial(n))
    raise InvalidInputError(
        f"--features is grid:N, fourier:N or polynomial:N; got {args.features!r}"
    )


def command_line(prog: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = new_parser(prog, __doc__, _EXAMPLES)
    add_environment_argument(parser)
    add = parser.add_argument
    add("--trials", type=at_least(2), default=2000, metavar="N", help="an iteration; default: 2000")
    add(
        "--t-max",
        type=at_least(1),
        metavar="T",
        help="last timestep of a trial (default: ten times the exact mixing time of the policy "
        "that takes all actions alike)",
    )
    add("--iterations", type=at_least(1), default=20, metavar="N", help="at most; default: 20")
    add(
        "--explore",
        type=exploration,
        default=1,
        metavar="K|P",
        help="exploratory actions in the first half of a trial: so many (an integer, default: 1), "
        "or with this probability at each timestep (a number with a point)",
    )
    add(
        "--n-errors",
        type=float,
        default=1.0,
        metavar="Z",
        help="by how many standard errors an action must be better (default: 1)",
    )
    add(
        "--features",
        metavar="grid:N|fourier:N|polynomial:N",
        help="of observations that cannot be counted: N bumps a dimension of a bounded box, N "
        "random cosines, or monomials up to degree N of standardized components",
    )
    add_trial_arguments(parser, "if an iteration", "figures")
    add(
        "--save",
        type=Path,
        metavar="FILE.npz",
        help="write the search, after each iteration (PolicyIteration.load)",
    )
    add("--resume", action="store_true", help="go on with the search in the file of --save")
    add_output_arguments(parser, "gain, start value and changes", "tables")
    add_quiet_argument(parser)
    return parser


def exploration(text: str) -> int | float:
    """Read ``--explore``: a number of actions, or a probability."""
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"needs a number; got {text!r}") from None


def check_destinations(args: argparse.Namespace) -> None:
    """Raise, before the work begins, the error that writing its result would meet."""
    if args.resume and (args.save is None or not args.save.is_file()):
        raise InvalidInputError("--resume needs the file of a search: name it with --save")
    if args.save:
        check_writable(args.save)
    if args.plot:
        check_picture(args.plot)
