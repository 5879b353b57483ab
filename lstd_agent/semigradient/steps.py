r"""Semi-gradient steps, one a timestep, each sample once.

In features u = (f, 1) B of neighbourhood k,

.. math:: w_k \leftarrow w_k + \alpha D_k^{-1} \sum_s \hat p_t(s)\, u(s)
          \left(r - g + v(s') - u(s)^T w_k\right),

where v is of neighbourhood k while successors stay in it, and a number, by the mean weights of the
next one, once they have left. D is diagonal, the largest mean squares of the features at any
timestep so far, times the largest curvature that is left of any,

.. math:: D = L \operatorname{diag}(m), \quad m_j = \max_t \sum_s \hat p_t(s) u_j(s)^2, \quad
          D \succeq \sum_s \hat p_t(s)\, u(s) u(s)^T,

so that no step overshoots with α = 1/2, whatever the features' sizes. Constant steps do not
converge, but the mean of where they lead does (Polyak & Juditsky 1992), to where α does not matter
if samples do not depend on the weights that they meet: hence a random order of timesteps. The
first round alone goes backwards in time, which brings values to the start at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.features.rows import dense, with_ones
from lstd_agent.semigradient.samples import Reader
from lstd_agent.trials.encoding import Encoding

_STEP = 0.5
# Means of rounds forget the first ones by polynomial decay (Shamir & Zhang 2013).
_DECAY = 3.0
# Features less than this apart, relatively, from what others make up are made up by them.
_DEPENDENT = 1e-8


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The features u = (f, 1) B of a neighbourhood, and its weights in them.

    Attributes
    ----------
    B : ndarray, shape (m, r)
        Weights of (f, 1) are B times those of u.
    inverse : ndarray, shape (r, m)
        Weights of u for the same values.
    """

    B: FloatArray
    inverse: FloatArray

    @classmethod
    def of_table(cls, table: FloatArray) -> Coordinates:
        """Return orthonormal ones of the features (S, m) of all states, in order.

        Features that others before them make up take no part: one-hot features stay as they
        are, and the 1 after them, which is their sum, goes.
        """
        diagonal = np.diagonal(np.linalg.qr(table, mode="r"))
        own = np.append(np.abs(diagonal), np.zeros(table.shape[1] - len(diagonal)))
        keep = np.flatnonzero(own > _DEPENDENT * np.linalg.norm(table, axis=0))
        B = np.zeros((table.shape[1], keep.size))
        B[keep] = np.linalg.inv(np.linalg.qr(table[:, keep], mode="r"))
        return cls(B, (table @ B).T @ table)

    def without_intercept(self) -> Coordinates:
        """Return those of features (f, 1) from those of f."""
        r = self.B.shape[1]
        return Coordinates(
            np.vstack((self.B, np.zeros(r))), np.column_stack((self.inverse, np.zeros(r)))
        )


def coordinates(encoding: Encoding, at: Reader) -> tuple[Coordinates, Coordinates]:
    """Return those of all neighbourhoods but the last, and of the last."""
    if encoding.table_rows is not None:
        table = dense(encoding.table_rows)
        inner = Coordinates.of_table(with_ones(table))
        return inner, Coordinates.of_table(table).without_intercept()
    size = np.sqrt((at(0).here ** 2).mean(axis=0))
    size[size == 0.0] = 1.0
    inner = Coordinates(np.diag(1.0 / size), np.diag(size))
    return inner, Coordinates(inner.B[:, :-1], inner.inverse[:-1])


