"""`Batches`: the finished trials of an agent, kept, or counted with a sample of whole ones.

Batches are independent, and standard errors compare them. Counted trials are dealt into batches
when they are added, kept trials when they are fitted, by their content.

A log's trials are first sorted by a hash of their content: h = Σ_j c_j x_j mod 2^64 over the
numbers x_j of a trial (halves of the bits of doubles), with fixed odd coefficients c_j, and then
mixed. The sample has the trials with the smallest hashes. So batches and samples do not depend on
the order of a log, and the sample of two samples is the sample of all their trials.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.counts import ActionCounts, TransitionCounts, total
from lstd_agent.trials.kept import KeptTrials, check_timed, in_words, together

_CHUNK = 2**18  # numbers that are hashed at a time


def ordered(trials: KeptTrials) -> IntArray:
    """Return the trials (m,) in an order that depends on their content alone."""
    return np.argsort(_keys(hashes(trials)), kind="stable")


def _keys(found: NDArray[np.uint64], first: int = 0) -> NDArray[np.uint64]:
    """Return numbers (m,) that order trials with these hashes as if drawn at random.

    Equal trials are numbered before hashing, so that a sample does not have all or none of them.
    Trials with another ``first`` are drawn independently.
    """
    order = np.argsort(found, kind="stable")
    same = found[order]
    starts = np.flatnonzero(np.append(True, same[1:] != same[:-1]))
    number = np.empty(len(found), dtype=np.uint64)
    sizes = np.diff(np.append(starts, len(found)))
    number[order] = (np.arange(len(found)) - np.repeat(starts, sizes)).astype(np.uint64)
    salt = _scrambled(np.array([first], dtype=np.uint64))
    return _scrambled(found + salt + _scrambled(number))


def hashes(trials: KeptTrials) -> NDArray[np.uint64]:
    """Return hashes (m,) of the contents of trials but for actions; missing arrays are defaults."""
    m, T, offset = trials.n_trials, trials.t_max + 1, 0
    total = np.zeros(m, dtype=np.uint64)
    for name, part in vars(trials).items():
        n = {"observations": 2 * trials.observations[:1].size, "lengths": 1}.get(name, 2 * T)
        if part is not None and name != "actions":
            # A row of as many coefficients as there are numbers in each trial.
            width = part[:1].size * (2 if part.dtype == np.float64 else 1)
            weights = _scrambled(np.arange(offset, offset + width, dtype=np.uint64))
            step = max(1, _CHUNK // width)
            for first in range(0, m, step):
                here = slice(first, first + step)
                numbers = np.ascontiguousarray(part[here]).reshape(-1, part[:1].size)
                if name == "lengths":
                    numbers = T - numbers  # 0 by default, as for any other part
                elif part.dtype.kind == "f":  # zeros of either sign are one number
                    numbers = (numbers + part.dtype.type(0)).view(f"u{min(4, part.itemsize)}")
                total[here] += numbers.astype(np.uint64) @ (weights | np.uint64(1))
        offset += n
    return _scrambled(total)


def _scrambled(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the outputs of SplitMix64 (Steele, Lea & Flood 2014) of states x."""
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class TrialSample:
    """The counted trials with the smallest hashes (m,), ascending, whole, without their actions."""

    trials: KeptTrials
    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, trials: KeptTrials, most: int, first: int = 0) -> TrialSample:
        """Return a sample of trials, of which the first has number ``first``."""
        return cls(replace(trials, actions=None), _keys(hashes(trials), first)).least(most)

    @classmethod
    def of_file(cls, trials: KeptTrials, hashes: NDArray[np.uint64]) -> TrialSample:
        """Return the sample in a file, whose states have an axis of components."""
        return cls(replace(trials, observations=trials.observations[:, :, 0]), hashes)

    def least(self, most: int | None = None) -> TrialSample:
        """Return at most so many trials of the sample, by their hashes."""
        chosen = np.argsort(self.hashes, kind="stable")[:most]
        return TrialSample(self.trials.take(chosen), self.hashes[chosen])

    def __add__(self, other: TrialSample) -> TrialSample:
        trials = self.trials + other.trials
        return TrialSample(trials, np.concatenate((self.hashes, other.hashes))).least()


