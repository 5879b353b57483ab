"""Outcome lists from environments with a table, like Gymnasium's toy-text environments.

``P[state][action]`` lists ``(probability, next_state, reward, terminated)``; an action that the
state lacks has an empty list.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from math import isclose
from operator import index
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym.builders import Outcomes, require_outcomes
from unichain_gym.errors import InvalidArgumentError, InvalidModelError, brief, warn_caller
from unichain_gym.interface import BoolArray, FloatArray
from unichain_gym.models import read_distribution
from unichain_gym.outcomes import check_choice, in_double, read_floats, read_integers, read_reals
from unichain_gym.structure import search_breadth_first

if TYPE_CHECKING:
    import gymnasium

CHECKED_STEPS = 1_000


def read_toy_text(
    env: gymnasium.Env[Any, Any],
    on_termination: Literal["absorb", "restart"],
    initial: ArrayLike | None,
) -> tuple[Outcomes, FloatArray]:
    """Return outcomes and start (S,) of a checked table; terminal states pay 0."""
    check_choice("on_termination", on_termination, ("absorb", "restart"))
    if not hasattr(env, "unwrapped"):
        raise InvalidArgumentError(
            "from_gymnasium needs the environment itself, such as gymnasium.make('FrozenLake-v1'), "
            f"not its id or its table; got {brief(env)}"
        )
    table, start = _find_table(env, initial)
    listed, has, ends = _read_table(table)
    _check_steps(env, table, None if initial is not None else start)
    S, A = has.shape
    is_terminal = np.zeros(S, dtype=bool)
    is_terminal[listed.next_state[ends]] = True
    keep = ~is_terminal[listed.state]
    # Taxi's table has states that no episode visits, with moves into terminal states.
    moves = sparse.csr_array(
        (np.ones(keep.sum()), (listed.state[keep], listed.next_state[keep])), shape=(S, S)
    )
    depth, _ = search_breadth_first(moves, np.flatnonzero(start))
    ambiguous = keep & ~ends & is_terminal[listed.next_state] & (depth[listed.state] >= 0)
    if ambiguous.any():
        i = int(np.argmax(ambiguous))
        raise InvalidModelError(
            f"state {listed.next_state[i]} is entered with and without terminating (without: from "
            f"state {listed.state[i]}): make two states of it in the environment's table"
        )
    source = target = np.flatnonzero(is_terminal)
    p = np.ones(source.size)
    if on_termination == "restart":
        support = np.flatnonzero(start)
        target, p = np.tile(support, source.size), np.tile(start[support], source.size)
        source = np.repeat(source, support.size)
    of_table = listed.state, listed.action, listed.next_state, listed.probability, listed.reward
    actions, zeros = np.tile(np.arange(A), source.size), np.zeros(source.size * A)
    of_ends = np.repeat(source, A), actions, np.repeat(target, A), np.repeat(p, A), zeros
    columns = zip(of_table, of_ends, strict=True)
    outcomes = Outcomes(S, A, *(np.concatenate((c[keep], more)) for c, more in columns))
    require_outcomes(outcomes, has, "leave the list empty if the state lacks the action")
    return outcomes, start


def _find_table(
    env: gymnasium.Env[Any, Any], initial: ArrayLike | None
) -> tuple[Mapping[int, Any], FloatArray]:
    bare = env.unwrapped
    table, mdp = getattr(bare, "P", None), getattr(bare, "mdp", None)
    if getattr(mdp, "durations", None) is not None:
        raise InvalidModelError(
            f"steps of {bare} take time, which its table lacks: use env.unwrapped.mdp"
        )
    if not isinstance(table, Mapping):
        raise InvalidModelError(
            f"{bare} has no transition table P[state][action], as FrozenLake, Taxi and "
            "CliffWalking have"
        )
    if initial is None:
        of_model = getattr(mdp, "initial_distribution", None)
        initial = getattr(bare, "initial_state_distrib", of_model)
    if initial is None:
        raise InvalidModelError(
            f"{bare!r} has no initial distribution (initial_state_distrib); pass initial="
        )
    start = read_distribution(initial, "initial", 0.0)
    if start.shape != (len(table),):
        raise InvalidModelError(f"initial must have shape ({len(table)},), got {start.shape}")
    return table, start


def _read_table(table: Mapping[int, Any]) -> tuple[Outcomes, BoolArray, BoolArray]:
    """Return the possible outcomes, the actions of each state (S, A), and terminations (n,)."""
    S, A = len(table), len(table.get(0, ()))
    for s in range(S):
        actions = table.get(s, ())
        if len(actions) != A or (isinstance(actions, Mapping) and set(actions) != set(range(A))):
            raise InvalidModelError(
                f"the table lists {A} actions for state 0 and {len(actions)} for state {s}; states "
                f"must be 0 to {S - 1}, each with actions 0 to {A - 1}, or an empty list where it "
                "lacks one"
            )
    rows = [(s, a, *outcome) for s in range(S) for a in range(A) for outcome in table[s][a]]
    wrong = next((row for row in rows if len(row) != 6), None)
    if not rows or wrong:
        raise InvalidModelError(
            "the table lists outcomes (probability, next_state, reward, terminated), at least one; "
            f"got {wrong and wrong[2:]}"
        )
    first, second, *columns = zip(*rows, strict=True)
    state, action = np.array(first), np.array(second)
    successor = read_integers(columns[1], "next states of P")
    outside = successor[(successor < 0) | (successor >= S)]
    if outside.size:
        raise InvalidModelError(
            f"the table leads to state {outside[0]}, which must lie in 0 to {S - 1}"
        )
    p = read_floats(columns[0], "probabilities of P")
    reward, ends = read_reals(columns[2], "rewards of P"), np.array(columns[3], dtype=bool)
    has = np.zeros((S, A), dtype=bool)
    has[state, action] = True
    # In double, since terminal states are added.
    describe = Outcomes(S, A, state, action, successor, p, reward).describe
    p = in_double(p, state * A + action, S * A, describe)
    k = p != 0.0
    return Outcomes(S, A, state[k], action[k], successor[k], p[k], reward[k]), has, ends[k]


def _check_steps(
    env: gymnasium.Env[Any, Any], table: Mapping[int, Any], start: FloatArray | None
) -> None:
    """Raise `InvalidModelError` if a copy of the environment contradicts its table or ``start``."""
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
    except Exception as problem:  # some environments cannot be copied
        warn_caller(f"{env} cannot be copied, so its table is unchecked: {problem}", UserWarning)
        return
    rng = np.random.default_rng(0)
    state = _state_of(copy.reset(seed=0)[0], len(table))
    is_first = True
    for _ in range(CHECKED_STEPS):
        if is_first and start is not None and not start[state] > 0.0:
            raise InvalidModelError(
                f"the environment started in state {state}, of which its initial distribution says "
                "that it never does; pass initial="
            )
        actions = [a for a in range(len(table[state])) if len(table[state][a])]
        ended = not actions
        if actions:
            action = actions[rng.integers(len(actions))]
            observation, reward, terminated, truncated, _ = copy.step(action)
            following = _state_of(observation, len(table))
            step = following, bool(terminated)
            outcomes = [(n, bool(ends), r) for p, n, r, ends in table[state][action] if p > 0.0]
            if not any(o[:2] == step and isclose(o[2], reward, rel_tol=1e-6) for o in outcomes):
                raise InvalidModelError(
                    f"the table does not hold what the environment does: action {action} in state "
                    f"{state} led to state {following} with reward {reward} and terminated "
                    f"{terminated}, and the table lists {table[state][action]}. Pass "
                    "env.unwrapped if a wrapper changes it"
                )
            state, ended = following, terminated or truncated
        is_first = ended
        if ended:
            state = _state_of(copy.reset()[0], len(table))


def _state_of(observation: Any, n_states: int) -> int:
    try:
        state = index(observation)
    except TypeError:
        state = -1
    if not 0 <= state < n_states:
        raise InvalidModelError(
            f"the environment's observations are not the states 0 to {n_states - 1} of its table: "
            f"got {brief(observation)}; pass env.unwrapped if a wrapper changes them"
        )
    return state
