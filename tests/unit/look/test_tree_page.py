import json
import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import NASTY, beam_trace, lecture

from ensue.look.tree import read_tree
from ensue.look.tree_page import addends, tree_html


def svgs(page):
    """The pictures of a page, parsed as XML: the whole tree, and the one without pruned nodes."""
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def ids(svg):
    return {int(g.get("data-id")) for g in svg if g.get("data-id")}


def test_page_has_every_node_once_and_without_pruned_ones_the_rest():
    trace = beam_trace(3, 12, ["a", "b", "c"])
    whole, few = svgs(tree_html(trace))
    assert ids(whole) == {n["id"] for n in trace["nodes"]}
    assert len([g for g in whole if g.get("data-id")]) == len(trace["nodes"])
    assert ids(few) == {n["id"] for n in trace["nodes"] if n["fate"] != "pruned"}
    for svg in (whole, few):
        edges = [path for path in svg if path.tag == "path"]
        assert len(edges) == len(ids(svg)) - 1


def test_page_marks_the_best_path_if_the_trace_marks_its_end_or_all_of_it():
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


def test_page_reports_a_total_that_is_not_the_sum():
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


def test_page_accepts_infinities_and_lone_surrogates():
    trace = lecture()
    trace["nodes"][4] |= {"log_prob": -math.inf, "total": -math.inf, "score": -math.inf, "token": "\ud800"}
    page, reader = tree_html(trace), Reader()
    page.encode("utf-8")
    reader.feed(page)
    assert json.loads(reader.scripts[0], parse_constant=pytest.fail)["4"]["score"] == "−∞"


def test_page_has_one_tab_stop_per_tree_and_an_accessible_name_per_node():
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


@given(st.lists(st.floats(-30, 0), min_size=1, max_size=40))
def test_printed_addends_add_up_and_are_near_their_values(values):
    terms, total = addends(values)
    parsed = [float(t.replace("−", "-")) for t in terms]
    assert round(sum(parsed), 3) == float(total.replace("−", "-"))
    assert all(abs(a - b) <= 0.0010001 for a, b in zip(parsed, values))