@dataclass(frozen=True, eq=False)
class CountedTrials:
    """Trials of counted observations, dealt into B batches, with a sample of whole trials.

    Fields are as in `TransitionCounts`, but batch b at timestep t has row t B + b. ``n_by_batch``
    (B,) are numbers of trials. ``taken`` are action counts, if any.
    """

    n_states: int
    n_by_batch: IntArray
    transition_counts: sparse.csr_array
    reward_sums: sparse.csr_array
    sample: TrialSample | None = None
    taken: ActionCounts | None = None
    duration_sums: sparse.csr_array | None = None

    @classmethod
    def of(
        cls, counts: TransitionCounts, taken: Any = None, sample: Any = None, b: int = 0, B: int = 1
    ) -> CountedTrials:
        """Return trials, given by what `CountedTrials` has of them, all in batch b of B."""
        n_rows = B * (counts.t_max + 1)
        row = (np.arange(n_rows + 1) + B - 1 - b) // B

        def spread(M: Any) -> Any:  # its rows become b, b + B, …, and the others are empty
            parts, shape = (M.data, M.indices, M.indptr[row]), (n_rows, M.shape[1])
            return sparse.csr_array(parts, shape=shape, copy=True)

        times = None if counts.duration_sums is None else spread(counts.duration_sums)
        if taken is not None:
            key = taken.key + b * taken.n_states**2 * taken.n_actions
            taken = replace(taken, key=key, n_batches=B)
        n, N = np.where(np.arange(B) == b, counts.n_trials, 0), spread(counts.transition_counts)
        N = N.astype(np.result_type(N.dtype, np.int64))  # sums of smaller integers may overflow
        return cls(counts.n_states, n, N, spread(counts.reward_sums), sample, taken, times)

    @property
    def n_trials(self) -> int:
        """Number of trials."""
        return int(self.n_by_batch.sum())

    @property
    def n_batches(self) -> int:
        """Number of batches B."""
        return len(self.n_by_batch)

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return int(self.transition_counts.shape[0]) // self.n_batches - 1

    @property
    def nbytes(self) -> int:
        """About how much memory the matrices take, in bytes."""
        return 16 * int(self.transition_counts.nnz + self.reward_sums.nnz)

    @property
    def trials_at(self) -> NDArray[np.number]:
        """Number of trials of each batch that have each timestep, shape (t_max + 1, B)."""
        return np.asarray(self.transition_counts.sum(axis=1)).reshape(-1, self.n_batches)

    def batch(self, b: int) -> tuple[TransitionCounts, ActionCounts | None]:
        """Return the counts of a batch, and its action counts."""
        here, n = slice(b, None, self.n_batches), int(self.n_by_batch[b])
        N, R = self.transition_counts[here], self.reward_sums[here]
        n_at = N.sum(axis=1)  # less than n where trials were cut short or explored
        times = None if self.duration_sums is None else self.duration_sums[here]
        taken = None if self.taken is None else self.taken.batch(b)
        whole = None if (n_at == n).all() else n_at
        return TransitionCounts(self.n_states, n, N, R, whole, times), taken

    @property
    def total(self) -> TransitionCounts:
        """The counts of all batches."""
        return reduce(add, (self.batch(b)[0] for b in range(self.n_batches)))

    def __add__(self, other: CountedTrials) -> CountedTrials:
        """Add trials dealt into as many batches; samples are joined whole."""
        names = "n_by_batch", "transition_counts", "reward_sums", "duration_sums", "sample", "taken"
        sums = {name: total(getattr(self, name), getattr(other, name)) for name in names}
        return CountedTrials(self.n_states, **sums)


Portion: TypeAlias = CountedTrials | KeptTrials
"""Recorded trials; two portions of the same kind add up."""


