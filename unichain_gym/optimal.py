"""Optimal policies by criterion: gain, bias, Blackwell, discounted; and the worst ones.

A policy is **gain**-optimal if its long-run average reward is the largest from every state;
**bias**-optimal if its bias, the total reward above the gain, is the largest among gain-optimal
policies from every state; **Blackwell**-optimal if it is optimal for all discounts near enough to
1; and **discounted**-optimal for one discount. Deterministic policies with these properties always
exist (Puterman, 1994, Markov Decision Processes, theorems 6.2.10, 9.1.7, 10.1.3 and 10.1.4).
`unichain_gym.policy_iteration` finds one policy, and `unichain_gym.unichain` finds all
actions of optimal policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from unichain_gym.errors import InvalidArgumentError, ModelTooLargeError, brief
from unichain_gym.interface import BoolArray, FloatArray, IntArray, OutcomeModel, RewardProcess
from unichain_gym.outcomes import check_choice, check_discount, read_only
from unichain_gym.pairs import in_fractions
from unichain_gym.policy_iteration import BLACKWELL, iterate_policies, rough_policy
from unichain_gym.solver_report import SolverReport
from unichain_gym.summary import abbreviate, format_table, html_table
from unichain_gym.unichain import taken_by_optimal_policies

Criterion = Literal["gain", "bias", "blackwell", "discounted"]
_ORDER = {"gain": -1, "bias": 0, "blackwell": BLACKWELL, "discounted": -1}
Precision = Literal["auto", "double", "exact"]
_SHOWN = 20
# Elimination in fractions: the limits of states for "exact" and for "auto".
EXACT_STATES, AUTO_STATES = 500, 50


class Undecided(NamedTuple):
    """An action whose difference from the policy's is at most ``bound``, of unknown sign.

    The bound is in units of reward, or of reward per step if the gains of states differ.
    """

    state: int
    action: int
    bound: float


@dataclass(frozen=True, eq=False, repr=False)
class OptimalPolicy:
    """A policy that is optimal in every state, with its proof; `print` shows a table.

    Parameters
    ----------
    criterion : {"gain", "bias", "blackwell", "discounted"}
    discount : float or None
    mdp : TabularMDP
    policy : ndarray of int, shape (S,)
        The action of each state.
    n_iterations : int
        How many policies were evaluated.
    precision : {"double", "exact"}
        The arithmetic: doubles with error bounds, or fractions.
    undecided : tuple of Undecided
        Actions that may tie with the policy's. All others are decided.
    conserving, best : ndarray of bool, shape (S, A)
        Actions that conserve the terms of the criterion; actions that also conserve the next term.

    Examples
    --------
    >>> from unichain_gym import make_mdp
    >>> best = make_mdp("h6").optimal_policy("gain")
    >>> best.policy.tolist(), best.gain.round(3).tolist()[0]
    ([1, 1, 1, 1, 1, 1], 13.345)
    >>> best.optimal_actions.tolist()[2:4]  # transient states do not change it
    [[True, True], [False, True]]
    """

    criterion: Criterion
    discount: float | None
    mdp: OutcomeModel
    policy: IntArray
    n_iterations: int
    precision: Literal["double", "exact"]
    undecided: tuple[Undecided, ...]
    conserving: BoolArray
    best: BoolArray

    def __repr__(self) -> str:
        return f"OptimalPolicy({self.criterion!r}, n_states={self.policy.size})"

    def __str__(self) -> str:
        return f"{self._account()}\n{format_table(self._rows())}"

    def _repr_html_(self) -> str:
        return html_table(self._account(), self._rows())

    def _rows(self) -> list[Sequence[str]]:
        value = self.bias if self.value is None else self.value
        name = "bias" if self.value is None else f"value at {self.discount:g}"
        rows: list[Sequence[str]] = [("state", "action", "optimal actions", "gain", name)]
        states = getattr(self.mdp, "state_names", None) or range(self.policy.size)
        actions = getattr(self.mdp, "action_names", None)
        for s in range(min(_SHOWN, self.policy.size)):
            found, action = np.flatnonzero(self.optimal_actions[s]), self.policy[s]
            optimal = ", ".join(f"{actions[a]}" for a in found) if actions else abbreviate(found)
            figures = (f"{self.gain[s]:.6g}", f"{value[s]:.6g}")
            taken = f"{actions[action] if actions else action}"
            rows.append((f"{states[s]}", taken, optimal, *figures))
        if self.policy.size > _SHOWN:
            rows.append(("…", "", "", "", f"{self.policy.size - _SHOWN} more states"))
        return rows

    def _account(self) -> str:
        doubt = "every difference between actions is certain"
        if self.undecided:
            state, action, bound = max(self.undecided, key=lambda pair: pair.bound)
            doubt = (
                f"{len(self.undecided)} actions tie or differ by less than rounding, at most by "
                f"{bound:.1e} (state {state}, action {action}): see undecided"
            )
        return (
            f"{self.criterion}-optimal, {self.n_iterations} iterations, {self.precision}; {doubt}"
        )

    @cached_property
    def chain(self) -> RewardProcess:
        """The chain that the policy induces."""
        return self.mdp.induce(self.policy)

    @property
    def gain(self) -> FloatArray:
        """The policy's gain from each state, shape (S,)."""
        return self.chain.gain_vector

    @property
    def bias(self) -> FloatArray:
        """The policy's bias, shape (S,)."""
        return self.chain.bias

    @cached_property
    def value(self) -> FloatArray | None:
        """The discounted value, shape (S,), for criterion "discounted"; otherwise None."""
        if self.discount is None:
            return None
        return read_only(self.chain.discounted_value(self.discount))

    @cached_property
    def optimal_actions(self) -> BoolArray:
        """Whether some optimal deterministic policy takes the action, shape (S, A).

        For Blackwell and discounted optimality every combination of these actions is optimal. For
        gain and bias some combinations are not.

        Raises
        ------
        ModelTooLargeError
            For gain and bias, if too many states have ties.
        """
        if self.criterion in ("blackwell", "discounted"):
            return read_only(self.conserving)
        possible, to = self.mdp.probability > 0.0, self.mdp.next_state
        return read_only(taken_by_optimal_policies(to, possible, self.conserving, self.best))

    @property
    def solver_report(self) -> SolverReport:
        """The methods and residuals of the policy's gain and bias."""
        return self.chain.solver_report


