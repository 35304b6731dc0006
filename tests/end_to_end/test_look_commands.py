"""Where models look, what surprises them and what they think comes next, as a person types it."""

import json
from pathlib import Path

import numpy as np
import pytest
from typed import ensue

from ensue.look.attention import find_word

TEXT = "the students opened their books and the rain fell"
SMALL = ("--set", "train.steps=2", "--set", "hidden=16", "--set", "heads=2", "--set", "layers=2")


@pytest.fixture(scope="module")
def lookers(tmp_path_factory):
    """A tiny encoder, one with a head that labels, a language model, and two translation models."""
    folder = tmp_path_factory.mktemp("lookers")
    lines = [f"{TEXT} {n}" for n in range(40)]
    (folder / "text.txt").write_text("\n\n".join(lines), encoding="utf-8")
    (folder / "labels.tsv").write_text("".join(f"{line}\t{n % 2}\n" for n, line in enumerate(lines)), encoding="utf-8")
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line}\n" for line in lines), encoding="utf-8")
    tagged = "\n".join("".join(f"{word}\t{len(word) > 3}\n" for word in line.split()) for line in lines)
    (folder / "tags.conll").write_text(tagged, encoding="utf-8")
    few = ("--set", "train.steps=2", "--set", "hidden=16", "--tokenizer", "word")
    for words in (
        ("bert", folder / "text.txt", *SMALL, "--set", "next_sentence=false", "--out", folder / "bert"),
        (
            "bert",
            folder / "text.txt",
            *SMALL,
            "--set",
            "next_sentence=false",
            "--set",
            "attention=linformer+full",
            "--out",
            folder / "linformer",
        ),
        ("gpt", folder / "text.txt", *SMALL, "--tokenizer", "word", "--set", "context=32", "--out", folder / "gpt"),
        ("transformer", folder / "pairs.tsv", *SMALL, "--tokenizer", "word", "--out", folder / "transformer"),
        ("seq2seq", folder / "pairs.tsv", *few, "--out", folder / "seq2seq"),
        ("gru", folder / "text.txt", *few, "--set", "attend=2", "--out", folder / "gru"),
        ("tag", folder / "tags.conll", "--model", "lstm", *few[:4], "--set", "attend=2", "--out", folder / "tag"),
        (
            "classify",
            folder / "labels.tsv",
            "--from",
            folder / "bert",
            "--set",
            "train.steps=2",
            "--out",
            folder / "cls",
        ),
    ):
        answer = ensue("fit", *words)
        assert answer.code == 0, answer.err
    return folder


def rows_add_up(weights):
    np.testing.assert_allclose(np.asarray(weights).sum(-1), 1, atol=1e-4)


@pytest.mark.parametrize("name", ["bert", "cls", "transformer", "seq2seq", "gpt", "gru", "tag", "linformer"])
def test_every_model_that_attends_shows_where(name, lookers):
    run = lookers / name
    seen = ensue("look", "attention", run, "--text", TEXT, "--json").json
    kinds = {"gpt": "causal", "gru": "causal", "bert": "full", "cls": "full", "tag": "full", "linformer": "full"}
    assert seen["kind"] == kinds.get(name, "cross")
    for weights in seen["layers"].values():
        assert np.shape(weights)[1:] == (len(seen["tokens"]), len(seen["looked_at"]))
        rows_add_up(weights)
        if seen["kind"] == "causal":
            assert not np.triu(weights, 1).any()
    for options in ((), ("--layer", 1), ("--head", 1), ("--layer", 1, "--word", seen["tokens"][1].strip("␣"))):
        drawn = ensue("look", "attention", run, "--text", TEXT, *options, "--out", "x.json")
        assert drawn.code == 0, drawn.err
        chart = json.loads(Path("x.json").read_text(encoding="utf-8"))
        assert chart["description"] and chart["title"]["subtitle"]


def test_the_source_looks_at_itself_and_layers_are_rolled_out(lookers):
    run = lookers / "transformer"
    seen = ensue("look", "attention", run, "--text", TEXT, "--part", "source", "--rolled", "--json").json
    assert seen["kind"] == "source" and np.shape(seen["rollout"]) == (10, 10)
    rows_add_up(seen["rollout"])