class StepPath:
    """Weights of all neighbourhoods, on their way.

    Parameters
    ----------
    inner, last : Coordinates
        Of all neighbourhoods but the last, and of the last.
    windows : ndarray of int, shape (n, 2)
    initial : ndarray, shape (n, d + 1), optional
        Weights of (f, 1) to begin with.

    Attributes
    ----------
    solved : ndarray, shape (n, d + 1)
        Mean weights of (f, 1), the value being 0 on average at the settled end.
    reward : float
        Mean reward of the second half of all timesteps.
    """

    def __init__(
        self,
        inner: Coordinates,
        last: Coordinates,
        windows: IntArray,
        initial: FloatArray | None = None,
    ) -> None:
        n = len(windows)
        self._of = [inner] * (n - 1) + [last]
        self._windows = windows
        self._is_warm = initial is not None
        self.solved = np.zeros((n, len(inner.B))) if initial is None else initial.copy()
        self._w = [of.inverse @ each for of, each in zip(self._of, self.solved, strict=True)]
        self._size = [np.zeros(of.B.shape[1]) for of in self._of]
        self._curvature = np.zeros(n)
        self._settled = np.zeros(len(inner.B))
        self._rewards = np.zeros(2)
        self.n_rounds = 0

    def take(self, at: Reader, n_trials: int, gain: float | None, rng: np.random.Generator) -> None:
        """Take the steps of a round of trials."""
        self._look(at, n_trials)
        gain = self.reward if gain is None else gain
        self.n_rounds += 1
        weight = min(1.0, (1.0 + _DECAY) / (self.n_rounds + _DECAY))
        last = len(self._w) - 1
        for k in range(last, -1, -1):
            if self.n_rounds == 1 and not self._is_warm and k < last:
                self._w[k] = self._of[k].inverse @ self.solved[k + 1]
            mean = self._of[k].B @ self._steps(at, k, gain, rng)
            self.solved[k] += weight * (mean - self.solved[k])
            if k == last:
                self.solved[k, -1] = 0.0
                self.solved[k, -1] = -self._settled @ self.solved[k] / self._settled[-1]

    @property
    def reward(self) -> float:
        """Mean reward of the second half of all timesteps so far."""
        return float(self._rewards[0] / self._rewards[1])

    def _look(self, at: Reader, n_trials: int) -> None:
        """Add up the rewards, and the features of the settled end, of a round."""
        anchor, stop = self._windows[-1].tolist()
        for t in range(stop // 2, stop):
            here, _, rewards, share = at(t)
            self._rewards += n_trials * share @ rewards, n_trials * share.sum()
            if t >= anchor:
                self._settled += n_trials * share @ here

    def _steps(self, at: Reader, k: int, gain: float, rng: np.random.Generator) -> FloatArray:
        """Take those of a window; return the mean of where they lead."""
        B, w, (start, stop) = self._of[k].B, self._w[k], self._windows[k].tolist()
        is_last, backwards = k + 1 == len(self._w), self.n_rounds == 1
        timesteps = np.arange(start, stop)
        timesteps = timesteps[::-1] if backwards else rng.permutation(timesteps)
        total = np.zeros_like(w)
        for t in timesteps.tolist():
            here, there, rewards, share = at(t)
            u = here @ B
            D = self._scale(k, u, share)
            leaves = t + 1 == stop and not is_last
            following = there @ (self.solved[k + 1] if leaves else B @ w)
            step = (share * (rewards - gain + following - u @ w)) @ u
            w += _STEP * np.divide(step, D, out=np.zeros_like(step), where=D > 0.0)
            total += w
        return np.asarray(w.copy() if backwards else total / len(timesteps))

    def _scale(self, k: int, u: FloatArray, share: FloatArray) -> FloatArray:
        """Return D with a timestep's features (m, r) among those so far."""
        size = np.maximum(self._size[k], share @ u**2, out=self._size[k])
        scaled = np.abs(u) / np.sqrt(np.where(size > 0.0, size, 1.0))
        # What bounds the norm costs less than the norm, and mostly says that it is no larger.
        bound = share @ (scaled * scaled.sum(axis=1, keepdims=True))
        if bound.max(initial=0.0) > self._curvature[k]:
            exact = np.linalg.norm(np.sqrt(share)[:, None] * (scaled * np.sign(u)), 2) ** 2
            self._curvature[k] = max(self._curvature[k], float(exact))
        return np.asarray(size * self._curvature[k])
