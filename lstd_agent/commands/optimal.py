"""The command `unichain optimal`: an optimal policy of an environment with an exact model.

The model is env.unwrapped.mdp, or else the table P of FrozenLake and its like. There, a state
that ends an episode stays for ever with reward 0; with --restart it starts again, which makes the
task a continuing one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import gymnasium as gym
import numpy as np

from lstd_agent.commands.arguments import (
    add_environment_argument,
    add_output_arguments,
    new_parser,
    read_arguments,
)
from lstd_agent.commands.outputs import as_json, check_picture, put_out
from lstd_agent.commands.running import run
from lstd_agent.commands.trial_inputs import best_policy
from lstd_agent.environments import exact_model, find_id
from lstd_agent.figure_style import COLORS, WIDTH, new_figure, picture, styled
from lstd_agent.results import one_line, provenance
from unichain_gym import TabularMDP
from unichain_gym.errors import InvalidModelError, UnichainError
from unichain_gym.optimal import Criterion, OptimalPolicy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EXAMPLES = """examples:
  unichain optimal h36c --criterion bias
  unichain optimal FrozenLake-v1 --criterion discounted --discount 0.99
  unichain optimal CliffWalking-v1 --restart --json
  unichain optimal my_package:MyEnv-v0 --worst --plot worst.png"""


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Parse the command line, solve, and show the result; return the exit status."""
    args = read_arguments(command_line(prog), argv, prog or "optimal_policy.py")
    return run(lambda: optimal(args))


def optimal(args: argparse.Namespace) -> int:
    """Solve, and put the result where the arguments ask for it."""
    found = solve(args)
    facts = provenance(args.argv)
    result = {**report(args.env_id, found), "provenance": facts}
    text = as_json(result) if args.json else f"{args.env_id}: {found}"
    contents = {}
    if args.plot:
        figure = draw(args.env_id, found)
        contents[args.plot] = picture(figure, args.plot.suffix, one_line(facts))
    put_out(text, contents)
    return 0


def command_line(prog: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = new_parser(
        prog, "Find an optimal policy of an environment with an exact model.", _EXAMPLES
    )
    add_environment_argument(parser)
    add = parser.add_argument
    add("--criterion", choices=get_args(Criterion), default="gain", help="default: gain")
    add("--discount", type=float, metavar="GAMMA", help="for --criterion discounted, below 1")
    add("--worst", action="store_true", help="the worst policy instead")
    add("--restart", action="store_true", help="start again where an episode ends")
    add_output_arguments(parser, "actions and values", "a table")
    return parser


def solve(args: argparse.Namespace) -> OptimalPolicy:
    """Return the policy that the arguments ask for."""
    if args.plot:
        check_picture(args.plot)
    env = gym.make(find_id(args.env_id), disable_env_checker=True)
    mdp = exact_model(env, "restart" if args.restart else "absorb")
    env.close()
    if mdp is None:
        raise InvalidModelError(
            f"{env.spec.id if env.spec else env} has no exact model (no TabularMDP as "
            "env.unwrapped.mdp, no table env.unwrapped.P); improve a policy from samples instead"
        )
    find = mdp.worst_policy if args.worst else mdp.optimal_policy
    return find(args.criterion, args.discount)


def report(env_id: str, found: OptimalPolicy) -> dict[str, Any]:
    """Return the result as numbers and columns."""
    return {
        "env_id": env_id,
        "criterion": found.criterion,
        "discount": found.discount,
        "n_iterations": found.n_iterations,
        "precision": found.precision,
        "undecided": [pair._asdict() for pair in found.undecided],
        "policy": found.policy,
        "optimal_actions": [np.flatnonzero(row) for row in found.optimal_actions],
        "gain": found.gain,
        "bias": found.bias,
        "value": found.value,
    }


class Optimum:
    """The exact optimum of a model: the largest gain and, with that, the largest bias.

    Of steps that take time, the bias is that of a gain-optimal policy.
    """

    def __init__(self, mdp: TabularMDP) -> None:
        self.mdp = mdp
        found = best_policy(mdp)
        self.gain = float(mdp.initial_distribution @ found.gain)
        self.start_value = float(mdp.initial_distribution @ found.bias)
        self.span = float(np.ptp(found.bias))
        self.actions = found.optimal_actions

    def of(self, policy: Any) -> dict[str, Any]:
        """Return exact figures of a policy, given by the action (from 0) of each state."""
        mdp, states = self.mdp, np.arange(self.mdp.n_states)
        actions = np.where(
            mdp.allowed_actions[states, policy], policy, np.argmax(mdp.allowed_actions, axis=1)
        )
        facts: dict[str, Any] = {
            "optimal_gain": self.gain,
            "optimal_start_value": self.start_value,
            "n_optimal_actions": int(self.actions[states, actions].sum()),
        }
        try:
            chain = mdp.induce(actions)
            start = float(mdp.initial_distribution @ chain.bias)
            return {"exact_gain": chain.gain, "exact_start_value": start, **facts}
        except UnichainError:  # a policy of several recurrent classes has no one gain
            return {"exact_gain": None, "exact_start_value": None, **facts}


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
