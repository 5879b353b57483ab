"""Better policies from samples: evaluate, improve, repeat."""
