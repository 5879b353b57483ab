"""The documentation's pages on environments, written from the cores themselves.

A page for each core of `unichain_gym.cores.CORES`: its picture, its description under Gymnasium's
headings, and exact facts of its environments, computed when the page is written.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unichain_gym import MarkovChain, make_mdp
from unichain_gym.cores import CORES, Core
from unichain_gym.descriptions import describe_core
from unichain_gym.errors import PeriodicChainError

MOST_DRAWN = 12  # states of a picture that can be read at page width
HEADER = (
    "| id | states | transient | policy | gain | mixing time | mean steps to the core |\n"
    "|---|---:|---:|---|---:|---:|---:|"
)


def write_pages(folder: Path) -> None:
    """Write an index and a page and a picture for each core into a folder."""
    folder.mkdir(exist_ok=True)
    names = []
    for core in CORES.values():
        name = core.build.__name__
        names.append(name)
        _drawn(core).savefig(folder / f"{name}.svg", bbox_inches="tight")
        _write(folder / f"{name}.md", _page(core, name))
    _write(folder / "index.md", _index(names))


def _write(path: Path, text: str) -> None:
    """Write a page if it would change: what did not is not built again."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _drawn(core: Core):  # type: ignore[no-untyped-def]
    """Draw the core with a stream of three states; a large one alone, with its optimal actions."""
    mdp = core()
    if mdp.n_states > MOST_DRAWN:
        return mdp.plot(policy=mdp.optimal_policy().policy)
    return make_mdp(f"{core.letter}{mdp.n_states + 3}").plot()


def _page(core: Core, name: str) -> str:
    rows = [row for mnemonic in core.mnemonics for row in _facts(mnemonic)]
    return "\n".join(
        [
            f"# Core {core.letter}: {core.name}\n",
            f"![Core {core.letter}: states, actions and transitions]({name}.svg)\n",
            describe_core(core),
            "\n## Exact facts\n",
            HEADER,
            *rows,
            "\nThe *uniform* policy takes each action with equal probability, the *optimal* one is "
            "gain-optimal. The mixing time is the first timestep whose state distribution is "
            "within 1e-10 of the stationary one in total variation, from the initial "
            "distribution; the last column is the mean over that.",
            "",
        ]
    )


def _facts(mnemonic: str) -> list[str]:
    mdp = make_mdp(mnemonic)
    uniform = mdp.allowed_actions / mdp.allowed_actions.sum(axis=1, keepdims=True)
    chains = {"optimal": mdp.optimal_policy().chain, "uniform": mdp.induce(uniform)}
    start = mdp.initial_distribution
    return [
        f"| `Unichain-{mnemonic}-v0` | {mdp.n_states} | {chain.transient_states.size} | {policy} "
        f"| {chain.gain:.6g} | {_mixing_time(chain)} "
        f"| {np.dot(start, chain.mean_absorption_time):.4g} |"
        for policy, chain in chains.items()
    ]


def _mixing_time(chain: MarkovChain) -> str:
    try:
        return str(chain.mixing_time())
    except PeriodicChainError:
        return "none: periodic"


def _index(names: list[str]) -> str:
    gallery = "\n".join(names)
    return f"""# Environments

An id is `Unichain-<mnemonic>-v0`. The mnemonic is a core letter, the number of states, and a letter
for the number of streams (none: one, `b`: two, `c`: three). `h36c` is core `h`, of 3 states, with
33 transient states in three streams:

![h36c: three streams of transient states that lead into a core of three](../h36c.png)

A stream is a row of transient states. In each, action 0 advances with probability 0.3 and pays 0,
action 1 advances with probability 0.6 and pays 1, and the state stays otherwise; all four numbers
are arguments. Transient states come first, stream after stream, the farthest from the core first.
`gym.make("Unichain-v0", mnemonic="r20b")` takes any mnemonic, and `unichain_gym.attach_streams`
puts streams in front of an MDP of your own.

Each core has a page:

```{{toctree}}
:maxdepth: 1

{gallery}
```
"""
