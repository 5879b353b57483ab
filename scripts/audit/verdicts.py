"""The verdict on a fit: right, a silent miss, a false alarm, or another one of `VERDICTS`.

A fit answers three questions: the gain times the length of a trial, the start's bias, and the
difference of the values of two starts. *Limit*: 2 % (counts) or 10 % (vectors) of the span of the
true values over the states that were visited. *Error*: the half-width of the answer's own 95 %
interval over 1.96, which is its standard error where batches are many. An answer is *off* if it is
beyond the limit and 6 errors, *wide* if it is beyond the limit only, *right* if it is within the
limit or 3 errors, which must be finite. Answers without an error are not judged.

A *silent miss* is a fit without a warning with an answer that is off, except
unseen      the answer is right for the process without transitions and events that no trial has
not shown   a state is hidden or the features do not suffice, and the trials' own mean reward or
            returns (by the true gain) agree with the answer within 3 of their errors

A *false alarm* is a warning, or an error, of a fit whose answers are right in a *healthy* task. A
misfit is *warranted* instead if an answer, or the value of a start less that of the mean start, is
off by more than 2 % of the span. Healthy:
settled     from its middle on, a trial earns what the gain says, within 1 % of the span, and has
            four periods or more
forgets     after a quarter of the trial, what is still to come differs by at most 10 % of the span
            between any two visited states
sound       observations are Markov states without a clock, and there is one gain
enough      each start (of vectors: if there are at most 12) has 10 trials, the last timestep 24
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
from tasks import COUNTED

VERDICTS = (
    *("right", "miss", "not shown", "unseen", "wide", "no error"),
    *("warned", "warranted", "false alarm", "crash"),
)


@dataclass(frozen=True)
class Answer:
    """An estimate, its own error (NaN if there is none), the truth, and the truth of what was seen.

    ``direct`` is what trials earned, with its error. All of them in units of reward.
    """

    estimate: float
    error: float
    truth: float
    seen: float
    direct: tuple[float, float] = (np.nan, np.nan)

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

    def is_not_shown(self) -> bool:
        """Whether what trials earned agrees with it."""
        return abs(self.estimate - self.direct[0]) <= 3.0 * self.direct[1]


@dataclass
class Outcome:
    """The result of one fit, and the properties of its task.

    `raised` is the text of an error of the package's own, `crash` of any other one, `others` the
    texts of warnings that no fit emits, `starts_off` the largest error of a start's value.
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
    starts_off: float = 0.0
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        """Whether all answers with errors are right; True if the fit raised an error."""
        return all(each.is_right(self.limit) for each in self.answers.values())

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong with the task."""
        return all(self.health.values())

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        answers, limit = list(self.answers.values()), self.limit
        far = [each for each in answers if not abs(each.estimate - each.truth) <= limit]
        if self.crash:
            return "crash"
        if self.raised or self.warnings:
            if not (self.right and self.healthy):
                return "warned"
            misfits = self.warnings and all(named(text) == "misfit" for text in self.warnings)
            worst = max([self.starts_off, *(abs(x.estimate - x.truth) for x in answers)])
            return "warranted" if misfits and worst > 0.02 * self.span else "false alarm"
        if off := [each for each in answers if each.beyond(limit, 6.0)]:
            if all(each.is_unseen(limit) for each in off):
                return "unseen"
            exact = self.suffices and self.health.get("sound", True)
            shown = exact or not all(each.is_not_shown() for each in off)
            return "miss" if shown else "not shown"
        if any(not np.isnan(each.error) for each in far):
            return "wide"
        return "no error" if far else "right"


# Words of known warnings, and their names; other warnings go by their first words.
_KNOWN = {
    "tail has not settled|too short to show": "tail",
    "mean rewards of their own": "own means",
    "do not determine the values of starts": "undetermined",
    "samples \\(at least": "few samples",
    "state is hidden": "hidden",
    "use features, or": "misfit",
    "few rare rewards decide": "rare",
    "last timesteps earn": "gain",
}


def named(text: str) -> str:
    """Return the kind of a warning."""
    found = [name for words, name in _KNOWN.items() if re.search(words, text)]
    return found[0] if found else " ".join(re.sub(r"[-\d.]+", "#", text).split()[:6])


def report(outcomes: Sequence[Outcome]) -> str:
    """Return counts by kind, and the names of all wrong fits."""
    head = [*VERDICTS, "raised", "healthy", "right", "suffice", "alarms"]
    lines = [f"{'kind':15s} fits " + " ".join(f"{name:>8.8s}" for name in head)]
    kinds = list(dict.fromkeys(each.kind for each in outcomes))
    groups = {kind: [each for each in outcomes if each.kind == kind] for kind in kinds}
    groups["counts"] = [each for each in outcomes if each.kind in COUNTED]
    groups["vectors"] = [each for each in outcomes if each.kind not in COUNTED]
    for kind, some in (groups | {"all": list(outcomes)}).items():
        verdicts = Counter(each.verdict for each in some)
        healthy = [each for each in some if each.healthy]
        right = [each for each in healthy if each.right and not each.crash]
        enough = [each for each in right if each.suffices]
        alarms = sum(each.verdict == "false alarm" for each in enough)
        numbers = [verdicts[name] for name in VERDICTS] + [sum(bool(x.raised) for x in some)]
        numbers += [len(healthy), len(right), len(enough), alarms]
        lines.append(f"{kind:15s} {len(some):4d} " + " ".join(f"{n:8d}" for n in numbers))
    m, n = verdicts["false alarm"], max(1, len(right))
    lines.append(f"\nfalse alarms: {m} of {len(right)} right fits of healthy tasks ({m / n:.1%})")
    for verdict in ("miss", "crash", "false alarm", "warranted", "not shown", "unseen", "no error"):
        names = [f"{x.kind}:{x.seed}" for x in outcomes if x.verdict == verdict]
        lines.append(f"\n{verdict} ({len(names)}): {' '.join(names)}")
    alarmed = [each for each in outcomes if each.verdict == "false alarm"]
    texts = [text for x in alarmed for text in (*x.warnings, *([x.raised] if x.raised else []))]
    lines.append(f"\nfalse alarms say: {dict(Counter(map(named, texts)))}")
    strange = [f"{each.kind}:{each.seed} {text}" for each in outcomes for text in each.others]
    lines.append(f"\nwarnings that are not of a fit ({len(strange)}): " + "; ".join(strange[:8]))
    lines.append(f"\nseconds a fit: {np.mean([each.seconds for each in outcomes]):.2f}")
    return "\n".join(lines)
