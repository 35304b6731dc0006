"""``ensue cost attention`` and ``ensue systems attention``: the table, measuring, charts, wrong arguments."""

import json
from itertools import pairwise
from math import log

import pytest

from ensue.core.errors import InputError
from ensue.look.scaling_chart import scaling_chart
from ensue.nn.mixers.mixer import MIXERS
from ensue.verbs import cost_attention as module
from ensue.verbs.cost_attention import attentions, cost_attention


def test_every_attention_says_what_it_costs():
    for one in attentions():
        assert one["complexity"].startswith("O(") and one["decoding"], one
        assert one["paper"] or one["attention"] == "mean", one
    assert [one["attention"] for one in attentions()] == list(MIXERS)


def test_measured_attentions_are_compared_with_full(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROUNDS", 1)
    out = tmp_path / "scaling.json"
    found = cost_attention(["linear"], lengths=[16, 32], measure=True, width=16, heads=2, out=out)
    full, linear = found["measured"]
    assert [full["attention"], linear["attention"]] == ["full", "linear"]
    assert full["faster_than_full_from"] is None
    for one in (full, linear):
        assert one["lengths"] == (16, 32) and len(one["decode_seconds"]) == 2
        assert min(one["seconds"]) > 0 and min(one["bytes"]) > 0
    chart = json.loads(out.read_text())
    assert len(chart["hconcat"]) == 3 and "linear" in chart["description"]
    both = cost_attention(["full"], lengths=[16], measure=True, width=16, heads=2, direction="both")
    assert both["measured"][0]["decode_seconds"] == () and both["measured"][0]["time_exponent"] is None


def test_local_and_linformer_have_fixed_sizes_unless_others_are_named(monkeypatch):
    monkeypatch.setattr(module, "ROUNDS", 1)
    how = {"lengths": [16], "measure": True, "width": 16, "heads": 2, "direction": "both"}
    found = cost_attention(["local", "linformer", "local:span=4"], **how)["measured"]
    assert [one["attention"] for one in found] == ["full", "local:span=128", "linformer:rank=128", "local:span=4"]


def test_heads_of_different_kinds_are_measured_too(monkeypatch):
    monkeypatch.setattr(module, "ROUNDS", 1)
    found = cost_attention(["linear+local:span=4"], lengths=[16], measure=True, width=16, heads=2)["measured"]
    assert [one["attention"] for one in found] == ["full", "linear+local:span=4"]
    with pytest.raises(InputError, match="both directions only"):
        cost_attention(["linear+linformer"], measure=True)


def test_every_line_of_the_chart_has_its_name_and_a_look_of_its_own():
    measured = [
        {"attention": name, "lengths": (512, 1024), "seconds": (0.1, 0.2), "bytes": (10, 20), "decode_seconds": ()}
        | {"time_exponent": 1.0}
        for name in MIXERS
    ]
    result = {"measured": measured, "width": 256, "heads": 4, "threads": 1, "direction": "causal"}
    panel = scaling_chart(result).to_dict()["hconcat"][0]
    kinds = [layer["mark"]["type"] for layer in panel["layer"]]
    lines, labels = panel["layer"][kinds.index("line", 1)], panel["layer"][kinds.index("text")]
    looks = [lines["encoding"][key]["scale"]["range"] for key in ("color", "strokeDash")]
    assert len({(colour, str(dash)) for colour, dash in zip(*looks, strict=True)}) == len(measured)
    values = json.loads(labels["data"]["values"])
    assert [one["attention"] for one in values] == list(MIXERS)
    heights = sorted(log(one["value"]) for one in values)
    assert all(b - a > 0.02 for a, b in pairwise(heights)), "labels overlap"


def test_named_attentions_alone_are_in_the_table():
    found = cost_attention(["linformer:rank=8", "local+linear"])["attentions"]
    assert {one["attention"] for one in found} == {"linformer", "local", "linear"}


def test_without_measuring_there_is_the_table():
    assert "measured" not in cost_attention()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"names": ["linaer"]}, "did you mean 'linear'"),
        ({"names": ["mamba"], "direction": "both", "measure": True}, "left to right only"),
        ({"direction": "up"}, "direction"),
        ({"lengths": [0]}, "between 1 and"),
        ({"out": "x.png"}, "nothing to draw"),
        ({"out": "x.doc", "measure": True}, "x.doc"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(how, message):
    with pytest.raises(InputError, match=message):
        cost_attention(how.pop("names", ()), **how)
