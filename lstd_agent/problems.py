r"""Random problems with exact answers, and the errors of values on them.

A problem is an environment, a random deterministic policy and random Gaussian features (section
``xprmt_scheme``). The errors of values on one trial, by the exact p^t (section ``xprmt_metric``):

.. math:: \varepsilon_x = \sum_{t=0}^{t_{max}} \sqrt{e_x^t}

(eq. ``tot_rooterr``), where e_x^t weights states by p^t:

- *repb*, x = PB: the root of the projected Bellman error (eq. ``epb``);
- *rems*, x = MS: the root of the mean squared error of the values (eq. ``ems``).

The *projection limit* is the total rems of the best weights and offset of each neighbourhood, by
least squares on the exact values. No values with these features and neighbourhoods have a total
rems that is much smaller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.environments import model_of
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.tables import GaussianFeatures
from lstd_agent.rows.counts import CountRows
from lstd_agent.rows.factors import Layer
from unichain_gym import MarkovChain, TabularMDP, make_mdp

if TYPE_CHECKING:
    from lstd_agent.agent import SeminormLSTDAgent

ENVIRONMENTS = ("h6", "h36", "h36c", "h70", "h100", "c10", "c35", "c35c", "c75", "c100")
"""The paper's environments."""

RHOS = (0.49, 0.33, 0.19, 0.09, 0.06, 0.03)
"""The paper's numbers of features per state."""

_ANCHORS_TRIED = 60  # timesteps tried as the start of the second neighbourhood of `limit_errors`

T = TypeVar("T")


@dataclass(frozen=True)
class Regime:
    """A feature regime: ρ, its number of features and its largest number of anchors."""

    rho: float
    n_features: int
    n_anchors_max: int


def regimes(n_states: int, among: Collection[float] = RHOS, env: str = "") -> list[Regime]:
    """Return the regimes of an environment (eq. ``nfea_nanchor_tuples``), for ρ ``among`` some.

    A ρ is left out if it gives no feature, or as many features as the next smaller ρ. If none is
    left of a named environment, `InvalidInputError` is raised.
    """
    # The slack keeps 0.29 · 100, say, from falling below 29.
    n_features = [int(rho * n_states + 1e-9) for rho in RHOS]
    every = [
        Regime(rho, d, int(1.0 / rho))
        for rho, d, smaller in zip(RHOS, n_features, (*n_features[1:], 0), strict=True)
        if d > smaller
    ]
    found = [regime for regime in every if regime.rho in among]
    if env and not found:
        studied = f"take rhos among {', '.join(str(regime.rho) for regime in every)}"
        instead = "no ρ gives it a feature; put states in front (unichain_gym.attach_streams)"
        raise InvalidInputError(
            f"{env} is not studied at ρ = {', '.join(map(str, among))}, features for each state, "
            f"with {n_states} states: {studied if every else instead}"
        )
    return found


def elements(name: str, value: Iterable[T]) -> tuple[T, ...]:
    """Return the elements of an argument, or raise for a text or a single value."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInputError(f"{name} must be a sequence; got {value!r}: [{value!r}]?")
    return tuple(value)


def models(
    environments: Iterable[str] | Mapping[str, TabularMDP], n_trials: int, t_max: int
) -> dict[str, TabularMDP]:
    """Return models by name, or raise if trials or p^t up to t_max would need too large arrays."""
    if not isinstance(environments, Mapping):
        environments = {name: model_of(name) for name in elements("environments", environments)}
    for name, mdp in environments.items():
        if not isinstance(mdp, TabularMDP):
            raise InvalidInputError(f"the environment {name!r} must be a TabularMDP; got {mdp!r}")
        if max(n_trials, (t_max + 1) * mdp.n_states) > 10**9:
            told = f"n_trials, and t_max + 1 times the {mdp.n_states} states of {name}, are at most"
            raise InvalidInputError(f"{told} 1e9; got n_trials={n_trials} and t_max={t_max}")
    return dict(environments)


def random_policy(mdp: TabularMDP, seed: int) -> IntArray:
    """Return a deterministic policy (S,), drawn uniformly from the allowed actions."""
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(2)[0])
    n_allowed = mdp.allowed_actions.sum(axis=1)
    if (n_allowed == mdp.n_actions).all():
        return rng.integers(mdp.n_actions, size=mdp.n_states)
    chosen = rng.integers(n_allowed)  # its place among the allowed actions
    place = mdp.allowed_actions.cumsum(axis=1) - 1
    return np.asarray(np.argmax(mdp.allowed_actions & (place == chosen[:, None]), axis=1))


def random_features(n_states: int, n_features: int, seed: int) -> FloatArray:
    """Return the paper's Gaussian features (section ``state_fea_ker``), shape (S, d)."""
    [drawn] = np.random.SeedSequence(seed).spawn(2)[1].generate_state(1)
    return GaussianFeatures(n_features, int(drawn)).table(n_states)


