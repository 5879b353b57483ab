"""The package's exceptions, every one derived from `EvaluationError`, and its warning.

Each message says what was wrong, with which value, and what to do instead.
"""

from __future__ import annotations

import operator
from typing import TypeVar

Choice = TypeVar("Choice", bound=str)


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


class FitWarning(UserWarning):
    """The values of a fit may be far off: the message says why, and what to do."""


def check_choice(name: str, value: Choice, choices: tuple[str, ...]) -> Choice:
    """Return an option, or raise `InvalidInputError` unless it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInputError(f"{name} must be one of {choices}; got {value!r}")
    return value


def check_integer(name: str, value: object, smallest: int) -> int:
    """Return an integer argument, or raise `InvalidInputError`; True and 2.0 are not integers."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InvalidInputError(f"{name} must be an integer; got {value!r}")
    if number < smallest:
        raise InvalidInputError(f"{name} must be at least {smallest}; got {number}")
    return number
