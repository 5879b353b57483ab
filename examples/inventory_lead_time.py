# %% [markdown]
"""A shop that opens with empty shelves.

Orders arrive after two days. Each evening the shop orders up to five units, including deliveries
under way. It opens tomorrow with no stock. An express delivery of five units tonight costs 20; an
ordinary one costs 10. Is that worth it?
"""

# %%
from small_models import Estimate, Outcome, TableEnv, draw_worth, over_runs

from lstd_agent import OneHot, SeminormLSTDAgent
from unichain_gym import TabularMDP

TARGET, EXPRESS = 5, 20.0
SALE, UNIT, HOLDING = 5.0, 2.0, 0.1  # per unit; holding per unit and day
DEMAND = {0: 0.3, 1: 0.4, 2: 0.3}


def state_of(stock: int, arriving: int) -> int:
    """Return the number of a state: what is on the shelves, and what arrives tomorrow."""
    return stock * (TARGET + 1) + arriving


def outcomes_of(stock: int, arriving: int) -> list[Outcome]:
    """List the outcomes of a day: an order, sales from stock, a delivery."""
    order = max(TARGET - stock - arriving, 0)
    found: list[Outcome] = []
    for demand, probability in DEMAND.items():
        sold = min(demand, stock)
        reward = SALE * sold - UNIT * order - HOLDING * stock
        left = min(stock - sold + arriving, TARGET)
        found.append((probability, state_of(left, order), reward, False))
    return found


def make_shop() -> TableEnv:
    """Return the shop; trials start with any stock and nothing under way."""
    numbers = range(TARGET + 1)
    outcomes = [outcomes_of(stock, arriving) for stock in numbers for arriving in numbers]
    return TableEnv(outcomes, starts=[state_of(stock, 0) for stock in numbers])


# %%
def main(n_runs: int = 4, n_trials: int = 800, picture: str | None = None) -> Estimate:
    """Estimate the value of full shelves, decide, and compare with the exact value."""
    env = make_shop()
    stocks = [state_of(stock, 0) for stock in range(TARGET + 1)]
    full, empty = stocks[-1], stocks[0]
    worths = over_runs(
        lambda: SeminormLSTDAgent(OneHot()),
        env,
        lambda state: 0,
        lambda agent: agent.predict(stocks) - agent.predict(empty),
        n_runs=n_runs,
        n_trials=n_trials,
        t_max=60,
    )
    exact = TabularMDP.from_gymnasium(env).induce([0] * len(env.P)).bias
    worth = worths[-1]
    print(f"full shelves are worth {worth}; exactly {exact[full] - exact[empty]:.2f}")
    print(f"an express delivery for {EXPRESS:g} is {worth.against(EXPRESS)}")
    if picture is not None:
        draw_worth(
            list(range(TARGET + 1)),
            worths,
            exact[stocks] - exact[empty],
            title="What stock on the first day is worth, beside an express delivery of five",
            xlabel="units on the shelves, none under way",
            ylabel="more than from empty shelves",
            price=EXPRESS,
        ).savefig(picture)
    return worth


if __name__ == "__main__":
    main(picture="inventory_lead_time.png")
