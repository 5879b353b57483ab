"""Every bad value of every public argument is an answer or an error of this package, never raw."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from scipy import sparse

import unichain_gym as ug
from unichain_gym import MarkovChain, TabularEnv, TabularMDP, TabularVectorEnv, make_mdp
from unichain_gym.errors import UnichainError

MDP = make_mdp("h6")
P, R, START = MDP.to_arrays()
CHAIN = MDP.induce([1, 0, 1, 0, 1, 0])
TRANSITIONS = [(0, 0, 0, 0.5, 1.0), (0, 0, 1, 0.5, 1.0), (1, 0, 0, 1.0, 0.0)]
FOUR: dict[str, Any] = {
    "next_state": MDP.next_state,
    "probability": MDP.probability,
    "reward": MDP.reward,
    "initial_distribution": START,
}
# What takes long by its size alone, and is no mistake.
LONG = ("huge", "beyond doubles", "largest int32", "largest int64")
TAKES_LONG = ("simulate_counts(t_max)",)


class Nothing:
    """An object that no conversion turns into a number."""

    def __bool__(self) -> bool:
        raise ValueError("no truth value")


BAD: dict[str, Any] = {
    "None": None,
    "text": "x",
    "text of a number": ".9",
    "bytes": b"6",
    "True": True,
    "negative": -1,
    "half": 2.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "complex": 1j,
    "huge": 2**70,
    "beyond doubles": 10**400,
    "largest int32": 2**31 - 1,
    "largest int64": 2**63 - 1,
    "empty": [],
    "empty rows": [[]],
    "ragged": [[1], [2, 3]],
    "dict": {"a": 1},
    "set": {1, 2},
    "object": Nothing(),
    "type": int,
    "masked": np.ma.masked_array([0, 1, 0, 1, 0, 1], [False] * 5 + [True]),
    "masked value": np.ma.masked,
    "array": np.arange(6),
    "floats": np.linspace(-1.0, 1.0, 6),
    "nans": np.full(6, np.nan),
    "texts": ["a", "b", "a", "b", "a", "b"],
    "objects": np.array([None, 1, "x", 2.0, 1j, Nothing()], dtype=object),
    "dates": np.array(["2020-01-01"] * 6, dtype="M8[D]"),
    "columns": np.ones((6, 1)),
    "cube": np.ones((2, 2, 2)),
    "sparse": sparse.eye_array(6, format="csr"),
    "list of sparse": [sparse.eye_array(6, format="coo"), None],
    "function": len,
}


def with_field(field: str, value: Any) -> TabularMDP:
    return TabularMDP(**{**FOUR, field: value})


def with_option(option: str, value: Any) -> TabularMDP:
    return make_mdp("h6", **{option: value})


def with_entry(i: int, value: Any) -> TabularMDP:
    changed = tuple(value if j == i else entry for j, entry in enumerate(TRANSITIONS[2]))
    return TabularMDP.from_transitions([*TRANSITIONS[:2], changed], [1.0, 0.0])


def started(env: Any) -> Any:
    env.reset(seed=0)
    return env


def changed(env: Any, key: str, value: Any) -> None:
    started(env).set_state({**env.get_state(), key: value})


CALLS: dict[str, Any] = {
    **{f"TabularMDP({k}=)": partial(with_field, k) for k in FOUR},
    "TabularMDP(state_names=)": lambda v: TabularMDP(**FOUR, state_names=v),
    "TabularMDP(action_names=)": lambda v: TabularMDP(**FOUR, action_names=v),
    "TabularMDP(drop_below=)": lambda v: TabularMDP(**FOUR, drop_below=v),
    "from_arrays(P)": lambda v: TabularMDP.from_arrays(v, R, START),
    "from_arrays(R)": lambda v: TabularMDP.from_arrays(P, v, START),
    "from_arrays(initial)": lambda v: TabularMDP.from_arrays(P, R, v),
    "from_arrays(order=)": lambda v: TabularMDP.from_arrays(P, R, START, order=v),
    "from_arrays(allowed=)": lambda v: TabularMDP.from_arrays(P, R, START, allowed=v),
    "from_transitions(transitions)": lambda v: TabularMDP.from_transitions(v, [1.0, 0.0]),
    "from_transitions(initial)": lambda v: TabularMDP.from_transitions(TRANSITIONS, v),
    **{f"from_transitions(entry {i})": partial(with_entry, i) for i in range(5)},
    "from_gymnasium(env)": TabularMDP.from_gymnasium,
    "from_gymnasium(initial=)": lambda v: TabularMDP.from_gymnasium(TabularEnv(MDP), initial=v),
    "from_gymnasium(on_termination=)": lambda v: TabularMDP.from_gymnasium(
        TabularEnv(MDP), on_termination=v
    ),
    **{
        name: getattr(MDP, name)
        for name in (
            *("induce", "check_policy", "random_policy", "reachable", "optimal_policy"),
            *("worst_policy", "save", "load"),
        )
    },
    "optimal_policy(discount)": lambda v: MDP.optimal_policy("discounted", v),
    "optimal_policy(horizon=)": lambda v: MDP.optimal_policy(horizon=v),
    "optimal_policy(terminal=)": lambda v: MDP.optimal_policy(horizon=3, terminal=v),
    "optimal_policy(horizon=, discount)": lambda v: MDP.optimal_policy(horizon=3, discount=v),
    "plot(values=)": lambda v: MDP.plot(values=v),
    "plot(policy=)": lambda v: MDP.plot(policy=v),
    "plot(above=)": lambda v: MDP.plot(above=v),
    "policies in": lambda v: v in MDP.policies(),
    "MarkovChain(matrix)": lambda v: MarkovChain(v, CHAIN.reward, START),
    "MarkovChain(reward)": lambda v: MarkovChain(CHAIN.transition_matrix, v, START),
    "MarkovChain(initial)": lambda v: MarkovChain(CHAIN.transition_matrix, CHAIN.reward, v),
    "MarkovChain(mdp=)": lambda v: MarkovChain(CHAIN.transition_matrix, CHAIN.reward, START, mdp=v),
    "MarkovChain(policy=)": lambda v: MarkovChain(
        CHAIN.transition_matrix, CHAIN.reward, START, mdp=MDP, policy=v
    ),
    "MarkovChain(state_names=)": lambda v: MarkovChain(
        CHAIN.transition_matrix, CHAIN.reward, START, state_names=v
    ),
    **{
        f"chain.{name}": getattr(CHAIN, name)
        for name in (
            *("class_of", "reachable", "relative_value", "asymptotic_variance", "mixing_time"),
            *("discounted_value", "bisimulation_distance", "max_absorption_time", "hitting_time"),
            *("hitting_time_variance", "hitting_reward", "hitting_probability"),
            *("stepwise_distributions", "finite_horizon_value"),
        )
    },
    "hitting_time(given_hit)": lambda v: CHAIN.hitting_time(v, given_hit=True),
    "hitting_probability(avoiding)": lambda v: CHAIN.hitting_probability(0, v),
    "stepwise_distributions(tol)": lambda v: CHAIN.stepwise_distributions(3, v),
    "finite_horizon_value(terminal)": lambda v: CHAIN.finite_horizon_value(3, v),
    "simulate(n_steps)": lambda v: CHAIN.simulate(v, 0),
    "simulate(seed)": lambda v: CHAIN.simulate(3, v),
    "mixing_time(start)": lambda v: CHAIN.mixing_time(start=v),
    "chain.plot(values=)": lambda v: CHAIN.plot(values=v),
    "chain.plot(above=)": lambda v: CHAIN.plot(above=v),
    "make_mdp(mnemonic)": make_mdp,
    "make_mdp(core_options=)": lambda v: make_mdp("h6", core_options=v),
    **{
        f"make_mdp({k}=)": partial(with_option, k)
        for k in ("advance_probs", "stream_rewards", "entry_state")
    },
    "attach_streams(core)": lambda v: ug.attach_streams(v, 1, 2),
    "attach_streams(n_streams)": lambda v: ug.attach_streams(MDP, v, 2),
    "attach_streams(length)": lambda v: ug.attach_streams(MDP, 1, v),
    "simulate_counts(chain)": lambda v: ug.simulate_counts(v, 3, 3, 0),
    "simulate_counts(n_trials)": lambda v: ug.simulate_counts(CHAIN, v, 3, 0),
    "simulate_counts(t_max)": lambda v: ug.simulate_counts(CHAIN, 3, v, 0),
    "simulate_counts(rng)": lambda v: ug.simulate_counts(CHAIN, 3, 3, v),
    "register_mnemonics": ug.register_mnemonics,
    "TabularEnv(mdp)": TabularEnv,
    "TabularEnv(render_mode=)": lambda v: TabularEnv(MDP, render_mode=v),
    "TabularEnv(info_level=)": lambda v: TabularEnv(MDP, info_level=v),
    "UnichainEnv(mnemonic)": ug.UnichainEnv,
    "UnichainVectorEnv(num_envs)": ug.UnichainVectorEnv,
    "TabularVectorEnv(mdp)": TabularVectorEnv,
    "TabularVectorEnv(num_envs)": lambda v: TabularVectorEnv(MDP, v),
    "TabularVectorEnv(max_episode_steps=)": lambda v: TabularVectorEnv(MDP, max_episode_steps=v),
    "TabularVectorEnv(autoreset_mode=)": lambda v: TabularVectorEnv(MDP, autoreset_mode=v),
    "step": lambda v: started(TabularEnv(MDP)).step(v),
    "vector step": lambda v: started(TabularVectorEnv(MDP, 6)).step(v),
    "reset(seed=)": lambda v: TabularEnv(MDP).reset(seed=v),
    "reset(options=)": lambda v: TabularEnv(MDP).reset(options=v),
    "reset(state)": lambda v: TabularEnv(MDP).reset(options={"state": v}),
    "reset(distribution)": lambda v: TabularEnv(MDP).reset(options={"distribution": v}),
    "vector reset(seed=)": lambda v: TabularVectorEnv(MDP, 6).reset(seed=v),
    "vector reset(state)": lambda v: TabularVectorEnv(MDP, 6).reset(options={"state": v}),
    "vector reset(mask)": lambda v: TabularVectorEnv(MDP, 6).reset(options={"reset_mask": v}),
    "set_state": lambda v: started(TabularEnv(MDP)).set_state(v),
    "vector set_state": lambda v: started(TabularVectorEnv(MDP, 6)).set_state(v),
    **{
        f"set_state({k})": partial(changed, TabularEnv(MDP), k) for k in TabularEnv(MDP).get_state()
    },
    **{
        f"vector set_state({k})": partial(changed, TabularVectorEnv(MDP, 6), k)
        for k in TabularVectorEnv(MDP, 6).get_state()
    },
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_no_bad_value_is_a_raw_error(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a path that is text is a path
    registered = dict(gym.registry)
    raw = {}
    for name, value in BAD.items():
        if call in TAKES_LONG and name in LONG:
            continue
        try:
            CALLS[call](value)
        except (UnichainError, FileNotFoundError):
            pass
        except Exception as error:
            raw[name] = f"{type(error).__name__}: {error}"
    gym.registry.clear()
    gym.registry.update(registered)
    assert raw == {}
