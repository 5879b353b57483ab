"""The paper's experiments: the only part that imports both packages."""
