"""The paper's experiments, and our own."""
