"""The one place that knows which statistics belong to which observations."""

from __future__ import annotations

from lstd_agent.features.kernels import Kernel
from lstd_agent.statistics.counts import SampledStatistics
from lstd_agent.statistics.moments import BoxStatistics
from lstd_agent.trials.counting import TransitionCounts
from lstd_agent.trials.encoding import CountedEncoding, Encoding, States
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.moment_sums import MomentSums
from lstd_agent.trials.recording import Sums


def make_statistics(
    encoding: Encoding, sums: Sums, trials: States | None, kernel: Kernel
) -> SampledStatistics | BoxStatistics:
    """Return the statistics of sums over trials, and of stored trials.

    Parameters
    ----------
    encoding : Encoding
        Of the observations.
    sums : TransitionCounts, MomentSums or KeptTrials
    trials : ndarray, shape (m, t_max + 1, ...), optional
        The states of a sample of whole trials.
    kernel : Kernel
        Of vector observations.
    """
    if isinstance(encoding, CountedEncoding):
        assert isinstance(sums, TransitionCounts)
        terminal = encoding.n if encoding.ends else None
        return SampledStatistics(sums, encoding.table, trials, terminal)
    if isinstance(sums, KeptTrials):
        sums = sums.condense(encoding.rows)
    assert isinstance(sums, MomentSums)
    return BoxStatistics(sums, encoding.features, trials, kernel)
