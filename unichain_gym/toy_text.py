"""Outcome lists from environments like Gymnasium's toy-text ones, which carry their model.

``P[state][action]`` is a list of ``(probability, next_state, reward, terminated)``; an empty
list is an action that the state lacks.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from copy import deepcopy
from math import isclose
from operator import index
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym.arrays import BoolArray, FloatArray
from unichain_gym.builders import Outcomes, require_outcomes
from unichain_gym.errors import InvalidArgumentError, InvalidModelError, warn_caller
from unichain_gym.models import read_distribution
from unichain_gym.outcomes import check_choice, read_floats, read_integers, read_reals
from unichain_gym.rounding import in_double
from unichain_gym.structure import search_breadth_first

if TYPE_CHECKING:
    import gymnasium

CHECKED_STEPS = 1_000


def read_toy_text(
    env: gymnasium.Env[Any, Any],
    on_termination: Literal["absorb", "restart"],
    initial: ArrayLike | None,
) -> tuple[Outcomes, FloatArray]:
    """Read the table of an environment, after a check that its steps are in it.

    Terminal states pay 0 and stay, or restart. Returned with the outcomes is the initial
    distribution (S,).
    """
    check_choice("on_termination", on_termination, ("absorb", "restart"))
    if not hasattr(env, "unwrapped"):
        raise InvalidArgumentError(
            "from_gymnasium needs the environment itself, such as gymnasium.make('FrozenLake-v1'), "
            f"not its id or its table; got {reprlib.repr(env)}"
        )
    table, start = _find_table(env, initial)
    listed, has, ends = _read_table(table)
    _check_steps(env, table, None if initial is not None else start)
    S, A = has.shape
    is_terminal = np.zeros(S, dtype=bool)
    is_terminal[listed.next_state[ends]] = True
    keep = ~is_terminal[listed.state]
    # Taxi lists moves between states that no episode visits, some into terminal ones.
    moves = sparse.csr_array(
        (np.ones(keep.sum()), (listed.state[keep], listed.next_state[keep])), shape=(S, S)
    )
    depth, _ = search_breadth_first(moves, np.flatnonzero(start))
    ambiguous = keep & ~ends & is_terminal[listed.next_state] & (depth[listed.state] >= 0)
    if ambiguous.any():
        i = int(np.argmax(ambiguous))
        raise InvalidModelError(
            f"state {listed.next_state[i]} is entered with and without terminating (without: "
            f"from state {listed.state[i]}), so it is two states in one; split it in the "
            "environment's table"
        )
    terminal = np.flatnonzero(is_terminal)
    if on_termination == "absorb":
        source, target, p = terminal, terminal, np.ones_like(start[terminal])
    else:
        support = np.flatnonzero(start)
        source = np.repeat(terminal, support.size)
        target, p = np.tile(support, terminal.size), np.tile(start[support], terminal.size)
    outcomes = Outcomes(
        n_states=S,
        n_actions=A,
        state=np.concatenate((listed.state[keep], np.repeat(source, A))),
        action=np.concatenate((listed.action[keep], np.tile(np.arange(A), source.size))),
        next_state=np.concatenate((listed.next_state[keep], np.repeat(target, A))),
        probability=np.concatenate((listed.probability[keep], np.repeat(p, A))),
        reward=np.concatenate((listed.reward[keep], np.zeros(source.size * A))),
    )
    require_outcomes(outcomes, has, "leave the list empty if the state lacks the action")
    return outcomes, start


def _find_table(
    env: gymnasium.Env[Any, Any], initial: ArrayLike | None
) -> tuple[Mapping[int, Any], FloatArray]:
    """Return an environment's table and its initial distribution, shape (S,)."""
    bare = env.unwrapped
    table = getattr(bare, "P", None)
    if getattr(getattr(bare, "mdp", None), "durations", None) is not None:
        raise InvalidModelError(
            f"the steps of {bare} take time, which a table P[state][action] does not tell: use "
            "env.unwrapped.mdp"
        )
    if not isinstance(table, Mapping):
        raise InvalidModelError(
            f"{bare} has no transition table P[state][action]; only environments like "
            "FrozenLake, Taxi and CliffWalking have one"
        )
    if initial is None:
        of_model = getattr(getattr(bare, "mdp", None), "initial_distribution", None)
        initial = getattr(bare, "initial_state_distrib", of_model)
    if initial is None:
        raise InvalidModelError(f"{bare!r} does not tell its initial distribution; pass initial=")
    start = read_distribution(initial, "initial", 0.0)
    if start.shape != (len(table),):
        raise InvalidModelError(f"initial must have shape ({len(table)},), got {start.shape}")
    return table, start


