import pytest
import vl_convert

from ensue.core.errors import InputError
from ensue.look.label_curve import label_curve, savings


def point(start, labels, value, system="bert", **more):
    return {"start": start, "system": system, "labels": labels, "value": value, **more}


SCRATCH = [point("from scratch", 100, 0.5), point("from scratch", 1000, 0.7), point("from scratch", 5000, 0.8)]
TRAINED = [point("pre-trained", 100, 0.7), point("pre-trained", 1000, 0.85), point("pre-trained", 5000, 0.9)]


def encodings(chart):
    return [layer["encoding"] for layer in chart.to_dict()["layer"]]


def test_labels_are_on_a_logarithmic_axis_with_a_tick_for_each_number():
    for encoding in encodings(label_curve([*SCRATCH, *TRAINED], "accuracy")):
        assert encoding["x"]["scale"]["type"] == "log" and encoding["x"]["axis"]["values"] == [100, 1000, 5000]
        assert encoding["y"]["title"] == "accuracy (higher is better)"


def test_a_line_for_each_system_and_start():
    others = [{**p, "system": "gpt", "value": p["value"] - 0.05} for p in (*SCRATCH, *TRAINED)]
    chart = label_curve([*SCRATCH, *TRAINED, *others], "accuracy")
    _, line, dots = encodings(chart)
    assert line["color"]["scale"]["domain"] == ["bert", "gpt"]
    assert line["strokeDash"]["scale"]["domain"] == ["pre-trained", "from scratch"] == dots["shape"]["scale"]["domain"]
    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    assert svg.count('aria-roledescription="line mark"') == 4
    for word in ("bert", "gpt", "pre-trained", "from scratch", "5,000"):
        assert f">{word}</text>" in svg


def test_spread_is_drawn_only_where_it_is_known():
    some = [{**p, "low": p["value"] - 0.1, "high": p["value"] + 0.05} for p in TRAINED]
    with_spread = vl_convert.vegalite_to_svg(label_curve([*SCRATCH, *some], "F1").to_dict())
    without = vl_convert.vegalite_to_svg(label_curve([*SCRATCH, *TRAINED], "F1").to_dict())
    assert with_spread.count('aria-roledescription="area mark"') == 1
    assert 'aria-roledescription="area mark"' not in without


def test_caption_says_how_many_labels_are_saved():
    # in any order; 0.8 is first passed with 1,000
    assert savings([*TRAINED[::-1], *SCRATCH[::-1]]) == (
        "bert, pre-trained, reaches with 1,000 labels what it reaches from scratch with 5,000"
    )
    assert "never reaches" in savings([*SCRATCH, TRAINED[0]])
    assert savings(TRAINED) == savings(SCRATCH) == "A line for each system and start"
    spec = label_curve([*SCRATCH, *TRAINED], "accuracy").to_dict()
    assert savings([*SCRATCH, *TRAINED]) in " ".join(spec["title"]["subtitle"])
    assert "bert, from scratch: accuracy 0.5 with 100 labels, 0.7 with 1,000 labels" in spec["description"]


def test_invalid_data_is_refused():
    with pytest.raises(InputError, match="no curve"):
        label_curve([], "accuracy")
    with pytest.raises(InputError, match="at 0 labels"):
        label_curve([point("pre-trained", 0, 0.5)], "accuracy")
