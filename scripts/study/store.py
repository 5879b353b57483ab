"""A study: rows by environment, seed and more, computed once and kept in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lstd_agent.results import Row, RowStore, code_version
from unichain_gym import make_mdp

Key: TypeAlias = tuple[Any, ...]
Among: TypeAlias = Mapping[str, Sequence[Any]]
"""Values by field."""


@dataclass(frozen=True)
class Task:
    """Rows of an environment and a seed (or several) to compute: their keys, and the settings."""

    env: str
    seed: Any
    missing: Sequence[Key]
    settings: Any


@dataclass(frozen=True)
class Study:
    """A study: the fields that tell its rows apart, and how rows are computed.

    ``rows`` computes a task. ``work`` yields the seed, or seeds, and the keys of the rows of each
    task; it gets an environment, its number of states, all seeds, the chosen values of fields, and
    the settings. ``every`` has all values that are studied, of which a run may choose some.
    """

    name: str
    settings: type
    key: tuple[str, ...]
    rows: Callable[[Task], list[Row]]
    work: Callable[[str, int, range, Among, Any], Iterable[tuple[Any, list[Key]]]]
    every: Among

    def run(
        self,
        out: Path,
        settings: Any = None,
        among: Among | None = None,
        n_seeds: int = 20,
        **how: Any,
    ) -> list[Row]:
        """Compute the rows of seeds 0 to n_seeds - 1 that a folder lacks; return all asked for."""
        settings, among = settings or self.settings(), {**self.every, **(among or {})}
        code = code_version(Path(__file__).parent)
        store = RowStore(out / f"{self.name}_rows.jsonl", asdict(settings), self.key, code)
        sizes = {env: make_mdp(env).n_states for env in among["env"]}
        tasks = []
        for env in sorted(sizes, key=lambda env: -sizes[env]):  # the longest first
            for seed, keys in self.work(env, sizes[env], range(n_seeds), among, settings):
                if missing := [key for key in keys if key not in store]:
                    tasks.append(Task(env, seed, missing, settings))
        store.compute(self.rows, tasks, **how)
        wanted = {"seed": range(n_seeds), **among}
        return [row for row in store.rows if all(row[k] in some for k, some in wanted.items())]


def generator(seed: int, *study: int) -> np.random.Generator:
    """Return the random numbers of a seed in a study."""
    return np.random.default_rng(np.random.SeedSequence([seed, *study]))
