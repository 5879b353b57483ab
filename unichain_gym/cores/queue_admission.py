"""Core ``a``: admission to a queue M/M/1/K, seen at events (Naor 1969)."""

from enum import IntEnum

import numpy as np

from unichain_gym.cores.core import Core
from unichain_gym.errors import InvalidModelError
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import read_number, require_integers

CAPACITY = 10
ARRIVAL_RATE, SERVICE_RATE = 0.8, 1.0
FEE, HOLDING_COST = 6.0, 1.0

AdmissionAction = IntEnum("AdmissionAction", ["REJECT", "ADMIT"], start=0)


def queue_admission(
    capacity: int = CAPACITY,
    arrival_rate: float = ARRIVAL_RATE,
    service_rate: float = SERVICE_RATE,
    fee: float = FEE,
    holding_cost: float = HOLDING_COST,
) -> TabularMDP:
    """Return core ``a``.

    Parameters
    ----------
    capacity : int
        The maximum number of customers, at least 1.
    arrival_rate, service_rate : float
        Customers per unit of time, above 0.
    fee : float
        The payment of an admitted customer.
    holding_cost : float
        The cost of a customer per unit of time.
    """
    require_integers(InvalidModelError, capacity=capacity)
    arrive = read_number("arrival_rate", arrival_rate)
    serve = read_number("service_rate", service_rate)
    if capacity < 1 or not (0.0 < arrive < np.inf and 0.0 < serve < np.inf):
        got = f"{capacity}, {arrival_rate} and {service_rate}"
        raise InvalidModelError(
            f"a queue needs a capacity of at least 1 and rates above 0; got {got}"
        )
    n = np.arange(capacity + 1)
    time = 1.0 / (arrive + serve * (n > 0))
    P = np.zeros((n.size, 2, n.size))
    R = np.broadcast_to(-holding_cost * (n * time)[:, None, None], P.shape).copy()
    for action in AdmissionAction:
        enters = n + (action == AdmissionAction.ADMIT) * (n < capacity)
        P[n, action, enters] += arrive * time
        R[n, action, enters] += fee * (enters > n)
        P[n[1:], action, n[:-1]] += serve * time[1:]
    start = np.full(n.size, 1.0 / n.size)
    return TabularMDP.from_arrays(P, R, start, durations=time, name=f"a{n.size}")


QUEUE_ADMISSION = Core(
    letter="a",
    name="Admission to a queue",
    build=queue_admission,
    actions=AdmissionAction,
    description=(
        f"Customers arrive at rate {ARRIVAL_RATE:g} and are served one by one at rate "
        f"{SERVICE_RATE:g}. A step lasts until the next event, an arrival or the end of a service; "
        "the action admits or rejects the next arrival. If "
        f"{CAPACITY} customers are present, it is rejected in any case. The model has the mean "
        "time until the next event as duration of a step, so that gains are per unit of time."
    ),
    observations="The number of customers.",
    rewards=(
        f"An admitted customer pays {FEE:g}; each customer present costs {HOLDING_COST:g} per "
        "unit of time."
    ),
    references=(
        "P. Naor. The regulation of queue size by levying tolls. Econometrica 37, 1969.",
        "M. Puterman. Markov decision processes. Wiley, 1994. Chapter 11.",
    ),
    mnemonics=("a11", "a32c"),
)
