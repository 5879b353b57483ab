"""What algorithms ask of an MDP and of a chain, without knowing which class answers.

An MDP induces chains, and a chain knows the MDP it comes from. Algorithms of either import
neither class, so that imports go one way only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field
from typing import Any, ClassVar, Protocol

from scipy import sparse

from unichain_gym.arrays import BoolArray, FloatArray, IntArray


class OutcomeModel(Protocol):
    """A finite MDP as a padded outcome table: `TabularMDP`, which describes the attributes."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def next_state(self) -> IntArray:
        """The state each outcome leads to, shape (S, A, K)."""

    @property
    def probability(self) -> FloatArray:
        """Its probability, shape (S, A, K)."""

    @property
    def reward(self) -> FloatArray:
        """Its reward, shape (S, A, K)."""

    @property
    def initial_distribution(self) -> FloatArray:
        """The distribution of the first state, shape (S,)."""

    @property
    def state_names(self) -> Sequence[str | int] | None:
        """What the states are called."""

    @property
    def action_names(self) -> Sequence[str | int] | None:
        """What the actions are called."""

    @property
    def n_states(self) -> int:
        """Number of states S."""

    @property
    def allowed_actions(self) -> BoolArray:
        """Which actions each state has, shape (S, A)."""

    @property
    def expected_reward(self) -> FloatArray:
        """r(s, a), shape (S, A)."""


class RewardProcess(Protocol):
    """A Markov chain with rewards: `MarkovChain`, which describes the attributes."""

    transition_matrix: sparse.csr_array
    reward: FloatArray
    initial_distribution: FloatArray
    mdp: OutcomeModel | None
    policy: FloatArray | None
    state_names: Sequence[str | int]

    @property
    def recurrent_states(self) -> IntArray:
        """The states that the chain returns to for ever."""

    @property
    def stationary_distribution(self) -> FloatArray:
        """The long-run distribution from the start, shape (S,)."""

    @property
    def period(self) -> int:
        """The least multiple of the periods of all classes."""

    @property
    def gain(self) -> float:
        """The long-run average reward, with one recurrent class."""

    @property
    def gain_vector(self) -> FloatArray:
        """The long-run average reward from each state, shape (S,)."""

    @property
    def bias(self) -> FloatArray:
        """The total reward above the gain, shape (S,)."""