def random_chain(environment: str, seed: int) -> MarkovChain:
    """Return the chain of a `random_policy` in an environment, given by its mnemonic."""
    mdp = make_mdp(environment)
    return mdp.induce(random_policy(mdp, seed))


def random_problem(environment: str, seed: int) -> tuple[MarkovChain, FloatArray]:
    """Return the `random_chain`, and its p^t for ten times its mixing time, (t_max + 1, S).

    No small change of p^t is cut short: root errors, of weights √p^t(s), would show 1e-16.
    """
    chain = random_chain(environment, seed)
    return chain, chain.stepwise_distributions(10 * chain.mixing_time(), tol=0.0)


class ChainRows(CountRows):
    """Rows of a chain's states, by distributions (t_max + 1, S) and a table (S, d) of features.

    Rewards and durations are means. Timesteps after ``t_max`` stand for p*.
    """

    support_threshold = 1e-8
    is_sparse, n_trials = False, 0

    def __init__(
        self,
        chain: MarkovChain,
        distributions: FloatArray,
        table: FloatArray,
        terminal: int | None = None,
        *,
        rcond: float = 1e-10,
    ) -> None:
        self.chain, P = chain, chain.transition_matrix
        self.visits: Any = distributions
        self.t_max, self.rcond = len(distributions) - 1, rcond
        self.table = self.candidate_features = np.asarray(table, dtype=np.float64)
        seen: Any = distributions.any(axis=0)
        while (more := seen | (P.T @ seen > 0.0)).sum() > seen.sum():
            seen = more
        self._set_seen(seen, terminal)

    def merged(self, start: int, stop: int, group: Any = None) -> Layer:
        """Return the layer of a run of timesteps."""
        chain, [visits] = self.chain, self._visits_in(np.array([[start, stop]]))
        times = np.ones(chain.n_states) if chain.durations is None else chain.durations
        of_states = self.rows, visits, chain.reward, times, self._lives
        return Layer(*of_states, self.rows, chain.transition_matrix)

    def layers(self, start: int, stop: int, groups: Any = None) -> Iterator[Layer]:
        """Yield timesteps backwards."""
        for t in reversed(range(start, stop)):
            yield self.merged(t, t + 1)

    def transitions(self, start: int = 0, stop: int | None = None) -> Any:
        """Return the transition matrix."""
        return self.chain.transition_matrix

    def _visits_in(self, windows: IntArray, group: Any = None) -> FloatArray:
        inside = [self.visits[a:b].sum(axis=0) for a, b in windows.tolist()]
        late = windows[:, :1] > self.t_max
        settled: Any = self.chain.stationary_distribution if late.any() else 0.0
        return np.where(late, settled, inside)


def settled_time(chain: MarkovChain, distributions: FloatArray) -> int:
    """Return the first timestep from which p^t changes by rounding alone, at most t_max.

    The transient mass must have died out to 1e-24, since errors are roots of it.
    """
    distance = 0.5 * np.abs(distributions - chain.stationary_distribution).sum(axis=1)
    transient_mass = distributions[:, chain.transient_states].sum(axis=1)
    moving = np.flatnonzero((distance > 1e-14) | (transient_mass > 1e-24))
    return min(int(moving[-1]) + 1 if moving.size else 0, len(distributions) - 1)


@dataclass(frozen=True, eq=False)
class PiecewiseValues:
    """Values (n, S) of states by neighbourhood: from its anchor (n,) on; ``main`` has value 0."""

    anchors: IntArray
    values: FloatArray
    main: int

    @classmethod
    def of(cls, agent: SeminormLSTDAgent, n_states: int, first: int = 0) -> PiecewiseValues:
        """Return what a fitted agent predicts for observations first to first + S - 1."""
        anchors = np.array([each.anchor for each in agent.neighborhoods_])
        states, t = first + np.arange(n_states), np.repeat(anchors, n_states)
        values = agent.predict(np.tile(states, len(anchors)), t).reshape(len(anchors), n_states)
        return cls(anchors, values, int(agent.main_reference_) - first)

    def by_timestep(self, n_timesteps: int) -> FloatArray:
        """Return the values of each timestep from 0, shape (n_timesteps, S)."""
        at = np.searchsorted(self.anchors, np.arange(n_timesteps), "right") - 1
        return np.asarray(self.values[at])


