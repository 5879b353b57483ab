"""From trials to rows: the one place that knows which rows belong to which observations."""

from __future__ import annotations

from lstd_agent.rows.counts import CountRows
from lstd_agent.rows.kept import TrialRows
from lstd_agent.trials.encoding import CountedEncoding, Encoding
from lstd_agent.trials.store import Batches


def rows_of(batches: Batches, encoding: Encoding, rcond: float) -> CountRows | TrialRows:
    """Return the rows of trials.

    Parameters
    ----------
    batches : Batches
        At least one trial.
    encoding : Encoding
        Of the observations, with the features of states.
    rcond : float
        Relative cutoff of pseudoinverses.
    """
    if isinstance(encoding, CountedEncoding):
        terminal = encoding.terminal if encoding.ends else None
        sample = None if batches.sample is None else batches.sample.trials
        return CountRows(batches.sums, encoding.table_rows, terminal, sample=sample, rcond=rcond)
    return TrialRows(batches.total, encoding.rows, encoding.ends, batches.max_bytes, rcond)
