"""Mnemonics (``h36c``) and the streams of transient states around a recurrent core.

A mnemonic is ``<core letter><number of states><stream letter>``. No stream letter means one
stream, ``b`` two, ``c`` three, and so on; the transient states divide evenly among the
streams. Transient states come first (0 … n_tr - 1), stream after stream, the farthest from
the core first; then the core. The source of the structure is the paper's section
``env_nbwpval`` and its figure ``unichain_generic``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unichain_gym.cores import CORES
from unichain_gym.errors import InvalidMnemonicError, InvalidModelError
from unichain_gym.mdp import TabularMDP

_PATTERN = re.compile(r"([a-z])(\d+)([b-z]?)")


@dataclass(frozen=True)
class Mnemonic:
    """A parsed mnemonic: core letter, number of states and number of streams."""

    core: str
    n_states: int
    n_streams: int

    @classmethod
    def parse(cls, text: str) -> Mnemonic:
        """Read a mnemonic such as ``"h36c"``.

        Raises
        ------
        InvalidMnemonicError
            If the text is not a mnemonic or its core letter is unknown.
        """
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise InvalidMnemonicError(
                f"{text!r} is not a mnemonic: write a core letter ({', '.join(CORES)}), the "
                "number of states, and for several streams a letter (b two, c three, …), as in "
                "'h36c'"
            )
        core, n_states, stream = match.groups()
        if core not in CORES:
            raise InvalidMnemonicError(
                f"unknown core letter {core!r} in {text!r}; known cores: {', '.join(CORES)}"
            )
        return cls(core, int(n_states), ord(stream) - ord("a") + 1 if stream else 1)


def make_mdp(
    mnemonic: str,
    advance_probs: Sequence[float] = (0.3, 0.6),
    stream_rewards: Sequence[float] = (0.0, 1.0),
) -> TabularMDP:
    """Build the unichain MDP that a mnemonic names.

    Parameters
    ----------
    mnemonic : str
        Core letter, number of states, stream letter: ``"h36c"``, ``"c10"``, ``"x9d"``.
    advance_probs : sequence of float, one per action
        Probability, in (0, 1], that the action advances a transient state by one; otherwise
        the state stays.
    stream_rewards : sequence of float, one per action
        Reward of the action in a transient state, whatever its outcome.

    Returns
    -------
    TabularMDP

    Raises
    ------
    InvalidMnemonicError
        If the mnemonic names no environment.
    InvalidModelError
        If the stream's numbers are out of range or do not fit the core's actions.
    """
    parsed = Mnemonic.parse(mnemonic)
    core = CORES[parsed.core]()
    n_transient = parsed.n_states - core.n_states
    if n_transient < 0:
        raise InvalidMnemonicError(
            f"{mnemonic!r} has {parsed.n_states} states, but core {parsed.core!r} alone has "
            f"{core.n_states}; ask for at least that many"
        )
    if n_transient % parsed.n_streams or (n_transient == 0 and parsed.n_streams > 1):
        raise InvalidMnemonicError(
            f"{mnemonic!r} has {n_transient} transient states, which do not divide evenly among "
            f"{parsed.n_streams} streams"
        )
    if n_transient == 0:
        return core
    return attach_streams(
        core,
        parsed.n_streams,
        n_transient // parsed.n_streams,
        advance_probs,
        stream_rewards,
        name=mnemonic,
    )


def attach_streams(
    core: TabularMDP,
    n_streams: int,
    length: int,
    advance_probs: Sequence[float] = (0.3, 0.6),
    stream_rewards: Sequence[float] = (0.0, 1.0),
    entry_state: int = 0,
    *,
    name: str | None = None,
) -> TabularMDP:
    """Put streams of transient states in front of a core.

    Parameters
    ----------
    core : TabularMDP
        The recurrent MDP that the streams enter.
    n_streams, length : int
        Number of streams, and transient states in each.
    advance_probs, stream_rewards : sequence of float, one per action
        As in `make_mdp`.
    entry_state : int
        The core's state that the streams enter.
    name : str, optional
        What to call the MDP.

    Returns
    -------
    TabularMDP
        With n_streams · length + core.n_states states; starts uniformly in a transient one.

    Raises
    ------
    InvalidModelError
        If a number is out of range or does not fit the core's actions.
    """
    A = core.n_actions
    advance = np.asarray(advance_probs, dtype=np.float64)
    pay = np.asarray(stream_rewards, dtype=np.float64)
    for what, values in (("advance_probs", advance), ("stream_rewards", pay)):
        if values.shape != (A,):
            raise InvalidModelError(
                f"{what} needs one number for each of the core's {A} actions; got shape "
                f"{values.shape}"
            )
    if not ((advance > 0.0) & (advance <= 1.0)).all():
        raise InvalidModelError(
            f"advance_probs must be above 0 and at most 1 (else a stream never ends); got "
            f"{advance.tolist()}"
        )
    n_transient = n_streams * length
    S = n_transient + core.n_states
    K = max(2, core.next_state.shape[2])
    next_state = np.broadcast_to(np.arange(S)[:, None, None], (S, A, K)).copy()
    probability = np.zeros((S, A, K))
    reward = np.zeros((S, A, K))

    state = np.arange(n_transient)
    follower = state + 1
    follower[length - 1 :: length] = n_transient + entry_state
    next_state[:n_transient, :, 1] = follower[:, None]
    probability[:n_transient, :, 0] = 1.0 - advance
    probability[:n_transient, :, 1] = advance
    reward[:n_transient, :, :2] = pay[:, None]

    core_outcomes = core.next_state.shape[2]
    next_state[n_transient:, :, :core_outcomes] = core.next_state + n_transient
    probability[n_transient:, :, :core_outcomes] = core.probability
    reward[n_transient:, :, :core_outcomes] = core.reward

    initial = np.zeros(S)
    initial[:n_transient] = 1.0 / n_transient
    name = name or f"{core.name} with {n_streams} streams of {length}"
    return TabularMDP(next_state, probability, reward, initial, name=name)