def test_a_word_is_found_whatever_its_marks_are():
    assert find_word("Its", ["the", "##it", "␣its", "its"]) == 2
    assert find_word("it", ["the", "##it"]) == 1


def test_a_gap_looks_as_the_mask_it_is(lookers):
    seen = ensue("look", "attention", lookers / "bert", "--text", "the [MASK] sat", "--word", "[MASK]", "--json").json
    assert seen["tokens"].count("[MASK]") == 1 and seen["tokens"][seen["place"]] == "[MASK]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lstm", "--text", TEXT), "lstm has no attention; gpt, bert"),
        (("ngram", "--text", TEXT), "ngram has no attention"),
        (("gpt",), 'attention needs a text; give it with --text "…"'),
        (("gpt", "--text", TEXT, "--layer", "9"), "there is no layer 9"),
        (("gpt", "--text", TEXT, "--head", "99"), "there is no head 99"),
        (("gpt", "--text", TEXT, "--part", "source"), "--part is for translation models"),
        (("gpt", "--text", TEXT, "--word", "zebra"), "'zebra' is not a token of this text"),
        (("gpt", "--text", TEXT, "--rolled", "--head", "1"), "a rollout is of all layers and heads"),
        (("gpt", "--text", TEXT * 200), "tokens, and the model's context is"),
        (("gru", "--text", TEXT * 3000), "tokens have too many weights; give at most"),
        (("gru", "--text", TEXT, "--rolled"), "a recurrent network also carries information between positions"),
        (("bert", "--text", TEXT * 200), "tokens, and the model's context is"),
        (("transformer", "--text", TEXT, "--part", "middle"), "there is no part 'middle'"),
        (("transformer", "--text", TEXT, "--rolled"), "use --part source"),
        (("seq2seq", "--text", TEXT, "--part", "source"), "seq2seq's encoder has no attention"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(words, said, lookers, runs):
    run = lookers / words[0] if (lookers / words[0]).exists() else runs / words[0]
    answer = ensue("look", "attention", run, *words[1:])
    assert answer.code == 2 and said in answer.err and answer.err.count("\n") == 1
    assert not Path("look.html").exists()


def test_what_comes_next_side_by_side(runs):
    seen = ensue("look", "next", runs / "lstm", runs / "ngram", "--text", "the students", "--top", 3, "--json").json
    assert [len(run["next"]) for run in seen["runs"]] == [3, 3]
    drawn = ensue("look", "next", runs / "lstm", runs / "ngram", "--text", "the students", "--out", "next.svg")
    assert drawn.code == 0 and "<svg" in Path("next.svg").read_text(encoding="utf-8")
    refused = ensue("look", "next", runs / "lstm", "--text", "a", "--top", 0)
    assert refused.code == 2 and "give --top 1 or more" in refused.err


def test_a_text_coloured_by_surprise(runs):
    seen = ensue("look", "surprise", runs / "lstm", "--text", TEXT, "--json").json
    told = ensue("score", runs / "lstm", "--text", TEXT, "--json").json
    assert (
        sum(seen["bits"]) == pytest.approx(seen["total_bits"]) == pytest.approx(told["bits_per_byte"] * told["bytes"])
    )
    Path("held.txt").write_text(TEXT * 600, encoding="utf-8")
    drawn = ensue("look", "surprise", runs / "lstm", "--data", "held.txt", "--out", "s.json")
    assert drawn.code == 0 and "The first 2,000 of" in Path("s.json").read_text(encoding="utf-8")
    assert "give it with --text" in ensue("look", "surprise", runs / "lstm").err


def test_positions_as_the_paper_has_them_and_as_they_were_learnt(lookers, runs):
    seen = ensue("look", "positions", "--rows", 10, "--width", 50, "--json").json
    assert np.shape(seen["values"]) == (10, 50)
    assert seen["values"][3][:2] == pytest.approx([np.sin(3), np.cos(3)], abs=1e-5)
    learnt = ensue("look", "positions", lookers / "bert", "--out", "p.png")
    assert learnt.code == 0 and Path("p.png").read_bytes()[:4] == b"\x89PNG"
    assert "has no learned positions" in ensue("look", "positions", runs / "lstm").err
    assert "cannot be drawn" in ensue("look", "positions", "--rows", 10_000).err
