import numpy as np
import pytest
import vl_convert

from ensue.core.errors import InputError
from ensue.look.saving import save_chart
from ensue.look.word_map_chart import Frame, describe, place_labels, word_map

WORDS = ["king", "queen", "man", "woman", "bread"]
POINTS = np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [3.0, 0.4]])
PAIRS = [("king", "queen"), ("man", "woman")]


def layers(chart):
    return {
        kind: layer
        for layer in chart.to_dict()["layer"]
        for kind in [layer["mark"]["type"] + ("/arrow" if layer["mark"].get("strokeWidth") == 1.2 else "")]
    }


def values(chart, kind):
    return layers(chart)[kind]["data"]["values"]


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def test_every_word_is_a_dot_and_a_label_and_every_pair_an_arrow():
    chart = word_map(WORDS, POINTS, pairs=PAIRS)
    assert [(row["word"], row["x"], row["y"]) for row in values(chart, "circle")] == [
        (word, *point) for word, point in zip(WORDS, POINTS.tolist())
    ]
    assert {row["word"] for row in values(chart, "text")} == set(WORDS)
    assert [row["pair"] for row in values(chart, "rule/arrow")] == ["king → queen", "man → woman"]
    assert [row["angle"] for row in values(chart, "point")] == [90.0, 90.0]  # both point to the right
    assert [row["role"] for row in values(chart, "circle")] == ["from", "to", "from", "to", "word"]


def test_both_axes_have_one_scale():
    chart = word_map(WORDS, POINTS).to_dict()
    place = chart["layer"][0]["encoding"]
    per_pixel = [
        (place[axis]["scale"]["domain"][1] - place[axis]["scale"]["domain"][0]) / chart[side]
        for axis, side in (("x", "width"), ("y", "height"))
    ]
    assert np.isclose(*per_pixel, rtol=0.01)


def test_labels_overlap_no_label_or_dot_and_stay_in_the_frame():
    points = np.random.default_rng(0).normal(size=(120, 2))
    words = [f"word{number}" for number in range(120)]
    frame = Frame(points.min(0), points.max(0))
    pixels = frame.pixels(points)
    boxes = place_labels(words, pixels, frame)
    placed = [(number, box) for number, box in enumerate(boxes) if box is not None]
    assert len(placed) > 80
    for i, (number, box) in enumerate(placed):
        assert box[0] >= 0 and box[1] >= 0 and box[2] <= frame.width and box[3] <= frame.height
        assert not any(overlap(box, other) for _, other in placed[:i])
        dots = [(x - 2, y - 2, x + 2, y + 2) for place, (x, y) in enumerate(pixels) if place != number]
        assert not any(overlap(box, dot) for dot in dots)


def test_the_words_of_pairs_get_their_labels_first():
    points = np.zeros((60, 2))  # all in one place: few labels find room
    words = [f"word{number}" for number in range(60)]
    frame = Frame(np.array([-1.0, -1.0]), np.array([1.0, 1.0]))
    boxes = place_labels(words, frame.pixels(points), frame, arrows=[(58, 59)])
    assert boxes[58] and boxes[59] and not all(boxes)
    points[0] = 1.0
    chart = word_map(words, points, pairs=[("word58", "word59")])
    assert "There is no room for" in " ".join(chart.to_dict()["title"]["subtitle"])


def test_labels_do_not_overlap_arrows():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.4, 0.5]])
    frame = Frame(points.min(0), points.max(0))
    (x, y), (x2, _), _ = pixels = frame.pixels(points)
    for box in place_labels(["man", "woman", "king"], pixels, frame, arrows=[(0, 1)]):
        assert not overlap(box, (x + 10, y - 1, x2 - 10, y + 1))


def test_words_at_one_point_have_no_arrow():
    chart = word_map(["a", "b", "c"], np.array([[0.0, 0.0], [0.0, 0.0], [5.0, 5.0]]), pairs=[("a", "b")])
    assert "rule/arrow" not in layers(chart)


def test_words_on_a_line_have_room_for_labels():
    frame = Frame(np.array([0.0, 0.0]), np.array([9.0, 0.0]))
    assert frame.height >= frame.width / 3


def test_the_map_can_be_drawn(tmp_path):
    chart = word_map(WORDS, POINTS, pairs=PAIRS, axes=("first", "second"), caption="a caption")
    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    assert all(f">{word}</text>" in svg for word in [*WORDS, "first", "second", "a caption"])
    assert save_chart(chart, tmp_path / "map.png").stat().st_size > 1000


def test_the_chart_has_a_text_alternative():
    assert describe(WORDS[:2], POINTS[:2]) == "king is nearest to queen, queen to king"


def test_a_map_of_one_word_is_refused():
    with pytest.raises(InputError, match="1 words at points of the shape"):
        word_map(["a"], np.zeros((1, 2)))
