"""The one place that knows which statistics belong to which observations."""

from __future__ import annotations

from lstd_agent.features.kernels import Kernel
from lstd_agent.statistics.counts import SampledStatistics
from lstd_agent.statistics.moments import BoxStatistics
from lstd_agent.trials.encoding import DiscreteDomain, Domain, States, Sums


def make_statistics(
    domain: Domain, sums: Sums, trials: States | None, kernel: Kernel
) -> SampledStatistics | BoxStatistics:
    """Return the statistics of sums over trials, and of stored trials.

    Parameters
    ----------
    domain : Domain
        Of the observations.
    sums : TransitionCounts or MomentSums
    trials : ndarray, shape (m, t_max + 1, ...), optional
        The states of a sample of whole trials.
    kernel : Kernel
        Of vector observations.
    """
    if isinstance(domain, DiscreteDomain):
        terminal = domain.n if domain.ends else None
        return SampledStatistics(sums, domain.table, trials, terminal)
    return BoxStatistics(sums, domain.features, trials, kernel)
