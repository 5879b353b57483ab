"""Recurrent cores by letter: the small MDPs that streams of transient states feed into.

Each file has the constants of its source, an `IntEnum` of actions, a function that builds the core,
and a `Core` that describes it; `CORES` lists all cores. Every deterministic stationary policy has
one recurrent class; for the random core ``g`` this holds for the default arguments only.
"""

from unichain_gym.cores.absorbing_state import ABSORBING_STATE, IdleAction, absorbing_state
from unichain_gym.cores.access_control import ACCESS_CONTROL, QueueAction, access_control
from unichain_gym.cores.core import Argument, Core
from unichain_gym.cores.garnet import GARNET, garnet
from unichain_gym.cores.machine_replacement import (
    MACHINE_REPLACEMENT,
    MachineAction,
    machine_replacement,
)
from unichain_gym.cores.queue_admission import QUEUE_ADMISSION, AdmissionAction, queue_admission
from unichain_gym.cores.random_repair import RANDOM_REPAIR, RepairAction, random_repair
from unichain_gym.cores.river_swim import RIVER_SWIM, SwimAction, river_swim
from unichain_gym.cores.strens_chain import STRENS_CHAIN, ChainAction, strens_chain
from unichain_gym.cores.taxicab import TAXICAB, TaxicabAction, taxicab

__all__ = ["CORES", "Argument", "Core"]
__all__ += ["absorbing_state", "access_control", "garnet", "machine_replacement", "queue_admission"]
__all__ += ["random_repair", "river_swim", "strens_chain", "taxicab"]
__all__ += ["AdmissionAction", "ChainAction", "IdleAction", "MachineAction", "QueueAction"]
__all__ += ["RepairAction", "SwimAction", "TaxicabAction"]

_ALL = [TAXICAB, STRENS_CHAIN, ABSORBING_STATE, RIVER_SWIM, ACCESS_CONTROL, MACHINE_REPLACEMENT]
_ALL += [GARNET, QUEUE_ADMISSION, RANDOM_REPAIR]
CORES: dict[str, Core] = {core.letter: core for core in _ALL}
"""Core letter to core."""
