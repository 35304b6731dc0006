import json

import numpy as np
import pytest
import vl_convert

from ensue.core.errors import InputError
from ensue.look.confusion import confusion_chart, most_confused
from ensue.look.saving import save_chart
from ensue.measure.labels import label_scores


def cells(chart):
    return json.loads(chart.to_dict()["data"]["values"])


def layers(chart):
    return chart.to_dict()["layer"]


def test_one_cell_for_each_pair_with_its_share_of_the_row():
    scores = label_scores([0, 0, 0, 0, 1], [0, 0, 0, 1, 1], ["no", "yes"])
    chart = confusion_chart(scores.confusion, scores.labels)
    found = [(cell["true"], cell["predicted"], cell["count"], cell["share"], cell["text"]) for cell in cells(chart)]
    assert found == [
        ("no", "no", 3, 0.75, "3"),
        ("no", "yes", 1, 0.25, "1"),
        ("yes", "no", 0, 0, ""),
        ("yes", "yes", 1, 1, "1"),
    ]


def test_rows_are_true_columns_predicted_labels_and_colour_is_the_share():
    squares, numbers = layers(confusion_chart([[3, 1], [0, 1]], ["no", "yes"]))
    encoding = squares["encoding"]
    assert encoding["x"]["title"] == "predicted label" and encoding["y"]["title"] == "true label"
    assert encoding["color"]["field"] == "share" and encoding["color"]["scale"]["domain"] == [0, 1]
    assert numbers["encoding"]["text"]["field"] == "text"


def test_a_class_that_never_occurs_has_an_empty_row():
    chart = confusion_chart([[2, 1], [0, 0]], ["a", "b"])
    assert [cell["share"] for cell in cells(chart)] == [0.666667, 0.333333, 0, 0]


def test_names_that_repeat_keep_their_own_rows():
    svg = vl_convert.vegalite_to_svg(confusion_chart(np.eye(3, dtype=int), ["same", "same", "b"]).to_dict())
    assert svg.count(">same</text>") == 4


def test_long_names_are_rotated():
    axis = [
        layers(confusion_chart(np.eye(2), names))[0]["encoding"]["x"]["axis"] for names in (["a", "b"], ["x" * 30] * 2)
    ]
    assert axis[0]["labelAngle"] == 0 and axis[1]["labelAngle"] == -55


def test_of_many_classes_the_most_confused_are_drawn_and_the_title_says_so():
    counts = np.eye(50, dtype=int) * 100
    counts[[1, 7, 49], [2, 8, 0]] = 5
    shown = most_confused(counts)
    assert len(shown) == 40 and shown == sorted(shown) and {0, 1, 2, 7, 8, 49} <= set(shown)
    chart = confusion_chart(counts, [f"c{k}" for k in range(50)])
    spec = chart.to_dict()
    assert spec["title"]["text"] == "Confusion matrix: the 40 most confused of 50 classes" and len(cells(chart)) == 1600
    one = next(cell for cell in cells(chart) if (cell["true"], cell["predicted"]) == ("c49", "c0"))
    assert one["share"] == pytest.approx(5 / 105, abs=1e-6)
    assert "c1 taken for c2 (5)" in spec["description"]
    forty = confusion_chart(np.eye(40), [str(k) for k in range(40)])
    assert forty.to_dict()["title"]["text"] == "Confusion matrix"


def test_caption_and_description_have_the_accuracy():
    spec = confusion_chart([[5, 1], [3, 1]], ["no", "yes"], title="Held out").to_dict()
    assert "60.0\xa0% of 10 are correct." in " ".join(spec["title"]["subtitle"])
    assert spec["description"].startswith(
        "Held out. 60.0\xa0% of 10 are correct; most frequent errors: yes taken for no (3)"
    )
    assert (
        confusion_chart(np.eye(2, dtype=int), ["a", "b"])
        .to_dict()["description"]
        .endswith("most frequent errors: none")
    )


def test_the_chart_can_be_saved_and_no_name_ends_its_script(tmp_path):
    chart = confusion_chart([[1200, 0], [0, 1]], ["</script><b id=evil>", "b"])
    assert save_chart(chart, tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert "</script><b" not in save_chart(chart, tmp_path / "c.html").read_text(encoding="utf-8")
    assert ">1,200</text>" in vl_convert.vegalite_to_svg(chart.to_dict())


@pytest.mark.parametrize("confusion", [[[1, 2]], np.ones((3, 3)), np.zeros((2, 2))])
def test_invalid_data_is_refused(confusion):
    with pytest.raises(InputError):
        confusion_chart(confusion, ["a", "b"])
