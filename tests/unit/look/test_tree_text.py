import re

import pytest
from rich.cells import cell_len
from traces import NASTY, beam_trace, lecture, node

from ensue.look.formatting import shortened
from ensue.look.tree_text import tree_text


def test_text_has_every_node_with_its_numbers_and_symbol():
    lines = tree_text(lecture())
    assert "   1   −0.700   −0.700   −0.700  ★ he  (rank 1 of 2)" in lines
    assert "   2   −2.200   −2.900   −2.900  ├─× struck  (rank 4 of 4, beam 2)" in lines
    assert "   3   −0.600   −2.300   −2.300  ★ me ■" in lines
    assert "   3   −1.500   −3.100   −3.100  │ ■ </s>" in lines
    assert lines[0] == "Beam search, beam 2, length penalty none" and lines[1] == "source: il a m' entarté"
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
def test_text_keeps_to_its_width_and_has_no_control_characters(width):
    trace = beam_trace(5, 40, [*NASTY, "long" * 30])
    lines = tree_text(trace, width)
    assert all(cell_len(line) <= width for line in lines)
    assert not any(c < " " or c == "\x7f" for line in lines for c in line)


def test_text_of_a_long_search_stays_near_the_margin():
    lines = tree_text(beam_trace(5, 40, ["a", "b"]), 300)
    assert max(line.count("│") for line in lines) <= 10  # branches off branches, however many the steps


def test_text_of_several_roots_has_a_start():
    trace = lecture()
    trace["nodes"] = [n | {"parent": n["parent"] or None} for n in trace["nodes"][1:]]
    tree = [line[33:].split("  (")[0] for line in tree_text(trace)[5:9]]
    assert tree == ["● START", "├─● I", "│ ├─× got", "│ ● was"]


def test_shortened_counts_columns_and_not_letters():
    assert shortened("漢字漢字", 8) == "漢字漢字"
    assert shortened("漢字漢字", 6) == "漢字…"
    assert shortened("abcdef", 4) == "abc…"
