"""The verdict on a fit: right, a silent miss, a false alarm, or another one of `VERDICTS`.

A fit answers three questions: the gain times the length of a trial, the start's bias, and the
difference of the values of two starts. *Limit*: 2 % (counts) or 10 % (vectors) of the span of the
true values over the states that were visited. An answer is *off* if it is beyond the limit and
beyond 6 of its own errors, *wide* if it is beyond the limit only, *right* if it is within the limit
or 3 errors, which must be finite. An answer that is right for the process without the transitions
that no trial has, and without the events of a state that no trial has there, is not off, but
*unseen*. Answers without an error are not judged, but
counted if they are beyond the limit.

A *silent miss* is a fit without a warning with an answer that is off. A *false alarm* is a warning,
or an error, of a fit whose answers are right in a *healthy* task:

settled     from its middle on, a trial earns what the gain says, within 1 % of the span
forgets     after a quarter of the trial, what is still to come differs by at most 10 % of the span
            between any two visited states
sound       observations are Markov states without a clock, and there is one gain
enough      each start (of vectors: if there are at most 12) and the last timestep have 10 trials
seen        the answers without what no trial has are within the limit of the true ones

*Features suffice* if a weighted least-squares fit of the true values by the features is within 2 %
of the span (root mean square over visits), and within 5 % at the two starts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from kinds import COUNTED

VERDICTS = ("right", "miss", "unseen", "wide", "no error", "warned", "false alarm", "crash")


@dataclass(frozen=True)
class Answer:
    """An estimate, its own error (NaN if there is none), the truth, and the truth of what was seen.

    All of them in units of reward.
    """

    estimate: float
    error: float
    truth: float
    seen: float

    def beyond(self, limit: float, errors: float) -> bool:
        """Whether it is beyond the limit, and beyond so many of its errors."""
        off = abs(self.estimate - self.truth)
        is_near = off <= limit or off <= errors * self.error
        return bool(np.isfinite(self.error)) and not is_near

    def is_right(self, limit: float) -> bool:
        """Whether it is within the limit, or 3 errors; also if it has no error to be judged by."""
        return not self.beyond(limit, 3.0) and not bool(np.isinf(self.error))

    def is_unseen(self, limit: float) -> bool:
        """Whether it is right for the process without what no trial has, as far as there is one."""
        return abs(self.estimate - self.seen) <= max(limit, 6.0 * self.error)


@dataclass
class Outcome:
    """What came of one fit, and how the task is.

    `limit` and `span` are in units of reward; `raised` is the text of an error of the package's
    own, `crash` of any other, `others` those of warnings that are none of a fit. `returns` is the
    difference by the returns of trials alone, with its error.
    """

    kind: str
    seed: int
    limit: float
    span: float
    health: dict[str, bool]
    suffices: bool
    answers: dict[str, Answer] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    raised: str = ""
    crash: str = ""
    returns: tuple[float, float] = (np.nan, np.nan)
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        """Whether all answers that have errors are right; what raised has none that are wrong."""
        return all(each.is_right(self.limit) for each in self.answers.values())

    @property
    def wild(self) -> bool:
        """Whether an answer is beyond 3 errors, or off by more than the whole span."""
        answers = self.answers.values()
        return any(each.beyond(self.limit, 3.0) or each.beyond(self.span, 0.0) for each in answers)

    @property
    def name(self) -> str:
        """What ``--only`` takes."""
        return f"{self.kind}:{self.seed}"

    @property
    def shown(self) -> float:
        """How many errors of the trials' returns lie between these and the fitted difference."""
        apart = self.answers["difference"].estimate - self.returns[0]
        return float(np.abs(apart) / self.returns[1])

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong with the task."""
        return all(self.health.values())

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        answers = list(self.answers.values())
        if self.crash:
            return "crash"
        if self.raised or self.warnings:
            return "false alarm" if self.right and self.healthy else "warned"
        off = [each for each in answers if each.beyond(self.limit, 6.0)]
        if off:
            return "unseen" if all(each.is_unseen(self.limit) for each in off) else "miss"
        far = [each for each in answers if not abs(each.estimate - each.truth) <= self.limit]
        if any(not np.isnan(each.error) for each in far):
            return "wide"
        return "no error" if far else "right"


# Words of known warnings, and what to call them; of any other, its first words.
_KNOWN = {
    "tail has not settled|too short to show": "tail",
    "mean rewards of their own": "own means",
    "do not determine the values of starts": "undetermined",
    "samples \\(at least": "few samples",
    "use features, or": "misfit",
    "has a standard error of": "noise",
}


def named(text: str) -> list[str]:
    """Return the kinds of warning that a text holds."""
    found = [name for words, name in _KNOWN.items() if re.search(words, text)]
    return found or [" ".join(re.sub(r"[-\d.]+", "#", text).split()[:6])]


def report(outcomes: Sequence[Outcome]) -> str:
    """Return counts by kind, and the seeds of all that is wrong."""
    head = [*VERDICTS, "raised", "healthy", "right", "alarms", "suffice", "alarms"]
    lines = [f"{'kind':15s} fits " + " ".join(f"{name:>8.8s}" for name in head)]
    kinds = list(dict.fromkeys(each.kind for each in outcomes))
    for kind in (*kinds, "counts", "vectors", "all"):
        some = [
            each
            for each in outcomes
            if kind in (each.kind, "all", "counts" if each.kind in COUNTED else "vectors")
        ]
        healthy = [each for each in some if each.healthy]
        counted = [each for each in healthy if each.right and not each.crash]
        enough = [each for each in counted if each.suffices]
        verdicts = Counter(each.verdict for each in some)
        numbers = [verdicts[name] for name in VERDICTS]
        alarms = [sum(each.verdict == "false alarm" for each in of) for of in (counted, enough)]
        numbers += [sum(bool(each.raised) for each in some), len(healthy), len(counted), alarms[0]]
        numbers += [len(enough), alarms[1]]
        lines.append(f"{kind:15s} {len(some):4d} " + " ".join(f"{n:8d}" for n in numbers))
    shares = (f"{m} of {n} ({m / max(n, 1):.1%})" for m, n in (numbers[-3:-5:-1], numbers[:-3:-1]))
    lines.append("\nfalse alarms: {}; where features suffice: {}".format(*shares))
    missed = [f"{each.name} ({each.shown:.1f})" for each in outcomes if each.verdict == "miss"]
    lines.append(
        f"\nmiss ({len(missed)}; in brackets, how many of their own errors the returns of trials "
        f"from the two starts are away from the fitted difference): {' '.join(missed)}"
    )
    for verdict in ("crash", "false alarm", "wide", "no error", "unseen"):
        names = [each.name for each in outcomes if each.verdict == verdict]
        lines.append(f"\n{verdict} ({len(names)}): {' '.join(names)}")
    wild = [each.name for each in outcomes if each.verdict == "wide" and each.wild]
    lines.append(
        "\nof the wide ones, beyond 3 errors, or by more than the whole span: " + " ".join(wild)
    )
    alarms_of = Counter(
        name
        for each in outcomes
        if each.verdict == "false alarm"
        for text in [*each.warnings, *([each.raised] if each.raised else [])]
        for name in named(text)
    )
    lines.append(f"\nfalse alarms say: {dict(alarms_of)}")
    strange = [f"{each.name} {text}" for each in outcomes for text in each.others]
    lines.append(f"\nwarnings that are not of a fit ({len(strange)}): " + "; ".join(strange[:8]))
    lines.append(f"\nseconds a fit: {np.mean([each.seconds for each in outcomes]):.2f}")
    return "\n".join(lines)
