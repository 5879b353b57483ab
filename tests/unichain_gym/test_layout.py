"""States do not overlap, streams stay together and arrows run from rim to rim."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unichain_gym import TabularMDP, attach_streams, make_mdp
from unichain_gym.layout import NODE_RADIUS, SPACING, edge_curves, lay_out

MNEMONICS = ["x1", "h3", "h6", "x9d", "c10", "h10", "x10", "h36", "h36c", "c35c", "h100", "c100"]


def random_mdp(seed, n_states, n_actions, n_outcomes):
    rng = np.random.default_rng(seed)
    shape = (n_states, n_actions, n_outcomes)
    # Next states of smaller number make transient states and several classes likely.
    next_state = np.minimum(rng.integers(0, n_states, shape), rng.integers(0, n_states, shape))
    probability = rng.dirichlet(np.ones(n_outcomes), shape[:2])
    return TabularMDP(next_state, probability, np.zeros(shape), np.eye(n_states)[0])


def smallest_distance(position):
    apart = np.linalg.norm(position[:, None] - position[None], axis=-1)
    return apart[~np.eye(len(apart), dtype=bool)].min(initial=np.inf)


@pytest.mark.parametrize("mnemonic", [*MNEMONICS, "h1003d", "c135z"])
def test_states_of_an_environment_do_not_overlap(mnemonic):
    assert smallest_distance(lay_out(make_mdp(mnemonic)).position) > 3 * NODE_RADIUS


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_states=st.integers(1, 40),
    n_actions=st.integers(1, 3),
    n_outcomes=st.integers(1, 2),
)
def test_states_of_any_mdp_do_not_overlap(seed, n_states, n_actions, n_outcomes):
    layout = lay_out(random_mdp(seed, n_states, n_actions, n_outcomes))
    assert np.isfinite(layout.position).all()
    assert np.isfinite(layout.loop_angle).all()
    assert smallest_distance(layout.position) > 2 * NODE_RADIUS


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n_states=st.integers(1, 30))
def test_recurrent_states_are_those_of_the_attracting_components(seed, n_states):
    mdp = random_mdp(seed, n_states, 2, 1)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n_states))
    graph.add_edges_from((s, int(t)) for s in range(n_states) for t in mdp.next_state[s].ravel())
    attracting = set().union(*nx.attracting_components(graph))
    for is_recurrent in (lay_out(mdp).is_recurrent, mdp.state_classes == "recurrent"):
        assert set(np.flatnonzero(is_recurrent)) == attracting


@pytest.mark.parametrize("mnemonic", ["h6", "x9d", "h36c", "h100"])
def test_states_of_a_stream_follow_each_other_equally_spaced(mnemonic):
    mdp = make_mdp(mnemonic)
    position = lay_out(mdp).position
    follower = mdp.next_state[:, 0, 1]
    transient = np.flatnonzero(~lay_out(mdp).is_recurrent)
    inside = transient[follower[transient] < transient.size]
    step = np.linalg.norm(position[follower[inside]] - position[inside], axis=1)
    assert (step <= SPACING * (1 + 1e-6)).all()  # a chord of the spiral is shorter than its arc
    assert (step > 0.93 * SPACING).all()


def test_a_short_stream_is_a_straight_line_into_the_core():
    position = lay_out(make_mdp("h6")).position
    assert position[:4, 1] == pytest.approx(0.0, abs=1e-12)
    assert np.diff(position[:4, 0]) == pytest.approx(SPACING)


def test_streams_of_different_entry_states_keep_apart():
    core = make_mdp("c5")
    once = attach_streams(core, 2, 3)
    twice = attach_streams(once, 3, 12, entry_state=8)
    layout = lay_out(twice)
    assert layout.is_recurrent.sum() == 5
    assert smallest_distance(layout.position) > 2 * NODE_RADIUS


def deterministic_mdp(next_state):
    table = np.array(next_state)[:, None, None]
    return TabularMDP(table, np.ones(table.shape), np.zeros(table.shape), np.eye(len(table))[0])


def test_many_states_around_one_do_not_overlap():
    position = lay_out(deterministic_mdp([0] * 80)).position
    assert smallest_distance(position) > 0.99 * SPACING


def test_branches_stand_around_their_stem():
    """State 2 leads to 0 past the leaf 1; states 3 and 4 lead to 2, and 5 to 3."""
    position = lay_out(deterministic_mdp([0, 0, 0, 2, 2, 3])).position
    angle = np.arctan2(*position.T)
    assert angle[5] == pytest.approx(angle[3])
    assert np.sin(angle[3] - angle[2]) == pytest.approx(-np.sin(angle[4] - angle[2]))
    assert np.cos(angle[3] - angle[2]) > 0.0


def test_self_transitions_of_a_stream_stand_on_both_of_its_sides():
    layout = lay_out(make_mdp("h36c"))
    step = layout.position[1] - layout.position[0]
    heading = np.arctan2(step[1], step[0])
    turn = np.sin(layout.loop_angle[0] - heading)
    assert np.abs(turn).min() > 0.99
    assert turn[0] * turn[1] < 0.0


def crossings(mdp):
    """Pairs of arrows, of other states each, that cross; and arrows over a third state."""
    layout = lay_out(mdp)
    s, a, k = np.nonzero(mdp.probability)
    after = mdp.next_state[s, a, k]
    moves = s != after
    s, a, after = s[moves], a[moves], after[moves]
    curve = edge_curves(layout, s, a, after, mdp.n_actions)
    apart = np.linalg.norm(curve[:, :, None] - layout.position, axis=-1).min(axis=1)
    apart[np.arange(s.size), s] = apart[np.arange(s.size), after] = np.inf
    ends = [{int(one), int(other)} for one, other in zip(s, after, strict=True)]
    crossed = 0
    for i in range(s.size):
        others = [j for j in range(i) if not ends[i] & ends[j]]
        step = np.diff(curve[i], axis=0)
        for j in others:
            between, across = curve[j][:-1, None] - curve[i][:-1], np.diff(curve[j], axis=0)
            turn = across[:, None, 0] * step[:, 1] - across[:, None, 1] * step[:, 0]
            with np.errstate(divide="ignore", invalid="ignore"):
                t = (between[..., 1] * step[:, 0] - between[..., 0] * step[:, 1]) / turn
                u = (
                    between[..., 1] * across[:, None, 0] - between[..., 0] * across[:, None, 1]
                ) / turn
            crossed += bool(((t >= 0) & (t <= 1) & (u >= 0) & (u <= 1)).any())
    return crossed, int((apart < NODE_RADIUS).sum())


@pytest.mark.parametrize("mnemonic", ["h3", "h6", "h36", "h7b", "h36c", "h39d", "x9d", "c5", "c10"])
def test_no_arrow_crosses_another_or_a_third_state(mnemonic):
    assert crossings(make_mdp(mnemonic)) == (0, 0)


@pytest.mark.parametrize("mnemonic", MNEMONICS)
def test_every_arrow_runs_from_the_rim_of_one_state_to_that_of_the_other(mnemonic):
    mdp = make_mdp(mnemonic)
    layout = lay_out(mdp)
    s, a, k = np.nonzero(mdp.probability)
    after = mdp.next_state[s, a, k]
    curve = edge_curves(layout, s, a, after, mdp.n_actions)
    for end, state in ((0, s), (-1, after)):
        radius = np.linalg.norm(curve[:, end] - layout.position[state], axis=1)
        assert (np.abs(radius - NODE_RADIUS) < 0.1 * NODE_RADIUS).all()


def test_arrows_of_two_actions_and_of_two_directions_are_apart():
    P = np.full((2, 2, 2), 0.5)
    layout = lay_out(TabularMDP.from_arrays(P, np.zeros((2, 2)), [1.0, 0.0]))
    before, action = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    curve = edge_curves(layout, before, action, 1 - before, 2)
    assert smallest_distance(curve[:, 12]) > 0.05 * SPACING
