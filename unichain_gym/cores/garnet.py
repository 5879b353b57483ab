"""Core ``g``: a random MDP of the Garnet family (Archibald, McKinnon & Thomas 1995)."""

import numpy as np

from unichain_gym.cores.core import Core
from unichain_gym.errors import InvalidModelError
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import require_integers

N_STATES, N_ACTIONS, BRANCHING = 10, 2, 3


def garnet(
    n_states: int = N_STATES, n_actions: int = N_ACTIONS, branching: int = BRANCHING, seed: int = 0
) -> TabularMDP:
    """Return core ``g``.

    Parameters
    ----------
    n_states, n_actions : int
        Size of the MDP.
    branching : int
        Successors of a state and action, 1 to ``n_states``.
    seed : int
        Decides the model: the same numbers give the same MDP.
    """
    require_integers(
        InvalidModelError, n_states=n_states, n_actions=n_actions, branching=branching, seed=seed
    )
    if n_actions < 1 or not 1 <= branching <= n_states:
        raise InvalidModelError(
            "Garnet needs n_actions of at least 1 and branching between 1 and n_states; got "
            f"n_actions {n_actions}, branching {branching} and n_states {n_states}"
        )
    if seed < 0:
        raise InvalidModelError(f"seed must not be negative; got {seed}")
    rng = np.random.default_rng(seed)
    shape = (n_states, n_actions)
    states = np.broadcast_to(np.arange(n_states), (*shape, n_states))
    successors = rng.permuted(states, axis=2)[..., :branching]
    cuts = np.sort(rng.random((*shape, branching - 1)), axis=2)
    probability = np.diff(cuts, axis=2, prepend=0.0, append=1.0)
    reward = rng.standard_normal((*shape, branching))
    start = np.full(n_states, 1 / n_states)
    return TabularMDP(successors, probability, reward, start, name=f"g{n_states}")


GARNET = Core(
    letter="g",
    name="Garnet",
    build=garnet,
    actions=None,
    description=(
        "A random MDP. Each state and action leads to a few distinct successors, drawn uniformly, "
        "with probabilities from uniform cuts of the unit interval. The same seed in "
        "``core_options`` gives the same MDP. Every policy has one recurrent class for "
        "the default arguments; other arguments may give several."
    ),
    observations="The state, from 0.",
    rewards="A standard normal draw for each outcome, fixed with the rest of the model.",
    references=(
        "T. Archibald, K. McKinnon and L. Thomas. On the generation of Markov decision "
        "processes. Journal of the Operational Research Society 46, 1995.",
        "S. Bhatnagar, R. Sutton, M. Ghavamzadeh and M. Lee. Natural actor-critic algorithms. "
        "Automatica 45, 2009.",
    ),
    mnemonics=("g10", "g30", "g40c"),
)