class Batches:
    """All finished trials, in at most ``n_batches`` batches: counted, or kept.

    ``n_stored_trials`` counted trials are whole; kept ones beyond ``max_bytes`` are in files.
    """

    def __init__(self, n_batches: int, n_stored_trials: int, max_bytes: int) -> None:
        self.n_batches, self.n_stored_trials = n_batches, n_stored_trials
        self.max_bytes, self.in_file = max_bytes, False
        # Each portion is several times as large as the next, since adding each small one to all
        # trials would be slow.
        self._portions: list[Portion] = []
        self._dealt: KeptTrials | None = None

    @property
    def n_trials(self) -> int:
        """Number of trials so far."""
        return sum(portion.n_trials for portion in self._portions)

    @property
    def t_max(self) -> int | None:
        """The last timestep of every trial; None before there is one."""
        return self._portions[0].t_max if self._portions else None

    @property
    def is_timed(self) -> bool | None:
        """Whether steps have durations; None before there are trials."""
        return times_of(self._portions[0]) is not None if self._portions else None

    @property
    def are_kept(self) -> bool:
        """Whether there are trials, and they are kept."""
        return bool(self._portions) and isinstance(self._portions[0], KeptTrials)

    def add(self, portion: Portion) -> None:
        """Add trials, counted in as many batches, or kept."""
        self.check_t_max(portion.t_max)
        portions, in_file = list(self._portions), self.in_file
        check_timed(self.is_timed, times_of(portion))
        if isinstance(portion, KeptTrials):
            in_file |= sum(each.nbytes for each in (portion, *portions)) > self.max_bytes
        portions.append(self._joined([portion], in_file))
        while len(portions) > 1 and portions[-2].nbytes < 2 * portions[-1].nbytes:
            portions[-2:] = [self._joined(portions[-2:], in_file)]
        self._portions, self.in_file, self._dealt = portions, in_file, None

    def _joined(self, portions: list[Any], in_file: bool) -> Portion:
        """Return portions as one; of counted trials at most ``n_stored_trials`` are whole."""
        if isinstance(portions[0], KeptTrials):
            return together(portions, in_file=in_file)
        joined: CountedTrials = reduce(add, portions)
        sample, most = joined.sample, self.n_stored_trials
        if sample is None or len(sample.hashes) <= most:
            return joined
        return replace(joined, sample=sample.least(most) if most else None)

    @property
    def portion(self) -> Portion | None:
        """All trials as one portion."""
        while len(self._portions) > 1:
            self._portions[-2:] = [self._joined(self._portions[-2:], self.in_file)]
        return self._portions[0] if self._portions else None

    @property
    def kept(self) -> KeptTrials:
        """All kept trials, in the order in which they came."""
        portion = self.portion
        assert isinstance(portion, KeptTrials)
        return portion

    @property
    def total(self) -> KeptTrials:
        """All kept trials, sorted by batch and content."""
        if self._dealt is None:
            kept = self.kept
            by_batch = np.argsort(np.arange(kept.n_trials) % self.n_batches, kind="stable")
            order = ordered(kept)[by_batch]
            self._dealt = together([kept], in_file=self.in_file, order=order)
        return self._dealt

    @property
    def counted(self) -> list[tuple[TransitionCounts, ActionCounts | None]]:
        """The counts, and action counts, of each batch that has any; none of kept trials."""
        portion = self.portion
        if not isinstance(portion, CountedTrials):
            return []
        return [portion.batch(int(b)) for b in np.flatnonzero(portion.n_by_batch)]

    @property
    def filled(self) -> CountedTrials:
        """The counts of all batches that have any, without sample and action counts."""
        counted: Any = self.portion
        has = counted.n_by_batch > 0
        rows = np.tile(has, counted.t_max + 1)
        matrices = counted.transition_counts, counted.reward_sums, counted.duration_sums
        N, R, times = (M if M is None or has.all() else M[rows] for M in matrices)
        return CountedTrials(counted.n_states, counted.n_by_batch[has], N, R, duration_sums=times)

    @property
    def sums(self) -> list[TransitionCounts]:
        """The counts of each batch that has any."""
        return [counts for counts, _ in self.counted]

    @property
    def sample(self) -> TrialSample | None:
        """Up to ``n_stored_trials`` counted trials that are kept whole."""
        return getattr(self.portion, "sample", None)

    def add_counts(self, batches: Any, sample: TrialSample | None = None) -> None:
        """Add counts with action counts, each to the batch with fewest trials; and their sample."""
        known = (each.n_by_batch for each in self._portions if isinstance(each, CountedTrials))
        n, added = sum(known, np.zeros(self.n_batches)), []
        for counts, taken in batches:
            smallest = int(np.argmin(n))
            n[smallest] += counts.n_trials
            added.append(CountedTrials.of(counts, taken, sample, smallest, self.n_batches))
            sample = None
        self.add(reduce(add, added))

    def merge(self, theirs: Batches) -> None:
        """Add the trials of another agent, all or nothing; it may be the same."""
        ours, portion = self.portion, theirs.portion
        if isinstance(portion, KeptTrials):
            self.add(portion)
        elif portion is not None:
            taken = getattr(ours, "taken", None)
            if taken is not None and portion.taken is not None:
                taken.check_adds(portion.taken)
            self.add_counts(theirs.counted, theirs.sample)

    def account(self) -> str:
        """Return how trials of vectors are kept, as text; empty for counted ones."""
        if not self.are_kept:
            return ""
        place = "in temporary files" if self.in_file else "as they came"
        allowed = f"max_bytes {in_words(self.max_bytes)}"
        return f"{place}: {in_words(self.kept.nbytes)} ({allowed})"

    def check_t_max(self, t_max: int) -> None:
        """Raise `InvalidInputError` if the trials so far have another last timestep."""
        if self.t_max not in (None, t_max):
            told = f"the trials so far have t_max = {self.t_max}; got {t_max}: keep it, or reset()"
            raise InvalidInputError(told)


def times_of(trials: Any) -> Any:
    """Return the durations of kept trials, or the sums of counted ones; None if all are 1."""
    return trials.durations if isinstance(trials, KeptTrials) else trials.duration_sums


def dealt(counts: TransitionCounts, n: int, rng: np.random.Generator) -> CountedTrials:
    """Deal transitions out to n batches, with the rewards and durations of their visits."""
    N, S, T = counts.transition_counts, counts.n_states, counts.t_max + 1
    t = np.repeat(np.arange(T), np.diff(N.indptr))
    numbers = rng.multinomial(N.data, np.full(n, 1.0 / n))
    each, batch = np.nonzero(numbers)
    number, row, column = numbers[each, batch], t[each] * n + batch, N.indices[each]
    moves = sparse.csr_array((number, (row, column)), shape=(T * n, S**2))
    visits = sparse.csr_array((1.0 * number, (row, column // S)), shape=(T * n, S))
    once = sparse.csr_array((1.0 * N.data, (t, N.indices // S)), shape=(T, S)).power(-1)

    def shared(sums: Any) -> Any:
        return None if sums is None else (sums * once)[np.repeat(np.arange(T), n)] * visits

    n_by_batch, paid = moves.sum(axis=1).reshape(T, n).max(axis=0), shared(counts.reward_sums)
    return CountedTrials(S, n_by_batch, moves, paid, duration_sums=shared(counts.duration_sums))
