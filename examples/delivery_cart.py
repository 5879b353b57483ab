# %% [markdown]
"""A delivery cart in somebody else's environment.

In a hall of `gym_simplegrid` (``pip install gym-simplegrid``) a cart brings parcels from a gate to
a packing table, again and again; one move in ten slips. A delivery pays 1, a move costs 0.1. At
night the loaded cart stays at its place. Is it worth 0.4 to move it beside the table? The average
does not answer: the long-run reward of a move does not depend on the cart's place in the morning.
"""

# %%
from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
from small_models import Estimate, draw_worth, over_runs

from lstd_agent import OneHot, SeminormLSTDAgent
from unichain_gym import TabularMDP

GATE, BESIDE, TABLE = 0, 62, 63  # cells
PRICE, SLIP = 0.4, 0.1
ENV_ID = "gym_simplegrid:SimpleGrid-8x8-v0"


class Deliveries(gym.Wrapper[int, int, int, int]):
    """Parcel after parcel: after a delivery the cart is at the gate, without pay for that move."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Find the cart anywhere but at the table."""
        self.delivered = False
        while True:
            cell, info = self.env.reset(seed=seed, options={"goal_loc": TABLE})
            if cell != TABLE:
                return cell, info
            seed = None

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Move, or begin the next delivery."""
        if self.delivered:
            self.delivered = False
            cell, info = self.env.reset(options={"start_loc": GATE, "goal_loc": TABLE})
            return cell, 0.0, False, False, info
        random = self.unwrapped.np_random
        move = int(random.integers(4)) if random.random() < SLIP else int(action)
        cell, reward, self.delivered, _, info = self.env.step(move)
        return cell, float(reward), False, False, info


# %% [markdown] Trying each move in each cell gives the model for an exact answer. The cart takes
# shortest paths to the table.


# %%
def moves(env: gym.Env[int, int]) -> dict[int, list[tuple[int, float]]]:
    """Return where each action leads from each free cell, and its reward."""
    found: dict[int, list[tuple[int, float]]] = {}
    grid = env.unwrapped.model  # type: ignore[attr-defined]
    for cell in range(grid.nrow * grid.ncol):
        if not grid.is_free(*grid.to_xy(cell)):
            continue
        found[cell] = []
        for action in range(4):
            env.reset(options={"start_loc": cell, "goal_loc": TABLE})
            to, reward, *_ = env.step(action)
            found[cell].append((int(to), float(reward)))
    return found


def shortest_ways(table: dict[int, list[tuple[int, float]]]) -> np.ndarray[Any, Any]:
    """Return an action of each cell that moves nearer to the table."""
    policy, reached, waiting = np.zeros(64, dtype=int), {TABLE}, deque([TABLE])
    while waiting:
        goal = waiting.popleft()
        for cell, outcomes in table.items():
            towards = [action for action, (to, _) in enumerate(outcomes) if to == goal]
            if cell not in reached and towards:
                policy[cell] = towards[0]
                reached.add(cell)
                waiting.append(cell)
    return policy


def exact_bias(table: dict[int, list[tuple[int, float]]], policy: Any) -> np.ndarray[Any, Any]:
    """Return the bias of each cell, NaN where the cart cannot be."""
    transitions: list[tuple[int, int, int, float, float]] = []
    for cell in range(64):
        if cell == TABLE or cell not in table:
            transitions.append((cell, 0, GATE, 1.0, 0.0))
            continue
        for action, (to, reward) in enumerate(table[cell]):
            chance = SLIP / 4 + (1.0 - SLIP) * (action == policy[cell])
            transitions.append((cell, 0, to, chance, reward))
    bias = TabularMDP.from_transitions(transitions, np.eye(64)[GATE]).induce([0] * 64).bias
    return np.where(np.isin(np.arange(64), list(table)), bias, np.nan)


# %%
def main(n_runs: int = 4, n_trials: int = 1500, picture: str | None = None) -> Estimate:
    """Estimate the value of a start beside the table, decide, and compare with the exact value."""
    try:
        env = gym.make(ENV_ID, disable_env_checker=True, max_episode_steps=-1)
    except ModuleNotFoundError as error:
        raise SystemExit("this example needs gym_simplegrid: pip install gym-simplegrid") from error
    table = moves(env)
    policy, cells = shortest_ways(table), [cell for cell in table if cell != TABLE]
    shown = [GATE, 7, 56, BESIDE]
    worths = over_runs(
        lambda: SeminormLSTDAgent(OneHot(), backup="model"),
        Deliveries(env),
        policy,
        lambda agent: (
            agent.predict(BESIDE) - np.append(agent.predict(shown), agent.predict(cells).mean())
        ),
        n_runs=n_runs,
        n_trials=n_trials,
        t_max=100,
    )
    bias = exact_bias(table, policy)
    exact = bias[BESIDE] - np.append(bias[shown], bias[cells].mean())
    worth = worths[-1]
    print(f"a morning beside the table is worth {worth}; exactly {exact[-1]:.2f}")
    print(f"taking the cart there for {PRICE:g} is {worth.against(PRICE)}")
    if picture is not None:
        draw_worth(
            [*map(str, shown), "anywhere"],
            worths,
            exact,
            title="What a morning beside the table is worth, against other cells",
            xlabel="cell where the cart would stand instead",
            ylabel="reward more from beside the table",
            price=PRICE,
        ).savefig(picture)
    return worth


if __name__ == "__main__":
    main(picture="delivery_cart.png")
