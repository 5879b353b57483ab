"""`TabularMDP`: the one representation of a finite Markov decision process.

A *padded outcome table*: action ``a`` in state ``s`` has up to ``K`` outcomes. Outcome ``k`` has
probability ``probability[s, a, k]``, leads to ``next_state[s, a, k]`` and pays ``reward[s, a, k]``.
Shorter rows are padded with probability zero; a row of zeros means that the state lacks the action.
Memory is linear in the number of outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unichain_gym.builders import (
    Outcomes,
    dense_arrays,
    pad_outcomes,
    read_arrays,
    read_transitions,
)
from unichain_gym.chain import MarkovChain
from unichain_gym.drawing import draw_mdp
from unichain_gym.errors import InvalidArgumentError
from unichain_gym.hitting import find_diameter
from unichain_gym.interface import BoolArray, FloatArray, IntArray, OutcomeModel
from unichain_gym.labels import agree_on_names, find_labels
from unichain_gym.models import read_distribution, read_table
from unichain_gym.optimal import Criterion, OptimalPolicy, find_optimal_policy, find_worst_policy
from unichain_gym.outcomes import draw_thresholds, read_only
from unichain_gym.pairs import list_pairs
from unichain_gym.policies import DeterministicPolicies, check_policy, draw_policy
from unichain_gym.restriction import reachable_mdp
from unichain_gym.rewards import HorizonPolicy, find_horizon_policy
from unichain_gym.storage import ARRAYS, LABELS, OPTIONAL, read_archive, write_archive
from unichain_gym.summary import html_table
from unichain_gym.toy_text import read_toy_text
from unichain_gym.unichain import is_unichain

if TYPE_CHECKING:
    import gymnasium

Sparse = sparse.sparray | sparse.spmatrix

_MOST_SHOWN = 20  # pairs of state and action in a notebook


def induce(mdp: OutcomeModel, policy: ArrayLike | OptimalPolicy) -> MarkovChain:
    """Return the Markov chain that a stationary policy of an MDP induces.

    P(s, s') = Σ_a π(a|s) p(s'|s, a) and r(s) = Σ_a π(a|s) r(s, a); durations likewise.

    Parameters
    ----------
    policy : array_like, shape (S,) of int or (S, A) of float, or OptimalPolicy
        As `check_policy` reads it.
    """
    pi = read_only(check_policy(mdp, policy))
    S = mdp.n_states
    # A deterministic policy needs the outcomes of one action only. (A largest probability of 1 is
    # not enough: another entry of 1e-17 is still an edge.)
    if (np.count_nonzero(pi, axis=1) == 1).all():
        chosen = (np.arange(S), pi.argmax(axis=1))
        weight, column = mdp.probability[chosen], mdp.next_state[chosen]
    else:
        weight = (pi[:, :, None] * mdp.probability).reshape(S, -1)
        column = mdp.next_state.reshape(S, -1)
    keep = weight > 0.0
    indptr = np.concatenate(([0], np.cumsum(keep.sum(axis=1))))
    P = sparse.csr_array((weight[keep], column[keep], indptr), shape=(S, S))
    P.sum_duplicates()
    reward = np.einsum("sa,sa->s", pi, mdp.expected_reward)
    return MarkovChain(P, reward, mdp.initial_distribution, mdp=mdp, policy=pi)


@dataclass(frozen=True, eq=False, repr=False)
class TabularMDP:
    """A finite MDP as a padded outcome table.

    The constructor checks the arrays and makes them read-only.

    Parameters
    ----------
    next_state, probability, reward : array_like, shape (S, A, K)
        The next state, probability and reward of each outcome. The probabilities of a state and
        action sum to 1 within the rounding of their dtype, or are all 0 if the state lacks the
        action. Every state has at least one action.
    initial_distribution : array_like of float, shape (S,)
        The distribution of the first state.
    name : str
        The name in messages and pictures.
    state_names, action_names : sequence of str or of int, length S and A, optional
        Distinct names of states and actions, kept as tuples. Arguments may give states and actions
        by text names.
    durations : array_like of float, shape (S, A, K), optional
        The time of each outcome's step, at least 0; 1 by default, and None if all are 1. With
        durations, a gain is a reward per unit of time. A random duration takes several outcomes, or
        its mean: gain, bias and optimal gain depend on means only.
    drop_below : float, optional
        The treatment of probabilities of the size of rounding errors, such as 1 - 0.7 - 0.3. By
        default a `RoundingWarning` names them; negative ones down to -1e-15 of their row's largest
        become 0, positive ones stay. A number silently drops all entries below this share of their
        row's largest; 0 keeps all.

    Raises
    ------
    InvalidModelError
        If a shape, state, number, row sum or name is invalid, a state has no action, or a policy
        can stay for ever while no time passes. Methods raise it for invalid states and policies.

    Examples
    --------
    A machine runs slowly (action 0) or at full speed (action 1); a broken machine has only action
    0, the repair:

    >>> transitions = [  # state, action, next state, probability, reward
    ...     (0, 0, 0, 0.95, 4.0), (0, 0, 1, 0.05, 4.0),
    ...     (0, 1, 0, 0.9, 6.0), (0, 1, 1, 0.1, 6.0),
    ...     (1, 0, 0, 0.5, 0.0), (1, 0, 1, 0.5, 0.0),
    ... ]
    >>> mdp = TabularMDP.from_transitions(transitions, [1.0, 0.0], state_names=["runs", "broken"])
    >>> mdp.allowed_actions.tolist()
    [[True, True], [True, False]]
    >>> [round(mdp.induce(policy).gain, 6) for policy in mdp.policies()]
    [3.636364, 5.0]
    """

    next_state: IntArray
    probability: FloatArray
    reward: FloatArray
    initial_distribution: FloatArray
    name: str = "mdp"
    state_names: Sequence[str | int] | None = None
    action_names: Sequence[str | int] | None = None
    durations: FloatArray | None = None
    drop_below: InitVar[float | None] = None

    def __post_init__(self, drop_below: float | None) -> None:
        start = find_labels("initial_distribution", self.initial_distribution, "state")
        for name, value in read_table(self, drop_below).items():
            object.__setattr__(self, name, value)
        names = agree_on_names("state", self.n_states, self.state_names, start)
        object.__setattr__(self, "state_names", names)
        names = agree_on_names("action", self.n_actions, self.action_names, [])
        object.__setattr__(self, "action_names", names)

    def __reduce__(self) -> tuple[Any, ...]:
        fields = [getattr(self, name) for name in (*ARRAYS, *LABELS, OPTIONAL)]
        return type(self), (*fields, 0.0)

    def __repr__(self) -> str:
        return f"TabularMDP({self.name!r}, n_states={self.n_states}, n_actions={self.n_actions})"

    def _repr_html_(self) -> str:
        names = self.state_names or range(self.n_states)
        actions = self.action_names or range(self.n_actions)
        rows: list[Sequence[str]] = [("state", "action", "mean reward", "next states")]
        for s, a in np.argwhere(self.allowed_actions)[:_MOST_SHOWN]:
            p, after = self.probability[s, a], self.next_state[s, a]
            to = "; ".join(f"{names[after[k]]} with {p[k]:.4g}" for k in np.flatnonzero(p))
            rows.append((f"{names[s]}", f"{actions[a]}", f"{p @ self.reward[s, a]:.6g}", to))
        left = int(self.allowed_actions.sum()) + 1 - len(rows)
        if left:
            rows.append(("…", "", "", f"{left} more pairs of state and action"))
        title = f"TabularMDP {self.name}: {self.n_states} states, {self.n_actions} actions"
        return html_table(title, rows)

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return int(self.next_state.shape[0])

    @property
    def n_actions(self) -> int:
        """Number of actions A; see `allowed_actions` for the actions of a state."""
        return int(self.next_state.shape[1])

    @cached_property
    def allowed_actions(self) -> BoolArray:
        """Whether a state has an action, shape (S, A), read-only."""
        return read_only(np.any(self.probability > 0.0, axis=2))

    @cached_property
    def expected_reward(self) -> FloatArray:
        """r(s, a) = Σ_k probability · reward, shape (S, A); 0 where the state lacks the action."""
        reward: FloatArray = np.einsum("sak,sak->sa", self.probability, self.reward)
        return read_only(reward)

    @cached_property
    def expected_duration(self) -> FloatArray:
        """τ(s, a) = Σ_k probability · duration, (S, A), by default 1; 0 without the action."""
        if self.durations is None:
            return read_only(self.allowed_actions.astype(np.float64))
        duration: FloatArray = np.einsum("sak,sak->sa", self.probability, self.durations)
        return read_only(duration)

    _pairs = cached_property(list_pairs)

    @cached_property
    def outcome_thresholds(self) -> FloatArray:
        """Cumulative probabilities (S, A, K), ending in inf, for drawing outcomes.

        A uniform draw u selects outcome ``k`` when ``thresholds[k - 1] <= u < thresholds[k]``.
        """
        return read_only(draw_thresholds(self.probability))

    @cached_property
    def state_classes(self) -> NDArray[np.str_]:
        """Each state's class under `uniform_chain`, "transient" or "recurrent", shape (S,)."""
        classes = np.full(self.n_states, "transient")
        classes[self.uniform_chain.recurrent_states] = "recurrent"
        return read_only(classes)

    @cached_property
    def uniform_chain(self) -> MarkovChain:
        """The chain of the policy that takes all actions of a state with equal probability."""
        allowed = self.allowed_actions
        return self.induce(allowed / np.count_nonzero(allowed, axis=1)[:, None])

    # Functions whose first argument is the MDP.
    check_policy = check_policy
    random_policy = draw_policy
    induce = induce
    to_arrays = dense_arrays
    worst_policy = find_worst_policy
    reachable = reachable_mdp
    diameter = find_diameter
    plot = draw_mdp

    @overload
    def optimal_policy(
        self, *, horizon: int, terminal: ArrayLike | None = ..., discount: float | None = ...
    ) -> HorizonPolicy: ...
    @overload
    def optimal_policy(
        self, criterion: Criterion = ..., discount: float | None = ..., **options: Any
    ) -> OptimalPolicy: ...
    def optimal_policy(
        self,
        criterion: Criterion = "gain",
        discount: float | None = None,
        *,
        horizon: int | None = None,
        terminal: ArrayLike | None = None,
        **options: Any,
    ) -> OptimalPolicy | HorizonPolicy:
        """Find a policy that is optimal in every state, in the long run or over n steps.

        Parameters
        ----------
        criterion : {"gain", "bias", "blackwell", "discounted"}
            The criterion in the long run. With durations only "gain", the reward per unit of time.
        discount : float, optional
            In [0, 1) for criterion "discounted", in [0, 1] for a horizon.
        horizon : int, optional
            Maximize the total reward over this number of steps, instead of a criterion: the result
            is a `HorizonPolicy`.
        terminal : array_like, shape (S,), optional
            The value of ending in a state after the horizon; 0 by default.
        **options
            As in `unichain_gym.optimal.find_optimal_policy`, for a criterion.

        Raises
        ------
        InvalidArgumentError
            If an argument is out of range, or a horizon has a criterion.
        """
        if horizon is None and terminal is None:
            return find_optimal_policy(self, criterion, discount, **options)
        if horizon is None or options or not (isinstance(criterion, str) and criterion == "gain"):
            raise InvalidArgumentError(
                "horizon= goes with terminal= and discount= alone, and terminal= needs it; got "
                f"horizon={horizon!r}, criterion={criterion!r}"
                + "".join(f", {name}={value!r}" for name, value in options.items())
            )
        return find_horizon_policy(self, horizon, terminal, discount)

    @classmethod
    def _of(cls, outcomes: Outcomes, start: FloatArray, *labels_and_drop_below: Any) -> TabularMDP:
        """Return the MDP of a list of outcomes."""
        tables = pad_outcomes(outcomes)
        fields = ("name", "state_names", "action_names", "drop_below")
        rest = dict(zip(fields, labels_and_drop_below, strict=True))
        return cls(**tables, initial_distribution=start, **rest)

    @classmethod
    def from_arrays(
        cls,
        P: ArrayLike | Sequence[Sparse],
        R: ArrayLike | Sparse | Sequence[Sparse],
        initial: ArrayLike,
        *,
        durations: ArrayLike | Sparse | Sequence[Sparse] | None = None,
        order: Literal["sas", "ass"] = "sas",
        allowed: ArrayLike | None = None,
        name: str = "mdp",
        state_names: Sequence[str | int] | None = None,
        action_names: Sequence[str | int] | None = None,
        drop_below: float | None = None,
    ) -> TabularMDP:
        """Build an MDP from transition and reward arrays.

        Parameters
        ----------
        P : array_like, shape (S, A, S), or sequence of A sparse matrices, shape (S, S)
            P[s, a, s'], or P[a][s, s'], is the transition probability from s to s' under a.
        R : array_like, shape (S, A), (S, A, S) or (S,)
            Reward by state and action, by outcome, or by state. A sparse R has shape (S, A), or is
            a list of A matrices (S, S) like P; entries that are not stored are 0.
        initial : array_like, shape (S,)
            The initial distribution.
        durations : array_like or sparse, optional
            The times of steps, in a shape of R; 1 by default.
        order : {"sas", "ass"}
            The axes of dense P, and of R with three axes: state, action, next state; with "ass"
            action, state, next state, as in pymdptoolbox. If A = S, no check can find a wrong
            order.
        allowed : array_like of bool, shape (S, A), optional
            The actions of each state; by default all. Entries of other actions are not read.
        name, state_names, action_names, drop_below
            As for the class. The labels of pandas objects are names too.
        """
        outcomes, labels = read_arrays(P, R, durations, allowed, order)
        labels += find_labels("initial", initial, "state")
        states = agree_on_names("state", outcomes.n_states, state_names, labels)
        actions = agree_on_names("action", outcomes.n_actions, action_names, labels)
        start = read_distribution(initial, "initial", 0.0)
        return cls._of(outcomes, start, name, states, actions, drop_below)

    @classmethod
    def from_transitions(
        cls,
        transitions: ArrayLike,
        initial: ArrayLike,
        *,
        name: str = "mdp",
        state_names: Sequence[str | int] | None = None,
        action_names: Sequence[str | int] | None = None,
        drop_below: float | None = None,
    ) -> TabularMDP:
        """Build an MDP from a list of (state, action, next state, probability, reward).

        A sixth entry, or a column ``duration``, is the time of the step, 1 by default. Transitions
        that differ only in probability add up.

        Parameters
        ----------
        transitions : sequence of 5-tuples or 6-tuples, or table
            At least one for every state; a state lacks the actions that are never listed for it. A
            table, such as a DataFrame, has columns state, action, next_state, probability and
            reward. States and actions may be names; without ``action_names``, actions take the
            listed names.
        initial : array_like, shape (S,)
            The initial distribution; the labels of a pandas Series are names of states.
        name, state_names, action_names, drop_below
            As for the class.
        """
        start = read_distribution(initial, "initial", 0.0)
        labels = find_labels("initial", initial, "state")
        states = agree_on_names("state", start.size, state_names, labels)
        outcomes, actions = read_transitions(transitions, start.size, states, action_names)
        return cls._of(outcomes, start, name, states, actions, drop_below)

    @classmethod
    def from_gymnasium(
        cls,
        env: gymnasium.Env[Any, Any],
        *,
        on_termination: Literal["absorb", "restart"] = "absorb",
        initial: ArrayLike | None = None,
        name: str | None = None,
        drop_below: float | None = None,
    ) -> TabularMDP:
        """Build an MDP from an environment with a toy-text table ``P[state][action]``.

        FrozenLake, Taxi, CliffWalking and every environment of this package have such a table. A
        thousand random steps of a copy are checked against it.

        Parameters
        ----------
        env : gymnasium.Env
            Wrapped or not.
        on_termination : {"absorb", "restart"}
            A state that ends an episode stays for ever with reward 0, or moves to the initial
            distribution with reward 0, the default of Gymnasium's vector environments.
        initial : array_like, shape (S,), optional
            By default the environment's ``initial_state_distrib``, or its MDP's.
        name, drop_below
            As for the class; the name by default is the id of the environment.
        """
        outcomes, start = read_toy_text(env, on_termination, initial)
        name = name or (env.spec.id if env.spec else "mdp")
        of = getattr(env.unwrapped, "mdp", None)
        states, actions = (getattr(of, f"{kind}_names", None) for kind in ("state", "action"))
        return cls._of(outcomes, start, name, states, actions, drop_below)

    def save(self, path: str | Path) -> None:
        """Write the MDP to an .npz file at exactly this path; a failure writes nothing.

        Parameters
        ----------
        path : path
        """
        write_archive(path, vars(self))

    @classmethod
    def load(cls, path: str | Path) -> TabularMDP:
        """Read a file of `save`; nothing in it is executed (no pickle).

        Parameters
        ----------
        path : path
        """
        return cls(**read_archive(path), drop_below=0.0)

    def policies(self) -> DeterministicPolicies:
        """Return all deterministic policies in lexicographic order, computed on demand."""
        return DeterministicPolicies(self.allowed_actions)

    def is_unichain(self) -> bool | None:
        """Whether every deterministic policy induces exactly one recurrent class.

        None if a few seconds do not decide it: the problem is NP-hard (Tsitsiklis, 2007, Oper. Res.
        Lett. 35).
        """
        return is_unichain(self.next_state, self.probability > 0.0)
