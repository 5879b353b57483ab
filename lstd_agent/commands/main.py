"""`unichain`: the one command, which hands over to a module for each of its commands."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

from lstd_agent.commands.running import run
from unichain_gym import __version__

COMMANDS = {
    "evaluate": ("lstd_agent.commands.evaluate", "evaluate a policy from sampled trials"),
    "improve": ("lstd_agent.commands.improve", "improve a policy from sampled trials"),
    "list": ("lstd_agent.commands.environments", "list this package's environments"),
    "optimal": ("lstd_agent.commands.optimal", "find an optimal policy from an exact model"),
    "score": ("lstd_agent.commands.score", "score a method of your own beside ours"),
    "study": ("lstd_agent.commands.study", "run the paper's experiments again"),
    "bench": ("lstd_agent.benchmarks.command", "measure speed and memory as ratios"),
}
"""Module and purpose of each command; a module has ``main(argv, prog)``, which returns a status."""

_STATUSES = """exit status:
  0    done
  1    the machine could not: disk, memory, a worker
  2    what was asked for is impossible: an option, a name, a file, an environment
  130  stopped by Ctrl-C, 143 by SIGTERM; what was kept is told"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names; return its exit status."""
    name, *rest = (sys.argv[1:] if argv is None else [*argv]) or ["--help"]
    if name in ("-h", "--help", "--version"):
        return run(lambda: _show(f"unichain {__version__}" if name == "--version" else _help()))
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"
        print(f"unichain: error: there is no command {name!r}: {hint}", file=sys.stderr)
        return 2
    module, _ = COMMANDS[name]
    return int(import_module(module).main(rest, f"unichain {name}"))


def _show(text: str) -> int:
    print(text)
    return 0


def _help() -> str:
    commands = "\n".join(f"  {name:10} {purpose}" for name, (_, purpose) in COMMANDS.items())
    return f"""usage: unichain COMMAND [options]
       unichain --version

commands (unichain COMMAND --help tells more):
{commands}

example:
  unichain evaluate Unichain-h36c-v0

{_STATUSES}"""
