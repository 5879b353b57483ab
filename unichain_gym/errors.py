"""The package's exceptions, all derived from `UnichainError`, and its warning.

Each message states the problem, the value, and what to do instead.
"""

from __future__ import annotations

import reprlib
import sys
import warnings
from typing import Any

import numpy as np

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxstring = 2, 2, 60


class UnichainError(Exception):
    """Base of every error that `unichain_gym` raises deliberately."""


class InvalidModelError(UnichainError, ValueError):
    """A model, policy or state that does not fit: wrong shape, range or sum."""


class InvalidMnemonicError(UnichainError, ValueError):
    """A mnemonic such as ``h4b`` that names no environment."""


class InvalidArgumentError(UnichainError, ValueError):
    """A number, option or action out of range, such as zero trials."""


class MulticlassError(UnichainError, ValueError):
    """A quantity needs one recurrent class, and the chain has several."""


class PeriodicChainError(UnichainError, ValueError):
    """A periodic chain has no limit of p^t."""


class ConvergenceError(UnichainError, ArithmeticError):
    """A solver missed its tolerance, or a number is too large."""


class ModelTooLargeError(UnichainError, MemoryError):
    """A table of outcomes, or a dense array over pairs of states, would be too large."""


class MissingDependencyError(UnichainError, ImportError):
    """An optional extra is needed and not installed."""


class RoundingWarning(UserWarning):
    """A model has probabilities of the size of rounding errors; they may stand for 0."""


def brief(value: Any) -> str:
    """Return a value as errors print it: shortened, in one line, NumPy's scalars as numbers."""
    return " ".join(_SHORT.repr(value.item() if isinstance(value, np.generic) else value).split())


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn with the location of the caller outside this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == "unichain_gym":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
