"""Descriptions of the environments under Gymnasium's headings, filled from the cores.

`describe_core` writes the page of one core's environments, `describe_suite` the docstring of
`UnichainEnv`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from unichain_gym.cores.core import Core
from unichain_gym.interface import OutcomeModel

MOST_ROWS = 20  # pairs of state and action in a table

STREAMS = """\
A mnemonic such as ``h36c`` is the letter of a recurrent core, the number of states, and a letter
for the number of streams (none: one, ``b``: two, ``c``: three, …). The transient states divide
evenly among the streams and are numbered first, stream after stream, the farthest from the core
first; the core's states come last. Every stream enters the core at its first state (see
``entry_state``).

In a transient state, action a advances by one state with probability ``advance_probs[a]`` and
otherwise stays; the step takes the time 1. These probabilities are evenly spaced from 0.3 to 0.6:
with two actions, 0.3 and 0.6."""

STARTING_STATE = """\
Uniform over the transient states, or over all states without transient ones.
``reset(options={"state": s})`` and ``reset(options={"distribution": p})`` start elsewhere."""

STREAM_REWARDS = """\
In a transient state, action a pays ``stream_rewards[a]`` for every outcome. These rewards are
evenly spaced from 0 to 1: with two actions, 0 and 1."""

EPISODE_END = """\
None: the task continues and ``terminated`` and ``truncated`` are always False. Pass
``max_episode_steps`` to ``gymnasium.make`` or ``gymnasium.make_vec`` for episodes of a fixed
length; ``make_vec`` takes ``autoreset_mode`` too."""

INFORMATION = """\
``info`` is empty unless ``info_level="full"``: then it holds ``"timestep"`` (0 at reset) and
``"state_class"``, "transient" or "recurrent" under policies that take every action. If steps take
time, ``step`` returns the duration of the step in ``info["duration"]``.

