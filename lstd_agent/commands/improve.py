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
from contextlib import closing, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from lstd_agent import PolicyIteration, Polynomial, RadialBasis, RandomFourier, Standardized
from lstd_agent.commands import running, trial_inputs
from lstd_agent.environments import find_id
from lstd_agent.errors import InvalidInputError
from lstd_agent.results import provenance
from unichain_gym import TabularMDP
from unichain_gym.errors import UnichainError
from unichain_gym.optimal import OptimalPolicy

_EXAMPLES = """examples:
  unichain improve h36c
  unichain improve CliffWalking-v1 --restart --t-max 500
  unichain improve c35c --trials 500 --plot learning.png --save search.npz
  unichain improve my_package:MyEnv-v0 --t-max 300 --features grid:8 --json"""

_HEADER = "iteration    timesteps         gain   start value  changes"
_LINE = "{number:9d} {n_steps:12,d} {gain:12.6g} {start_value:13.6g} {n_changes:8d}"


def improve(args: argparse.Namespace) -> int:
    """Search, and put the result where the arguments ask for it."""
    if args.resume and (args.save is None or not args.save.is_file()):
        raise InvalidInputError("--resume needs the file of a search: name it with --save")
    running.check_destinations(args.plot, args.save)
    args.registered_id = find_id(args.env_id)
    with closing(gym.make(args.registered_id)) as env:
        mdp = trial_inputs.model_or_hint(env, args.restart)
        space: Any = env.observation_space
        features = None if args.features is None else read_features(args, space)
    t_max = args.t_max
    if t_max is None:
        chain = None
        if mdp is not None:  # of the policy that takes all actions alike
            allowed = mdp.allowed_actions.astype(np.float64)
            chain = mdp.induce(allowed / allowed.sum(axis=1, keepdims=True))
        t_max = trial_inputs.default_t_max(chain)
    best = None if mdp is None or args.no_exact else trial_inputs.best_policy(mdp)
    status = 0
    with closing(trial_inputs.make_copies(args, t_max, mdp, n_rounds=1)) as envs:
        search = make_search(args, envs, t_max, features)
        actions: Any = envs.single_action_space
        are_discrete = all(isinstance(each, gym.spaces.Discrete) for each in (space, actions))
        if are_discrete and (mdp is None or bool(mdp.allowed_actions[:, 0].all())):
            first = np.eye(int(actions.n))[np.zeros(int(space.n), np.int64)]
            trial_inputs.check_cost(args, envs, first, t_max)
        try:
            with trial_inputs.hinting_at_restart():
                status = iterate(args, search)
        except KeyboardInterrupt as interrupt:
            status = running.interrupted_status(interrupt)
            if not search.iterations:
                running.say("interrupted: no iteration has finished")
                return status
            running.say(f"interrupted: {len(search.iterations)} iterations finished")
    policy: Any = search.policy_
    exact, optimum, table = None, None, None if callable(policy) else policy.tolist()
    if mdp is not None and best is not None:
        start = mdp.initial_distribution  # the start's gain and bias with an optimal policy
        optimum = float(start @ best.gain), float(start @ best.bias)
        if table is not None:
            exact = exact_figures(mdp, best, policy - int(actions.start))
            exact |= {"optimal_gain": optimum[0], "optimal_start_value": optimum[1]}
    report = {"env_id": args.env_id, "t_max": t_max, "n_trials": args.trials, "seed": args.seed}
    report |= {"converged": search.converged, "account": search.summary().splitlines()}
    report |= {"iterations": [asdict(each) for each in search.iterations], "policy": table}
    report |= {"exact": exact, "provenance": provenance(args.argv, seed=args.seed)}
    running.put_report(args, report, as_text(report), lambda: search.plot(optimum))
    return status


def make_search(args: argparse.Namespace, envs: Any, t_max: int, features: Any) -> PolicyIteration:
    """Return a search, or the one to go on with."""
    if not args.resume:
        numbers = {"explore": args.explore, "n_errors": args.n_errors, "seed": args.seed}
        return PolicyIteration(
            envs, t_max=t_max, n_trials=args.trials, features=features, **numbers
        )
    search = PolicyIteration.load(args.save, envs, features=features)
    if (search.t_max, search.n_trials) != (t_max, args.trials):
        told = f"the search in {args.save} has --t-max {search.t_max} --trials "
        told += f"{search.n_trials}: go on with these"
        raise InvalidInputError(told)
    return search


