"""The one place that knows which statistics belong to which observations."""

from __future__ import annotations

from lstd_agent.arrays import States
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.statistics.moments import MomentStatistics
from lstd_agent.trials.batches import Sums
from lstd_agent.trials.encoding import Encoding


def make_statistics(encoding: Encoding, sums: Sums, trials: States | None) -> SampledStatistics:
    """Return the statistics of sums over trials, and of stored trials.

    Parameters
    ----------
    encoding : Encoding
        Of the observations.
    sums : TransitionCounts, MomentSums or KeptTrials
    trials : ndarray, shape (m, t_max + 1, ...), optional
        The states of a sample of whole trials.
    """
    if sums.counts is None:
        return MomentStatistics(sums, encoding.rows, trials, encoding.ends)
    assert encoding.table_rows is not None
    terminal = encoding.terminal if encoding.ends else None
    return CountStatistics(sums.counts, encoding.table_rows, trials, terminal)
