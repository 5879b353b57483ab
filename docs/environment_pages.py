"""The documentation's pages on environments, written from the cores themselves.

A page for each core of `unichain_gym.cores.CORES`: its picture, its description under Gymnasium's
headings, and exact facts of its environments, computed when the page is written.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lstd_agent.figure_style import COLORS, MARKERS, WIDTH, new_figure, styled
from unichain_gym import MarkovChain, make_mdp
from unichain_gym.cores import CORES, Core
from unichain_gym.descriptions import describe_core
from unichain_gym.errors import PeriodicChainError

MOST_DRAWN = 12  # states of a picture that can be read at page width
_STREAMS = """A stream is a row of transient states that leads into a core: a warm-up, a backlog that is worked
off, a warehouse that fills. What it costs to start there is what the bias tells and the gain does
not.

## Description

In each state one action advances by one state with some probability, and stays otherwise; it pays
the same either way. No state is ever come back to. All streams enter the core at the same state
unless you say otherwise.

## Starting State

Uniform over all transient states; over all states of a core without streams.
`env.reset(options={"state": 0})` chooses another.

## Action Space, Observation Space, Episode End

Those of the core: `Discrete(A)`, and `Discrete(S)` with the transient states first, stream after
stream, the farthest from the core first. A task never ends.

## Arguments

| | |
|---|---|
| `advance_probs` | the probability that an action advances, `(A,)`, or `(streams, A)`; by default evenly spaced from 0.3 to 0.6 |
| `stream_rewards` | what an action pays, likewise; by default evenly spaced from 0 to 1 |
| `entry_state` | the core's state that streams enter, one or one for each; by default its first |

They are arguments of `gym.make("Unichain-v0", mnemonic=...)` and of `unichain_gym.make_mdp`.
`unichain_gym.attach_streams(core, n_streams, length)` puts streams in front of an MDP of yours, of
unequal lengths too.
"""  # noqa: E501
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
    make_mdp("x9d").plot().savefig(folder / "streams.svg", bbox_inches="tight")
    _write(folder / "streams.md", _streams())
    _write(folder / "index.md", _index(["streams", *names]))


def _write(path: Path, text: str) -> None:
    """Write a page if it would change: what did not is not built again."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _drawn(core: Core):  # type: ignore[no-untyped-def]
    """Draw the core with a stream of three states; of a large one, the best policy."""
    mdp = core()
    if mdp.n_states > MOST_DRAWN:
        return _drawn_policy(core)
    return make_mdp(f"{core.letter}{mdp.n_states + 3}").plot()


@styled
def _drawn_policy(core: Core):  # type: ignore[no-untyped-def]
    """Draw what each state is worth under an optimal policy, and the action there."""
    mdp = core()
    best = mdp.optimal_policy("bias" if mdp.durations is None else "gain")
    figure = new_figure(WIDTH, 4.5)
    axes = figure.subplots()
    for action in range(best.optimal_actions.shape[1]):
        at = np.flatnonzero(best.policy == action)
        label = f"action {action}: {core.action_name(action)}"
        axes.plot(at, best.bias[at], MARKERS[action], color=COLORS[action], label=label)
    axes.set(title="The best policy", xlabel="state", ylabel="bias (in units of reward)")
    axes.legend()
    return figure


def _page(core: Core, name: str) -> str:
    rows = [row for mnemonic in core.mnemonics for row in _facts(mnemonic)]
    large = core().n_states > MOST_DRAWN
    shown = "each state's bias and best action" if large else "states, actions and transitions"
    return "\n".join(
        [
            f"# Core {core.letter}: {core.name}\n",
            f"![Core {core.letter}: {shown}]({name}.svg)\n",
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


def _streams() -> str:
    """Return the page on streams: what they are, their arguments, and what they cost exactly."""
    mdp = make_mdp("x9d")
    outcomes = [
        f"| any but a stream's last | {a} | {reward:g} | the next one with {forward:g}, "
        f"itself with {back:g} |"
        for a, ((back, forward), reward) in enumerate(
            zip(mdp.probability[0], mdp.reward[0, :, 0], strict=True)
        )
    ]
    facts = []
    for mnemonic in ("h6", "h36", "h36c", "h100", "c10", "c35", "c35c", "c100"):
        for action in (0, 1):
            chain = make_mdp(mnemonic).induce([action] * make_mdp(mnemonic).n_states)
            entry = chain.transient_states.size
            facts.append(
                f"| `{mnemonic}` | {entry} | {action} | {chain.mean_absorption_time[0]:.4g} "
                f"| {chain.max_absorption_time()} | {chain.gain:.6g} "
                f"| {chain.bias[entry] - chain.bias[0]:.6g} |"
            )
    return "\n".join(
        [
            "# Streams\n",
            "![x9d: four streams of two states that lead into an absorbing state](streams.svg)\n",
            _STREAMS,
            "## Transitions\n",
            "| state | action | reward | leads to |",
            "|---|---:|---:|---|",
            *outcomes,
            "\nFrom a stream's last state the next one is the core's first, or `entry_state`.\n",
            "## Exact facts\n",
            "| environment | transient states | action | mean steps from state 0 to the core "
            "| maximum absorption time | gain | cost of starting in state 0 |",
            "|---|---:|---:|---:|---:|---:|---:|",
            *facts,
            "\nThe action is taken in every state. The maximum absorption time is the paper's; the "
            "cost is the bias of the core's first state less that of state 0, the farthest from "
            "it, which can be negative where the way there pays better than the core.\n",
            "## References\n",
            "- V. Dewanto and M. Gallagher (2022), arXiv:2204.04324, section 6.1 and Figure 2.\n",
            "## Version History\n",
            "- v0: initial version.",
            "",
        ]
    )


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