def find_optimal_policy(
    mdp: OutcomeModel,
    criterion: Criterion = "gain",
    discount: float | None = None,
    *,
    tie_tolerance: float | Literal["rounding"] = "rounding",
    precision: Precision = "auto",
) -> OptimalPolicy:
    """Find a policy that is optimal in every state.

    Parameters
    ----------
    criterion : {"gain", "bias", "blackwell", "discounted"}
        With durations only "gain", the reward per unit of time.
    discount : float, optional
        The discount γ in [0, 1), only for criterion "discounted".
    tie_tolerance : "rounding" or float
        By default two actions tie if they differ by at most a rounding bound, which allows half an
        ulp for each probability and reward. With a number, differences up to this share of the
        compared rewards and values are ties.
    precision : {"auto", "double", "exact"}
        The arithmetic that decides ties. "double": doubles with error bounds; open cases are listed
        as `undecided`. "exact": fractions, for up to 500 states (seconds for a grid of 200, a
        minute for 100 fully connected states). A double is read as the simplest fraction within two
        ulps, .1 as 1/10, or as its exact value if that fraction is not simple. "auto": doubles,
        then fractions for open cases of up to 50 states whose numbers are all simple fractions.

    Raises
    ------
    InvalidArgumentError
        If an argument is out of range.
    ConvergenceError
        If a policy cannot be evaluated.
    ModelTooLargeError
        If precision="exact" is asked for more than 500 states.
    """
    check_choice("criterion", criterion, get_args(Criterion))
    check_choice("precision", precision, get_args(Precision))
    if (criterion == "discounted") != (discount is not None):
        raise InvalidArgumentError(
            "criterion='discounted' needs discount=, and no other criterion takes one; got "
            f"criterion={criterion!r}, discount={discount!r}"
        )
    if mdp.durations is not None and criterion != "gain":
        raise InvalidArgumentError(
            f"criterion={criterion!r} of steps that take time depends on the distributions of "
            "their durations, but a model has only the means; use criterion='gain'"
        )
    if discount is not None:
        check_discount(discount, "criterion='gain', 'bias' or 'blackwell'")
    tolerance = 0.0 if tie_tolerance == "rounding" else tie_tolerance
    if tie_tolerance != "rounding" and not (
        isinstance(tolerance, (int, float)) and 0.0 < tolerance < 1.0
    ):
        raise InvalidArgumentError(
            f"tie_tolerance must be 'rounding' or between 0 and 1; got {brief(tie_tolerance)}"
        )
    if precision == "exact" and mdp.n_states > EXACT_STATES:
        raise ModelTooLargeError(
            f"precision='exact' eliminates in fractions, for up to {EXACT_STATES} states; these "
            f"are {mdp.n_states}. Decide the `undecided` actions by their bounds"
        )
    pairs, order = mdp._pairs, _ORDER[criterion]
    rows, n_iterations = rough_policy(pairs, discount)
    found = iterate_policies(pairs, rows, order, discount, tolerance)
    last, n_iterations, is_exact = found[-1], n_iterations + len(found), False
    is_open = bool(last.bound.any()) and mdp.n_states <= AUTO_STATES
    if precision == "exact" or (precision == "auto" and is_open):
        exact, is_sure = in_fractions(mdp, pairs)
        if is_exact := is_sure or precision == "exact":
            found = iterate_policies(exact, last.rows, order, discount, tolerance)
            last, n_iterations = found[-1], n_iterations + len(found)
    undecided = np.flatnonzero(last.bound)
    columns = pairs.state[undecided], pairs.action[undecided], last.bound[undecided]
    conserving = last.best[-2] if criterion in ("gain", "bias") else last.best[-1]
    return OptimalPolicy(
        criterion=criterion,
        discount=discount,
        mdp=mdp,
        policy=read_only(pairs.action[last.rows]),
        n_iterations=n_iterations,
        precision="exact" if is_exact else "double",
        undecided=tuple(map(Undecided, *(column.tolist() for column in columns))),
        conserving=read_only(pairs.table(conserving, mdp.n_actions)),
        best=read_only(pairs.table(last.best[-1], mdp.n_actions)),
    )


def find_worst_policy(
    mdp: OutcomeModel,
    criterion: Criterion = "gain",
    discount: float | None = None,
    **options: Any,
) -> OptimalPolicy:
    """Find a policy that is worst in every state: optimal for the rewards with opposite signs.

    Gain, bias and chain of the result use the original rewards.

    Parameters
    ----------
    criterion, discount, **options
        As for the optimal policy, with the same errors.
    """
    opposite = replace(mdp, reward=-mdp.reward)
    return replace(find_optimal_policy(opposite, criterion, discount, **options), mdp=mdp)