If a state of the model lacks an action, ``info["action_mask"]`` (int8, one entry per action) is 1
for the actions of the current state, and ``step`` refuses the others. In the suite's own models
every state has all actions, so ``info`` has no mask."""

ARGUMENTS = {
    "mnemonic": "as above. The ids ``Unichain-<mnemonic>-v0`` set it.",
    "advance_probs": "a number for each action, or such a list for each stream.",
    "stream_rewards": "likewise.",
    "entry_state": "the core's state, from 0, that streams enter; one, or one per stream.",
    "core_options": "a dict of the core's options.",
    "render_mode": '"rgb_array" or "ansi"; with pygame installed, Gymnasium shows the pictures '
    'of "rgb_array" in a window for "human" (``gymnasium.make`` only).',
    "info_level": '"minimal" or "full".',
}

PAPER = (
    "V. Dewanto and M. Gallagher. Discounting-free policy evaluation from transient and recurrent "
    "states. arXiv:2204.04324, 2022."
)


def describe_suite(cores: Collection[Core]) -> str:
    """Return the description of all environments, each core in brief, in Markdown."""
    counts = ", ".join(f"{core().n_actions} for ``{core.letter}``" for core in cores)
    about = "\n\n".join(
        f"``{core.letter}``: {core.name}. {core.description}{_outcomes(core())}" for core in cores
    )
    rewards = "\n".join(_bullet(f"``{core.letter}``: {core.rewards}") for core in cores)
    observations = "\n".join(_bullet(f"``{core.letter}``: {core.observations}") for core in cores)
    return _page(
        f"{STREAMS}\n\nThe cores:\n\n{about}",
        f"``Discrete(A)``, A being the core's number of actions: {counts}.",
        "``Discrete(S)``: the state. Observations are Python ints. In the core, less the number of "
        f"transient states, they mean:\n\n{observations}",
        rewards,
        _example("h36c", "Unichain-v0") + "\n\n" + _list_arguments(ARGUMENTS),
        [reference for core in cores for reference in core.references],
    )


def describe_core(core: Core) -> str:
    """Return the page of one core's environments in Markdown, under Gymnasium's headings."""
    mdp = core()
    actions = "\n".join(f"* {a}: {core.action_name(a)}" for a in range(mdp.n_actions))
    names = "" if core.actions is None else f"\n\n{actions}"
    options = {
        f"core_options[{name!r}]": f"{argument.meaning} Default: {argument.default!r}."
        for name, argument in core.arguments.items()
    }
    example = _example(core.mnemonics[-1], core.ids[-1])
    return _page(
        f"{core.name}. {core.description}{_outcomes(mdp)}\n\n{STREAMS}",
        f"``Discrete({mdp.n_actions})``{names}",
        "``Discrete(S)``: the state. In the core, less the number of transient states:\n\n"
        + core.observations,
        core.rewards,
        example + "\n\n" + _list_arguments({**ARGUMENTS, **options}),
        core.references,
    )


def outcome_table(mdp: OutcomeModel) -> str:
    """Return the outcomes of an MDP as a Markdown table: a row for each state and its actions.

    The last cell has the reward if all outcomes share it. Otherwise each outcome has its reward in
    parentheses, with its duration if steps take time.
    """
    timed = mdp.durations is not None
    said = "reward, time" if timed else "reward"
    lines = [f"| s | a | next state: probability ({said}) | r |", "|---|---|---|---|"]
    times = np.ones_like(mdp.reward) if mdp.durations is None else mdp.durations
    for s, a in np.argwhere(mdp.allowed_actions).tolist():
        columns = mdp.next_state[s, a], mdp.probability[s, a], mdp.reward[s, a], times[s, a]
        outcomes = [o for o in zip(*(c.tolist() for c in columns), strict=True) if o[1] > 0.0]
        rewards = {reward for _, _, reward, _ in outcomes}
        shared = f"{rewards.pop():g}" if len(rewards) == 1 and not timed else ""
        cells = (
            f"{n}: {p:g}" + ("" if shared else f" ({r:g}{f', {t:g}' * timed})")
            for n, p, r, t in outcomes
        )
        lines.append(f"| {s} | {a} | {', '.join(cells)} | {shared} |")
    return "\n".join(lines)


def _outcomes(core: OutcomeModel) -> str:
    """Return a table of a core's outcomes, or nothing if it would be long."""
    if core.n_states * core.n_actions > MOST_ROWS:
        return ""
    return f"\n\n{outcome_table(core)}"


def _page(
    about: str, actions: str, states: str, rewards: str, arguments: str, references: Iterable[str]
) -> str:
    """Return a page under Gymnasium's headings, the same for all cores in part."""
    sections = {
        "Description": about,
        "Action Space": actions,
        "Observation Space": states,
        "Starting State": STARTING_STATE,
        "Rewards": f"{STREAM_REWARDS} In the core:\n\n{rewards}",
        "Episode End": EPISODE_END,
        "Information": INFORMATION,
        "Arguments": arguments,
        "References": "\n".join(map(_bullet, dict.fromkeys([PAPER, *references]))),
        "Version History": "* v0: initial version.",
    }
    return "\n\n".join(f"## {name}\n{_wrap(text)}" for name, text in sections.items())


def _wrap(text: str) -> str:
    """Break the lines of plain paragraphs evenly; lists, tables and code stay as they are."""
    return "\n\n".join(
        part if part.startswith(("* ", "|", "```")) else textwrap.fill(" ".join(part.split()), 96)
        for part in text.split("\n\n")
    )


def _example(mnemonic: str, env_id: str) -> str:
    keyword = f', mnemonic="{mnemonic}"' if env_id == "Unichain-v0" else ""
    return f'```python\ngymnasium.make("unichain_gym:{env_id}"{keyword}, info_level="full")\n```'


def _list_arguments(arguments: Mapping[str, str]) -> str:
    return "\n".join(_bullet(f"``{name}``: {meaning}") for name, meaning in arguments.items())


def _bullet(text: str) -> str:
    words = " ".join(text.split())
    return textwrap.fill(words, 96, initial_indent="* ", subsequent_indent="  ")
