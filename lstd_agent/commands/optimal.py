"""The command `unichain optimal`: an optimal policy of an environment with an exact model.

The model is env.unwrapped.mdp, or else the table P of FrozenLake and its like. There, a state
that ends an episode stays for ever with reward 0; with --restart it starts again, which makes the
task a continuing one.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, get_args

import gymnasium as gym
import numpy as np

from lstd_agent.commands import running
from lstd_agent.environments import exact_model, find_id
from lstd_agent.figure_style import COLORS, WIDTH, new_figure, styled
from lstd_agent.results import provenance
from unichain_gym.errors import InvalidModelError
from unichain_gym.optimal import Criterion, OptimalPolicy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EXAMPLES = """examples:
  unichain optimal h36c --criterion bias
  unichain optimal FrozenLake-v1 --criterion discounted --discount 0.99
  unichain optimal CliffWalking-v1 --restart --json
  unichain optimal my_package:MyEnv-v0 --worst --plot worst.png"""


def optimal(args: argparse.Namespace) -> int:
    """Solve, and put the result where the arguments ask for it."""
    running.check_destinations(args.plot)
    with gym.make(find_id(args.env_id), disable_env_checker=True) as env:
        mdp = exact_model(env, "restart" if args.restart else "absorb")
        ends = not args.restart and exact_model(env, None) is None
    if mdp is None:
        told = f"{env.spec.id if env.spec else env} has no exact model (no TabularMDP as env."
        told += "unwrapped.mdp, no table env.unwrapped.P); improve a policy from samples instead"
        raise InvalidModelError(told)
    find = mdp.worst_policy if args.worst else mdp.optimal_policy
    found = find(args.criterion, args.discount)
    names = "criterion", "discount", "n_iterations", "precision", "policy", "gain", "bias", "value"
    report: dict[str, Any] = {"env_id": args.env_id}
    report |= {name: getattr(found, name) for name in names}
    report["undecided"] = [pair._asdict() for pair in found.undecided]
    report["optimal_actions"] = [np.flatnonzero(row) for row in found.optimal_actions]
    report["provenance"] = provenance(args.argv)
    text = f"{args.env_id}: {found}"
    if ends and args.criterion == "gain":
        text += "\nStates that end an episode stay for ever with reward 0; see --restart"
    running.put_report(args, report, text, lambda: draw(args.env_id, found))
    return 0


@styled
def draw(env_id: str, found: OptimalPolicy) -> Figure:
    """Return a picture of each state's optimal actions above its values."""
    figure = new_figure(WIDTH, 6.5)
    figure.suptitle(f"{env_id}, {found.criterion}-optimal")
    actions, values = figure.subplots(2, 1, sharex=True)
    state, action = np.nonzero(found.optimal_actions)
    actions.plot(state, action, "o", mfc="none", color=COLORS[-1], label="optimal")
    actions.plot(found.policy, ".", color=COLORS[1], label="taken")
    actions.set(ylabel="action", yticks=range(found.optimal_actions.shape[1]))
    actions.legend()
    shown, name = (found.bias, "bias") if found.value is None else (found.value, "value")
    values.plot(shown, ".", color=COLORS[0], label=name)
    values.plot(found.gain, "-", color=COLORS[-1], label="gain")
    values.set(xlabel="state", ylabel="value (in units of reward)")
    values.legend()
    return figure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command line."""
    running.add_arguments(parser, "env_id")
    add = parser.add_argument
    add("--criterion", choices=get_args(Criterion), default="gain", help="default: gain")
    add("--discount", type=float, metavar="GAMMA", help="for --criterion discounted, below 1")
    add("--worst", action="store_true", help="the worst policy instead")
    running.add_arguments(parser, "--restart", "--plot", "--json")


_PURPOSE = "Find an optimal policy of an environment with an exact model."
main = running.command(optimal, _PURPOSE, _EXAMPLES, add_arguments)
