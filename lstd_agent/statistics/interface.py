"""Statistics of windows of timesteps: the seam between samples and algorithms.

*Statistics return equations, the system minimizes them.* No algorithm knows whether its numbers
are counted, summed or exact. `lstd_agent.statistics.counts` answers from transition counts,
`lstd_agent.statistics.moments` from sums of feature products, and `lstd_agent.study.exact` from
a Markov chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.rows import Rows
from lstd_agent.statistics.backups import Backup
from lstd_agent.statistics.blocks import Block
from lstd_agent.statistics.coordinates import Reduction
from lstd_agent.statistics.equations import Equations, FeatureBasis
from lstd_agent.statistics.holdouts import Holdout
from lstd_agent.statistics.pooled import PooledModel
from lstd_agent.statistics.return_moments import ReturnMoments
from lstd_agent.statistics.sparse_counts import SparseCounts
from lstd_agent.statistics.sparse_trials import SparseTrials
from lstd_agent.statistics.start_groups import StartGroups, ValuesOf
from lstd_agent.statistics.structure import RecurrentClass

SquaredDistance = Callable[[int, int, int], FloatArray]
"""``squared_distance(anchor, start, stop)``: squared distances from the distribution at
``anchor`` to those at ``start`` up to ``stop``."""

NOT_COUNTED = (
    "backup='model' pools the transitions of states that can be counted: for vector observations "
    "use 'one_step', LambdaReturn(decay) or MultiStep(steps)"
)


class Statistics(Protocol):
    """What the pipeline asks of its data.

    Windows are an int array of shape (n, 2): timesteps ``start`` up to, not including, ``stop``.
    """

    @property
    def t_max(self) -> int:
        """The last timestep."""

    @property
    def candidate_features(self) -> Rows:
        """Features (M, d) of the M candidate reference states, dense or CSR."""

    @property
    def intercept(self) -> float:
        """The 1 of the features (f, 1) of linked equations, or 0 in tasks that end.

        There the terminal state, whose features and value are 0, ties values together.
        """

    @property
    def feature_scale(self) -> FloatArray:
        """Root mean squares of the features (f, 1) over what was seen, none 0, shape (d + 1,)."""

    @property
    def support_threshold(self) -> float:
        """Candidates with occupancy above this are in a window's support."""

    @property
    def terminal(self) -> int | None:
        """Index of the terminal state among the candidates, where the task ends."""

    @property
    def sparse_counts(self) -> SparseCounts | None:
        """The same counts where their features are many and sparse, else None."""

    @property
    def sparse_trials(self) -> SparseTrials | None:
        """Kept trials of vectors whose features are many and sparse, or None."""

    @property
    def reduction(self) -> Reduction | None:
        """The same in coordinates of many features that are alike, or None."""

    def numbers_per_window(self, rcond: float) -> int:
        """How many numbers the working arrays of one window's equations hold."""

    @property
    def settled(self) -> int:
        """The first timestep from which all up to ``t_max`` are alike; of samples none are."""

    def equations(self, windows: IntArray, gain: float | None, rcond: float) -> Equations:
        """Equations of windows by themselves: the successors of all samples are unknowns.

        Without a gain there are two right-hand sides, that of the rewards and that of ones.
        """

    def linked_equations(self, windows: IntArray, rcond: float) -> Equations:
        """Equations with open ends, in features (f, 1): see `lstd_agent.system.linked`.

        Right-hand sides are those of the rewards, of ones, and of the d + 1 features of the
        successors of each window's last timestep, which are unknowns of the next window.
        """

    def counted(self, refusal: str = NOT_COUNTED) -> CountedStatistics:
        """Return the same where states are countable, or raise `InvalidInputError` so saying."""

    def walk(self, rcond: float) -> Walk:
        """Return the samples backwards in time, for targets of several steps."""

    @property
    def forever(self) -> Block | None:
        """What happens ever after ``t_max``, or None where trials are over."""

    def occupancy(self, windows: IntArray) -> FloatArray:
        """Mean probability (n, M) of each candidate state in each window (Def ``pbar``)."""

    def zero(self, window: IntArray) -> tuple[int, FloatArray]:
        """Where the values of the last window (start, stop) are to be 0.

        The index of a candidate state, or -1 where it is an average; and its features (d,).
        """

    def mean_features(self, t: int) -> FloatArray:
        """Mean features (d,) at a timestep."""

    def mean_reward(self, start: int, stop: int) -> float:
        """Mean reward over the timesteps from start up to stop."""


class CountedStatistics(Statistics, Protocol):
    """What is asked besides where states are countable."""

    @property
    def visits(self) -> sparse.csr_array:
        """Visits of each state at each timestep, or their probabilities, (t_max + 1, S)."""

    def basis(self, rcond: float, *, intercept: bool) -> FeatureBasis:
        """Return an orthonormal basis of the features f or (f, 1) of states."""

    def block(self, start: int, stop: int) -> Block:
        """See `Walk.block`."""

    def pooled(self, gain: float, main: int) -> PooledModel:
        """Return values by all timesteps' transitions, 0 at the main reference state."""


