"""Semi-gradient evaluation: weights that start somewhere, and move."""
