"""`MarkovChain`: what a policy induces, and every exact quantity of it.

For transition matrix P and reward r, with P* = lim (1/n) Σ_{t<n} P^t, which exists for every
chain, periodic or not, with transient states and with several recurrent classes:

    gain       g = P* r
    bias       b = Σ_t (P^t r - g), in the Cesàro sense:  (I - P) b = r - g,  P* b = 0
    deviation  D = (I - P + P*)^{-1} - P*,  so that b = D r

(Puterman, 1994, Markov Decision Processes, appendix A and chapter 8.)

Everything is computed when first asked for, and kept, in read-only arrays. Work and memory are
linear in the transitions for chains whose large components are single states, and otherwise as
`unichain_gym.linear` says; nothing dense of shape (S, S) is formed without being asked for.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym import stepwise
from unichain_gym.arrays import FloatArray, IntArray
from unichain_gym.elimination import finite
from unichain_gym.errors import (
    InvalidArgumentError,
    InvalidModelError,
    ModelTooLargeError,
    MulticlassError,
    PeriodicChainError,
)
from unichain_gym.limits import Limits, hitting_times
from unichain_gym.outcomes import check_chain, read_only, read_reals, require_integers
from unichain_gym.structure import (
    Structure,
    edges,
    find_periods,
    find_structure,
    group_sums,
    search_breadth_first,
)
from unichain_gym.summary import Classification, SolverReport, abbreviate

if TYPE_CHECKING:
    from unichain_gym.mdp import TabularMDP

MAX_DENSE_STATES = 5_000
SMALLEST_DISTANCE = 16 * float(np.finfo(np.float64).eps)


class MarkovChain:
    """A Markov chain with rewards.

    Parameters
    ----------
    transition_matrix : array_like or sparse, shape (S, S)
        P; each row sums to 1. Kept as CSR without stored zeros.
    reward : array_like, shape (S,)
        r, the expected reward of a step from each state.
    initial_distribution : array_like, shape (S,)
        p^0.
    mdp, policy : TabularMDP and ndarray (S, A), optional
        Where the chain comes from; needed by what compares actions.

    Raises
    ------
    InvalidModelError
        If shapes disagree, a number is not finite or negative, or a row does not sum to 1.
    """

    def __init__(
        self,
        transition_matrix: ArrayLike | sparse.sparray | sparse.spmatrix,
        reward: ArrayLike,
        initial_distribution: ArrayLike,
        *,
        mdp: TabularMDP | None = None,
        policy: FloatArray | None = None,
    ) -> None:
        given: Any = transition_matrix
        if not sparse.issparse(given):
            given = read_reals(given, "transition_matrix")
            if given.ndim != 2:
                raise InvalidModelError(f"transition_matrix has shape (S, S); got {given.shape}")
        P: sparse.csr_array = sparse.csr_array(given, dtype=np.float64, copy=True)
        P.sum_duplicates()
        P.eliminate_zeros()
        self.transition_matrix = P
        # Copies: what is computed once must not change with the caller's arrays.
        self.reward = read_only(np.array(read_reals(reward, "reward")))
        self.initial_distribution = read_only(
            np.array(read_reals(initial_distribution, "initial_distribution"))
        )
        self.mdp = mdp
        self.policy = policy
        check_chain(P, self.reward, self.initial_distribution)

    def __repr__(self) -> str:
        return f"MarkovChain(n_states={self.n_states})"

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return int(self.reward.size)

    # Structure

    @cached_property
    def _structure(self) -> Structure:
        return find_structure(self.transition_matrix)

    @cached_property
    def _limits(self) -> Limits:
        return Limits(self.transition_matrix, self._structure)

    @cached_property
    def recurrent_classes(self) -> list[IntArray]:
        """The recurrent classes, each a sorted array of states, in the order of the lowest."""
        return self._structure.classes

    @cached_property
    def recurrent_states(self) -> IntArray:
        """All recurrent states, sorted."""
        return self._structure.recurrent

    @cached_property
    def transient_states(self) -> IntArray:
        """All transient states, sorted."""
        return self._structure.transient

    @property
    def is_unichain(self) -> bool:
        """Whether there is one recurrent class only."""
        return self._structure.n_classes == 1

    def class_of(self, state: int) -> int | None:
        """Return the index of a state's class in `recurrent_classes`; None if transient."""
        label = int(self._structure.class_label[self._check_state(state)])
        return None if label < 0 else label

    @cached_property
    def class_periods(self) -> IntArray:
        """The period of each recurrent class, shape (n_classes,)."""
        return find_periods(self.transition_matrix, self._structure)

    @cached_property
    def period(self) -> int:
        """The least d > 0 for which P^{dt} converges: the least multiple of all periods."""
        return int(np.lcm.reduce(self.class_periods.astype(object)))

    def classify(self) -> Classification:
        """Return a summary of classes, periods and gains that prints as a table."""
        structure, recurrent = self._structure, self.recurrent_states
        return Classification(
            classes=self.recurrent_classes,
            transient=self.transient_states,
            period=self.class_periods,
            gain=self._limits.class_mean(self.reward[recurrent]),
            probability=group_sums(
                structure.class_label[recurrent],
                self.stationary_distribution[recurrent],
                structure.n_classes,
            ),
        )

    @property
    def solver_report(self) -> SolverReport:
        """How stationary distribution and bias were computed, with error bounds; prints a table."""
        return self._limits.report(self.reward, self.bias)

    # The long run

    @cached_property
    def stationary_distribution(self) -> FloatArray:
        """p* = p^0 P*, shape (S,); p* P = p*.

        With one recurrent class it does not depend on the start. Where elimination without
        subtraction applies, every entry above 1e-150 has a small relative error, however nearly
        the class falls apart; elsewhere the sum of all errors is at most 1e-8 of the whole, and
        mostly far less: `solver_report` states the bound.

        Raises
        ------
        ConvergenceError
            If no method gets there: a very large chain that nearly falls apart.
        """
        return read_only(self._limits.distribution(self.initial_distribution))

    @cached_property
    def gain(self) -> float:
        """The long-run average reward, g = p* r.

        Raises
        ------
        MulticlassError
            With several recurrent classes, where each has its own: see `gain_vector`.
        """
        self._require_unichain("one gain", "gain_vector, shape (S,)")
        return float(self.stationary_distribution @ self.reward)

    @cached_property
    def gain_vector(self) -> FloatArray:
        """The long-run average reward from each state, g = P* r, shape (S,)."""
        return read_only(self._limits.limit(self.reward))

    @cached_property
    def bias(self) -> FloatArray:
        """The total reward above the gain, b = D r, shape (S,); (I - P) b = r - g, P* b = 0.

        The error is about 1e-16 of |r| times the largest entry of D: in a chain that moves
        between two halves once in n steps, n times more than in one that mixes at once. No
        method can do better from rounded rewards; `solver_report` states the bound.

        Raises
        ------
        ConvergenceError
            If an entry is beyond the range of doubles, or as for `stationary_distribution`.
        """
        return read_only(self._limits.potential(self.reward, "bias"))

    def relative_value(self, reference: int) -> FloatArray:
        """Return b - b(reference), shape (S,)."""
        self._require_unichain("relative values", "bias and gain_vector")
        value: FloatArray = self.bias - self.bias[self._check_state(reference)]
        return value

    @cached_property
    def action_bias(self) -> FloatArray:
        """q(s, a) = r(s, a) + Σ_s' p(s'|s, a) (b(s') - g(s')), shape (S, A).

        Averaged over the policy's actions it is the bias.
        """
        return read_only(self._action_values(self.bias - self.gain_vector))

    @cached_property
    def variance(self) -> float:
        """The asymptotic variance, lim Var(Σ_{t<n} r(s_t))/n.

        Computed as Σ_s p*(s) Σ_s' P(s, s') (r(s) - g + b(s') - b(s))², which is the variance of
        the martingale r(s_t) - g + b(s_{t+1}) - b(s_t). Randomness of the reward given the
        state is not in it.
        """
        self._require_unichain("one variance", "recurrent_classes to look at each class alone")
        P = self.transition_matrix
        row, column = edges(P)
        step = (self.reward - self.gain - self.bias)[row] + self.bias[column]
        # Rooted first: steps may be 1e200 and as rare as that.
        weight = np.sqrt(self.stationary_distribution[row]) * np.sqrt(P.data)
        return float(finite(((weight * step) ** 2).sum()))

    @cached_property
    def deviation_matrix(self) -> FloatArray:
        """D = (I - P + P*)^{-1} - P*, dense, shape (S, S).

        Raises
        ------
        ModelTooLargeError
            Beyond 5,000 states; the message says how large it would be.
        """
        self._require_dense("deviation_matrix")
        return read_only(self._limits.potential(np.eye(self.n_states)))

    @cached_property
    def kemeny_constant(self) -> float:
        """Σ_s' p*(s') h(s, s'), the same from every recurrent s; h(s, s') is the hitting time.

        It is the trace of D over the recurrent states. (With h(s', s') counted as the return
        time instead of 0 it is larger by 1.)
        """
        self._require_unichain("a Kemeny constant", "recurrent_classes to look at each class alone")
        return float(self.deviation_matrix.diagonal()[self.recurrent_states].sum())

    def discounted_value(self, discount: float) -> FloatArray:
        """Return v = (I - γP)^{-1} r, shape (S,), for a discount γ in [0, 1).

        Accurate up to the limit, relative to the largest value: it is computed as g/(1 - γ) plus
        a part that tends to b, each to nearly all digits.
        """
        if not 0.0 <= discount < 1.0:
            raise InvalidArgumentError(
                f"discount must be at least 0 and below 1; got {discount!r}. For the undiscounted "
                "case use gain and bias"
            )
        return self._limits.discounted(self.reward, discount)

    def bisimulation_distance(self, discount: float = 0.999) -> FloatArray:
        """Return max_a |q(s, a) - q(s', a)|, shape (S, S), with q the discounted action values.

        The paper's d_π, on which its optimal-transport distances rest.
        """
        self._require_dense("bisimulation_distance")
        q = self._action_values(discount * self.discounted_value(discount))
        distance = np.zeros((self.n_states, self.n_states))
        for of_action in q.T:
            np.maximum(distance, np.abs(of_action[:, None] - of_action), out=distance)
        return distance

    # Absorption

    def absorption_probabilities(self) -> FloatArray:
        """Return the probability of ending in each class, shape (S, n_classes)."""
        n, n_classes = self.n_states, self._structure.n_classes
        if n * n_classes > MAX_DENSE_STATES**2:
            raise ModelTooLargeError(
                f"absorption_probabilities of {n} states into {n_classes} classes would take "
                f"{n * n_classes * 8 / 1e9:.1f} GB"
            )
        return self._limits.absorption()

    @cached_property
    def mean_absorption_time(self) -> FloatArray:
        """Expected number of steps until a recurrent class is entered, shape (S,).

        (I - P_TT)^{-1} 1 on the transient states T, 0 on recurrent ones.
        """
        zeros = np.zeros(self.recurrent_states.size)
        return read_only(self._limits.carry(zeros, np.ones(self.transient_states.size)))

    def max_absorption_time(self, tol: float = 1e-8) -> int:
        """Return the first t with ‖P_TT^t‖_F ≤ tol, the paper's definition; 0 if T is empty.

        Raises
        ------
        ModelTooLargeError
            Beyond 5,000 transient states, since P_TT^t is dense: see `mean_absorption_time`.
        """
        _check_tolerance(tol)
        n = self.transient_states.size
        if n > MAX_DENSE_STATES:
            raise ModelTooLargeError(
                f"max_absorption_time needs dense powers over {n} transient states "
                f"({n * n * 8 / 1e9:.1f} GB each); use mean_absorption_time"
            )
        return stepwise.max_absorption_time(self._limits.P_TT, tol)

    @cached_property
    def expected_visits(self) -> FloatArray:
        """Expected number of visits of each state, Σ_t p^t(s), shape (S,).

        p^0_T (I - P_TT)^{-1} on the transient states T; infinite for recurrent states that can
        be reached from the start, 0 for those that cannot.
        """
        visits = np.zeros(self.n_states)
        # By what can be reached: a probability may be too small for a positive double.
        visits[self._reached] = np.inf
        visits[self.transient_states] = self._limits.visits(self.initial_distribution)
        return read_only(visits)

    def hitting_time(self, target: int | ArrayLike) -> FloatArray:
        """Return the expected steps until one of the target states is reached, shape (S,).

        0 on the target, infinite where it may never be reached.
        """
        return hitting_times(self.transition_matrix, self._check_states(target))

    # Finite times

    def stepwise_distributions(self, t_max: int, tol: float = 1e-12) -> FloatArray:
        """Return p^t = p^0 P^t for t = 0 … t_max, shape (t_max + 1, S).

        Stops early once all that remains is provably within `tol` of p^t in the 1-norm:
        (t_max - t) ‖p^t P - p^t‖₁ < tol.
        """
        require_integers(InvalidArgumentError, t_max=t_max)
        if t_max < 0:
            raise InvalidArgumentError(f"t_max must not be negative; got {t_max}")
        return stepwise.distributions(self.transition_matrix, self.initial_distribution, t_max, tol)

    def mixing_time(
        self,
        tol: float = 1e-10,
        start: Literal["initial", "worst"] = "initial",
        *,
        averaged: bool = False,
    ) -> int:
        """Return the first t at which the total variation ½ ‖p^t - p*‖₁ is at most tol.

        Parameters
        ----------
        tol : float
            Distance that counts as mixed; at least 3.6e-15, below which rounding of p* hides it,
            unless `averaged`.
        start : {"initial", "worst"}
            From the initial distribution, or from the state that takes longest.
        averaged : bool
            Use the average of p^0 … p^t in place of p^t. It converges for periodic chains too,
            though only as 1/t.

        Raises
        ------
        PeriodicChainError
            If the start reaches a periodic class, so that p^t has no limit, unless `averaged`.
        MulticlassError
            For start "worst" with several recurrent classes.
        ModelTooLargeError
            For start "worst" beyond 5,000 states.
        ConvergenceError
            If a chain too large for dense powers takes too many steps.
        InvalidArgumentError
            For a tolerance that rounding hides.
        """
        _check_tolerance(tol)
        if start not in ("initial", "worst"):
            raise InvalidArgumentError(f"start must be 'initial' or 'worst'; got {start!r}")
        if start == "worst":
            self._require_unichain("a worst-case mixing time", "start='initial'")
            self._require_dense("mixing_time(start='worst')")
        seen = self._reached if start == "initial" else np.arange(self.n_states)
        labels = np.unique(self._structure.class_label[seen])
        labels = labels[labels >= 0]
        period = int(np.lcm.reduce(self.class_periods[labels].astype(object)))
        P = self.transition_matrix[seen][:, seen]
        if averaged:
            sums = self.deviation_matrix if start == "worst" else self._start_potential[None, seen]
            return stepwise.averaged_mixing_time(P, sums, period, tol)
        if period > 1:
            raise PeriodicChainError(
                f"a chain of period {period} never mixes: p^t has no limit. Use averaged=True for "
                "the running average of p^t"
            )
        if tol < SMALLEST_DISTANCE:
            raise InvalidArgumentError(
                f"tol is {tol!r}, but rounding of the stationary distribution hides distances "
                f"below {SMALLEST_DISTANCE:.2g}; that is the smallest tol that works"
            )
        excess = self.initial_distribution[seen] - self.stationary_distribution[seen]
        block = None if start == "worst" else excess[None]
        P = stepwise.normalized(P)
        if self.n_states * self._structure.n_classes > MAX_DENSE_STATES**2:
            return stepwise.mixing_time(stepwise.Decay(P, block), tol)
        absorption = self._limits.absorption()[seen][:, labels]
        limits = self._limits.class_distributions[labels][:, seen]
        return stepwise.mixing_time(stepwise.Decay(P, block, limits, absorption), tol)

    # What the methods above share

    @cached_property
    def _reached(self) -> IntArray:
        """The states that can be reached from the start, sorted."""
        start = np.flatnonzero(self.initial_distribution)
        depth, _ = search_breadth_first(self.transition_matrix, start)
        return np.flatnonzero(depth >= 0)

    @cached_property
    def _start_potential(self) -> FloatArray:
        """p^0 D, shape (S,)."""
        return self._limits.left_potential(self.initial_distribution)

    def _action_values(self, following: FloatArray) -> FloatArray:
        """r(s, a) + Σ_s' p(s'|s, a) following(s'), shape (S, A)."""
        if self.mdp is None:
            raise InvalidModelError(
                "action values need the MDP's actions, and this chain was made from a transition "
                "matrix alone; get it from TabularMDP.induce(policy)"
            )
        ahead = following[self.mdp.next_state]
        continued: FloatArray = np.einsum("sak,sak->sa", self.mdp.probability, ahead)
        return self.mdp.expected_reward + continued

    def _check_state(self, state: int) -> int:
        states = self._check_states(state)
        if states.size > 1:
            raise InvalidModelError(f"one state is needed; got {state!r}")
        return int(states[0])

    def _check_states(self, states: int | ArrayLike) -> IntArray:
        array = np.atleast_1d(np.asarray(states))
        if array.ndim != 1 or not array.size or not np.issubdtype(array.dtype, np.integer):
            raise InvalidModelError(f"states must be integers, one or several; got {states!r}")
        wrong = array[(array < 0) | (array >= self.n_states)]
        if wrong.size:
            raise InvalidModelError(
                f"state {wrong[0]} does not exist; states are 0 to {self.n_states - 1}"
            )
        return array.astype(np.int64)

    def _require_unichain(self, what: str, instead: str) -> None:
        if not self.is_unichain:
            shown = [f"{{{abbreviate(c)}}}" for c in self.recurrent_classes[:5]]
            more = "" if self._structure.n_classes <= 5 else ", …"
            raise MulticlassError(
                f"a chain with {self._structure.n_classes} recurrent classes has not {what} but "
                f"one for each: {', '.join(shown)}{more}. Use {instead}"
            )

    def _require_dense(self, what: str) -> None:
        n = self.n_states
        if n > MAX_DENSE_STATES:
            raise ModelTooLargeError(
                f"{what} of {n} states is a dense array of {n * n * 8 / 1e9:.1f} GB; the limit is "
                f"{MAX_DENSE_STATES} states"
            )


def _check_tolerance(tol: float) -> None:
    if not tol > 0.0:
        raise InvalidArgumentError(f"tol must be positive; got {tol!r}")
