"""Methods that one object passes on to another, described where the work is done.

.. code-block:: python

    class Agent:
        predict = delegated(Fit.predict, to="latest_fit")

``agent.predict(...)`` is ``agent.latest_fit.predict(...)``, with its signature and its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def delegated(
    method: Callable[Concatenate[Any, Arguments], Answer], *, to: str
) -> Callable[Concatenate[Any, Arguments], Answer]:
    """Return a method that asks an attribute of its object.

    Parameters
    ----------
    method : callable
        Of the attribute's class.
    to : str
        The attribute's name, with dots if it is an attribute's.
    """
    of = attrgetter(to)

    @wraps(method)
    def ask(owner: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        return method(of(owner), *args, **kwargs)

    return ask


def chained(
    method: Callable[Concatenate[Any, Arguments], None], *, to: str
) -> Callable[Concatenate[Owner, Arguments], Owner]:
    """Return a method that changes an attribute of its object, and returns the object.

    Parameters
    ----------
    method, to
        As in `delegated`.
    """
    of = attrgetter(to)

    @wraps(method)
    def change(owner: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Owner:
        method(of(owner), *args, **kwargs)
        return owner

    return change
