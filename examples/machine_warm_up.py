# %% [markdown]
"""A machine that warms up.

A cold machine works slowly and breaks down more often; after a repair it is cold. Preheating before
the shift costs energy worth 12 pieces. Is that worth it?
"""

# %%
from small_models import Estimate, Outcome, TableEnv, draw_worth, over_runs

from lstd_agent import OneHot, SeminormLSTDAgent
from unichain_gym import TabularMDP

WARM, BROKEN = 5, 6  # states 0 (cold) to 5 (warm), and one for repair
PREHEATING = 12.0
WARMING, REPAIR = 0.25, 0.1  # probabilities a minute


def outcomes_of(level: int) -> list[Outcome]:
    """List the outcomes of a minute at a level of warmth: a breakdown, a rise, or neither."""
    pieces = 1.0 + 0.4 * level
    breakdown = 0.02 - 0.003 * level
    rise = (1.0 - breakdown) * (WARMING if level < WARM else 0.0)
    return [
        (breakdown, BROKEN, pieces, False),
        (rise, min(level + 1, WARM), pieces, False),
        (1.0 - breakdown - rise, level, pieces, False),
    ]


def make_machine() -> TableEnv:
    """Return the machine; trials start at any level, or in repair."""
    repair: list[Outcome] = [(REPAIR, 0, 0.0, False), (1.0 - REPAIR, BROKEN, 0.0, False)]
    outcomes = [outcomes_of(level) for level in range(WARM + 1)]
    return TableEnv([*outcomes, repair], starts=list(range(BROKEN + 1)))


# %%
def main(n_runs: int = 4, n_trials: int = 300, picture: str | None = None) -> Estimate:
    """Estimate the value of a warm start, decide, and compare with the exact value."""
    env = make_machine()
    levels = list(range(WARM + 1))
    worths = over_runs(
        lambda: SeminormLSTDAgent(OneHot()),
        env,
        lambda level: 0,
        lambda agent: agent.predict(levels) - agent.predict(0),
        n_runs=n_runs,
        n_trials=n_trials,
        t_max=400,
    )
    exact = TabularMDP.from_gymnasium(env).induce([0] * len(env.P)).bias
    worth = worths[WARM]
    print(f"a warm start is worth {worth} pieces; exactly {exact[WARM] - exact[0]:.2f}")
    print(f"preheating for {PREHEATING:g} pieces is {worth.against(PREHEATING)}")
    if picture is not None:
        draw_worth(
            levels,
            worths,
            exact[levels] - exact[0],
            title="What a warm start is worth, beside the price of preheating",
            xlabel="level of warmth at the start of the shift",
            ylabel="pieces more than from cold",
            price=PREHEATING,
        ).savefig(picture)
    return worth


if __name__ == "__main__":
    main(picture="machine_warm_up.png")
