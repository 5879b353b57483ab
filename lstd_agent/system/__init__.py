"""The paper's algorithms, in the order in which they run."""
