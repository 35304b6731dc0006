"""``run.look``: the views in Python, as notebooks show them."""

import base64
import json

import pytest
from typed import ensue

from ensue import InputError, load
from ensue.verbs.look import look


@pytest.fixture
def gpt(runs):
    return load(runs / "gpt")


def test_a_view_is_a_chart_in_a_notebook(gpt):
    seen = gpt.look.attention("the cat sat", layer=1)
    shown = seen._repr_mimebundle_()
    (chart,) = (value for kind, value in shown.items() if kind.startswith("application/vnd.vegalite.v"))
    assert "attention of each head" in json.dumps(chart)
    assert base64.b64decode(shown["image/png"])[1:4] == b"PNG"
    assert "text/html" not in shown  # which would fetch scripts
    assert seen.numbers["system"] == "gpt"


def test_a_page_is_framed():
    shown = look("bptt", [])._repr_mimebundle_()["text/html"]
    assert shown.startswith('<iframe sandbox="allow-scripts"')
    assert "<script" not in shown


def test_runs_stand_beside_each_other_and_need_no_folder(gpt, runs):
    seen = gpt.look.next("the cat", beside=[runs / "ngram", load(runs / "lstm")], top=3)
    assert [len(run["next"]) for run in seen.numbers["runs"]] == [3, 3, 3]
    assert load(gpt) is gpt


def test_a_view_is_written_to_the_given_path(gpt, tmp_path):
    gpt.look.surprise("the cat sat", out=tmp_path / "s.svg")
    assert "<svg" in (tmp_path / "s.svg").read_text(encoding="utf-8")


def test_words_are_asked_for_by_their_name(text, tmp_path):
    tiny = ("--tokenizer", "word", "--set", "hidden=8", "--set", "train.steps=2")
    assert ensue("fit", "rnn", text, *tiny, "--out", tmp_path / "rnn").code == 0
    run = load(tmp_path / "rnn")
    first, second = run.vectors.words[:2]
    found = run.look.words(f"{first} {second}").numbers
    assert [row["word"] for row in found["words"]] == [first, second]


def test_views_name_themselves_and_what_they_take(gpt):
    assert {"attention", "curves", "senses"} <= set(dir(gpt.look))
    assert "heads" in gpt.look.attention.__doc__
    with pytest.raises(AttributeError, match="there is no view 'colour'"):
        _ = gpt.look.colour
    with pytest.raises(InputError, match="senses needs a word"):
        gpt.look.senses()


def test_a_race_can_be_looked_at_again(text, tmp_path):
    options = ("--budget", "1s", "--set", "lstm.hidden=8", "--set", "tokenizer.kind=word")
    raced = ensue("race", text, "--systems", "ngram,lstm", *options, "--out", tmp_path / "race", "--json")
    assert raced.code == 0, raced.err
    seen = ensue("look", "race", tmp_path / "race", "--out", tmp_path / "again.svg", "--json")
    assert seen.code == 0, seen.err
    found = json.loads(seen.out)
    assert {one["system"] for one in found["systems"]} == {"ngram", "lstm"}
    assert (tmp_path / "again.svg").read_text("utf-8") == (tmp_path / "race" / "race.svg").read_text("utf-8")


def test_a_folder_without_a_race_is_refused(runs):
    refused = ensue("look", "race", runs / "lstm")
    assert refused.code == 2
    assert "holds no race" in refused.err
