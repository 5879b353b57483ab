r"""Errors of a fitted system along one trial, by the exact p^t (section ``xprmt_metric``).

.. math:: \varepsilon_x = \sum_{t=0}^{t_{max}} \sqrt{e_x^t(w_t)}

(eq. ``tot_rooterr``), where w_t are the weights of the neighbourhood of t, and e_x^t weights
states by p^t:

- *repb*, x = PB: the root of the projected Bellman error (eq. ``epb``);
- *rems*, x = MS: the root of the mean squared error of the calibrated values (eq. ``ems``);
- *rems without offset*: the same after the error's mean under p^t is taken out of it, which
  leaves what calibration cannot mend.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.features.rows import with_ones
from lstd_agent.statistics.equations import window_chunks
from lstd_agent.study.exact import ExactStatistics
from lstd_agent.system.approximators import System
from lstd_agent.system.minimizer import DEFAULT_RCOND, inverse_square_root
from unichain_gym import MarkovChain

# Where the projection limit's second neighbourhood may begin, geometrically spaced.
_ANCHORS_TRIED = 60


def best_linear(features: FloatArray, values: FloatArray, visits: FloatArray) -> FloatArray:
    """Return the best weights and, last, the best offset for values (S,); shape (d + 1,).

    By least squares over states, weighted by their visits (S,).
    """
    F = with_ones(features)
    root = np.sqrt(visits)
    return np.asarray(np.linalg.lstsq(root[:, None] * F, root * values, rcond=None)[0])


class StepwiseErrors:
    """The errors of any number of systems on one chain with one set of features.

    Parameters
    ----------
    statistics : ExactStatistics
        All timesteps to evaluate.
    rcond : float
        Relative cutoff of the pseudoinverses of Z.
    """

    def __init__(self, statistics: ExactStatistics, rcond: float = DEFAULT_RCOND) -> None:
        self._statistics = statistics
        self._rcond = rcond

    @cached_property
    def _projected(self) -> tuple[FloatArray, FloatArray]:
        """A and c of e_PB(w) = ‖A w - c‖², for each timestep until p^t has settled.

        A = Z^{†/2} X and c = Z^{†/2} y.
        """
        statistics = self._statistics
        moving = statistics.distributions[: statistics.settled + 1]
        n, d = len(moving), statistics.features.shape[1]
        A, c = np.empty((n, d, d)), np.empty((n, d))
        for chunk in window_chunks(n, 4 * d * d):
            moments = statistics.moments_of(moving[chunk], statistics.chain.gain)
            M = inverse_square_root(moments.Z, self._rcond)
            A[chunk] = M @ moments.X
            c[chunk] = (M @ moments.y[:, :, None])[:, :, 0]
        return A, c

    def repb(self, system: System) -> FloatArray:
        """Root projected Bellman error of each timestep, shape (t_max + 1,)."""
        weights = system.weights[self._neighborhood(system)]
        t = np.minimum(np.arange(len(weights)), self._statistics.settled)
        A, c = self._projected
        residual = np.empty((len(t), c.shape[1]))
        for chunk in window_chunks(len(t), A[0].size):
            moving = t[chunk]
            residual[chunk] = (A[moving] @ weights[chunk, :, None])[:, :, 0] - c[moving]
        return np.asarray(np.linalg.norm(residual, axis=1))

    def rems(self, system: System) -> FloatArray:
        """Root mean squared error of the calibrated values, shape (t_max + 1,)."""
        return _root_mean_square(self._statistics.distributions, self._error(system))

    def rems_without_offset(self, system: System) -> FloatArray:
        """Root mean squared error about the mean error, shape (t_max + 1,)."""
        p, error = self._statistics.distributions, self._error(system)
        return _root_mean_square(p, error - np.einsum("ts,ts->t", p, error)[:, None])

    def totals(self, system: System) -> dict[str, float]:
        """Return the sums over timesteps of all three, as the study's rows name them."""
        return {
            "total_repb": float(self.repb(system).sum()),
            "total_rems": float(self.rems(system).sum()),
            "total_rems_without_offset": float(self.rems_without_offset(system).sum()),
        }

    def _neighborhood(self, system: System) -> IntArray:
        return system.neighborhood_at(np.arange(self._statistics.t_max + 1))

    def _error(self, system: System) -> FloatArray:
        """Estimated minus exact relative value, shape (t_max + 1, S)."""
        values = system.weights @ self._statistics.features.T + system.offsets[:, None]
        exact = self._statistics.chain.relative_value(system.references.main)
        return np.asarray((values - exact)[self._neighborhood(system)])


def total_repb(
    system: System, chain: MarkovChain, features: FloatArray, distributions: FloatArray
) -> float:
    """Return ε_PB, the total root projected Bellman error (eq. ``tot_rooterr``).

    With features (S, d), over the timesteps whose p^t are the distributions, (t_max + 1, S).
    """
    statistics = ExactStatistics(chain, features, distributions)
    return float(StepwiseErrors(statistics).repb(system).sum())


def total_rems(
    system: System, chain: MarkovChain, features: FloatArray, distributions: FloatArray
) -> float:
    """Return ε_MS, the total root mean squared error (eq. ``tot_rooterr``); see `total_repb`."""
    statistics = ExactStatistics(chain, features, distributions)
    return float(StepwiseErrors(statistics).rems(system).sum())


def root_errors(values: FloatArray, chain: MarkovChain, distributions: FloatArray) -> FloatArray:
    """Return the root mean squared error of each timestep, shape (t_max + 1,).

    Of values (S,) or (t_max + 1, S), up to a constant.
    """
    error = np.broadcast_to(values - chain.bias, distributions.shape)
    error = error - error[-1] @ chain.stationary_distribution
    return _root_mean_square(distributions, error)


def _root_mean_square(distributions: FloatArray, error: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.einsum("ts,ts->t", distributions, error**2)))


def best_values(chain: MarkovChain, features: FloatArray, distributions: FloatArray) -> FloatArray:
    """Return the values of the projection limit, shape (t_max + 1, S).

    Of two neighbourhoods with the best weights and offset each, by least squares on the bias,
    the second beginning where the total rems is smallest, to within a few percent of the time.
    Features are (S, d), distributions (t_max + 1, S).
    """
    visits = np.cumsum(distributions, axis=0)

    def fitted(visits_of_window: FloatArray) -> FloatArray:
        return np.asarray(F @ best_linear(features, chain.bias, np.maximum(visits_of_window, 0.0)))

    F = with_ones(features)
    T = len(distributions)
    best: FloatArray = np.empty(0)
    least = np.inf
    for anchor in np.unique(np.geomspace(1, T, _ANCHORS_TRIED).astype(np.int64)):
        early = fitted(visits[anchor - 1])
        late = fitted(visits[-1] - visits[anchor - 1]) if anchor < T else early
        values = np.where((np.arange(T) < anchor)[:, None], early, late)
        total = root_errors(values, chain, distributions).sum()
        if total < least:
            best, least = values, total
    return best
