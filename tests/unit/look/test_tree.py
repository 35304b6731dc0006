import json
import math
import random
import re
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.core.errors import InputError
from ensue.look.tree import ROW, addends, columns, read_tree, shortened, spread, tree_html, tree_layout, tree_text

NASTY = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"&'",
    "\x1b[31m",
    "",
    " ",
    "漢字",
    "a\nb",
]


def node(id, parent, step, token, log_prob, total, fate, **more):
    return {
        "id": id,
        "parent": parent,
        "step": step,
        "token": token,
        "log_prob": log_prob,
        "total": total,
        "score": total,
        "fate": fate,
        "why": "",
    } | more


def lecture():
    """Beam 2 over "il a m' entarté": he struck is ahead of he hit until it is not."""
    return {
        "method": "beam",
        "beam": 2,
        "length": "none",
        "source": "il a m' entarté",
        "nodes": [
            node(0, None, 0, "START", 0.0, 0.0, "kept", why="the start"),
            node(1, 0, 1, "he", -0.7, -0.7, "kept", why="rank 1 of 2"),
            node(2, 0, 1, "I", -0.9, -0.9, "kept", why="rank 2 of 2"),
            node(3, 1, 2, "hit", -1.0, -1.7, "kept"),
            node(4, 1, 2, "struck", -2.2, -2.9, "pruned", why="rank 4 of 4, beam 2"),
            node(5, 2, 2, "was", -0.7, -1.6, "kept"),
            node(6, 2, 2, "got", -0.9, -1.8, "pruned"),
            node(7, 3, 3, "me", -0.6, -2.3, "best"),
            node(8, 5, 3, "</s>", -1.5, -3.1, "ended"),
        ],
    }


def beam_trace(beam, steps, tokens, seed=0):
    """A trace as beam search leaves it, with made-up log-probabilities."""
    chance, nodes = random.Random(seed), [node(0, None, 0, "<s>", 0.0, 0.0, "kept")]
    live = [nodes[0]]
    for step in range(1, steps + 1):
        new = []
        for parent in live:
            for token in chance.choices(tokens, k=beam):
                p = math.log(chance.uniform(0.01, 1))
                new.append(node(len(nodes) + len(new), parent["id"], step, token, p, parent["total"] + p, "pruned"))
        nodes += new
        live = sorted(new, key=lambda n: -n["total"])[:beam]
        for kept in live:
            kept["fate"] = "kept"
    live[0]["fate"] = "best"
    return {"method": "beam", "beam": beam, "length": "none", "nodes": nodes}


def svgs(page):
    """The pictures of a page, parsed as XML: the whole tree, and the one without pruned nodes."""
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def ids(svg):
    return {int(g.get("data-id")) for g in svg if g.get("data-id")}


# ----------------------------------------------------------------------------------------------------------- the text


def test_text_has_every_node_with_its_figures_and_mark():
    lines = tree_text(lecture())
    assert "   1   −0.700   −0.700   −0.700  ★ he  (rank 1 of 2)" in lines
    assert "   2   −2.200   −2.900   −2.900  ├─× struck  (rank 4 of 4, beam 2)" in lines
    assert "   3   −0.600   −2.300   −2.300  ★ me ■" in lines
    assert "   3   −1.500   −3.100   −3.100  │ ■ </s>" in lines
    assert lines[0] == "Beam search, beam 2, length rule none" and lines[1] == "source: il a m' entarté"
    assert sum(bool(re.match(r" +\d+ .*[★●■×] ", line)) for line in lines) == 9


def test_text_draws_the_tree():
    tree = [line[33:].split("  (")[0] for line in tree_text(lecture())[5:14]]
    assert tree == ["★ START", "├─● I", "│ ├─× got", "│ ● was", "│ ■ </s>", "★ he", "├─× struck", "★ hit", "★ me ■"]


def test_text_lists_hypotheses_by_score_and_unfinished_ones_last():
    trace = lecture()
    trace["nodes"].append(node(9, 3, 3, "them", -0.1, -1.8, "kept"))
    assert tree_text(trace)[-3:] == [
        "  −2.300   −2.300  ★ START he hit me",
        "  −3.100   −3.100  ■ START I was </s>",
        "  −1.800   −1.800  ● START he hit them … (unfinished)",
    ]


@pytest.mark.parametrize("width", [40, 60, 100])
def test_text_keeps_to_its_width_and_harms_no_terminal(width):
    trace = beam_trace(5, 40, [*NASTY, "long" * 30])
    lines = tree_text(trace, width)
    assert all(columns(line) <= width for line in lines)
    assert not any(c < " " or c == "\x7f" for line in lines for c in line)


def test_text_of_a_long_search_stays_near_the_margin():
    lines = tree_text(beam_trace(5, 40, ["a", "b"]), 300)
    assert max(line.count("│") for line in lines) <= 10  # branches off branches, however many the steps


def test_text_of_several_roots_has_a_start():
    trace = lecture()
    trace["nodes"] = [n | {"parent": n["parent"] or None} for n in trace["nodes"][1:]]
    tree = [line[33:].split("  (")[0] for line in tree_text(trace)[5:9]]
    assert tree == ["● START", "├─● I", "│ ├─× got", "│ ● was"]


# ----------------------------------------------------------------------------------------------------------- the page


def test_page_has_every_node_once_and_without_pruned_ones_the_rest():
    trace = beam_trace(3, 12, ["a", "b", "c"])
    whole, few = svgs(tree_html(trace))
    assert ids(whole) == {n["id"] for n in trace["nodes"]}
    assert len([g for g in whole if g.get("data-id")]) == len(trace["nodes"])
    assert ids(few) == {n["id"] for n in trace["nodes"] if n["fate"] != "pruned"}
    for svg in (whole, few):
        edges = [path for path in svg if path.tag == "path"]
        assert len(edges) == len(ids(svg)) - 1


