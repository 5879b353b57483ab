"""State features: tables of Discrete observations, functions of vectors, and kernels on them."""
