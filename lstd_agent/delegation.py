"""Methods that one object passes on to another, described where the work is done.

.. code-block:: python

    class Agent:
        predict = delegated(Fit.predict, to="latest_fit")

``agent.predict(...)`` is ``agent.latest_fit.predict(...)``, with its signature and its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
Method = TypeVar("Method", bound=Callable[..., Any])


def delegated(
    method: Callable[Concatenate[Any, Arguments], Answer], *, to: str
) -> Callable[Concatenate[Any, Arguments], Answer]:
    """Return a method that asks an attribute of its object.

    Parameters
    ----------
    method : callable
        Of the attribute's class, or a function of the attribute.
    to : str
        The attribute's name.
    """
    of = attrgetter(to)

    @wraps(method)
    def ask(owner: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        return method(of(owner), *args, **kwargs)

    return _of_self(ask)


def chained(
    method: Callable[Concatenate[Any, Arguments], None], *, to: str
) -> Callable[Concatenate[Owner, Arguments], Owner]:
    """Return a method that changes an attribute of its object, and returns the object."""
    of = attrgetter(to)

    @wraps(method)
    def change(owner: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Owner:
        method(of(owner), *args, **kwargs)
        return owner

    return _of_self(change)


def _of_self(function: Method) -> Method:
    """Return a method whose first parameter is called as that of any other."""
    found = signature(function)
    first, *others = found.parameters.values()
    named = found.replace(parameters=[first.replace(name="self"), *others])
    vars(function)["__signature__"] = named
    return function
