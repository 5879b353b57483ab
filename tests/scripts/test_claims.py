"""The paper's claims: their criteria, and the certainty of verdicts over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from study import claims, tables
from study.claims import (
    CONFIRMED,
    REFUTED,
    UNDECIDED,
    exact_claims,
    rank_correlation,
    sampled_claims,
)

from lstd_agent.errors import InvalidInputError


def paper_rows(n_seeds: int = 10) -> list[dict[str, Any]]:
    """The published tables as rows, the same for each seed."""
    rows: dict[tuple[str, float, str], dict[str, Any]] = {}
    for (env, rho, metric, scheme), value in tables.paper_cells().stack().dropna().items():
        row = rows.setdefault((env, rho, scheme), {"env": env, "rho": rho, "scheme": scheme})
        row[metric] = value
    return [{**row, "seed": seed} for seed in range(n_seeds) for row in rows.values()]


def by_label(judged: list[claims.Claim]) -> dict[str, claims.Claim]:
    return {claim.label: claim for claim in judged}


def agreeing(claim: claims.Claim) -> int:
    return sum(claim.items.values())


def test_the_paper_s_own_tables_are_counted_alike_as_ours_and_as_the_paper_s() -> None:
    judged = by_label(exact_claims(paper_rows()))
    assert len(judged) == 13
    for claim in judged.values():
        assert [*claim.items.values()] == claim.in_paper
        assert claim.support in (0.0, 1.0)
    # Counted by hand in the published tables: the lowest ε_PB, and the place of p02am in ε_MS.
    assert judged["a1"].in_paper == [True] * 53
    assert judged["a1"].verdict == CONFIRMED
    assert judged["d1"].in_paper == judged["d3"].in_paper == [True] * 53
    row = claims.claims_table([judged["c1"]]).splitlines()[-1]
    assert "(7.1) | within a factor of 2, by row; most | 47 of 53 | 47 of 53 | 100 % |" in row


def test_a_claim_that_every_row_must_meet_fails_by_one_and_names_it() -> None:
    rows = paper_rows()
    for row in rows:
        if (row["env"], row["rho"], row["scheme"]) == ("h6", 0.49, "p01"):
            row["total_repb"] = 1e-99
    claim = by_label(exact_claims(rows))["a1"]
    assert claim.verdict == REFUTED
    assert "a1 disagreeing: h6 ρ=0.49." in claims.markdown_claims([claim])


def test_a_claim_that_depends_on_two_of_twenty_seeds_is_undecided() -> None:
    rows = paper_rows(20)
    for row in rows:
        if (row["env"], row["rho"], row["scheme"]) == ("h6", 0.49, "pinf"):
            # In the mean of all seeds just above the next, without seeds 0 and 1 far below.
            row["total_repb"] = 2200.0 if row["seed"] < 2 else 0.001
    claim = by_label(exact_claims(rows))["a1"]
    assert claim.verdict == UNDECIDED
    assert 0.05 < claim.support < 0.95


def test_too_few_seeds_decide_nothing() -> None:
    verdicts = {claim.verdict for claim in exact_claims(paper_rows(claims.FEWEST_SEEDS - 1))}
    assert verdicts == {UNDECIDED}


def test_a_claim_whose_schemes_are_missing_is_left_out() -> None:
    rows = [row for row in paper_rows() if row["scheme"] in ("p01", "pinf")]
    judged = by_label(exact_claims(rows))
    assert set(judged) == {"a1"}
    assert judged["a1"].in_paper == [True] * 53


def test_seeds_that_differ_from_cell_to_cell_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="the same seeds in every cell"):
        exact_claims(paper_rows()[1:])


SPOILT = {
    ("p01", "total_repb", 1e-12): "a1 a2 b1",
    ("p01", "total_repb", 1e4): "b2",
    ("p02ot", "total_repb", 1e-3): "b3 c2",
    ("paxot", "total_repb", 1e2): "c1",
    ("pinf", "total_rems", 1e6): "d1",
    ("p02am", "total_rems", 1e6): "d2 d3",
}
"""Claims by the scheme and the error that they are about, and a factor that spoils them."""


@pytest.mark.parametrize(("spoilt", "labels"), SPOILT.items(), ids=str)
def test_each_claim_loses_items_when_its_rows_are_spoilt(spoilt: Any, labels: str) -> None:
    scheme, metric, factor = spoilt
    rows = paper_rows(1)
    for row in rows:
        if row["scheme"] == scheme:
            row[metric] *= factor
    judged = by_label(exact_claims(rows))
    for label in labels.split():
        in_paper = judged[label].in_paper
        assert in_paper is not None
        assert agreeing(judged[label]) < sum(in_paper), label


def test_an_advantage_that_shrinks_with_rho_and_equal_errors_lose_their_claims() -> None:
    rows = paper_rows()
    smallest: dict[str, float] = {}
    for row in rows:
        smallest[row["env"]] = min(row["rho"], smallest.get(row["env"], 1.0))
    for row in rows:
        row["total_rems"] = 1.0
        if row["scheme"].startswith("pax") and row["rho"] == smallest[row["env"]]:
            row["total_repb"] *= 1e9
    judged = by_label(exact_claims(rows))
    assert agreeing(judged["b4"]) == 0
    assert agreeing(judged["d4"]) == 0


def test_a_strong_correlation_of_either_sign_counts_against_its_absence() -> None:
    for sign in (1, -1):
        rows = paper_rows()
        for row in rows:
            row["total_rems"] = row["total_repb"] ** sign
        (claim,) = [c for c in exact_claims(rows) if c.label == "e"]
        assert agreeing(claim) == 0


def test_twins_with_two_anchors_count_once() -> None:
    rows = [row for row in paper_rows() if row["rho"] == 0.49]
    judged = by_label(exact_claims(rows))
    assert len(judged["b3"].items) == 0
    # paxtv, paxot, paxmd and their twins: the lowest six after pinf, in most rows.
    assert agreeing(judged["a2"]) > 5


START = {"pinf": 100.0, "paxmd": 12.0, "p02md": 22.0, "p01": 31.0}
END = {"pinf": 5.0, "paxmd": 10.0, "p02md": 20.0, "p01": 30.0}


def curves(final: dict[str, float], n_seeds: int = 10) -> list[dict[str, Any]]:
    """Rows whose ε_PB goes from START to ``final`` in four steps, and ε_MS a little along."""
    rows = []
    for env, n_features in (("h6", 1), ("h6", 2), ("c10", 3), ("c10", 4)):
        for k in range(5):
            for scheme, start in START.items():
                value = start ** (1 - k / 4) * final[scheme] ** (k / 4)
                rows += [
                    {"env": env, "n_features": n_features, "scheme": scheme, "seed": seed,
                     "n_trials": 1000 * (k + 1), "total_repb": value,
                     "total_rems": 1000 + value}
                    for seed in range(n_seeds)
                ]  # fmt: skip
    return rows


def test_sampled_claims_follow_the_curves() -> None:
    judged = by_label(sampled_claims(curves(END)))
    assert {label for label, c in judged.items() if c.verdict == CONFIRMED} == {
        "f1", "f2", "g1", "g2", "g3",
    }  # fmt: skip
    # The curves cross as often in both errors: fewer they are not.
    assert judged["g4"].verdict == REFUTED


def test_the_order_of_the_figure_is_refuted_where_pinf_stays_above() -> None:
    judged = by_label(sampled_claims(curves({**END, "pinf": 50.0})))
    assert judged["f1"].verdict == judged["f2"].verdict == REFUTED
    assert not any(judged["f1"].items.values())


def test_a_curve_that_swings_between_equal_ends_counts_as_moving() -> None:
    rows = curves(END)
    for row in rows:
        if row["n_trials"] in (2000, 4000):
            row["total_rems"] *= 100.0
    assert agreeing(by_label(sampled_claims(rows))["g3"]) == 0


def test_rank_correlation_equals_scipy_s_among_those_counted() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(5, size=(2, 7, 12)).astype(float)
    counted = rng.random((7, 12)) < 0.7
    ours = rank_correlation(x, y, counted)
    for i in range(7):
        theirs = spearmanr(x[i, counted[i]], y[i, counted[i]]).statistic
        assert ours[i] == pytest.approx(theirs)
