# %% [markdown]
"""Where to start a shift.

Gymnasium's Taxi as a continuing task: after each passenger the next one appears, and the taxi is
somewhere in the city. A driver may begin the shift at any of four ranks. What is the value of the
best rank against the worst?
"""

# %%
import gymnasium as gym
import numpy as np
from small_models import Estimate, draw_worth, over_runs

from lstd_agent import OneHot, Restart, SeminormLSTDAgent
from unichain_gym import TabularMDP

RANKS = {"red": (0, 0), "green": (0, 4), "yellow": (4, 0), "blue": (4, 3)}
TAXI = "Taxi-v4" if "Taxi-v4" in gym.registry else "Taxi-v3"


def first_states(rank: tuple[int, int]) -> list[int]:
    """Return the states of an empty taxi at a rank: any passenger, any other destination."""
    city = gym.make(TAXI).unwrapped
    ranks = range(4)
    return [city.encode(*rank, p, d) for p in ranks for d in ranks if p != d]  # type: ignore[attr-defined]


# %%
def main(n_runs: int = 4, n_trials: int = 1500, picture: str | None = None) -> Estimate:
    """Estimate the value of the best rank against the worst."""
    model = TabularMDP.from_gymnasium(gym.make(TAXI), on_termination="restart")
    driving = model.optimal_policy()
    exact = {name: float(np.mean(driving.bias[first_states(at)])) for name, at in RANKS.items()}
    worst = min(exact, key=exact.__getitem__)
    most = max(exact.values())
    best = [name for name, value in exact.items() if most - value < 1e-9]  # a tie, up to rounding
    starts = [first_states(at) for at in RANKS.values()]
    from_worst = first_states(RANKS[worst])
    worths = over_runs(
        lambda: SeminormLSTDAgent(OneHot(), 1, tail="window"),  # starts are like any trip's
        Restart(gym.make(TAXI, max_episode_steps=-1)),
        driving.policy,
        lambda agent: [agent.predict(s).mean() - agent.predict(from_worst).mean() for s in starts],
        n_runs=n_runs,
        n_trials=n_trials,
        t_max=100,
    )
    worth = worths[list(RANKS).index(best[0])]
    print(f"{best[0]} instead of {worst} is worth {worth}; exactly {most - exact[worst]:.2f}")
    sure = abs(worth.value) > 2.0 * worth.error
    print(f"start at {' or '.join(best)}" if sure else "the samples do not tell the ranks apart")
    if picture is not None:
        draw_worth(
            list(RANKS),
            worths,
            [value - exact[worst] for value in exact.values()],
            title="What each rank is worth for the start of a shift",
            xlabel="rank",
            ylabel=f"reward more than from {worst}",
        ).savefig(picture)
    return worth


if __name__ == "__main__":
    main(picture="taxi_shift.png")
