"""Where the command `unichain` and the scripts begin; `python -m unichain` is the command as well.

What they import takes a second. Ctrl-C or SIGTERM in that second ends the process with a line in
place of a traceback: nothing has begun, so nothing is to be kept. It imports nothing else for that.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn


def main() -> int:
    """Run `unichain`; return its exit status."""
    return start("lstd_agent.commands.main")


def start(module: str, *arguments: Any) -> int:
    """Import a module and call its function ``main``, which returns an exit status.

    From here on until the work begins, and once it is done, a signal ends the process at once
    (see `lstd_agent.commands.running.run`).
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        # Ignored by who started this, such as a shell that puts it into the background.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    return int(import_module(module).main(*arguments))


def _end(number: int, _: Any) -> NoReturn:
    # An exception could be taken for a failed import, by somebody who tries another.
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