@dataclass(frozen=True, eq=False)
class StepwiseErrors:
    """The errors of values on one chain with features (S, d) and p^t (t_max + 1, S).

    Each error is a function of `PiecewiseValues` that returns one number a timestep, (t_max + 1,).
    """

    chain: MarkovChain
    features: FloatArray
    distributions: FloatArray
    rcond: float = 1e-10

    @cached_property
    def _whitening(self) -> FloatArray:
        """M with Z† = MᵀM for Z = Fᵀ diag(p^t) F, of each timestep until p^t has settled."""
        F = self.features
        moving = self.distributions[: settled_time(self.chain, self.distributions) + 1]
        M = []
        for k in range(0, len(moving), 100):  # all at once would take S / d times the memory
            eigenvalue, U = np.linalg.eigh(F.T @ (moving[k : k + 100, :, None] * F))
            keep = eigenvalue > self.rcond * eigenvalue[:, -1:]
            root = np.where(keep, eigenvalue, 1.0) ** -0.5 * keep
            M.append(root[:, :, None] * U.transpose(0, 2, 1))
        return np.concatenate(M)

    def repb(self, found: PiecewiseValues) -> FloatArray:
        """Return the root projected Bellman errors."""
        chain, M = self.chain, self._whitening
        ahead = np.asarray(chain.transition_matrix @ found.values.T).T
        above = chain.gain if chain.durations is None else chain.gain * chain.durations
        residual = replace(found, values=chain.reward - above + ahead - found.values)
        y = (self.distributions * residual.by_timestep(len(self.distributions))) @ self.features
        moving = np.matmul(M, y[: len(M), :, None])[:, :, 0]
        root = np.concatenate((moving, y[len(M) :] @ M[-1].T))
        return np.asarray(np.linalg.norm(root, axis=1))

    def rems(self, found: PiecewiseValues) -> FloatArray:
        """Return the root mean squared errors."""
        exact = self.chain.relative_value(found.main)
        error = found.by_timestep(len(self.distributions)) - exact
        return _root_mean_square(self.distributions, error)

    def totals(self, found: PiecewiseValues) -> dict[str, float]:
        """Return the sums of both errors over timesteps, under the names of result rows."""
        return {f"total_{e.__name__}": float(e(found).sum()) for e in (self.repb, self.rems)}

    def limit(self, found: PiecewiseValues) -> float:
        """Return the projection limit of the neighbourhoods."""
        exact = self.chain.relative_value(found.main)
        values = best_linear(self.features, exact, self.distributions, found.anchors)
        return float(self.rems(replace(found, values=values)).sum())


def best_linear(
    features: FloatArray, values: FloatArray, distributions: FloatArray, anchors: IntArray
) -> FloatArray:
    """Return the best fits f·w + o (n, S) to values (S,), with states weighted by visits."""
    F = np.column_stack((features, np.ones(len(features))))
    roots = np.sqrt(np.add.reduceat(distributions, anchors, axis=0))
    fits = (np.linalg.lstsq(r[:, None] * F, r * values, rcond=None)[0] for r in roots)
    return np.stack([F @ w for w in fits])


def root_errors(values: FloatArray, chain: MarkovChain, distributions: FloatArray) -> FloatArray:
    """Return the rems of each timestep of values (S,) or (t_max + 1, S), given up to a constant.

    Their mean error under p*, at t_max, is subtracted.
    """
    error = np.broadcast_to(values - chain.bias, distributions.shape)
    error = error - error[-1] @ chain.stationary_distribution
    return _root_mean_square(distributions, error)


def limit_errors(chain: MarkovChain, features: FloatArray, distributions: FloatArray) -> FloatArray:
    """Return the rems of each timestep at the projection limit with two neighbourhoods.

    The second neighbourhood begins where the total rems is smallest, to within a few percent.
    """
    T = len(distributions)

    def errors(anchor: int) -> FloatArray:
        anchors = np.array([0, anchor] if anchor < T else [0])
        error = best_linear(features, chain.bias, distributions, anchors) - chain.bias
        squares = distributions @ (error - error[-1] @ chain.stationary_distribution).T ** 2
        return np.asarray(np.sqrt(np.where(np.arange(T) < anchor, squares[:, 0], squares[:, -1])))

    tried = np.unique(np.geomspace(1, T, _ANCHORS_TRIED).astype(np.int64)).tolist()
    return min(map(errors, tried), key=np.sum)


def _root_mean_square(distributions: FloatArray, error: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.einsum("ts,ts->t", distributions, error**2)))
