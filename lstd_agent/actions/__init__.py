"""What actions are worth, and better policies: rows are pairs of a state and an action."""
