"""The table of cases: answers are right where that is known, and stay what they are elsewhere."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from lstd_agent import GaussianFeatures, Polynomial, SeminormLSTDAgent

from .cases import CASES, Case, answers, chain_of, counted, of_trials, rounds_of_counts, run
from .record import TABLE, from_json
from .vectors import ONE, autoregression, autoregression_gain

TABLE_ROWS: dict[str, Any] = json.loads(TABLE.read_text())
MOST_ERRORS = 5.0
"""How many standard errors right values may be away."""

LONGEST = {
    "a_long_queue_of_sparse_features",
    "a_number_of_neighborhoods_by_the_data",
    "a_ring_of_very_many_states",
    "actions_of_another_policy_and_at_a_timestep",
    "aggregated_by_groups_of_states",
    "aggregated_four_anchors_lambda",
    "aggregated_one_neighborhood",
    "aggregated_two_anchors",
    "anchors_by_doubling",
    "anchors_by_mean_discrepancy",
    "anchors_by_optimal_transport",
    "anchors_by_total_variation",
    "autoregression_three_dimensions",
    "average_reward_of_few_features",
    "best_actions_of_a_chain",
    "counted_ends",
    "counted_ends_lambda",
    "defaults_of_a_cyclic_chain",
    "defaults_of_a_log_cut_short",
    "defaults_of_a_long_start",
    "defaults_of_two_dimensions",
    "exploratory_actions_lambda",
    "functions_of_numbered_states",
    "many_batches",
    "many_tiles",
    "model_fitted_by_few_features",
    "model_of_a_given_gain",
    "model_one_hot",
    "one_hot_five_steps",
    "other_features_of_the_same_trials",
    "paper_stepwise",
    "references_by_occupancy",
    "references_by_the_papers_rule",
    "stepwise_lambda",
    "stepwise_of_few_features",
    "vector_ends_in_two_neighborhoods",
}
"""Cases that take longest: they run with the slow tests."""


def span(values: Any) -> float:
    """The span of the finite values, zero included."""
    finite = np.append(values[np.isfinite(values)], 0.0)
    return float(np.ptp(finite))


def held(found: Any, frozen: Any, off: float, where: Any) -> bool:
    """Whether answers are those of the table, wherever these are finite and ``where`` holds."""
    known = np.isfinite(frozen)
    if found.shape != frozen.shape or not np.array_equal(np.isfinite(found), known):
        return False
    known &= where
    return not known.any() or bool(np.abs(found - frozen)[known].max() <= off)


def check_by_table(name: str, each: Case) -> None:
    """Fail unless the answers are those of the table."""
    if not each.frozen:
        assert name not in TABLE_ROWS
        return
    row = TABLE_ROWS[each.row or name]
    found = answers(each)
    assert each.row or set(row["answers"]) | {"rank"} == set(found) | {"rank"}
    determined = from_json(row["answers"].get("determined", 1.0)) > 0.0
    values, differ = from_json(row["answers"].get("values", 0.0)), {}
    for kind in found.keys() & row["answers"].keys():
        frozen = from_json(row["answers"][kind])
        # The value of an observation that the samples do not determine is a matter of taste.
        where = {"values": determined, "difference": determined.all()}.get(kind, True)
        of_values = kind in ("values", "difference", "start_bias")
        size = max(span(frozen), span(values) if of_values else 0.0)
        if not held(found[kind], frozen, row["within"][kind] * size, where):
            differ[kind] = found[kind].tolist(), frozen.tolist()
    assert not differ


def check_by_truth(each: Case, warned: bool) -> None:
    """Fail unless the answers are right, as far as that is known."""
    agent = each.agent
    if each.warns is not None:
        assert warned == each.warns
    if each.gain is not None:
        right, off = each.gain
        assert abs(agent.gain_ - right) < off
    if each.truth is not None:
        differences, n_known = np.asarray(each.truth) - each.truth[0], 0
        for observation, difference in zip(each.at[1:], differences[1:], strict=True):
            found = agent.compare(observation, each.at[0], each.t)
            off = MOST_ERRORS * found.standard_error if each.off is None else each.off
            if np.isfinite(off):
                n_known += 1
                assert abs(found.difference - difference) < off
        assert n_known > 0
    if each.actions is not None:
        assert each.off is not None
        off = agent.action_values(each.at) - each.actions  # not a number where a pair is unseen
        assert np.nanmax(off) - np.nanmin(off) < each.off


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LONGEST else n for n in CASES]
)
def test_answers_are_right_and_equal_the_table(name: str) -> None:
    each, warned = run(CASES[name])
    check_by_truth(each, warned)
    check_by_table(name, each)


def test_every_row_belongs_to_a_case() -> None:
    assert TABLE_ROWS.keys() <= CASES.keys()


def ratios(whole: SeminormLSTDAgent, without: list[SeminormLSTDAgent], at: Any) -> Any:
    """Standard errors of differences from the first, over those by fits without each batch."""
    values = np.array([agent.predict(at, 0) for agent in without])
    by_hand = np.sqrt((len(values) - 1) * (values[:, 1:] - values[:, :1]).var(axis=0))
    return np.array([whole.compare(x, at[0], 0).standard_error for x in at[1:]]) / by_hand


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
def test_standard_errors_of_counts_agree_with_leaving_out_batches() -> None:
    chain = chain_of("q44")
    features = GaussianFeatures(5, seed=3)
    options: dict[str, Any] = {"anchors": [0, 30], "gain": chain.gain}
    whole = counted(chain, features, t_max=100, **options)
    rounds, without = list(rounds_of_counts(chain, 6, 150, 100)), []
    for i in range(6):
        agent = SeminormLSTDAgent(features, backup="one_step", **options)
        for counts in rounds[:i] + rounds[i + 1 :]:
            agent.add(counts)
        without.append(agent.fit())
    ratio = ratios(whole, without, [0, 10, 20, 30])
    # Outcomes that were never seen may only add to them.
    assert (ratio > 1.0 - 1e-4).all()
    assert (ratio < 1.1).all()


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
def test_standard_errors_of_vectors_agree_with_leaving_out_trials() -> None:
    observations, rewards = autoregression(0, 1)
    options: dict[str, Any] = {"anchors": [0], "gain": autoregression_gain(1)}
    whole = of_trials((observations, rewards), Polynomial(2), **options)
    without = []
    for i in range(len(rewards)):
        rest = np.arange(len(rewards)) != i
        agent = SeminormLSTDAgent(Polynomial(2), backup="one_step", **options)
        without.append(agent.add_trials(observations[rest], rewards[rest]).fit())
    ratio = ratios(whole, without, ONE)
    assert (ratio > 1.0 - 1e-4).all()
    assert (ratio < 1.1).all()
