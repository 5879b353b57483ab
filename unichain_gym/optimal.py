"""Optimal policies by criterion: gain, bias, Blackwell, discounted; and the worst ones.

A policy is **gain**-optimal if its long-run average reward is the largest from every state;
**bias**-optimal if among those its bias, the total reward above the gain, is the largest from
every state; **Blackwell**-optimal if it is optimal for all discounts near enough to 1; and
**discounted**-optimal for one discount. Deterministic policies that are so from every state at
once always exist (Puterman, 1994, Markov Decision Processes, theorems 6.2.10, 9.1.7, 10.1.3 and
10.1.4). How they are found is in `unichain_gym.policy_iteration`, which other actions optimal
policies take in `unichain_gym.optimal_actions`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from unichain_gym.arrays import BoolArray, FloatArray, IntArray
from unichain_gym.chain import MarkovChain
from unichain_gym.errors import InvalidArgumentError
from unichain_gym.interface import OutcomeModel
from unichain_gym.optimal_actions import taken_by_optimal_policies
from unichain_gym.outcomes import check_choice, check_discount, read_only
from unichain_gym.policies import induce
from unichain_gym.policy_iteration import BLACKWELL, iterate_policies
from unichain_gym.solver_report import SolverReport
from unichain_gym.summary import abbreviate, format_table

Criterion = Literal["gain", "bias", "blackwell", "discounted"]
_ORDER = {"gain": -1, "bias": 0, "blackwell": BLACKWELL, "discounted": -1}
_SHOWN = 20
TIE_TOLERANCE = 1e-11


@dataclass(frozen=True, eq=False, repr=False)
class OptimalPolicy:
    """A policy that is optimal in every state, and what decided; `print` shows a table.

    Parameters
    ----------
    criterion : {"gain", "bias", "blackwell", "discounted"}
    discount : float or None
        The discount of criterion "discounted".
    policy : ndarray of int, shape (S,)
        The action of each state.
    chain : MarkovChain
        What the policy induces.
    n_iterations : int
        How many policies were evaluated.
    tie_tolerance : float
        Differences up to this, relative to the size of what is compared, count as ties.
    smallest_margin : float
        The smallest difference, relative in the same way, by which an action was found worse;
        infinite if none was. Close above `tie_tolerance`, the policy is not certain.
    largest_tie : float
        The largest relative difference that was called a tie. Close below `tie_tolerance`,
        `optimal_actions` is not certain.
    conserving, best : ndarray of bool, shape (S, A)
        The actions that conserve the terms of the criterion, and the next term as well: what
        `optimal_actions` is found from.

    Attributes
    ----------
    gain, bias : ndarray, shape (S,)
        Of the policy, from each state.
    value : ndarray, shape (S,), or None
        Its discounted value, for criterion "discounted".
    optimal_actions : ndarray of bool, shape (S, A)
        Which actions some optimal deterministic policy takes.
    solver_report : SolverReport
        How gain and bias were computed.

    Examples
    --------
    >>> from unichain_gym import make_mdp
    >>> best = make_mdp("h6").optimal_policy("gain")
    >>> best.policy.tolist(), best.gain.round(3).tolist()[0]
    ([1, 1, 1, 1, 1, 1], 13.345)
    >>> best.optimal_actions.tolist()[2:4]  # the gain does not see transient states
    [[True, True], [False, True]]
    """

    criterion: Criterion
    discount: float | None
    policy: IntArray
    chain: MarkovChain
    n_iterations: int
    tie_tolerance: float
    smallest_margin: float
    largest_tie: float
    conserving: BoolArray
    best: BoolArray

    def __repr__(self) -> str:
        return f"OptimalPolicy({self.criterion!r}, n_states={self.policy.size})"

    def __str__(self) -> str:
        value = self.bias if self.value is None else self.value
        name = "bias" if self.value is None else f"value at {self.discount:g}"
        rows = [("state", "action", "optimal actions", "gain", name)]
        for s in range(min(_SHOWN, self.policy.size)):
            optimal = abbreviate(np.flatnonzero(self.optimal_actions[s]))
            figures = (f"{self.gain[s]:.6g}", f"{value[s]:.6g}")
            rows.append((f"{s}", f"{self.policy[s]}", optimal, *figures))
        if self.policy.size > _SHOWN:
            rows.append(("…", "", "", "", f"{self.policy.size - _SHOWN} more states"))
        return (
            f"{self.criterion}-optimal, {self.n_iterations} iterations; margin "
            f"{self.smallest_margin:.1e}, ties within {self.largest_tie:.1e}, tolerance "
            f"{self.tie_tolerance:.1e}\n{format_table(rows)}"
        )

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

        For Blackwell and discounted optimality any combination of these is optimal. For gain
        and bias not every one is: an action may be optimal only where the others lead away.

        Raises
        ------
        ModelTooLargeError
            For gain and bias, if too many states with ties would have to be looked at one by one.
        """
        mdp = self.chain.mdp
        assert mdp is not None  # it comes from `induce`
        if self.criterion in ("blackwell", "discounted"):
            return read_only(self.conserving)
        possible = mdp.probability > 0.0
        return read_only(
            taken_by_optimal_policies(mdp.next_state, possible, self.conserving, self.best)
        )

    @property
    def solver_report(self) -> SolverReport:
        """How gain and bias of the policy were computed, with residuals."""
        return self.chain.solver_report


