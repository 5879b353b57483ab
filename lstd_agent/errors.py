"""The package's exceptions: every one derives from `EvaluationError`.

Each message says what was wrong, with which value, and what to do instead.
"""

from __future__ import annotations


class EvaluationError(Exception):
    """Base of every error that `lstd_agent` raises deliberately."""


class InvalidInputError(EvaluationError, ValueError):
    """An argument that does not fit: wrong shape, range, type or name."""


class NotFittedError(EvaluationError, RuntimeError):
    """A result was asked for before the data or the fit it needs."""


class TerminationError(EvaluationError, RuntimeError):
    """A trial ended early; the evaluator is for continuing tasks."""


class MissingDependencyError(EvaluationError, ImportError):
    """An optional extra is needed and not installed."""
