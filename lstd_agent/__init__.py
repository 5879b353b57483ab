"""A model-free evaluator of the bias from transient and recurrent states.

The system of seminorm LSTD approximators of Dewanto & Gallagher (arXiv:2204.04324).
`SeminormLSTDAgent` is the evaluator, and `PolicyIteration` improves policies by its values. The
rest are features, distances, backups, results, trials to hand in, a wrapper that makes episodic
environments continuing, the base of all errors, and the warning of an unreliable fit.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstd_agent.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    # Imports wait for the first use, so that the command `unichain` can stop before them.
    names, public = globals(), vars(import_module("lstd_agent.public"))
    names |= {each: found for each, found in public.items() if each[0] != "_"}
    names["__all__"] = sorted(each for each in public if each[0] != "_")
    if name not in names:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return names[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *vars(import_module("lstd_agent.public"))})
