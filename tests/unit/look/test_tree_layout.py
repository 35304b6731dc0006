from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import beam_trace

from ensue.look.tree import read_tree
from ensue.look.tree_layout import ROW, spread, tree_layout


@pytest.mark.parametrize("beam, steps", [(1, 5), (2, 10), (5, 40)])
def test_boxes_never_overlap_and_the_best_path_is_straight(beam, steps):
    tree = read_tree(beam_trace(beam, steps, ["a", "the", "longer-than-others"]))
    for places in (tree_layout(tree), tree_layout(tree, tree.survivors())):
        by_step = {}
        for i, place in places.items():
            by_step.setdefault(tree.nodes[i].step, []).append(place)
        for column in by_step.values():
            heights = sorted(place.y for place in column)
            assert all(b - a >= ROW - 1e-6 for a, b in pairwise(heights))
            assert len({place.x for place in column}) == 1
        ends = [max(p.x + p.width for p in by_step[step]) for step in sorted(by_step)]
        assert all(end < by_step[step][0].x for end, step in zip(ends, sorted(by_step)[1:]))
        assert len({round(places[i].y, 6) for i in tree.best}) == 1
        assert min(p.y for p in places.values()) > 0 and min(p.x for p in places.values()) > 0


def test_no_lines_cross():
    tree = read_tree(beam_trace(4, 15, ["a", "b"]))
    places = tree_layout(tree)
    for step in range(1, 16):
        column = sorted((n for n in tree.nodes.values() if n.step == step), key=lambda n: places[n.id].y)
        parents = [places[n.parent].y for n in column]
        assert parents == sorted(parents)


@given(st.lists(st.floats(-1e3, 1e3), max_size=12).map(sorted))
def test_spread_keeps_apart_and_moves_no_more_than_needed(wanted):
    found = spread(wanted, 10)
    assert all(b - a >= 10 - 1e-6 for a, b in pairwise(found))
    assert sum(found) == pytest.approx(sum(wanted), abs=1e-6)  # pushed as much up as down
    if all(b - a >= 10 for a, b in pairwise(wanted)):
        assert found == pytest.approx(wanted)