def test_page_marks_the_best_path_whether_its_end_or_all_of_it_is_named():
    trace = lecture()
    for all_of_it in (False, True):
        if all_of_it:
            for n in (0, 1, 3):
                trace["nodes"][n]["fate"] = "best"
        whole = svgs(tree_html(trace))[0]
        best = {int(g.get("data-id")) for g in whole if g.get("data-id") and "best" in g.get("class").split()}
        assert best == {0, 1, 3, 7}
        assert [n.id for n in read_tree(trace).hypotheses()] == [7, 8]


def test_page_shows_sums_that_add_up():
    page = tree_html(beam_trace(4, 25, ["a", "b"], seed=1))
    rows = re.findall(r"<tr class=.*", page)
    assert len(rows) == 4
    for row in rows:
        terms = [float(x.replace("−", "-")) for x in re.findall(r"<i>(?:= )?([−\d.]+)</i>", row)]
        assert len(terms) == 27 and round(sum(terms[:-1]), 3) == terms[-1]
    assert "but the trace says" not in page


def test_page_says_when_a_trace_does_not_add_up():
    trace = lecture()
    trace["nodes"][7]["total"] = -2.5
    assert "but the trace says −2.500" in tree_html(trace)


class Reader(HTMLParser):
    """What a browser would run and fetch, and the text of the scripts."""

    def __init__(self):
        super().__init__()
        self.tags, self.outside, self.scripts = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.outside += [v for k, v in attributes if k in ("src", "href", "xlink:href") and not v.startswith("data:")]
        assert not any(k.startswith("on") for k, _ in attributes)

    def handle_data(self, data):
        if self.tags and self.tags[-1] == "script" and data.strip():
            self.scripts.append(data)


def test_page_escapes_everything_and_fetches_nothing():
    trace = beam_trace(3, 6, NASTY)
    trace |= {"source": NASTY[0], "method": "<b>", "length": "</title><img src=x>"}
    for n, record in enumerate(trace["nodes"]):
        record["why"] = NASTY[n % len(NASTY)]
    page, reader = tree_html(trace), Reader()
    reader.feed(page)
    assert reader.tags.count("script") == 2 and "img" not in reader.tags and reader.outside == []
    assert "http" not in page.replace("http-equiv", "")
    data = json.loads(reader.scripts[0])
    assert {int(key) for key in data} == {n["id"] for n in trace["nodes"]}
    assert any(record["why"] == NASTY[0] for record in data.values())
    page.encode("utf-8")


def test_page_takes_infinities_and_lone_surrogates():
    trace = lecture()
    trace["nodes"][4] |= {"log_prob": -math.inf, "total": -math.inf, "score": -math.inf, "token": "\ud800"}
    page, reader = tree_html(trace), Reader()
    page.encode("utf-8")
    reader.feed(page)
    assert json.loads(reader.scripts[0], parse_constant=pytest.fail)["4"]["score"] == "−∞"


def test_page_has_one_tab_stop_a_tree_and_a_spoken_name_for_each_node():
    for svg in svgs(tree_html(lecture())):
        nodes = [g for g in svg if g.get("data-id")]
        assert [g.get("tabindex") for g in nodes].count("0") == 1
        assert all(g.get("aria-label") for g in nodes)


def test_page_draws_a_start_for_several_roots():
    trace = lecture()
    trace["nodes"] = [n | {"parent": n["parent"] or None} for n in trace["nodes"][1:]]
    whole = svgs(tree_html(trace))[0]
    assert len([path for path in whole if path.tag == "path"]) == 8 == len(ids(whole))
    assert "START" in "".join(whole.itertext())


# ---------------------------------------------------------------------------------------------------------- the layout


@pytest.mark.parametrize("beam, steps", [(1, 5), (2, 10), (5, 40)])
def test_layout_never_overlaps_and_the_best_path_is_level(beam, steps):
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


def test_layout_crosses_no_lines():
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


@given(st.lists(st.floats(-30, 0), min_size=1, max_size=40))
def test_printed_addends_add_up_and_are_near_their_values(values):
    terms, total = addends(values)
    parsed = [float(t.replace("−", "-")) for t in terms]
    assert round(sum(parsed), 3) == float(total.replace("−", "-"))
    assert all(abs(a - b) <= 0.0010001 for a, b in zip(parsed, values))


def test_shortened_counts_columns_and_not_letters():
    assert shortened("漢字漢字", 8) == "漢字漢字"
    assert shortened("漢字漢字", 6) == "漢字…"
    assert shortened("abcdef", 4) == "abc…"


# ---------------------------------------------------------------------------------------------- what cannot be a tree


@pytest.mark.parametrize(
    "change, message",
    [
        ({"nodes": []}, "no nodes"),
        (
            {"nodes": [node(0, None, 0, "a", 0, 0, "kept"), node(0, None, 0, "b", 0, 0, "kept")]},
            "two nodes have the id 0",
        ),
        ({"nodes": [node(1, 9, 1, "a", 0, 0, "kept")]}, "no parent 9"),
        ({"nodes": [node(1, 1, 1, "a", 0, 0, "kept")]}, "no parent 1 at an earlier step"),
        ({"nodes": [node(1, None, 1, "a", 0, 0, "lost")]}, "unknown fate 'lost'; there is kept"),
        ({"nodes": [node("<b>", None, 1, "a", 0, 0, "kept")]}, "not a number"),
        ({"nodes": [{"id": 1}]}, r"nodes\[0\]: parent, step, token, .* missing"),
    ],
)
def test_what_is_wrong_with_a_trace_is_named(change, message):
    with pytest.raises(InputError, match=message):
        tree_html(lecture() | change)