def _read_table(table: Mapping[int, Any]) -> tuple[Outcomes, BoolArray, BoolArray]:
    """Return the possible outcomes, which actions each state has (S, A), and which end (n,)."""
    S, A = len(table), len(table.get(0, ()))
    for s in range(S):
        actions = table.get(s, ())
        if len(actions) != A or (isinstance(actions, Mapping) and set(actions) != set(range(A))):
            raise InvalidModelError(
                f"the table lists {A} actions for state 0 and {len(actions)} for state {s}; "
                f"states must be 0 to {S - 1}, each with actions 0 to {A - 1}. An action that a "
                "state lacks is an empty list"
            )
    rows = [(s, a, *outcome) for s in range(S) for a in range(A) for outcome in table[s][a]]
    if not rows or any(len(row) != 6 for row in rows):
        wrong = next((row for row in rows if len(row) != 6), None)
        raise InvalidModelError(
            "the table lists outcomes (probability, next_state, reward, terminated), at least "
            f"one; got {wrong and wrong[2:]}"
        )
    columns = list(zip(*rows, strict=True))
    state, action, successor = (
        read_integers(columns[i], what) for i, what in ((0, "P"), (1, "P"), (3, "next states of P"))
    )
    outside = successor[(successor < 0) | (successor >= S)]
    if outside.size:
        raise InvalidModelError(
            f"the table leads to state {outside[0]}, which must lie in 0 to {S - 1}"
        )
    reward, ends = read_reals(columns[4], "rewards of P"), np.array(columns[5], dtype=bool)
    has = np.zeros((S, A), dtype=bool)
    has[state, action] = True
    listed = Outcomes(
        S, A, state, action, successor, read_floats(columns[2], "probabilities of P"), reward
    )
    # In double, since terminal states are added to it.
    p = in_double(listed.probability, state * A + action, S * A, listed.describe)
    k = p != 0.0
    return Outcomes(S, A, state[k], action[k], successor[k], p[k], reward[k]), has, ends[k]


def _check_steps(
    env: gymnasium.Env[Any, Any], table: Mapping[int, Any], start: FloatArray | None
) -> None:
    """Raise `InvalidModelError` if a copy of the environment makes a step that is not in its table.

    Its first states are checked against ``start``, shape (S,), if that is given.
    """
    from gymnasium import Env

    if type(env.unwrapped).step is Env.step:
        return  # a table alone
    if getattr(env.unwrapped, "fickle_passenger", False):
        raise InvalidModelError(
            "the table does not hold what fickle_passenger does; make the environment without it"
        )
    try:
        copy = deepcopy(env, {id(table): table})
        copy.unwrapped.render_mode = None
    except Exception as problem:  # whatever the environment holds that cannot be copied
        warn_caller(f"{env} cannot be copied, so its table is unchecked: {problem}", UserWarning)
        return
    rng = np.random.default_rng(0)
    state = _state_of(copy.reset(seed=0)[0], len(table))
    is_first = True
    for _ in range(CHECKED_STEPS):
        if is_first and start is not None and not start[state] > 0.0:
            raise InvalidModelError(
                f"the environment started in state {state}, of which its initial distribution "
                "says that it never does; pass initial="
            )
        actions = [a for a in range(len(table[state])) if len(table[state][a])]
        ended = not actions
        if actions:
            action = actions[rng.integers(len(actions))]
            observation, reward, terminated, truncated, _ = copy.step(action)
            following = _state_of(observation, len(table))
            if not _is_listed(table[state][action], following, reward, terminated):
                raise InvalidModelError(
                    f"the table does not hold what the environment does: action {action} in state "
                    f"{state} led to state {following} with reward {reward} and terminated "
                    f"{terminated}, and the table lists {table[state][action]}. Pass env.unwrapped "
                    "if a wrapper changes it, or build the MDP from its transitions"
                )
            state, ended = following, terminated or truncated
        is_first = ended
        if ended:
            state = _state_of(copy.reset()[0], len(table))


def _is_listed(outcomes: Any, following: int, reward: Any, terminated: bool) -> bool:
    """Whether a step is among the possible outcomes of a state and action."""
    return any(
        p > 0.0
        and (n, bool(ends)) == (following, bool(terminated))
        and isclose(r, reward, rel_tol=1e-6)
        for p, n, r, ends in outcomes
    )


def _state_of(observation: Any, n_states: int) -> int:
    """Return an observation that is a state of the table."""
    try:
        state = index(observation)
    except TypeError:
        state = -1
    if not 0 <= state < n_states:
        raise InvalidModelError(
            f"the environment's observations are not the states 0 to {n_states - 1} of its table: "
            f"got {observation!r}; pass env.unwrapped if a wrapper changes them"
        )
    return state
