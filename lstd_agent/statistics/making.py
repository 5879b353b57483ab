"""The one place that knows which statistics belong to which observations."""

from __future__ import annotations

from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.statistics.moments import MomentStatistics
from lstd_agent.trials.encoding import DiscreteDomain, Domain, States, Sums


def make_statistics(domain: Domain, sums: Sums, trials: States | None) -> SampledStatistics:
    """Return the statistics of sums over trials, and of stored trials.

    Parameters
    ----------
    domain : Domain
        Of the observations.
    sums : TransitionCounts or MomentSums
    trials : ndarray, shape (m, t_max + 1, ...), optional
        The states of a sample of whole trials.
    """
    if isinstance(domain, DiscreteDomain):
        terminal = domain.n if domain.ends else None
        return CountStatistics(sums, domain.table, trials, terminal)
    return MomentStatistics(sums, domain.features, trials, domain.ends)
