"""Words in context as people type them: fit, score, fill, look, features in a tagger, and what goes wrong."""

import pytest
from typed import ensue, sentences

SHAPE = ("--set", "hidden=10", "--set", "projection=5", "--set", "filters=3,4", "--set", "letter=4")
SHORT = ("--set", "train.steps=3", "--set", "train.batch_tokens=80")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contexts")
    (folder / "text.txt").write_text(sentences(40), encoding="utf-8")
    (folder / "train.conll").write_text("the O\nrain B-X\nfell O\n\nbooks B-X\nopened O\n\n" * 8, encoding="utf-8")
    answer = ensue("fit", "elmo", folder / "text.txt", *SHAPE, *SHORT, "--out", folder / "elmo", "--json")
    assert answer.code == 0, answer.err
    assert set(answer.json["valid"]["perplexity"]) == {"forward", "backward"}
    return folder


def test_score_and_fill(folder):
    score = ensue("score", folder / "elmo", folder / "text.txt", "--json").json
    assert score["sentences"] == 40 and score["perplexity"]["forward"] > 1
    said = ensue("score", folder / "elmo", folder / "text.txt")
    assert "forward perplexity" in said.out and "out of vocabulary" in said.out
    gaps = ensue("fill", folder / "elmo", "the students [MASK] their books", "--json").json["gaps"]
    assert len(gaps) == 1 and len(gaps[0]) == 5


def test_a_tagger_from_it(folder):
    answer = ensue(
        *("fit", "tag", folder / "train.conll", "--from", folder / "elmo", "--set", "hidden=6", *SHORT[:2]),
        *("--out", folder / "tags", "--json"),
    )
    assert answer.code == 0 and answer.json["system"] == "lstm", answer.err
    said = ensue("predict", folder / "tags", "--text", "the Snark fell", "--json")
    assert said.code == 0 and len(said.json["predictions"][0]["tags"]) == 3, said.out
    assert all(found["kept"] for found in ensue("check", folder / "tags", "--json").json["findings"])
    drawn = ensue("look", "layers", folder / "tags", "--out", folder / "layers.svg")
    assert drawn.code == 0 and (folder / "layers.svg").read_text(encoding="utf-8").startswith("<svg")


def test_senses_are_drawn_and_described(folder):
    answer = ensue("look", "senses", folder / "elmo", "bank", "--out", folder / "bank.html")
    assert answer.code == 0 and "by chance" in answer.out and (folder / "bank.html").stat().st_size > 10_000
    numbers = ensue("look", "senses", folder / "elmo", "play", "--json").json
    assert numbers["word"] == "play" and len(numbers["contexts"]) == 88


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("look", "senses", "elmo", "crane"), "no built-in contexts"),
        (("look", "senses", "elmo", "rain", "bad.txt"), "bad.txt, line 2"),
        (("look", "layers", "elmo"), "reads no features"),
        (("generate", "elmo"), "fills in"),
        (("fill", "elmo", "no gap"), "[MASK]"),
        (("score", "elmo", "--text", "x"), "scored on files"),
        (("fit", "tag", "train.conll", "--from", "elmo", "--tokenizer", "bpe"), "leave out --tokenizer"),
        (("fit", "tag", "train.conll", "--from", "elmo", "--model", "gpt"), "use --model lstm"),
        (("fit", "tag", "train.conll", "--from", "elmo", "--set", "features.layer=7"), "at most 2"),
        (("fit", "elmo", "text.txt", "--set", "projection=600"), "more than projection"),
    ],
)
def test_bad_input_is_one_line(folder, monkeypatch, words, said):
    monkeypatch.chdir(folder)
    (folder / "bad.txt").write_text("a\tthe rain fell\nb\tno such word\n", encoding="utf-8")
    answer = ensue(*words)
    *notes, last = answer.err.splitlines()
    assert answer.code == 2 and said in last and all(line.startswith("note: ") for line in notes), answer.err
