"""Policy iteration for the gain, the bias and every finer criterion, and for discounted values.

For discounts near 1, with ρ = (1 - γ)/γ, the value of a policy d is a series,

    γ v = Σ_{n ≥ -1} ρ^n y_n,    y_-1 = g = P* r,    y_0 = b = D r,    y_n = -D y_{n-1}

(Puterman, 1994, theorem 8.2.3). A policy is *n-discount optimal* if no other has larger terms up
to y_n, compared in turn in every state: gain-optimal for n = -1, bias-optimal for n = 0, and
Blackwell-optimal, that is optimal for all discounts near enough to 1, for all n (theorem 10.1.5).
Taking action a once and then following d changes the value in state s by terms of which

    Σ_s' p(s'|s, a) y_-1(s'),    r(s, a) + Σ_s' p(s'|s, a) y_0(s'),    Σ_s' p(s'|s, a) y_n(s')

depend on a. Each iteration compares the actions of every state by these in turn and changes those
of d that are not among the best. The value near γ = 1 then rises and no policy comes back; where
nothing is better in the terms up to n + 1, d is n-discount optimal (Veinott, 1969, Ann. Math.
Stat. 40; Howard, 1960, for the gain).

**Ties.** Two actions tie if they differ by less than `tie_tolerance` times the size of what is
compared, which includes how far the solution of the policy's equations spreads an error: the
solution for errors of random sign, as large as what rounding acts on, gives it in every state.
An action is kept unless another is better beyond that, so rounding never makes policies cycle.

**Higher terms.** Among actions that tie in all terms before, the comparison by y_n stays as it is
when y_n is multiplied by a positive number, or any y_m with 1 ≤ m < n is added to it. So the
y_n are replaced by what is new in each (Arnoldi's method): nothing grows like |D|^n, and once
nothing is new, all that follow tie as well. This is done for each part of the state space that
the remaining actions do not connect to others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from unichain_gym.action_values import expected_ahead
from unichain_gym.arrays import BoolArray, FloatArray, IntArray
from unichain_gym.chain import MarkovChain
from unichain_gym.errors import ConvergenceError
from unichain_gym.interface import OutcomeModel
from unichain_gym.linear import find_solver
from unichain_gym.policies import induce
from unichain_gym.structure import group_sums, outcome_graph

BLACKWELL = 2**62
"""The n of Blackwell optimality: more terms than are ever compared."""


class Comparison:
    """The actions that are among the best of their states, as terms are compared in turn.

    Attributes
    ----------
    best : list of ndarray of bool, shape (S, A)
        The best in all terms so far, after each term that was compared.
    smallest_margin, largest_tie : float
        The smallest difference that excluded an action and the largest that did not, relative to
        the sizes that `tolerance` is relative to; infinite and 0 if there was none.
    """

    def __init__(self, allowed: BoolArray, tolerance: float) -> None:
        self.remaining = allowed
        self.tolerance = tolerance
        self.best: list[BoolArray] = []
        self.smallest_margin = np.inf
        self.largest_tie = 0.0

    def keep_best(self, score: FloatArray, size: FloatArray) -> None:
        """Exclude the actions (S, A) whose score is below the best of those that remain."""
        state, action = np.nonzero(self.remaining)
        top = np.where(self.remaining, score, -np.inf)
        leader = top.argmax(axis=1)[state]
        gap = top[state, leader] - score[state, action]
        margin = np.zeros_like(gap)
        # What differs although nothing has a size differs by infinitely much.
        with np.errstate(divide="ignore", over="ignore"):
            np.divide(gap, np.maximum(size[state, action], size[state, leader]), margin,
                      where=gap > 0.0)  # fmt: skip
        ties = margin <= self.tolerance
        self.smallest_margin = min(self.smallest_margin, margin[~ties].min(initial=np.inf))
        self.largest_tie = max(self.largest_tie, margin[ties].max(initial=0.0))
        self.remaining = np.zeros_like(self.remaining)
        self.remaining[state[ties], action[ties]] = True
        self.best.append(self.remaining)


@dataclass(frozen=True)
class Evaluation:
    """A policy and how the actions of every state compare with its own.

    Parameters
    ----------
    policy : ndarray of int, shape (S,)
    chain : MarkovChain
        What it induces.
    compared : Comparison
    improved : ndarray of int, shape (S,)
        The next policy; the same one if no action is better.
    """

    policy: IntArray
    chain: MarkovChain
    compared: Comparison
    improved: IntArray


def iterate_policies(
    mdp: OutcomeModel, n: int, discount: float | None, tie_tolerance: float
) -> Iterator[Evaluation]:
    """Improve a policy until it is n-discount optimal; yield every one, the optimal one last.

    Parameters
    ----------
    mdp : TabularMDP
    n : int
        -1 for the gain, 0 for the bias, `BLACKWELL`.
    discount : float or None
        If given, the discounted value is the criterion instead.
    tie_tolerance : float

    Raises
    ------
    ConvergenceError
        If a policy comes back, for want of digits.
    """
    # The largest reward at once, for a start.
    policy = np.where(mdp.allowed_actions, mdp.expected_reward, -np.inf).argmax(axis=1)
    seen: set[bytes] = set()
    while True:
        try:
            evaluation = _evaluate(mdp, policy, n, discount, tie_tolerance)
        except ConvergenceError:
            start = policy if discount is not None else _look_far_ahead(mdp, policy)
            if (start == policy).all():
                raise
            policy = start
            continue
        yield evaluation
        if (evaluation.improved == policy).all():
            return
        seen.add(policy.tobytes())
        policy = evaluation.improved
        if policy.tobytes() in seen:
            raise ConvergenceError(
                f"policy iteration came back to a policy after {len(seen)} iterations: rounding "
                f"outweighs tie_tolerance={tie_tolerance!r}. Choose a larger one"
            )


def _look_far_ahead(mdp: OutcomeModel, policy: IntArray) -> IntArray:
    """Return a policy that is about optimal for a discount of 1 - 1e-6.

    The first policies see no further than the next rewards. On a large MDP they stay around
    many good places, which are left so rarely that no digit of their bias is certain, and whose
    states an optimal policy leaves for the best. The discount bounds the time that counts.
    """
    exit_rate = 1e-6
    while True:
        chain = induce(mdp, policy)
        P = (1.0 - exit_rate) * chain.transition_matrix
        solver = find_solver(P, np.full(policy.size, exit_rate))
        v = solver.solve(chain.reward)
        score = mdp.expected_reward + (1.0 - exit_rate) * drift(mdp, v)
        score = np.where(mdp.allowed_actions, score, -np.inf)
        own = score[np.arange(policy.size), policy]
        better = score.max(axis=1) > own + 1e-12 * np.abs(v).max()
        if not better.any():
            return policy
        policy = np.where(better, score.argmax(axis=1), policy)


def _evaluate(
    mdp: OutcomeModel, policy: IntArray, n: int, discount: float | None, tie_tolerance: float
) -> Evaluation:
    chain = induce(mdp, policy)
    compared = Comparison(mdp.allowed_actions, tie_tolerance)
    improved = policy
    own = np.arange(policy.size), policy
    terms = (
        _laurent_terms(mdp, chain, compared, n)
        if discount is None
        else _discounted_term(mdp, chain, discount)
    )
    for is_first, (score, size) in terms:
        compared.keep_best(score, size)
        best = compared.best[-1]
        # The bias is at hand with the gain, so that both improve at once, each where it counts.
        improved = np.where(best[own], policy, np.where(best, score, -np.inf).argmax(axis=1))
        if not is_first and not best[own].all():
            break
    return Evaluation(policy, chain, compared, improved)


_Term = tuple[bool, tuple[FloatArray, FloatArray]]


def _laurent_terms(
    mdp: OutcomeModel, chain: MarkovChain, compared: Comparison, n: int
) -> Iterator[_Term]:
    """Yield the terms from the gain to y_{n+1}: whether it is the first, scores and sizes."""
    reward = np.abs(chain.reward)
    gain, bias = chain.gain_vector, chain.bias
    gain_size = chain._limits.limit(reward)
    yield True, (drift(mdp, gain), _around(mdp, gain_size))
    error = _spread(chain, reward + np.abs(gain))
    score = mdp.expected_reward + drift(mdp, bias)
    size = np.abs(mdp.expected_reward) + np.abs(gain)[:, None]
    yield False, (score, size + _around(mdp, np.abs(bias) + error))
    if n < 0:
        return
    if n < BLACKWELL or not _is_settled(mdp, compared):
        for count, (term, term_error) in enumerate(_new_terms(mdp, chain, compared, bias, error)):
            yield False, (drift(mdp, term), _around(mdp, np.abs(term) + term_error))
            if count == n or (n == BLACKWELL and _is_settled(mdp, compared)):
                return


def _new_terms(
    mdp: OutcomeModel,
    chain: MarkovChain,
    compared: Comparison,
    term: FloatArray,
    error: FloatArray,
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield what is new in y_1, y_2, …, scaled to length 1 in each part, and its error."""
    possible = (mdp.probability > 0.0) & compared.remaining[:, :, None]
    graph = outcome_graph(mdp.next_state, possible)
    n_parts, part = connected_components(graph, directed=False)

    def dot(x: FloatArray, y: FloatArray) -> FloatArray:
        return group_sums(part, x * y, n_parts)[part]

    basis: list[tuple[FloatArray, FloatArray]] = []
    for _ in range(mdp.n_states):
        error = _spread(chain, error + np.abs(term))
        term = -chain._limits.potential(term)
        before = np.sqrt(dot(term, term))
        for _ in range(2):  # twice, for orthogonality to rounding
            for other, other_error in basis:
                overlap = dot(term, other)
                term = term - overlap * other
                error = error + np.abs(overlap) * other_error
        length = np.sqrt(dot(term, term))
        is_new = length > compared.tolerance * (before + np.sqrt(dot(error, error)))
        scale = np.divide(1.0, length, out=np.zeros_like(length), where=is_new)
        term, error = scale * term, scale * error
        yield term, error
        if not is_new.any():
            return
        basis.append((term, error))


