"""A tokenizer that comes with pre-trained weights and does not suit the task is named before training."""

import pytest

from ensue.data.tokenizers.registry import fit_tokenizer_to_parts
from ensue.tasks.labels.encoding import tokenizer_notes
from ensue.verbs.fit import fit

TEXTS = ["Anna went to Paris today", "the students opened their books"] * 5


def fitted(kind, texts):
    return fit_tokenizer_to_parts(kind, ((text, True, True) for text in texts))


def test_characters_do_not_suit_labels_of_words():
    (note,) = tokenizer_notes(fitted("char", TEXTS), TEXTS, "runs/dates", each_word=True)
    assert note.startswith("runs/dates reads char tokens, 5.")
    assert "expect slow learning and a low F1" in note
    assert tokenizer_notes(fitted("char", TEXTS), TEXTS, "runs/dates", each_word=False) == []
    assert tokenizer_notes(fitted("word", TEXTS), TEXTS, "runs/dates", each_word=True) == []


def test_text_that_the_tokenizer_does_not_know_is_named():
    (note,) = tokenizer_notes(fitted("word", ["um dois três quatro"]), TEXTS, "runs/pt", each_word=True)
    assert "100% of the tokens here are unknown to the tokenizer of runs/pt" in note


@pytest.mark.parametrize(("tokenizer", "notes"), [("char", 1), ("word", 0)])
def test_a_tagger_from_a_translator_of_characters_says_so(tmp_path, tokenizer, notes):
    pairs, tags = tmp_path / "pairs.tsv", tmp_path / "train.conll"
    pairs.write_text("Anna went to Paris today\tAnna ging nach Paris heute\n" * 30, encoding="utf-8")
    tags.write_text("Anna B-PER\nwent O\nto O\nParis B-LOC\ntoday O\n\n" * 30, encoding="utf-8")
    small = {"hidden": 8, "train.steps": 1, "tokenizer.kind": tokenizer, "data.holdout": 0}
    fit("seq2seq", pairs, out=tmp_path / "translator", settings=small)
    told = []
    fit(
        "tag",
        tags,
        out=tmp_path / "tagger",
        begin_with=tmp_path / "translator",
        settings={"train.steps": 1, "hidden": 8, "data.holdout": 0},
        report=lambda kind, values: told.append(values.get("text", "")),
    )
    assert sum("a tag is for a whole word" in text for text in told) == notes
