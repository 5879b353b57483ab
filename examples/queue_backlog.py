# %% [markdown]
"""A queue with a backlog.

A counter serves one customer at a time. On Monday morning 15 customers are waiting. A crew from
next door would serve them all at once, for 500. Waiting costs 1 for each customer and minute.
Is the crew worth it?

The average does not answer: the long-run mean number waiting is 2 with and without the crew. The
bias answers.
"""

# %%
from small_models import Estimate, Outcome, TableEnv, draw_worth, over_runs

from lstd_agent import OneHot, SeminormLSTDAgent
from unichain_gym import TabularMDP

BACKLOG, PRICE = 15, 500.0
ARRIVAL, SERVICE = 0.4, 0.6  # probabilities of the one event in a minute
MOST = 60  # customers; a longer queue turns arrivals away


def make_queue() -> TableEnv:
    """Return a random walk that starts with any number up to a few more than the backlog."""
    outcomes: list[list[Outcome]] = [
        [
            (ARRIVAL, min(n + 1, MOST), -float(n), False),
            (SERVICE, max(n - 1, 0), -float(n), False),
        ]
        for n in range(MOST + 1)
    ]
    return TableEnv(outcomes, starts=list(range(BACKLOG + 6)))


# %% [markdown]
# The cost of the backlog is the bias of an empty counter less that of 15 waiting.


# %%
def main(n_runs: int = 5, n_trials: int = 400, picture: str | None = None) -> Estimate:
    """Estimate the cost of the backlog, decide, and compare with the exact cost."""
    env = make_queue()
    waiting = list(range(0, BACKLOG + 6, 5))
    costs = over_runs(
        lambda: SeminormLSTDAgent(OneHot()),
        env,
        lambda n: 0,
        lambda agent: agent.predict(0) - agent.predict(waiting),
        n_runs=n_runs,
        n_trials=n_trials,
        t_max=600,
    )
    exact = TabularMDP.from_gymnasium(env).induce([0] * (MOST + 1)).bias
    cost = costs[waiting.index(BACKLOG)]
    print(f"the backlog costs {cost}; exactly {exact[0] - exact[BACKLOG]:.2f}")
    print(f"a crew for {PRICE:g} is {cost.against(PRICE)}")
    if picture is not None:
        draw_worth(
            waiting,
            costs,
            exact[0] - exact[waiting],
            title="What a backlog costs, beside the price of a crew",
            xlabel="customers waiting in the morning",
            ylabel="cost, 1 for each customer and minute",
            price=PRICE,
        ).savefig(picture)
    return cost


if __name__ == "__main__":
    main(picture="queue_backlog.png")
