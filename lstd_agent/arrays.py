"""The array types of annotations; docstrings give the shapes."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

States: TypeAlias = NDArray[Any]
"""Encoded observations: (n,) state numbers, or (n, k) vectors."""