def find_optimal_policy(
    mdp: OutcomeModel,
    criterion: Criterion = "gain",
    discount: float | None = None,
    *,
    tie_tolerance: float = TIE_TOLERANCE,
) -> OptimalPolicy:
    """Find a policy that is optimal in every state.

    Parameters
    ----------
    mdp : TabularMDP
    criterion : {"gain", "bias", "blackwell", "discounted"}
    discount : float, optional
        The discount γ in [0, 1), for criterion "discounted" and only there.
    tie_tolerance : float
        Differences between actions count as ties up to this, relative to the size of what is
        compared: the rewards, the values, and how far the chain spreads an error in them.

    Returns
    -------
    OptimalPolicy

    Raises
    ------
    InvalidArgumentError
        If an argument is out of range.
    ConvergenceError
        If a policy cannot be evaluated, or policies come back for want of digits.
    """
    check_choice("criterion", criterion, get_args(Criterion))
    if (criterion == "discounted") != (discount is not None):
        raise InvalidArgumentError(
            "criterion='discounted' needs discount=, and no other criterion takes one; got "
            f"criterion={criterion!r}, discount={discount!r}"
        )
    if discount is not None:
        check_discount(discount, "criterion='gain', 'bias' or 'blackwell'")
    if not 0.0 < tie_tolerance < 1.0:
        raise InvalidArgumentError(f"tie_tolerance must be between 0 and 1; got {tie_tolerance!r}")
    for n_iterations, last in enumerate(  # noqa: B007  (the last one is what is wanted)
        iterate_policies(mdp, _ORDER[criterion], discount, tie_tolerance), 1
    ):
        pass
    compared = last.compared
    best = compared.best[-1]
    return OptimalPolicy(
        criterion=criterion,
        discount=discount,
        policy=read_only(last.policy),
        chain=last.chain,
        n_iterations=n_iterations,
        tie_tolerance=tie_tolerance,
        smallest_margin=compared.smallest_margin,
        largest_tie=compared.largest_tie,
        conserving=read_only(compared.best[-2] if criterion in ("gain", "bias") else best),
        best=read_only(best),
    )


def find_worst_policy(
    mdp: OutcomeModel,
    criterion: Criterion = "gain",
    discount: float | None = None,
    *,
    tie_tolerance: float = TIE_TOLERANCE,
) -> OptimalPolicy:
    """Find a policy that is worst in every state: optimal for the rewards with opposite signs.

    Parameters
    ----------
    mdp, criterion, discount, tie_tolerance
        As for the optimal policy; errors are the same too.

    Returns
    -------
    OptimalPolicy
        Its gain, bias and chain are those of the policy with the rewards as they are.
    """
    opposite = replace(mdp, reward=-mdp.reward)
    found = find_optimal_policy(opposite, criterion, discount, tie_tolerance=tie_tolerance)
    return replace(found, chain=induce(mdp, found.policy))
