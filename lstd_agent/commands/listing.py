"""List this package's registered environments and their sizes."""

from __future__ import annotations

import argparse
import json

from lstd_agent.commands import running
from unichain_gym import make_mdp
from unichain_gym.suite import MNEMONICS

_EPILOG = """example:
  unichain list

Any other mnemonic is an id too: a core letter, the number of states, and a letter for the number
of streams of transient states (none: one, b: two, c: three), such as Unichain-r20b-v0.
Commands take the mnemonic alone, too: r20b."""


def show(args: argparse.Namespace) -> int:
    """Print id and sizes of each environment that has an id from the start."""
    found = []
    for mnemonic in MNEMONICS:
        mdp = make_mdp(mnemonic)
        transient = int(mdp.induce(mdp.random_policy(0, deterministic=False)).transient_states.size)
        sizes = {"states": mdp.n_states, "transient": transient, "actions": mdp.n_actions}
        found.append({"id": f"Unichain-{mnemonic}-v0", **sizes})
    columns = {name: [each[name] for each in found] for name in found[0]}
    columns["id"] = [f"{name:18}" for name in columns["id"]]
    print(json.dumps(found) if args.json else running.table(columns))
    return 0


main = running.command(show, __doc__, _EPILOG, lambda p: running.add_arguments(p, "--json"))
