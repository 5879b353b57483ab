
from typing import Any
class Diagnostics:
    warnings: list[str] = []
def check_single_class(a,b): pass
def check_own_trials(a): pass
def diagnose(fit: Any) -> Diagnostics:
    """x"""
    return Diagnostics()
