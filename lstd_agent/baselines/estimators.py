r"""What else there is: established estimators of the bias, from the same samples.

Linear ones approximate it by a single :math:`v(s) = f(s)^T w + o`. With traces
:math:`e_t = f(s_t) + \lambda e_{t-1}` along each trial, and means E over trials and timesteps,

- average-reward LSTD(λ) solves :math:`E[e_t (f(s_t) - f(s_{t+1}))^T]\, w = E[e_t (r_t - g)]`;
- differential TD(λ) takes steps
  :math:`w \leftarrow w + \alpha\, e_t (r_t - g + f(s_{t+1})^T w - f(s_t)^T w)` towards it;
- discounted LSTD solves, with an intercept,
  :math:`E[f(s_t) (f(s_t) - \gamma f(s_{t+1}))^T]\, w = E[f(s_t) r_t]`;
- Monte Carlo regression fits :math:`\sum_{u = t}^{t_{max}} (r_u - g)`, with an intercept. That
  takes traces with λ = 1: what is paid at u goes to the features of all timesteps before.

Certainty equivalence solves the chain of all counted transitions, with one value a state and no
features: what the counts can tell at all.

All values are moved so that their mean over the second half of all timesteps is 0, as that of
the bias is in the long run.
"""

from __future__ import annotations

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.baselines.traces import (
    TIMED,
    LinearValue,
    SampleFeatures,
    Samples,
    TraceMeans,
)
from lstd_agent.errors import EvaluationError, InvalidInputError
from lstd_agent.rows.counts import CountRows
from lstd_agent.rows.factors import Factor
from lstd_agent.system.minimizer import minimize
from lstd_agent.system.model import pooled_model
from lstd_agent.trials.counts import TransitionCounts

# Of Z, which holds squares: directions whose features are 1e-6 times as large count as none.
_RCOND = 1e-12

# Updates whose errors grow by more than this from the first to the last diverge.
_MOST_GROWTH = 1e3


def average_reward_lstd(
    samples: Samples, features: SampleFeatures, gain: float | None = None, *, decay: float = 0.0
) -> LinearValue:
    """Return the value by average-reward LSTD(λ) over all timesteps.

    Parameters
    ----------
    samples : TransitionCounts or KeptTrials
    features : ndarray (S, d), or callable
        A table of counted states, or a function of the observations (n, k) of kept trials.
    gain : float, optional
        The mean reward per unit of time of the second half of all timesteps by default.
    decay : float
        λ of the traces, from 0 to 1.

    Returns
    -------
    LinearValue

    Notes
    -----
    Source: Yu & Bertsekas (2009), "Convergence results for some temporal difference methods based
    on least squares", section II. It is one neighbourhood of a linked system with
    ``backup=LambdaReturn(decay)``.
    """
    means = TraceMeans.of(samples, features, _check_fraction("decay", decay))
    X = means.here - means.there
    y = means.paid - _gain(means, gain) * means.trace
    # Without the intercept, which the differences leave out.
    return means.value(_solve(X[:-1, :-1], means.second[:-1, :-1], y[:-1]))


def differential_td(
    samples: Samples,
    features: SampleFeatures,
    gain: float | None = None,
    *,
    decay: float = 0.0,
    step_size: float = 0.1,
    n_updates: int | None = None,
) -> LinearValue:
    r"""Return the value that differential TD(λ) has come to, on its mean path.

    From w = 0 each update is the mean one over all samples,

    .. math:: w \leftarrow w + \alpha\, E[e\, (r - g + f'^T w - f^T w)], \quad
              \alpha = \text{step\_size} / d,

    in features that are divided by their root mean squares. That is the path of TD with small
    steps through as many samples; the noise of single ones is left out, in its favour. Any number
    of updates is computed at once, as a power of a matrix.

    Parameters
    ----------
    samples, features, decay
        See `average_reward_lstd`.
    gain : float, optional
        By default it is learned from the same errors: g ← g + α E[r - g + f'ᵀ w - fᵀ w].
    step_size : float
        Above 0.
    n_updates : int, optional
        As many as there are samples by default: one pass.

    Returns
    -------
    LinearValue

    Raises
    ------
    EvaluationError
        If the updates diverge. Of trials that start outside the steady regime even small ones
        may: they are more often in the states of the start than transitions lead there, which
        is what makes TD off-policy diverge. The longer the trials, the slower.

    Notes
    -----
    Source: Tsitsiklis & Van Roy (1999), "Average cost temporal-difference learning", whose limit
    is that of `average_reward_lstd`; for the gain Wan, Naik & Sutton (2021), "Learning and
    planning in average-reward Markov decision processes".
    """
    if not 0.0 < step_size < np.inf:
        raise InvalidInputError(f"step_size must be above 0 and finite; got {step_size!r}")
    means = TraceMeans.of(samples, features, _check_fraction("decay", decay))
    n_updates = means.n_samples if n_updates is None else n_updates
    to_features = np.linalg.pinv(means.V).T
    second = to_features @ means.second[:-1, :-1] @ to_features.T
    size = np.sqrt(np.diagonal(second))
    to_features /= np.where(size > 0.0, size, 1.0)[:, None]
    d = len(to_features)
    # Of (w, g, 1), so that one matrix is the whole update.
    step = np.zeros((d + 2, d + 2))
    step[:d, :d] = -to_features @ (means.here - means.there)[:-1, :-1] @ to_features.T
    step[:d, d] = -to_features @ means.trace[:-1]
    step[:d, d + 1] = to_features @ means.paid[:-1]
    if gain is None:
        step[d, :d] = -to_features @ means.drift[:-1]
        step[d, d:] = -means.duration, means.reward
    update = np.eye(d + 2) + step_size / d * step
    growth = float(np.abs(np.linalg.eigvals(update)).max())
    if n_updates * np.log(growth) > np.log(_MOST_GROWTH):
        raise EvaluationError(
            f"{n_updates} updates with step_size={step_size} diverge, by a factor {growth:.6g} "
            "each: take fewer, smaller ones, or less decay"
        )
    start = np.append(np.zeros(d), (0.0 if gain is None else gain, 1.0))
    w = (np.linalg.matrix_power(update, n_updates) @ start)[:d]
    return means.value(to_features.T @ w)


