"""`MarkovChain`: a Markov chain with rewards, and its exact quantities.

For transition matrix P and reward r, with P* = lim (1/n) Σ_{t<n} P^t, which exists for every finite
chain:

    gain       g = P* r
    bias       b = Σ_t (P^t r - g), in the Cesàro sense:  (I - P) b = r - g,  P* b = 0
    deviation  D = (I - P + P*)^{-1} - P*,  so that b = D r

(Puterman, 1994, Markov Decision Processes, appendix A and chapter 8.)

Every quantity is computed at first use and cached in read-only arrays. Only quantities of shape (S,
S) form dense matrices; `unichain_gym.linear` describes the solvers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym import hitting, restriction, rewards, spectrum, stepwise
from unichain_gym.drawing import draw_chain
from unichain_gym.errors import InvalidModelError, MulticlassError, brief
from unichain_gym.interface import FloatArray, IntArray, OutcomeModel
from unichain_gym.labels import read_state
from unichain_gym.limits import Limits
from unichain_gym.models import read_chain, read_durations
from unichain_gym.outcomes import read_only, read_reals, require_dense
from unichain_gym.solver_report import SolverReport, report_solution
from unichain_gym.structure import (
    Structure,
    common_period,
    cyclic_classes,
    find_periods,
    find_structure,
)
from unichain_gym.summary import abbreviate, classify, html_table
from unichain_gym.trajectory import OutcomeTable, simulate

_MOST_SHOWN = 10_000  # states: a notebook shows the classes of a chain up to this size


class MarkovChain:
    """A Markov chain with rewards.

    Parameters
    ----------
    transition_matrix : array_like or sparse, shape (S, S)
        P; each row sums to 1 within the rounding of its dtype. Stored as CSR in double precision.
    reward : array_like, shape (S,)
        r, the expected reward of a step from each state.
    initial_distribution : array_like, shape (S,)
        p^0.
    mdp, policy : TabularMDP and ndarray (S, A), optional
        The source of the chain, for methods that compare or draw actions.
    state_names, drop_below : optional
        As for `TabularMDP`; names default to the MDP's names, or to 0 to S - 1.
    durations : array_like, shape (S,), optional
        The expected time of a step from each state, at least 0; by default as in the MDP, or 1.
        With durations, gain, bias and variance are per unit of time; all other quantities count
        steps.

    Raises
    ------
    InvalidModelError
        If a shape, number, row sum or name is invalid, or no time passes in a recurrent class; in
        methods, if a state does not exist.
    MulticlassError, PeriodicChainError, ModelTooLargeError, ConvergenceError
        In methods: if a quantity needs one recurrent class, or a limit that a periodic chain lacks,
        or a dense array of more than 5,000 states, or if no solver meets its error bound.

    Examples
    --------
    A machine breaks with probability 0.1; a broken machine is repaired with probability 0.5:

    >>> chain = MarkovChain([[0.9, 0.1], [0.5, 0.5]], [6.0, 0.0], initial_distribution=[0, 1])
    >>> round(chain.gain, 9)
    5.0
    >>> chain.relative_value(0).round(9).tolist()  # the total cost of being broken
    [0.0, -10.0]
    >>> chain.hitting_time(0).round(9).tolist()
    [0.0, 2.0]
    >>> chain.finite_horizon_value(2).round(9).tolist()
    [11.4, 3.0]
    """

    transition_matrix: sparse.csr_array
    reward: FloatArray
    initial_distribution: FloatArray
    mdp: OutcomeModel | None
    policy: FloatArray | None
    state_names: Sequence[str | int]
    durations: FloatArray | None

    def __init__(
        self,
        transition_matrix: ArrayLike | sparse.sparray | sparse.spmatrix,
        reward: ArrayLike,
        initial_distribution: ArrayLike,
        *,
        mdp: OutcomeModel | None = None,
        policy: FloatArray | None = None,
        state_names: Sequence[str | int] | None = None,
        drop_below: float | None = None,
        durations: ArrayLike | None = None,
    ) -> None:
        names: Sequence[str | int] | None
        given = transition_matrix, reward, initial_distribution, state_names
        # The MDP has dropped rounding errors already.
        P, r, start, names = read_chain(*given, drop_below if mdp is None else 0.0)
        if mdp is not None:
            if not hasattr(mdp, "allowed_actions"):
                raise InvalidModelError(f"mdp must be a TabularMDP; got {brief(mdp)}")
            names = mdp.state_names if names is None else names
        if mdp is not None and policy is not None:
            policy = read_only(np.array(read_reals(policy, "policy")))
            shape = mdp.allowed_actions.shape
            if policy.shape != shape:
                raise InvalidModelError(f"policy must have shape {shape}; got {policy.shape}")
            if durations is None and mdp.durations is not None:
                durations = np.einsum("sa,sa->s", policy, mdp.expected_duration)
        tau = read_durations(durations, np.ones(r.size, dtype=bool))
        names = range(r.size) if names is None else names
        vars(self).update(transition_matrix=P, reward=r, initial_distribution=start, mdp=mdp)
        vars(self).update(policy=policy, state_names=names, durations=tau)
        if tau is not None and (tau == 0.0).any():
            for states in self.recurrent_classes:
                if not tau[states].any():
                    raise InvalidModelError(
                        f"no time passes in the recurrent class {abbreviate(states)}; give a step "
                        "there a duration"
                    )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name!r} of a chain cannot be set. Make another, by mdp.induce(...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name!r} of a chain cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        names = None if isinstance(self.state_names, range) else self.state_names
        kept: dict[str, Any] = {name: vars(self)[name] for name in ("mdp", "policy", "durations")}
        make = partial(type(self), **kept, state_names=names, drop_below=0.0)
        return make, (self.transition_matrix, self.reward, self.initial_distribution)

    def __repr__(self) -> str:
        return f"MarkovChain(n_states={self.n_states})"

    def _repr_html_(self) -> str | None:
        """Return the table of classes for notebooks; None for a large chain."""
        if self.n_states > _MOST_SHOWN:
            return None
        return html_table(f"MarkovChain, {self.n_states} states", self.classify()._rows())

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return int(self.reward.size)

    @cached_property
    def _structure(self) -> Structure:
        return find_structure(self.transition_matrix)

    @cached_property
    def _limits(self) -> Limits:
        return Limits(self.transition_matrix, self._structure)

    _outcomes = cached_property(OutcomeTable)

    @cached_property
    def recurrent_classes(self) -> list[IntArray]:
        """The recurrent classes, each a sorted array of states, ordered by lowest state."""
        return [read_only(states) for states in self._structure.classes]

    @cached_property
    def recurrent_states(self) -> IntArray:
        """All recurrent states, sorted."""
        return read_only(self._structure.recurrent)

    @cached_property
    def transient_states(self) -> IntArray:
        """All transient states, sorted."""
        return read_only(self._structure.transient)

    @property
    def is_unichain(self) -> bool:
        """Whether there is exactly one recurrent class."""
        return self._structure.n_classes == 1

    @cached_property
    def cyclic_classes(self) -> list[list[IntArray]]:
        """The cyclic classes of each recurrent class, as many as its period, in cyclic order.

        The chain moves from each cyclic class to the next. The first contains the lowest state of
        the recurrent class. (Kemeny & Snell, 1960, section 2.2.)
        """
        of_class = cyclic_classes(self.transition_matrix, self._structure, self.class_periods)
        return [[read_only(states) for states in parts] for parts in of_class]

    def class_of(self, state: int | str) -> int | None:
        """Return the index of a state's class in `recurrent_classes`; None if transient.

        Parameters
        ----------
        state : int or str
            Its number or name.
        """
        label = int(self._structure.class_label[read_state(state, self.n_states, self.state_names)])
        return None if label < 0 else label

    @cached_property
    def class_periods(self) -> IntArray:
        """The period of each recurrent class, shape (n_classes,)."""
        return read_only(find_periods(self.transition_matrix, self._structure))

    @cached_property
    def period(self) -> int:
        """The least d > 0 for which P^{dt} converges: the least common multiple of all periods."""
        return common_period(self.class_periods)

    @property
    def solver_report(self) -> SolverReport:
        """The methods and error bounds of stationary distribution and bias; prints a table."""
        if self.durations is None:
            return report_solution(self._limits, self.reward, self.bias)
        size = np.abs(self.reward) + np.abs(self._charge)
        return report_solution(self._limits, self.reward - self._charge, self.bias, size)

    @cached_property
    def stationary_distribution(self) -> FloatArray:
        """p* = p^0 P*, shape (S,); p* P = p*.

        With one recurrent class it does not depend on the start. `solver_report` bounds the sum of
        the errors: at most 1e-8, usually far less.
        """
        return read_only(self._limits.distribution(self.initial_distribution))

    @cached_property
    def gain(self) -> float:
        """The long-run average reward of a unichain, g = p* r; with durations p* r / p* τ."""
        self._require_unichain("one gain", "gain_vector, shape (S,)")
        return float(self.stationary_distribution @ self.reward) / self.mean_duration

    @cached_property
    def mean_duration(self) -> float:
        """The average time of a step in the long run, p* τ; 1 without durations."""
        self._require_unichain("one mean duration", "recurrent_classes to look at each alone")
        if self.durations is None:
            return 1.0
        return float(self.stationary_distribution @ self.durations)

    @cached_property
    def gain_vector(self) -> FloatArray:
        """The long-run average reward (per unit of time) from each state, g = P* r, shape (S,)."""
        return read_only(self._limits.ahead(self._limits.class_rate(self.reward, self.durations)))

    @cached_property
    def _action_charge(self) -> FloatArray:
        """The gain times the expected time of an action, Σ p τ g(s'), shape (S, A)."""
        assert self.mdp is not None
        assert self.mdp.durations is not None
        of_outcome = self.mdp.durations * self.gain_vector[self.mdp.next_state]
        return np.asarray(np.einsum("sak,sak->sa", self.mdp.probability, of_outcome))

    @cached_property
    def _charge(self) -> FloatArray:
        """The gain times the expected time of a step, g τ, shape (S,)."""
        assert self.durations is not None
        if self.is_unichain or self.mdp is None or self.policy is None:
            return self.gain_vector * self.durations
        # The time of a step may be correlated with the class that follows.
        return np.asarray(np.einsum("sa,sa->s", self.policy, self._action_charge))

    @cached_property
    def bias(self) -> FloatArray:
        """The total reward above the gain, b = D r, shape (S,); (I - P) b = r - g, P* b = 0.

        The error is about 1e-16 |r| times the largest entry of D, which is large for a slowly
        mixing chain; `solver_report` states a bound. With durations (I - P) b = r - g τ and P* b =
        0, where P* counts steps (Puterman, 1994, chapter 11).
        """
        values = self.reward if self.durations is None else self.reward - self._charge
        return read_only(self._limits.potential(values, "bias", self.durations))

    def relative_value(self, reference: int | str) -> FloatArray:
        """Return the bias of each state less the bias of a reference state, shape (S,).

        Parameters
        ----------
        reference : int or str
        """
        self._require_unichain("relative values", "bias and gain_vector")
        state = read_state(reference, self.n_states, self.state_names)
        return np.asarray(self.bias - self.bias[state])

    @cached_property
    def action_bias(self) -> FloatArray:
        """q(s, a) = r(s, a) + Σ_s' p(s'|s, a) (b(s') - g(s')), shape (S, A).

        Its average over the policy's actions is the bias. NaN where the state lacks the action.
        With durations, g(s') is multiplied by the time of the step.
        """
        if self.mdp is not None and self.mdp.durations is not None:
            return read_only(rewards.action_values(self.mdp, self.bias) - self._action_charge)
        return read_only(rewards.action_values(self.mdp, self.bias - self.gain_vector))

    @cached_property
    def variance(self) -> float:
        """The `asymptotic_variance` of the states' expected rewards."""
        return self.asymptotic_variance("state_reward")

    @cached_property
    def deviation_matrix(self) -> FloatArray:
        """D = (I - P + P*)^{-1} - P*, dense, shape (S, S)."""
        require_dense("deviation_matrix", self.n_states)
        return read_only(self._limits.potential(np.eye(self.n_states)))

    @cached_property
    def fundamental_matrix(self) -> FloatArray:
        """Z = (I - P + P*)^{-1} = D + P*, dense, shape (S, S); D is the `deviation_matrix`.

        Between transient states it is (I - P_TT)^{-1}. (Kemeny & Snell, 1960, sections 3.2, 4.3.)
        """
        require_dense("fundamental_matrix", self.n_states)
        return read_only(self.deviation_matrix + self._limits.limit(np.eye(self.n_states)))

    @cached_property
    def kemeny_constant(self) -> float:
        """Σ_s' p*(s') h(s, s'), the same from every recurrent s; h(s, s') is the hitting time.

        It is the trace of D over the recurrent states; h(s', s') = 0.
        """
        self._require_unichain("a Kemeny constant", "recurrent_classes to look at each class alone")
        return float(self.deviation_matrix.diagonal()[self.recurrent_states].sum())

    def absorption_probabilities(self) -> FloatArray:
        """Return the probabilities of ending in the `recurrent_classes`, shape (S, n_classes)."""
        return self._limits.absorption()

    @cached_property
    def mean_absorption_time(self) -> FloatArray:
        """Expected number of steps to enter a recurrent class, shape (S,)."""
        zeros = np.zeros(self.recurrent_states.size)
        return read_only(self._limits.carry(zeros, np.ones(self.transient_states.size)))

    @cached_property
    def absorption_time_variance(self) -> FloatArray:
        """Variance of the number of steps to enter a recurrent class, shape (S,).

        (Kemeny & Snell, 1960, theorem 3.3.5.)
        """
        return read_only(self.hitting_time_variance(self.recurrent_states))

    @cached_property
    def mean_return_time(self) -> FloatArray:
        """Expected steps until each state is visited again, (S,): 1/p*(s); inf if transient."""
        times = np.full(self.n_states, np.inf)
        with np.errstate(divide="ignore"):  # probabilities may underflow to 0
            times[self.recurrent_states] = 1.0 / self._limits.stationary
        return read_only(times)

    @cached_property
    def expected_visits(self) -> FloatArray:
        """Expected number of visits of each state, Σ_t p^t(s), shape (S,).

        Infinite for recurrent states that the start can reach; 0 for states that it cannot reach.
        """
        visits = np.zeros(self.n_states)
        # Reachability decides, since a positive probability may underflow to 0.
        visits[self._reached] = np.inf
        visits[self.transient_states] = self._limits.visits(self.initial_distribution)
        return read_only(visits)

    # Functions whose first argument is the chain.
    reachable = restriction.reachable_chain
    asymptotic_variance = rewards.asymptotic_variance
    discounted_value = rewards.discounted_value
    bisimulation_distance = rewards.bisimulation_distance
    classify = classify
    hitting_time = hitting.hitting_time
    hitting_reward = hitting.hitting_reward
    hitting_time_variance = hitting.hitting_time_variance
    hitting_probability = hitting.hitting_probability
    stepwise_distributions = stepwise.stepwise_distributions
    mixing_time = stepwise.mixing_time
    max_absorption_time = stepwise.max_absorption_time
    finite_horizon_value = rewards.finite_horizon_value
    simulate = simulate
    plot = draw_chain

    @cached_property
    def spectral_gap(self) -> float:
        """The absolute spectral gap, 1 - max |λ| over all eigenvalues λ of P - P*.

        0 if a class is periodic, 1 if P^t = P* for some t. The relative error is below 1e-6. (Levin
        & Peres, 2017, Markov Chains and Mixing Times, chapter 12.)
        """
        return spectrum.spectral_gap(self.transition_matrix, self._structure, self.class_periods)

    @property
    def relaxation_time(self) -> float:
        """1/`spectral_gap`, the steps in which deviations fall to 1/e; inf if periodic."""
        gap = self.spectral_gap
        return 1.0 / gap if gap > 0.0 else float("inf")

    @property
    def implied_timescale(self) -> float:
        """-1/ln |λ| of the largest eigenvalue of P - P*; inf if periodic (Prinz et al., 2011)."""
        gap = self.spectral_gap
        return -1.0 / math.log1p(-gap) if 0.0 < gap < 1.0 else (0.0 if gap else float("inf"))

    @cached_property
    def _reached(self) -> IntArray:
        return restriction.reach(self.transition_matrix, self.initial_distribution)[0]

    def _require_unichain(self, what: str, instead: str) -> None:
        if self.is_unichain:
            return
        classes = [f"{{{abbreviate(c, self.state_names)}}}" for c in self.recurrent_classes]
        entered, hint = self._structure.classes_among(self._reached), ""
        if entered.size == 1:
            hint = (
                f". The initial distribution reaches only {classes[entered[0]]}: "
                "chain.reachable(), without the states that it cannot reach, has one"
            )
        raise MulticlassError(
            f"a chain with {len(classes)} recurrent classes has not {what} but one for each: "
            f"{', '.join(classes[:5] + ['…'] * (len(classes) > 5))}. Use {instead}{hint}"
        )
