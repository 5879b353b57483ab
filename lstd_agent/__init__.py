"""A model-free evaluator of the bias from transient and recurrent states.

The system of seminorm LSTD approximators of Dewanto & Gallagher (arXiv:2204.04324).
`SeminormLSTDAgent` is the evaluator. `PolicyIteration` improves policies by what it evaluates. The
rest are features, distances, backups and results, trials to give it, a wrapper that makes episodic
environments continuing, the base of all errors, and the warning of a fit that may be
far off.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstd_agent.public import *  # noqa: F403
    from lstd_agent.public import __all__ as __all__


def __getattr__(name: str) -> Any:
    # The first use of a public name imports all: `unichain` must be able to stop before.
    public = import_module("lstd_agent.public")
    names = globals()
    names["__all__"] = public.__all__
    names.update({each: getattr(public, each) for each in public.__all__})
    if name not in names:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return names[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("lstd_agent.public").__all__})
