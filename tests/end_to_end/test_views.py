"""What every view keeps: a title, a caption, a text alternative, axes that say what they are, colours for all eyes."""

import json
import math

import pytest
from kinds import train_kinds
from typed import ensue

from ensue.look.chart_parts import MAX_MARKS
from ensue.look.views import PAGES, VIEWS
from ensue.verbs.look import look

TEXT = "the students opened their books"
SAFE = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}
"""Okabe and Ito's, for names."""
VIEWED = {
    "curves": (("lstm", "gpt"), {}),
    "race": (("race",), {}),
    "ngrams": (("text.txt",), {}),
    "attention": (("gpt",), {"text": TEXT}),
    "pattern": (("WORD local:span=4",), {"length": 12}),
    "equivalence": (("WORD hopfield",), {}),
    "next": (("lstm", "ngram"), {"text": TEXT}),
    "surprise": (("lstm", "gpt"), {"text": TEXT}),
    "context": (("lstm", "ngram"), {"data": ["text.txt"], "length": 8, "samples": 20}),
    "positions": ((), {"rows": 10, "width": 50}),
    "alignment": (("translator",), {"text": "the books"}),
    "bottleneck": (("translator",), {"data": ["pairs.tsv"]}),
    "senses": (("lstm", "WORD books"), {"text": "the books fell\nbooks and rain\ntheir books opened"}),
    "layers": (("featured",), {}),
    "words": (("vectors",), {}),
    "gradients": (("lstm", "gru"), {"text": TEXT}),
    "gates": (("lstm",), {"text": TEXT}),
    "training": (("lstm", "gru"), {}),
    "copying": (("copier",), {}),
    "forecast": (("forecast",), {"data": ["series.csv"]}),
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    train_kinds(folder)
    few = ("--set", "train.steps=2", "--set", "hidden=8")
    for words in (
        ("elmo", folder / "text.txt", *few, "--set", "projection=4", "--out", folder / "elmo"),
        (
            "tag",
            folder / "tag.conll",
            "--from",
            folder / "elmo",
            "--set",
            "train.steps=2",
            "--out",
            folder / "featured",
        ),
        ("lstm", "copying", *few, "--out", folder / "copier"),
    ):
        answer = ensue("fit", *words)
        assert answer.code == 0, answer.err
    return folder


def test_every_view_is_tested():
    assert set(VIEWED) == set(VIEWS) - set(PAGES)


def parts(spec):
    """A chart and those within it."""
    yield spec
    for name in ("layer", "hconcat", "vconcat", "concat"):
        for part in spec.get(name, ()):
            yield from parts(part)
    if isinstance(spec.get("spec"), dict):
        yield from parts(spec["spec"])


def rows_of(data):
    values = data.get("values", [])
    return len(json.loads(values) if isinstance(values, str) else values)


@pytest.mark.parametrize("view", VIEWED)
def test_a_view_has_a_title_a_caption_a_text_alternative_and_named_axes(view, kinds):
    what, how = VIEWED[view]
    named = [name.removeprefix("WORD ") if name.startswith("WORD ") else kinds / name for name in what]
    if "data" in how:
        how = {**how, "data": [kinds / name for name in how["data"]]}
    spec = look(view, named, **how).draw().to_dict()
    title = spec["title"]
    assert title["text"] and "".join(title["subtitle"]).strip(), "a title, and under it what one sees"
    assert len(spec["description"]) > len(title["text"]), "the picture in words"
    assert str(kinds) not in spec["description"], "names, not folders"
    marks = sum(
        rows_of(data) for data in [spec.get("data", {}), *({"values": v} for v in spec.get("datasets", {}).values())]
    )
    assert marks <= MAX_MARKS
    for part in parts(spec):
        for channel in ("x", "y"):
            axis = part.get("encoding", {}).get(channel, {})
            if "field" not in axis or axis.get("axis", 0) is None:
                continue
            words = axis.get("axis", {}).get("labelExpr") if isinstance(axis.get("axis"), dict) else None
            assert axis.get("title") or words, (view, channel, axis)
        colour = part.get("encoding", {}).get("color", {})
        if colour.get("type") == "nominal":
            assert colour["scale"]["range"], "no colours but those that were chosen"
    assert all(math.isfinite(value) for value in _numbers(spec)), "numbers that JSON has"


@pytest.mark.parametrize("view", ["curves", "race", "gradients", "training", "ngrams"])
def test_names_have_colour_blind_safe_colours(view, kinds):
    what, how = VIEWED[view]
    spec = look(view, [kinds / name for name in what], **how).draw().to_dict()
    shades = [
        shade
        for part in parts(spec)
        if part.get("encoding", {}).get("color", {}).get("type") == "nominal"
        for shade in part["encoding"]["color"]["scale"]["range"]
    ]
    assert shades and set(shades) <= SAFE


def test_captions_do_not_depend_on_a_light_background(kinds):
    for view in ("attention", "alignment", "gates", "surprise"):
        what, how = VIEWED[view]
        said = " ".join(look(view, [kinds / name for name in what], **how).draw().to_dict()["title"]["subtitle"])
        assert "colour" in said and not any(word in said for word in ("dark", "white", "pale")), view


def test_cut_texts_are_reported_and_runs_share_a_scale(kinds):
    for view in ("gates", "gradients"):
        seen = look(view, [kinds / "lstm"], text=TEXT * 40)
        drawn = seen.draw().to_dict()
        held = seen.numbers if view == "gates" else seen.numbers["runs"][0]
        assert held["of_tokens"] > 128
        assert f"The first 128 of {held['of_tokens']:,} tokens." in " ".join(drawn["title"]["subtitle"])
    both = look("surprise", [kinds / "lstm", kinds / "gpt"], text=TEXT)
    assert [run["total_bits"] for run in both.numbers["runs"]] == [
        look("surprise", [kinds / name], text=TEXT).numbers["total_bits"] for name in ("lstm", "gpt")
    ]
    panels = both.draw().to_dict()["vconcat"]
    scales = [panel["layer"][0]["encoding"]["color"]["scale"]["domain"] for panel in panels]
    assert [panel["title"]["text"] for panel in panels] == ["lstm", "gpt"] and scales[0] == scales[1]


@pytest.mark.parametrize("view", ["curves", "gradients"])
def test_the_legend_of_dashes_shows_lines(view, kinds):
    what, how = VIEWED[view]
    spec = look(view, [kinds / name for name in what], **how).draw().to_dict()
    (dash,) = [part["encoding"]["strokeDash"] for part in parts(spec) if "strokeDash" in part.get("encoding", {})]
    assert dash["legend"]["symbolType"] == "stroke" and dash["scale"]["range"] == [[1, 0], [6, 4]]


def _numbers(value):
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from _numbers(item)
