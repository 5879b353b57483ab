"""HTML representations for notebooks."""

from __future__ import annotations

import numpy as np

from lstd_agent import OneHot, SeminormLSTDAgent
from unichain_gym import TabularMDP, make_mdp, simulate_counts


def test_text_is_escaped() -> None:
    loop = [("<b>", "a&b", "<b>", 1.0, 2.0)]
    mdp = TabularMDP.from_transitions(loop, [1.0], state_names=["<b>"], action_names=["a&b"])
    shown = mdp._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "a&amp;b" in shown
    assert "<b>" not in shown


def test_exact_answers_are_tables() -> None:
    mdp = make_mdp("h6")
    assert "<td>0 with 0.7; 1 with 0.3</td>" in mdp._repr_html_()
    chain = mdp.induce([1, 1, 1, 0, 0, 0])
    assert "<td>3, 4, 5</td>" in str(chain._repr_html_())  # the recurrent class
    assert "<td>13.3445</td>" in mdp.optimal_policy("bias")._repr_html_()
    path = chain.simulate(12, seed=0)._repr_html_()
    assert "<th>next state</th>" in path
    assert "<td>2 more steps</td>" in path
    rows = [("on", "run", "on", 1.0, 1.0), ("on", "stop", "on", 1.0, 0.0)]
    named = TabularMDP.from_transitions(rows, [1.0], state_names=["on"])
    assert "<td>on</td><td>run</td><td>run</td>" in named.optimal_policy("bias")._repr_html_()
    many = TabularMDP.from_transitions(
        [(s, 0, (s + 1) % 20_001, 1.0, 0.0) for s in range(20_001)], np.eye(1, 20_001)[0]
    )
    assert many.induce([0] * 20_001)._repr_html_() is None
    assert "19981 more pairs" in many._repr_html_()


def test_answers_from_trials_are_tables() -> None:
    agent = SeminormLSTDAgent(OneHot())
    assert "not fitted" in agent._repr_html_()
    agent.collect("Unichain-h6-v0", [1, 1, 1, 0, 0, 0], n_trials=1000, t_max=60, seed=0).fit()
    shown = agent._repr_html_()
    assert ">gain</th>" in shown
    assert "<pre>anchor  stop" in shown
    assert "may be missing</th>" in agent.diagnostics()._repr_html_()
    comparison = agent.compare(3, 0)
    assert f"<b>{comparison}</b> (95 % interval" in comparison._repr_html_()


def test_a_picture_shows_itself_without_pyplot() -> None:
    agent = SeminormLSTDAgent(OneHot())
    agent.add(simulate_counts(make_mdp("h6").induce([1, 1, 1, 0, 0, 0]), 100, 30, 0)).fit()
    for figure in (make_mdp("h6").plot(), agent.plot()):
        content, size = figure._repr_png_()  # type: ignore[attr-defined]
        assert content.startswith(b"\x89PNG")
        assert size["width"] == 72.0 * figure.get_figwidth()
