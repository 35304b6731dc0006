import json
import math

import numpy as np
import pytest
import torch
import vl_convert

from ensue.core.errors import InputError
from ensue.look.alignment_chart import alignment_chart
from ensue.look.attention_chart import heads_chart
from ensue.look.chart_parts import SEQUENTIAL
from ensue.look.saving import save_chart

SOURCE, TARGET = ["der", "Hund", "sieht", "der", "Katze", '"</script>'], ["the", "dog", "sees", "the", "cat"]


def weights(*shape):
    return np.random.default_rng(0).dirichlet(np.ones(shape[-1]), size=shape[:-1])


def rows(chart):
    return json.loads(chart.to_dict()["data"]["values"])


def test_one_cell_for_each_pair_and_repeated_words_apart():
    alpha = weights(5, 6)
    cells = rows(alignment_chart(SOURCE, TARGET, alpha))
    assert len(cells) == 30 and len({(c["t"], c["s"]) for c in cells}) == 30
    for cell in cells:
        assert cell["weight"] == pytest.approx(alpha[cell["t"], cell["s"]], abs=1e-6)
        assert cell["source"] == SOURCE[cell["s"]] and cell["target"] == TARGET[cell["t"]]


def test_every_word_is_a_label_also_when_it_repeats():
    svg = vl_convert.vegalite_to_svg(alignment_chart(SOURCE, TARGET, weights(5, 6)).to_dict())
    assert svg.count(">der</text>") == 2 and svg.count(">the</text>") == 2
    assert svg.count(">Katze</text>") == 1 and svg.count("&lt;/script>") + svg.count("&lt;/script&gt;") >= 1


def test_source_words_are_columns_and_target_words_rows():
    spec = alignment_chart(SOURCE, TARGET, weights(5, 6)).to_dict()
    x, y = spec["encoding"]["x"], spec["encoding"]["y"]
    assert x["axis"]["orient"] == "top" and x["axis"]["labelAngle"] != 0 and x["field"] == "s" and y["field"] == "t"
    assert not x["axis"]["labelOverlap"] and not y["axis"]["labelOverlap"]
    assert [tip["field"] for tip in spec["encoding"]["tooltip"]] == ["target", "source", "weight"]


def test_colours_go_evenly_from_light_to_dark():
    scale = alignment_chart(SOURCE, TARGET, weights(5, 6)).to_dict()["encoding"]["color"]["scale"]
    assert scale["interpolate"] == "lab" and scale["domain"] == [0, 1.0] and scale["range"] == SEQUENTIAL
    assert lightness(SEQUENTIAL[0]) - lightness(SEQUENTIAL[1]) > 70  # far apart in grey print too


def lightness(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    y = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def test_the_chart_has_a_text_alternative():
    alpha = np.eye(5, 6)
    text = alignment_chart(SOURCE, TARGET, alpha, title="First try").to_dict()["description"]
    assert text.startswith("First try. the attends most to der (1.00), dog attends most to Hund (1.00)")


def test_tensors_with_gradients_are_accepted():
    alpha = torch.tensor(weights(5, 6), requires_grad=True)
    assert rows(alignment_chart(SOURCE, TARGET, alpha)) == rows(alignment_chart(SOURCE, TARGET, alpha.tolist()))


def test_grid_has_a_map_for_each_head_with_words_that_may_repeat():
    alpha = weights(3, 5, 6)
    chart = heads_chart(TARGET, SOURCE, {2: alpha}, title="Heads")
    spec = chart.to_dict()
    cells = rows(chart)
    assert len(cells) == 90 and {c["head"] for c in cells} == {1, 2, 3} and {c["layer"] for c in cells} == {2}
    assert all(c["weight"] == pytest.approx(alpha[c["head"] - 1, c["t"], c["s"]], abs=1e-5) for c in cells)
    svg = vl_convert.vegalite_to_svg(spec)
    assert svg.count(">head 2</text>") == 1 and svg.count(">Katze</text>") == 3 and svg.count(">der</text>") == 6
    assert "3 maps" in spec["description"] and spec["description"].count("attends most to") == 3


def test_views_draw_at_most_fifty_thousand_marks():
    words = ["w"] * 100
    heads_chart(words, words, {1: np.full((5, 100, 100), 0.01)}, title="Heads")
    with pytest.raises(InputError, match=r"60,000 cells .* choose one head"):
        heads_chart(words, words, {1: np.full((6, 100, 100), 0.01)}, title="Heads")
    with pytest.raises(InputError, match="50,000 marks"):
        alignment_chart(["w"] * 251, ["w"] * 200, np.full((200, 251), 0.1))


@pytest.mark.parametrize(
    "alpha, message",
    [
        (np.ones((6, 5)), r"shape \(6, 5\) and not \(5, 6\)"),
        (np.full((5, 6), math.nan), "softmax"),
        (-np.ones((5, 6)), "softmax"),
    ],
)
def test_invalid_weights_are_refused(alpha, message):
    with pytest.raises(InputError, match=message):
        alignment_chart(SOURCE, TARGET, alpha)


def test_no_words_are_refused():
    with pytest.raises(InputError, match="no words"):
        alignment_chart([], TARGET, np.ones((5, 0)))


def test_charts_can_be_saved_and_no_word_ends_their_script(tmp_path):
    words = ["<b>", "</script><script>alert(1)</script>"]
    chart = alignment_chart(words, words, np.eye(2))
    assert save_chart(chart, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert rows(chart)[3]["source"] == words[1]
    for made in (chart, heads_chart(words, words, {1: np.eye(2)[None]}, title="Heads")):
        assert "<" not in json.dumps(made.to_dict())
    assert ">&lt;b></text>" in vl_convert.vegalite_to_svg(chart.to_dict()).replace("&gt;", ">")
