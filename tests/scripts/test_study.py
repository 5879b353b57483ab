"""The study's problems, schemes, metrics, tables and claims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from study import tables
from study.exact import ExactSchemes
from study.sampling import CHECKPOINTS, SAMPLING, Engine, SamplingSettings, sampling_rows
from study.store import Task

from lstd_agent import SeminormLSTDAgent
from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.problems import (
    PiecewiseValues,
    StepwiseErrors,
    random_chain,
    random_features,
    regimes,
)
from unichain_gym import make_mdp, simulate_counts


def test_regimes_of_the_paper_s_environments_agree_with_its_tables() -> None:
    published: dict[str, set[float]] = {}
    for env, rho, *_ in tables.paper_cells().index:
        published.setdefault(env, set()).add(rho)
    assert len(published) == 10
    assert published == {
        env: {regime.rho for regime in regimes(make_mdp(env).n_states)} for env in published
    }


class GivenAnchors(ExactSchemes):
    """Neighborhoods that the test says, whatever the scheme."""

    given: tuple[int, ...] = ()

    def anchors(self, scheme: str, features: FloatArray, n_anchors_max: int) -> IntArray:
        return np.array(self.given)

    def at(self, anchors: tuple[int, ...], features: FloatArray) -> PiecewiseValues:
        self.given = anchors
        return self.fit("p02md", features, len(anchors))


def direct_errors(found, chain, features, p):
    """ε_PB and ε_MS by their definitions, one timestep at a time."""
    S = chain.n_states
    P = chain.transition_matrix.toarray()
    exact = chain.bias - chain.bias[found.main]
    repb = rems = 0.0
    for t, weight in enumerate(p):
        values = found.values[np.searchsorted(found.anchors, t, side="right") - 1]
        D = np.diag(weight)
        projector = features @ np.linalg.pinv(features.T @ D @ features, 1e-12) @ features.T @ D
        residual = projector @ (values - (chain.reward - chain.gain + P @ values))
        repb += np.sqrt(residual @ D @ residual)
        error = values - exact
        rems += np.sqrt(weight @ error**2)
    assert len(weight) == S
    return repb, rems


def test_total_errors_equal_their_definitions_summed_directly() -> None:
    chain = random_chain("h15b", 3)
    features = random_features(15, 3, 3)
    p = chain.stepwise_distributions(60)
    found = GivenAnchors(chain).at((0, 4, 20), features)
    expected = direct_errors(found, chain, features, p)
    totals = StepwiseErrors(chain, features, p).totals(found)
    assert_allclose([*totals.values()], expected, rtol=1e-6)


def test_a_shifted_offset_is_the_rems() -> None:
    chain = random_chain("h6", 0)
    p = chain.stepwise_distributions(50)
    found = PiecewiseValues(np.array([0, 10]), np.tile(chain.bias, (2, 1)), main=0)
    right = replace(found, values=found.values - chain.bias[0])
    shifted = replace(right, values=right.values + 5.0)
    errors = StepwiseErrors(chain, np.eye(6), p)
    assert_allclose(errors.rems(right), 0.0, atol=1e-9)
    assert_allclose(errors.rems(shifted), 5.0)


def test_one_hot_features_make_every_exact_error_vanish() -> None:
    chain = random_chain("c10", 1)
    p = chain.stepwise_distributions(200)
    errors = StepwiseErrors(chain, np.eye(10), p)
    found = GivenAnchors(chain).at((0, 30), np.eye(10))
    # States of negligible probability in the second window keep weight 0 (relative cutoff).
    assert errors.repb(found)[:30].max() < 1e-8
    assert errors.rems(found)[:30].max() < 1e-6


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")  # random features do not fit
def test_no_values_of_the_same_neighborhoods_beat_the_projection_limit_by_much() -> None:
    chain = random_chain("h36c", 2)
    features = random_features(36, 4, 2)
    errors = StepwiseErrors(chain, features, chain.stepwise_distributions(400))
    agent = SeminormLSTDAgent(features, anchors=[0, 30], gain=chain.gain)
    agent.add(simulate_counts(chain, 10_000, 400, 0)).fit()
    for found in (PiecewiseValues.of(agent, 36), GivenAnchors(chain).at((0, 30), features)):
        assert errors.limit(found) <= 1.05 * errors.rems(found).sum()


@pytest.mark.first(1)
@pytest.mark.parametrize("engine", ["trials", "population"])
def test_sampling_rows_do_not_depend_on_which_others_are_missing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHECKPOINTS, "h6", (20, 40))
    settings = SamplingSettings(engine=engine)
    schemes = (20, "p01"), (40, "p01"), (40, "p02md"), (40, "pinf")
    everything = [("h6", d, 0, *s) for d, s in zip((1, 1, 2, 1), schemes, strict=True)]
    whole = sampling_rows(Task("h6", 0, everything, settings))
    assert len(whole) == len(everything)
    part = [("h6", 2, 0, 40, "p02md"), ("h6", 1, 0, 20, "p01")]
    rows = sampling_rows(Task("h6", 0, part, settings))
    assert rows == [r for r in whole if tuple(r[field] for field in SAMPLING.key) in part]


def test_unknown_names_are_refused_by_every_study() -> None:
    with pytest.raises(InvalidInputError, match=r"engine must be one of .*; got 'trial'"):
        SamplingSettings(engine="trial")  # type: ignore[arg-type]
    schemes = ExactSchemes(random_chain("h6", 0))
    with pytest.raises(InvalidInputError, match=r"scheme must be one of .*; got 'p02kl'"):
        schemes.anchors("p02kl", np.eye(6), 2)


def test_sampled_errors_approach_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKPOINTS, "h6", (10**8,))
    settings = SamplingSettings(engine="population")
    chain = random_chain("h6", 1)
    schemes, features = ExactSchemes(chain), random_features(6, 2, 1)
    errors = StepwiseErrors(chain, features, schemes.distributions)
    exact = errors.repb(schemes.fit("p01", features, 2)).sum()
    (row,) = sampling_rows(Task("h6", 1, [("h6", 2, 1, 10**8, "p01")], settings))
    assert row["total_repb"] == pytest.approx(exact, rel=1e-2)


# Tables


def cells_of(values: dict[str, float]) -> pd.DataFrame:
    index = pd.MultiIndex.from_tuples([("h6", 0.49, "total_repb")], names=["env", "rho", "metric"])
    return pd.DataFrame([values], index=index)


def test_tables_mark_the_three_lowest_of_each_row() -> None:
    cells = cells_of({"buw": 5100.0, "p01": 210.0, "p02am": 320.0, "pinf": 0.0028})
    text = tables.markdown_tables(cells)
    assert "| h6 | 5100 | *210* | <u>320</u> | **0.0028** |" in text
    latex = tables.latex_tables(cells)
    assert r"\textcolor{red}{0.0028}" in latex
    assert r"\textcolor{darkgreen}{210}" in latex
    assert r"\textcolor{blue}{320}" in latex


def test_equal_values_share_their_mark_and_leave_the_next_its_place() -> None:
    row = pd.Series({"paxmd": 1.0, "p02md": 1.0, "p01": 2.0, "buw": 3.0, "pinf": 4.0})
    texts = tables.marked(row, "markdown", "")
    assert texts == ["**1.0**", "**1.0**", "*2.0*", "<u>3.0</u>", "4.0"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5123.0, "5100"), (0.00284, "0.0028"), (12.34, "12"), (1.234, "1.2"), (0.0, "0"),
        (3.46e-9, "3.5e-9"), (6.7e7, "6.7e7"), (99.9, "100"),
    ],
)  # fmt: skip
def test_numbers_are_written_with_two_digits(value: float, text: str) -> None:
    assert tables.two_digits(value) == text


def test_agreement_with_the_paper_is_zero_for_the_paper_itself() -> None:
    paper = tables.paper_cells()
    same = tables.markdown_agreement(tables.log_ratios(paper, paper)).splitlines()[2:]
    assert len(same) == 20
    assert all("| 0.00 | +0.00 | +0.00 |" in line for line in same)
    more = tables.markdown_agreement(tables.log_ratios(10 * paper, paper)).splitlines()[2:]
    assert all("| 1.00 | +1.00 | +1.00 |" in line for line in more)
