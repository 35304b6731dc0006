import pytest
import vl_convert

from ensue.core.errors import InputError
from ensue.look.bottleneck import bottleneck_chart, change
from ensue.measure.translation import bleu_by_length

SOURCES = ["ein Hund", "ein Hund läuft", "ein Hund läuft über die Straße in der Stadt heute ."]
REFERENCES = ["a small dog", "a small dog is running", "a small dog is running over the street in the town today ."]


def curves():
    broken = [*REFERENCES[:2], "a small dog is on the town"]
    return {
        "plain": bleu_by_length(SOURCES, broken, REFERENCES, edges=(3, 10)),
        "attention": bleu_by_length(SOURCES, REFERENCES, REFERENCES, edges=(3, 10)),
    }


def test_a_point_for_each_model_and_length_with_its_number_of_sentences():
    spec = bottleneck_chart(curves()).to_dict()
    points = spec["data"]["values"]
    assert [(p["model"], p["label"], p["sentences"]) for p in points] == [
        ("plain", "up to 3", 2),
        ("plain", "11 or more", 1),
        ("attention", "up to 3", 2),
        ("attention", "11 or more", 1),
    ]
    assert points[1]["bleu"] < points[3]["bleu"] == pytest.approx(100)
    assert "sentences" in [tip["field"] for tip in spec["encoding"]["tooltip"]]


def test_lengths_are_in_order_whatever_the_order_of_models():
    made = curves()
    made["plain"] = made["plain"][1:]  # a model may lack a bin
    assert bottleneck_chart(made).to_dict()["encoding"]["x"]["sort"] == ["up to 3", "11 or more"]


def test_models_differ_in_colour_and_in_shape():
    encoding = bottleneck_chart(curves()).to_dict()["encoding"]
    assert encoding["color"]["scale"]["domain"] == ["plain", "attention"]
    assert len(set(encoding["color"]["scale"]["range"])) == 2 and encoding["shape"]["field"] == "model"


def test_caption_and_text_alternative_have_the_change_by_length():
    made = curves()
    spec = bottleneck_chart(made).to_dict()
    caption, share = " ".join(spec["title"]["subtitle"]), made["plain"][1]["bleu"] / made["plain"][0]["bleu"] - 1
    assert share < -0.1 and f"From up to 3 to 11 or more words, plain: −{-100 * share:.0f} %" in caption
    assert "attention: +0 %" in caption and "falls" not in caption
    assert "attention: 100.0 at up to 3 words (2 sentences)" in spec["description"]
    assert "<svg" in vl_convert.vegalite_to_svg(spec)


def test_a_caption_compares_only_curves_with_two_bins():
    made = curves()
    rising = {"odd": [{**row, "bleu": 10.0 * (1 + place)} for place, row in enumerate(made["plain"])]}
    assert "odd: +100 %" in " ".join(bottleneck_chart(rising).to_dict()["title"]["subtitle"])
    single = {"odd": made["plain"][:1]}
    caption = " ".join(bottleneck_chart(single).to_dict()["title"]["subtitle"])
    assert "Nothing to compare, odd" in caption and change(single["odd"]) is None
    assert change([]) is None and change([{**row, "bleu": 0.0} for row in made["plain"]]) is None


def test_a_bin_of_few_sentences_is_not_compared():
    rows = [
        {"low": low, "label": str(low), "bleu": bleu, "sentences": count}
        for low, bleu, count in ((21, 1.0, 49), (0, 40.0, 50), (9, 30.0, 900))
    ]
    assert change(rows) == {"from": "0", "to": "9", "share": -0.25}


def test_nothing_to_draw_is_refused():
    with pytest.raises(InputError, match="no curve"):
        bottleneck_chart({"plain": []})