def discounted_lstd(samples: Samples, features: SampleFeatures, discount: float) -> LinearValue:
    """Return the discounted value by LSTD, less its mean; it tends to the bias with discount 1.

    Parameters
    ----------
    samples, features
        See `average_reward_lstd`.
    discount : float
        γ, from 0 up to, not including, 1.

    Returns
    -------
    LinearValue

    Raises
    ------
    InvalidInputError
        If the discount is out of range, or steps have durations.

    Notes
    -----
    Source: Bradtke & Barto (1996), "Linear least-squares algorithms for temporal difference
    learning"; Puterman (1994), section 8.2: the discounted value is gain / (1 - γ) + bias + a rest
    that vanishes with 1 - γ.
    """
    if not 0.0 <= discount < 1.0:
        raise InvalidInputError(f"discount must be from 0 up to, not 1; got {discount!r}")
    held = samples.durations if samples.counts is None else samples.counts.duration_sums
    if held is not None:
        raise InvalidInputError(TIMED)
    means = TraceMeans.of(samples, features, 0.0)
    X = means.here - discount * means.there
    return means.value(_solve(X, means.second, means.paid)[:-1])


def monte_carlo(
    samples: Samples, features: SampleFeatures, gain: float | None = None
) -> LinearValue:
    """Return the least-squares fit of excess rewards up to the end of trials.

    Of timesteps up to the middle one, so that at least half a trial comes after each.

    Parameters
    ----------
    samples, features, gain
        See `average_reward_lstd`.

    Returns
    -------
    LinearValue

    Notes
    -----
    Source: Sutton & Barto (2018), section 9.3, with the differential returns of section 10.3,
    truncated.
    """
    means = TraceMeans.of(samples, features, 1.0, last=samples.t_max // 2)
    y = means.paid - _gain(means, gain) * means.trace
    return means.value(_solve(means.second, means.second, y)[:-1])


def certainty_equivalence(counts: TransitionCounts, gain: float | None = None) -> FloatArray:
    """Return the bias (S,) of the chain that has the frequencies of all timesteps.

    Parameters
    ----------
    counts : TransitionCounts
    gain : float, optional
        The mean reward per unit of time of the second half of all timesteps by default.

    Returns
    -------
    ndarray, shape (S,)
        NaN where no transitions were seen to lead to the state that is visited most.

    Notes
    -----
    Source: Kumar & Varaiya (1986), "Stochastic Systems: Estimation, Identification, and Adaptive
    Control", for the name; `lstd_agent.system.model` for the solution.
    """
    half = (counts.t_max + 1) // 2
    source = CountRows([counts], np.ones((counts.n_states, 1)))
    visits = np.asarray(source.visits[half:].sum(axis=0), dtype=np.float64)
    if gain is None:
        n, paid, time = (
            each[half:] for each in (source.trials_at, source.mean_rewards, source.mean_durations)
        )
        gain = float((paid @ n) / (time @ n))
    main = source.main_state(half)
    model = pooled_model(source, gain, main)
    visits[model.open_share == 1.0] = 0.0
    values = np.where(model.open_share < 1.0, model.values, np.nan)
    return np.asarray(values - visits @ model.values / visits.sum())


def _gain(means: TraceMeans, gain: float | None) -> float:
    return means.tail_reward if gain is None else gain


def _solve(X: FloatArray, Z: FloatArray, y: FloatArray) -> FloatArray:
    """Return the minimizer of Thm ``epb_minimizer``, in features of root mean square 1."""
    size = np.sqrt(np.diagonal(Z))
    scale = np.where(size > 0.0, size, 1.0)
    sizes = np.outer(scale, scale)
    held = np.hstack((Z / sizes, X / sizes, (y / scale)[:, None]))
    products = Factor(held, True, len(Z), np.zeros(held.shape[1]), 0.0)
    cutoff = float(np.sqrt(_RCOND))
    return np.asarray(minimize(products.reduced(len(Z), cutoff), _RCOND).weights[:, 0] / scale)


def _check_fraction(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise InvalidInputError(f"{name} must be from 0 to 1; got {value!r}")
    return float(value)
