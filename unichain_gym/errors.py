"""The package's exceptions, every one derived from `UnichainError`, and its warning.

Each message says what was wrong, with which value, and what to do instead.
"""

from __future__ import annotations


class UnichainError(Exception):
    """Base of every error that `unichain_gym` raises deliberately."""


class InvalidModelError(UnichainError, ValueError):
    """A model, policy or state that does not fit: wrong shape, range or sum."""


class InvalidMnemonicError(UnichainError, ValueError):
    """A mnemonic such as ``h4b`` that names no environment."""


class InvalidArgumentError(UnichainError, ValueError):
    """A number, option or action out of range, such as zero trials."""


class MulticlassError(UnichainError, ValueError):
    """A quantity of unichain chains was asked of a chain with several recurrent classes."""


class PeriodicChainError(UnichainError, ValueError):
    """A limit of p^t was asked of a periodic chain, where it does not exist."""


class ConvergenceError(UnichainError, ArithmeticError):
    """A quantity is out of reach: a solver stopped short of its tolerance, a number is too large.

    The message states the residual or the limit.
    """


class ModelTooLargeError(UnichainError, MemoryError):
    """A dense array over pairs of states was asked of a model too large for one."""


class MissingDependencyError(UnichainError, ImportError):
    """An optional extra is needed and not installed."""


class RoundingWarning(UserWarning):
    """A model has probabilities of the size of rounding errors, where 0 may be meant."""
