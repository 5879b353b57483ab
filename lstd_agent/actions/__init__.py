"""Action values, and better policies: rows are pairs of a state and an action."""
