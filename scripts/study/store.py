"""Where the rows of studies are kept: by settings, key and version of the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lstd_agent.results import RowStore, code_version
from unichain_gym import make_mdp


def open_store(out: Path, name: str, settings: Mapping[str, Any], key: Sequence[str]) -> RowStore:
    """Return the rows ``<name>_rows.jsonl`` of a folder that the present code has computed."""
    here = code_version(Path(__file__).parent)
    return RowStore(out / f"{name}_rows.jsonl", settings, key, here)


@dataclass(frozen=True)
class Task:
    """One environment and seed, what is missing of their rows, and what all rows depend on."""

    env: str
    seed: int
    missing: Any
    settings: Any


def largest_first(environments: Sequence[str], n_seeds: int) -> Iterator[tuple[str, int, int]]:
    """Yield each environment, its number of states and each seed; the largest come first."""
    sizes = {env: make_mdp(env).n_states for env in environments}
    for env in sorted(environments, key=lambda env: -sizes[env]):
        for seed in range(n_seeds):
            yield env, sizes[env], seed


def generator(seed: int, *study: int) -> np.random.Generator:
    """Return the random numbers of a seed in a study."""
    return np.random.default_rng(np.random.SeedSequence([seed, *study]))