def _is_settled(mdp: OutcomeModel, compared: Comparison) -> bool:
    """Whether the actions left in each state do the same, so that no term tells them apart."""
    remaining = compared.remaining
    tied = np.flatnonzero(np.count_nonzero(remaining, axis=1) > 1)
    if not tied.size:
        return True
    first = remaining[tied].argmax(axis=1)
    S, A, K = mdp.next_state.shape
    # Rows (state, action) of p, with the outcomes that lead to one state added up.
    action = np.where(remaining[tied], np.arange(A), first[:, None])
    row = np.repeat(np.arange(tied.size * A), K)
    chosen = tied[:, None], action
    shape = (tied.size * A, S)
    P = sparse.csr_array(
        (mdp.probability[chosen].ravel(), (row, mdp.next_state[chosen].ravel())), shape=shape
    )
    lead = np.repeat(np.arange(tied.size) * A + first, A)
    return not bool(abs(P - P[lead]).max())


def _discounted_term(mdp: OutcomeModel, chain: MarkovChain, discount: float) -> Iterator[_Term]:
    """Yield r(s, a) + γ Σ_s' p(s'|s, a) v(s') less what all actions have in common.

    v is split into g/(1 - γ) and a part x that stays bounded as γ tends to 1, so that actions
    are compared as precisely there.
    """
    limits, reward, gain = chain._limits, np.abs(chain.reward), chain.gain_vector
    x = limits.discounted(chain.reward - gain, discount)
    noise = _signs(reward.size) * (reward + np.abs(gain))
    error = _widen(chain, limits.discounted(noise - limits.limit(noise), discount))
    far = discount / (1.0 - discount)
    score = mdp.expected_reward + discount * drift(mdp, x) + far * drift(mdp, gain)
    size = np.abs(mdp.expected_reward) + _around(mdp, np.abs(x) + error)
    if not chain.is_unichain:
        size = size + far * _around(mdp, limits.limit(reward))
    yield False, (score, size)


def drift(mdp: OutcomeModel, y: FloatArray) -> FloatArray:
    """Return Σ_s' p(s'|s, a) (y(s') - y(s)), shape (S, A)."""
    change = y[mdp.next_state] - y[:, None, None]
    return np.asarray(np.einsum("sak,sak->sa", mdp.probability, change))


def _around(mdp: OutcomeModel, size: FloatArray) -> FloatArray:
    """Return size(s) + Σ_s' p(s'|s, a) size(s'), shape (S, A)."""
    return expected_ahead(mdp, size) + size[:, None]


def _spread(chain: MarkovChain, error: FloatArray) -> FloatArray:
    """Return how large errors (S,) of a right-hand side are in D times it."""
    return _widen(chain, chain._limits.potential(_signs(error.size) * error)) + error


def _widen(chain: MarkovChain, error: FloatArray) -> FloatArray:
    """Return the sizes of errors (S,), the largest of its class for a recurrent state."""
    error, limits = np.abs(error), chain._limits
    error[limits.recurrent] = limits.class_maximum(error[limits.recurrent])[limits.label]
    return error


def _signs(n: int) -> FloatArray:
    """Return signs that look random and are always the same."""
    return np.random.default_rng(0).choice([-1.0, 1.0], size=n)
