"""The command `unichain`: it hands over to a module for each of its commands.

The imports of a command take up to a second. They come after signals have been set to end the
process with one line. Scripts start in the same way, by `start`.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

COMMANDS = {
    "evaluate": ("lstd_agent.commands.evaluate", "evaluate a policy from sampled trials"),
    "improve": ("lstd_agent.commands.improve", "improve a policy from sampled trials"),
    "list": ("lstd_agent.commands.listing", "list this package's environments"),
    "optimal": ("lstd_agent.commands.optimal", "find an optimal policy from an exact model"),
    "score": ("lstd_agent.commands.score", "score a method of your own beside ours"),
}
"""Module and purpose of each command; a module has ``main(argv, prog)``, which returns a status."""

# NumPy and SciPy cannot be imported into less memory (MiB). They may fail, or never return.
_LEAST_MEMORY = 280

_PURPOSES = "\n".join(f"  {name:10} {purpose}" for name, (_, purpose) in COMMANDS.items())
_HELP = f"""usage: unichain COMMAND [options]
       unichain --version

commands (for more: unichain COMMAND --help):
{_PURPOSES}

example:
  unichain evaluate h36c

exit status:
  0    done
  1    the machine could not: disk, memory, a closed output, a worker
  2    what was asked for is impossible: an option, a name, a file, an environment
  130  stopped by Ctrl-C, 143 by SIGTERM; the message names what was kept"""


def main() -> int:
    """Run the command that the first argument names; return its exit status."""
    return start("lstd_agent.commands.main", attribute="dispatch")


def start(module: str, *arguments: Any, attribute: str = "main") -> int:
    """Import a module and call its function ``main``, which returns an exit status.

    Before the work begins and after it is done, a signal ends the process at once (see
    `lstd_agent.commands.running.run`).
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        # A shell that starts a process in the background has it ignore SIGINT.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    if sys.stdout is None:
        return _refuse("standard output is closed: redirect it, to /dev/null for example")
    memory = _memory_limit()
    if memory < _LEAST_MEMORY:
        return _refuse(f"{memory} MiB of memory are allowed (ulimit -v): allow 1000 MiB")
    if memory < 2000:
        # Each thread of OpenBLAS reserves memory; where it gets none, the import may never end.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        found = import_module(module)
    except MemoryError:
        return _refuse("out of memory while libraries are imported")
    return int(getattr(found, attribute)(*arguments))


def _memory_limit() -> int:
    """Return how many MiB of memory the process may use."""
    try:
        import resource
    except ImportError:  # on Windows
        return sys.maxsize
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit // 2**20


def _refuse(reason: str) -> int:
    if sys.stderr is not None:
        print(f"error: {reason}", file=sys.stderr)
    return 1


def _end(number: int, _: Any) -> NoReturn:
    # Code that tries several imports could take an exception for a failed import.
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


def dispatch(argv: list[str] | None = None) -> int:
    """Run the command that the arguments name; return its exit status."""
    from lstd_agent.commands.running import run

    name, *rest = (sys.argv[1:] if argv is None else [*argv]) or ["--help"]
    if name in ("-h", "--help", "--version"):
        return run(lambda: _show(name))
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"
        print(f"unichain: error: there is no command {name!r}: {hint}", file=sys.stderr)
        return 2
    module, _ = COMMANDS[name]
    return int(import_module(module).main(rest, f"unichain {name}"))


def _show(option: str) -> int:
    from unichain_gym import __version__

    print(f"unichain {__version__}" if option == "--version" else _HELP)
    return 0


if __name__ == "__main__":
    sys.exit(main())