class Walk(Protocol):
    """Rows and what happens to them at each timestep; see `lstd_agent.statistics.walks`."""

    def block(self, start: int, stop: int) -> Block:
        """Return what happens at the last timesteps before ``stop``, none before ``start``.

        All of them where that is known at once, else one.
        """

    def features(self, t: int) -> FloatArray:
        """Features (m, d) at a timestep, up to t_max + 1."""

    @property
    def returns(self) -> Sequence[ReturnMoments] | None:
        """Sums for λ-returns along trials, by batch, where rows are trials."""

    def basis(self, *, intercept: bool) -> FeatureBasis:
        """Return the basis in which weights of features f or (f, 1) are unknown."""

    def unknown(self, t: int, basis: FeatureBasis, n_columns: int) -> FloatArray:
        """Values (m, r + n_columns) at a timestep, up to t_max + 1, by unknown weights.

        Basis features, then columns of zeros: no part of the values is a number.
        """

    def sums(self, basis: FeatureBasis, n_columns: int) -> WindowSums:
        """Return the sums of a window without timesteps, for targets of so many columns."""


class WindowSums(Protocol):
    """Sums over the samples of a window, which gains timesteps."""

    def add(self, block: Block, targets: FloatArray) -> None:
        """Add timesteps with their targets (k, q), unknown coefficients in the first columns."""

    def equations(self) -> Equations:
        """Return the window's equations."""


class SampledStatistics(Statistics, Protocol):
    """What the agent asks of statistics of samples, besides."""

    @property
    def n_trials(self) -> int:
        """Number of trials."""

    @property
    def trials_at(self) -> IntArray:
        """Number of trials that have each timestep, shape (t_max + 1,): some may be cut short."""

    def mean_following_features(self, t: int) -> FloatArray:
        """Mean features (d,) of what followed a timestep, of the trials that have it."""

    def tolerable(self, undetermined: BoolArray) -> BoolArray:
        """Which of the undetermined `starts` are none to warn of, shape (m,)."""

    @property
    def mean_rewards(self) -> FloatArray:
        """Mean reward of each timestep, shape (t_max + 1,)."""

    @property
    def candidates_are(self) -> str:
        """What an index of a candidate is, for the axis of a figure."""

    @property
    def default_kernel(self) -> Kernel:
        """The kernel of the maximum mean discrepancy unless another is asked for."""

    @property
    def distributions(self) -> FloatArray:
        """Visiting frequencies (t_max + 1, S) at each timestep, where states are countable."""

    def paired_discrepancy(self, kernel: Kernel) -> SquaredDistance:
        """Linear-time squared MMD between timesteps, from the stored trials."""

    def occupancy_of(self, windows: IntArray) -> Callable[[Any], FloatArray]:
        """Occupancy (n, m) of m encoded observations in each window, as a function of them."""

    @property
    def trials(self) -> Any:
        """The stored trials, (m, t_max + 1, ...), or None.

        Where one was cut short, -1 for numbered states, infinity for vectors.
        """

    def portions(self, batches: Sequence[Any]) -> Sequence[Any]:
        """Return batches of sums as what adds up fastest."""

    def without_each(self, batches: Sequence[Any]) -> Sequence[SampledStatistics] | None:
        """Return the statistics without each of the batches, or None where fits take no time.

        Systems of theirs are near to that of all.
        """

    @property
    def backups(self) -> tuple[Backup, ...]:
        """Backups to choose from by the data, in order of preference."""

    @property
    def single_steps(self) -> str:
        """Why single steps alone are to choose from, where they are, else nothing."""

    def holdouts(self, batches: Sequence[Any]) -> Sequence[Holdout]:
        """Return halves of the trials to fit, with the others; none where there are not enough."""

    def of(self, sums: Any, main: int | None = None) -> SampledStatistics:
        """Return the statistics of other sums, with the same features and stored trials.

        Given the main reference state, they do not choose one: values that are to be compared
        are relative to the same state.
        """

    def candidate(self, index: int) -> Any:
        """Return a candidate reference state as it is encoded."""

    def independent_samples(self, windows: IntArray) -> Callable[[Any], FloatArray]:
        """Like `occupancy_of`, how many samples tell what comes after an observation, (n, m).

        Visits in a row of a state that is hard to leave tell that once.
        """

    @property
    def starts(self) -> Any:
        """Encoded observations in which trials start."""

    def start_groups(
        self,
        batches: Sequence[Any],
        values_of: ValuesOf,
        gain: float,
        matters: Callable[[StartGroups], bool],
    ) -> StartGroups:
        """Return what trials from like starts earn, beside its values.

        Errors may be left out of groups without any that matter.
        """

    @property
    def recurrent_classes(self) -> Sequence[RecurrentClass]:
        """The recurrent classes that the second half of all timesteps shows, where any do."""