def iterate(args: argparse.Namespace, search: PolicyIteration) -> int:
    """Run iterations, and save and show each; return the exit status."""
    status = 0
    show: Any = (lambda line: None) if args.json else partial(print, flush=True)
    show(_HEADER)
    for each in search.iterations:
        show(_LINE.format(**asdict(each)))
    while not search.converged and len(search.iterations) < args.iterations:
        done = search.iterate(progress=False if args.quiet else None)
        if args.save:
            status = 0 if running.saved(search.save, args.save, "the search is") else 1
        show(_LINE.format(**asdict(done)))
    return status


def exact_figures(mdp: TabularMDP, best: OptimalPolicy, policy: Any) -> dict[str, Any]:
    """Return exact figures of a policy, given by the action (from 0) of each state."""
    states, allowed = np.arange(mdp.n_states), mdp.allowed_actions
    actions = np.where(allowed[states, policy], policy, np.argmax(allowed, axis=1))
    found: dict[str, Any] = {"exact_gain": None, "exact_start_value": None}
    with suppress(UnichainError):  # a policy of several recurrent classes has no one gain
        chain = mdp.induce(actions)
        start = float(mdp.initial_distribution @ chain.bias)
        found = {"exact_gain": chain.gain, "exact_start_value": start}
    return {**found, "n_optimal_actions": int(best.optimal_actions[states, actions].sum())}


def as_text(report: dict[str, Any]) -> str:
    """Return the text that follows the iterations."""
    n, exact, policy = len(report["iterations"]), report["exact"], report["policy"]
    changed = f"stopped after {n} iterations, the last of which changed the policy"
    lines = [f"nothing changes after {n} iterations" if report["converged"] else changed]
    if exact is not None:
        found = "the policy has several recurrent classes, and no one gain"
        if exact["exact_gain"] is not None:
            found = "the policy: gain {exact_gain:.8g} of {optimal_gain:.8g}, start value "
            found += "{exact_start_value:.6g} of {optimal_start_value:.6g} (exact)"
            found = found.format(**exact)
        right = f"bias-optimal actions in {exact['n_optimal_actions']} of {len(policy)} states"
        lines += [found, right]
    lines += report["account"][2:]
    if policy is not None and len(policy) <= 200:
        lines.append(f"policy {policy}")
    return "\n".join(lines)


def read_features(args: argparse.Namespace, space: gym.Space[Any]) -> Any:
    """Return the features that ``--features`` names, for vectors of a space."""
    number = running.at_least(1, running.MOST_FEATURES)
    n = trial_inputs.named_number("--features NAME:N", args.features, number)
    name = args.features.partition(":")[0]
    if name == "polynomial":
        return Standardized(Polynomial(n))
    if name == "fourier":
        return Standardized(RandomFourier(n, seed=args.seed))
    if name != "grid":
        told = f"--features is grid:N, fourier:N or polynomial:N; got {args.features!r}"
        raise InvalidInputError(told)
    if not isinstance(space, gym.spaces.Box) or not space.is_bounded():
        told = f"--features grid:N needs a bounded Box of observations; got {space}: take "
        told += "fourier:N or polynomial:N"
        raise InvalidInputError(told)
    return RadialBasis.grid(space.low.ravel(), space.high.ravel(), n)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command line."""
    running.add_arguments(parser, "env_id")
    add, at_least = parser.add_argument, running.at_least
    add("--trials", type=at_least(2), default=2000, metavar="N", help="an iteration; default: 2000")
    told = "last timestep of a trial (default: ten times the exact mixing time of the policy "
    told += "that takes all actions alike)"
    add("--t-max", type=at_least(1), metavar="T", help=told)
    add("--iterations", type=at_least(1), default=20, metavar="N", help="at most; default: 20")
    told = "exploratory actions in the first half of a trial: so many (an integer, default: 1), "
    told += "or with this probability at each timestep (a number with a point)"
    add("--explore", type=exploration, default=1, metavar="K|P", help=told)
    told = "by how many standard errors an action must be better (default: 1)"
    add("--n-errors", type=float, default=1.0, metavar="Z", help=told)
    told = "of observations that cannot be counted: N bumps a dimension of a bounded box, N "
    told += "random cosines, or monomials up to degree N of standardized components"
    add("--features", metavar="grid:N|fourier:N|polynomial:N", help=told)
    running.add_arguments(parser, *running.TRIALS)
    told = "write the search, after each iteration (PolicyIteration.load)"
    add("--save", type=Path, metavar="FILE.npz", help=told)
    add("--resume", action="store_true", help="go on with the search in the file of --save")
    running.add_arguments(parser, *running.SHOWN)


def exploration(text: str) -> int | float:
    """Read ``--explore``: a number of actions, or a probability."""
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"needs a number; got {text!r}") from None


main = running.command(improve, __doc__, _EXAMPLES, add_arguments)
