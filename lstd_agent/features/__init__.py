"""State features: tables of countable observations, functions of vectors, and kernels on them."""
