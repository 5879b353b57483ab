"""Whether two policies are the same: trials of another one must not be added unawares."""

from __future__ import annotations

import types
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.learned_policies import fingerprint, is_model
from lstd_agent.trials.policies import Policy


@dataclass(frozen=True, eq=False)
class StatedPolicy:
    """A policy as it was when trials were said to be its own.

    Attributes
    ----------
    policy : policy
        Of a model its ``predict`` method.
    fingerprint : str or None
        Of the parameters of one that learns.
    """

    policy: Policy
    fingerprint: str | None = None

    @classmethod
    def of(cls, policy: Any) -> StatedPolicy:
        """Return a policy with its parameters' fingerprint."""
        return cls(policy.predict if is_model(policy) else policy, fingerprint(policy))

    def check_same(self, before: StatedPolicy) -> None:
        """Raise `InvalidInputError` unless it is the policy of trials before, learning no more."""
        if self.fingerprint != before.fingerprint or not same_policy(before.policy, self.policy):
            raise InvalidInputError(
                "the trials so far are of another policy, and values are those of one policy: "
                "forget them with reset(), make a new agent, or say that it is the same with "
                "is_same_policy=True"
            )


def same_policy(a: Any, b: Any) -> bool:
    """Tell whether two policies are the same by what they are.

    Arrays are by their numbers, functions by their code and what it refers to, other callables
    by being the same object. A function that was written twice is two.
    """
    if a is b:
        return True
    if callable(a) != callable(b):
        return False
    if not callable(a):
        return np.array_equal(np.asarray(a), np.asarray(b))
    if isinstance(a, types.FunctionType) and isinstance(b, types.FunctionType):
        return a.__code__ == b.__code__ and _same_values(
            (a.__defaults__, a.__kwdefaults__, _closure(a)),
            (b.__defaults__, b.__kwdefaults__, _closure(b)),
        )
    if isinstance(a, types.MethodType) and isinstance(b, types.MethodType):
        return a.__func__ is b.__func__ and a.__self__ is b.__self__
    if isinstance(a, partial) and isinstance(b, partial):
        return same_policy(a.func, b.func) and _same_values(
            (a.args, a.keywords), (b.args, b.keywords)
        )
    return False


def _closure(function: types.FunctionType) -> tuple[Any, ...]:
    return tuple(cell.cell_contents for cell in function.__closure__ or ())


def _same_values(a: Any, b: Any) -> bool:
    """Compare what functions refer to; what cannot be compared differs."""
    if a is b:
        return True
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_values, a, b))
    if isinstance(a, types.FunctionType):
        return same_policy(a, b)
    try:
        return type(a) is type(b) and np.array_equal(a, b)
    except Exception:  # whatever comparing somebody's own objects does
        return False
