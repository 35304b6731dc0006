"""`ensue words wordnet`, `words context` and `look words`, as people type them."""

import pytest
from typed import ensue

from ensue.data import wordnet
from tiny_wordnet import build


@pytest.fixture
def tiny(tmp_path):
    folder = tmp_path / "wordnet"
    folder.mkdir()
    return build(folder)


def test_wordnet_lists_synsets_by_part_of_speech(tiny):
    answer = ensue("words", "wordnet", "good", "--wordnet", tiny)
    assert answer.code == 0, answer.err
    assert answer.out.splitlines() == [
        'noun       good.n.01   good, goodness: "well" made into a thing',
        "adj        good.a.01   good: of the right kind",
        "adj (sat)  adept.s.01  adept, good, proficient: able",
        "adverb     well.r.01   well, good: in a good way",
        "4 synsets · WordNet 3.0",
    ]


def test_closures_are_trees_and_lists(tiny):
    answer = ensue("words", "wordnet", "gander.n.01", "--closure", "--wordnet", tiny)
    assert answer.out.splitlines() == [
        "noun  gander.n.01  gander, goose: a male bird",
        "  └─ goose.n.01",
        "     ├─ animal.n.01",
        "     │  └─ entity.n.01",
        "     └─ pet.n.01",
        "        └─ entity.n.01",
        "1 synset, 4 hypernyms · WordNet 3.0",
    ]
    found = ensue("words", "wordnet", "geese", "--closure", "--json", "--wordnet", tiny).json
    assert found["forms"] == {"noun": ["goose"]} and found["synsets"][0]["name"] == "goose.n.01"
    assert found["synsets"][0]["closure"] == ["animal.n.01", "pet.n.01", "entity.n.01"]
    assert "geese as noun: goose" in ensue("words", "wordnet", "geese", "--wordnet", tiny).out


def test_without_wordnet_one_line_says_how_to_get_it(tiny, monkeypatch):
    monkeypatch.setattr(wordnet, "SEARCH_PATHS", ())
    monkeypatch.delenv("WNSEARCHDIR", raising=False)
    answer = ensue("words", "wordnet", "good")
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert "WordNet is not installed; install it (apt install wordnet-base), or name the folder" in answer.err
    monkeypatch.setenv("WNSEARCHDIR", str(tiny))
    assert ensue("words", "wordnet", "good").code == 0
    answer = ensue("words", "wordnet", "badass")
    assert answer.code == 2 and answer.err.startswith("ensue: WordNet has no 'badass'")


def test_context_shows_a_word_in_its_lines():
    answer = ensue("words", "context", "bank", "cash", "--window", "3")
    assert answer.code == 0, answer.err
    assert "cash occurs 2 times in" in answer.out
    assert answer.out.splitlines()[:2] == ["bank and get  cash", "     You may  cash  this check at"]
    found = ensue("words", "context", "bank", "bank", "--top", "1", "--lines", "2", "--json").json
    assert found["count"] == 88 and len(found["lines"]) == 2 and found["near"][0]["word"] == "the"
    answer = ensue("words", "context", "bank", "bonk")
    assert answer.code == 2 and answer.err.startswith("ensue: bank: the text has no 'bonk'; near it: bank")


def test_look_words_draws_the_table_of_a_run(runs, tmp_path, text):
    how = ("--tokenizer", "word", "--set", "train.steps=2", "--set", "hidden=8", "--set", "train.batch=4")
    assert ensue("fit", "lstm", text, *how, "--out", "run", "--json").code == 0
    shown = ("--words", "the students rain", "--pairs", "books:clock rain:fell")
    answer = ensue("look", "words", "run", *shown, "--out", "map.svg", "--json")
    assert answer.code == 0, answer.err
    found = answer.json
    assert [row["word"] for row in found["words"]] == ["the", "students", "rain", "books", "clock", "fell"]
    assert found["method"] == "pca" and -1 <= found["parallel"] <= 1 and found["system"] == "lstm"
    assert ">students</text>" in (tmp_path / "map.svg").read_text(encoding="utf-8")
    everything = ensue("look", "words", "run", "--method", "tsne", "--json").json
    assert len(everything["words"]) == 12 and "</s>" not in str(everything["words"])


def test_look_words_says_what_is_wrong(runs):
    assert "has no word vectors" in ensue("look", "words", runs / "ngram", "--json").err
    assert "words shows one run, not 2" in ensue("look", "words", runs / "lstm", runs / "gpt", "--json").err
    assert "curves cannot use --pairs; it is for words" in ensue("look", "curves", runs / "lstm", "--pairs", "a:b").err
