"""The one place that knows which statistics belong to which observations."""

from __future__ import annotations

from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.statistics.moments import MomentStatistics
from lstd_agent.trials.counting import TransitionCounts
from lstd_agent.trials.encoding import CountedEncoding, Encoding, States
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.moment_sums import MomentSums
from lstd_agent.trials.recorders import Sums


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
    if isinstance(encoding, CountedEncoding):
        assert isinstance(sums, TransitionCounts)
        terminal = encoding.n if encoding.ends else None
        return CountStatistics(sums, encoding.table_rows, trials, terminal)
    assert isinstance(sums, MomentSums | KeptTrials)
    return MomentStatistics(sums, encoding.rows, trials, encoding.ends)
