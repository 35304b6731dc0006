"""Translation as a person types it: fit, translate, score, look, check."""

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import sys
from pathlib import Path

import pytest
import torch
from typed import ensue

import ensue as package
import ensue.verbs.check as checking

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TINY = (
    "--set",
    "hidden=16",
    "--set",
    "train.steps=6",
    "--set",
    "train.batch_tokens=150",
    "--set",
    "train.eval_every=3",
)
SMALL = {
    "transformer": (*TINY, "--set", "layers=2", "--set", "heads=2", "--tokenizer", "word"),
    "seq2seq": (*TINY, "--tokenizer", "word", "--set", "tokenizer.min_count=1"),
}


def pairs(count, seed):
    """Numbers in words, and the same as digits from the last to the first."""
    chance = random.Random(seed)
    rows = [chance.choices(range(10), k=chance.randint(1, 6)) for _ in range(count)]
    return [(" ".join(NUMBERS[n] for n in row), " ".join(map(str, reversed(row)))) for row in rows]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    for name, count, seed in (("train", 60, 0), ("valid", 8, 1)):
        for side, ending in enumerate(("en", "num")):
            lines = "".join(pair[side] + "\n" for pair in pairs(count, seed))
            (folder / f"{name}.{ending}").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory, corpus):
    """A tiny run of each system; a second seq2seq of the same vocabulary, for an ensemble; an LSTM that only writes."""
    folder = tmp_path_factory.mktemp("models")
    torch.set_num_threads(1)
    both = (corpus / "train.en", corpus / "train.num", "--valid", corpus / "valid.en", "--valid", corpus / "valid.num")
    for name, words in {
        "transformer": ("transformer", *both, *SMALL["transformer"]),
        "seq2seq": ("seq2seq", *both, *SMALL["seq2seq"]),
        "second": ("seq2seq", *both, *TINY, "--tokenizer", folder / "transformer" / "tokenizer.json", "--seed", "1"),
        "lstm": ("lstm", corpus / "train.en", "--set", "hidden=8", "--set", "train.steps=2"),
    }.items():
        answer = ensue("fit", *words, "--out", folder / name, "--json")
        assert answer.code == 0, answer.err
        (folder / f"{name}.json").write_text(answer.out, encoding="utf-8")
    return folder


def weights(run):
    return hashlib.sha256(Path(run, "model.safetensors").read_bytes()).hexdigest()


def typed_in(text, *words):
    """A command that reads ``text`` from standard input."""
    read, write = os.pipe()
    os.write(write, text.encode() if isinstance(text, str) else text)
    os.close(write)
    before = sys.stdin
    sys.stdin = os.fdopen(read)
    try:
        return ensue(*words)
    finally:
        sys.stdin.close()
        sys.stdin = before


def refused(*words, says=(), run=ensue):
    """The command fails with code 2 and one line on standard error."""
    answer = run(*words)
    lines = answer.err.splitlines()
    assert answer.code == 2 and answer.out == "" and len(lines) == 1 and lines[0].startswith("ensue: "), answer
    for part in [says] if isinstance(says, str) else says:
        assert part in lines[0], lines[0]


@pytest.mark.parametrize("name", ["transformer", "seq2seq"])
def test_fit_makes_a_run_that_says_all(name, models):
    said = json.loads((models / f"{name}.json").read_text())
    assert said["system"] == name and said["steps"] == 6
    assert {"bleu", "bleu_signature", "chrf", "exact", "perplexity"} <= said["valid"].keys()
    assert said["valid"]["sentences"] == 8
    run = models / name
    assert {"config.json", "model.safetensors", "tokenizer.json", "run.toml", "README.md"} <= {
        path.name for path in run.iterdir()
    }
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["step"] == 6 and records[-1]["valid_loss"] > 0
    card = (run / "README.md").read_text()
    assert f"ensue fit {name}" in card and "BLEU" in card
    assert 'kind = "word"' in (run / "run.toml").read_text()


def test_fit_for_people(corpus):
    words = ("fit", "seq2seq", corpus / "train.en", corpus / "train.num", *SMALL["seq2seq"], "--sample-every", "3")
    answer = ensue(*words)
    assert answer.code == 0 and "runs/seq2seq: 6 steps" in answer.out and "BLEU" in answer.out
    assert "two parallel files, 60 lines each: 54 to learn from, 6 to validate with" in answer.err
    assert " → " in answer.err
    refused(*words, says="runs/seq2seq: is there already; --resume continues it")
    assert ensue("fit", "runs/seq2seq", "--resume").code == 0


def test_a_run_can_be_made_again_from_its_settings(models):
    again = ensue("fit", "seq2seq", "--config", models / "seq2seq" / "run.toml", "--out", "again")
    assert again.code == 0, again.err
    assert weights("again") == weights(models / "seq2seq")


def test_two_vocabularies(corpus):
    words = ("fit", "transformer", corpus / "train.en", corpus / "train.num", *SMALL["transformer"])
    assert ensue(*words, "--set", "tokenizer.joint=false", "--out", "apart", "--json").code == 0
    assert Path("apart/tokenizer.source.json").exists()
    assert ensue("translate", "apart", "--text", "one two").code == 0
    assert ensue("fit", "--config", "apart/run.toml", "--out", "again").code == 0
    assert weights("again") == weights("apart")


def rows(kind):
    """The same pairs as a table with a header or as JSONL."""
    if kind == "tsv":
        return "en\tde\n" + "".join(f"{a}\t{b}\n" for a, b in pairs(60, 0))
    if kind == "columns":
        return "".join(f"{b}\tx\t{a}\n" for a, b in pairs(60, 0))
    return "".join(json.dumps({"translation": {"en": a, "num": b}}) + "\n" for a, b in pairs(60, 0))


@pytest.mark.parametrize("kind", ["tsv", "columns", "jsonl"])
def test_pairs_in_one_file(kind, corpus):
    path = Path(f"pairs.{'jsonl' if kind == 'jsonl' else 'tsv'}")
    path.write_text(rows(kind), encoding="utf-8")
    chosen = ("--columns", "source=3,target=1") if kind == "columns" else ()
    valid = ("--valid", path) if kind != "columns" else ()
    answer = ensue("fit", "seq2seq", path, *valid, *SMALL["seq2seq"], *chosen, "--out", "run", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["valid"]["sentences"] == (60 if valid else 6)
    assert ensue("score", "run", path, "--json").json["sentences"] == 60  # columns are those of the run


def test_pairs_from_standard_input(corpus):
    words = ("fit", "seq2seq", "-", *SMALL["seq2seq"], "--out", "run", "--json")
    assert typed_in(rows("tsv"), *words).json["valid"]["sentences"] == 6


@pytest.mark.parametrize("name", ["transformer", "seq2seq"])
def test_translate_a_file_line_by_line(name, models):
    Path("in.txt").write_text("one two\n\nthree four five\n   \nnine\n", encoding="utf-8")
    answer = ensue("translate", models / name, "in.txt")
    assert answer.code == 0 and answer.err == ""
    lines = answer.out.split("\n")
    assert len(lines) == 6 and lines[1] == lines[3] == lines[5] == ""
    Path("no newline.txt").write_text("one two\r\n\r\nthree four five\r\n   \r\nnine", encoding="utf-8")
    assert ensue("translate", models / name, "no newline.txt").out == answer.out
    assert typed_in("one two\n\nthree four five\n   \nnine\n", "translate", models / name).out == answer.out
    assert typed_in("\ufeffone two\n\nthree four five\n   \nnine", "translate", models / name, "-").out == answer.out
    for number, line in ((0, "one two"), (2, "three four five")):
        assert ensue("translate", models / name, "--text", line).out == lines[number] + "\n"


@pytest.mark.parametrize("name", ["transformer", "seq2seq"])
def test_eight_bits_translate_and_are_scored(name, models):
    words = ("translate", models / name, "--text", "one two three", "--json")
    exact, near = (ensue(*words, *more).json["translations"][0]["nbest"][0] for more in ((), ("--int8",)))
    assert near["log_prob"] == pytest.approx(exact["log_prob"], rel=0.1)
    changed = near["log_prob"] != exact["log_prob"]
    assert changed == (name == "transformer")  # a recurrent network of so few words has no layer that is wide enough
    Path("pairs.tsv").write_text(rows("tsv"), encoding="utf-8")
    exact, near = (ensue("score", models / name, "pairs.tsv", "--json", *more).json for more in ((), ("--int8",)))
    assert near["perplexity"] == pytest.approx(exact["perplexity"], rel=0.05)


def test_nothing_to_translate(models):
    assert typed_in("", "translate", models / "seq2seq").out == ""
    assert ensue("translate", models / "seq2seq", "--text", "").out == "\n"
    assert typed_in("", "translate", models / "seq2seq", "--json").json["translations"] == []


def test_the_n_best_as_json(models):
    words = ("translate", models / "transformer", "--text", "one two three", "--nbest", "3")
    found = ensue(*words, "--json").json
    assert found["system"] == "transformer" and found["beam"] == 5 and found["length"] == "mean"
    (one,) = found["translations"]
    assert one["source"] == "one two three" and one["text"] == one["nbest"][0]["text"]
    scores = [best["score"] for best in one["nbest"]]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    shown = ensue(*words).out.splitlines()
    assert [float(line.split()[0]) for line in shown] == pytest.approx(scores, abs=1e-4)


def test_how_to_search_changes_what_is_found(models):
    words = ("translate", models / "transformer", "--text", "one two three", "--json")
    scores = {
        (length, beam): ensue(*words, "--length", length, "--beam", beam).json["translations"][0]["nbest"][0]
        for length in ("none", "mean", "gnmt")
        for beam in (1, 4)
    }
    for (length, _), best in scores.items():
        assert (best["score"] == pytest.approx(best["log_prob"])) == (length == "none" or best["text"] == "")
    assert scores["none", 4]["score"] >= scores["none", 1]["score"] - 1e-6


def test_what_a_translation_must_and_must_not_have(models):
    """Digits stand for words here, each a token of its own."""
    words = ("translate", models / "transformer", "--text", "one two three")
    assert ensue(*words, "--prefix", "7 8").out.startswith("7 8")
    assert len(ensue(*words, "--shortest", 9, "--longest", 9).out.split()) == 9
    free = ensue(*words, "--shortest", 3).out.split()
    assert free[0] not in ensue(*words, "--shortest", 3, "--forbid", free[0]).out.split()


@pytest.mark.parametrize("ending", ["html", "json", "txt"])
def test_a_trace(ending, models):
    answer = ensue("translate", models / "transformer", "--text", "one two", "--beam", 2, "--trace", f"x.{ending}")
    assert answer.code == 0 and answer.out.count("\n") == 1 and f"wrote x.{ending}" in answer.err
    text = Path(f"x.{ending}").read_text(encoding="utf-8")
    assert len(text) > 100
    if ending == "json":
        trace = json.loads(text)
        assert trace["source"] == "one two" and trace["alpha"] == 0.6
    if ending == "html":
        assert "<html" in text.lower() and 'src="http' not in text and 'href="http' not in text


def test_traces_that_cannot_be(models):
    run = models / "transformer"
    says = ("'x.png' is not a format for a trace", ".html")
    refused("translate", run, "--text", "one", "--trace", "x.png", says=says)
    refused("translate", run, "--text", "", "--trace", "x.txt", says="an empty line has nothing to search")
    Path("two.txt").write_text("one\ntwo\n")
    refused("translate", run, "two.txt", "--trace", "x.txt", says="--trace takes one line")
    refused("", "translate", run, "--trace", "x.txt", run=typed_in, says="there is no line")
    assert not list(Path().glob("x.*"))


def test_lines_that_are_too_long(models, corpus):
    words = ("fit", "seq2seq", corpus / "train.en", corpus / "train.num", *SMALL["seq2seq"], "--set", "context=8")
    assert ensue(*words, "--out", "short").code == 0
    Path("in.txt").write_text("one\n" + "one two three " * 6 + "\n")
    cut = ensue("translate", "short", "in.txt")
    assert cut.code == 0 and cut.out.count("\n") == 2
    assert cut.err == "note: line 2 has 19 tokens, more than the model's 8: cut\n"
    split = ensue("translate", "short", "in.txt", "--long", "split")
    assert split.out.count("\n") == 2 and split.err.endswith(": split\n")


def test_unknown_words(models):
    answer = ensue("translate", models / "seq2seq", "--text", "one Zürich ☃ two", "--replace-unknown")
    assert answer.code == 0 and "<unk>" not in answer.out


def test_an_ensemble(models, corpus):
    words = ("translate", models / "transformer", "--text", "one two")
    both = ensue(*words, "--ensemble", models / "second", "--json")
    assert both.code == 0, both.err
    twice = ensue(*words, "--ensemble", models / "transformer", "--json").json["translations"][0]
    alone = ensue(*words, "--json").json["translations"][0]
    assert twice["text"] == alone["text"] and twice["log_prob"] == pytest.approx(alone["log_prob"], abs=1e-4)
    letters = ("fit", "seq2seq", corpus / "train.en", corpus / "train.num", *TINY, "--tokenizer", "char")
    assert ensue(*letters, "--out", "letters").code == 0
    refused(*words, "--ensemble", "letters", says="letters: has another vocabulary")
    refused(*words, "--ensemble", models / "lstm", says="lstm: lstm cannot translate")


@pytest.mark.parametrize("name", ["transformer", "seq2seq"])
def test_score(name, models, corpus):
    files = (corpus / "valid.en", corpus / "valid.num")
    score = ensue("score", models / name, *files, "--json").json
    assert {"bleu", "bleu_signature", "chrf", "exact", "bits_per_byte", "by_length"} <= score.keys()
    assert score["perplexity"]["token"] > 1 and "tok:13a" in score["bleu_signature"]
    valid = json.loads((models / f"{name}.json").read_text())["valid"]
    assert score["bleu"] == pytest.approx(valid["bleu"]) and score["chrf"] == pytest.approx(valid["chrf"])
    assert score["perplexity"]["token"] == pytest.approx(valid["perplexity"]["token"], rel=1e-5)
    shown = ensue("score", models / name, *files).out
    assert shown.startswith("BLEU ") and "perplexity" in shown


def test_score_is_that_of_what_is_translated(models, corpus):
    """sacreBLEU's own command on the translations says the same."""
    sacrebleu = pytest.importorskip("sacrebleu")
    score = ensue("score", models / "seq2seq", corpus / "valid.en", corpus / "valid.num", "--json").json
    outputs = ensue("translate", models / "seq2seq", corpus / "valid.en").out.split("\n")[:-1]
    references = (corpus / "valid.num").read_text().splitlines()
    assert sacrebleu.corpus_bleu(outputs, [references]).score == pytest.approx(score["bleu"])


@pytest.mark.parametrize(("name", "ending"), [("transformer", "png"), ("seq2seq", "html"), ("seq2seq", "json")])
def test_look_at_an_alignment(name, ending, models):
    answer = ensue("look", "alignment", models / name, "--text", "one two three", "--out", f"x.{ending}")
    assert answer.code == 0 and answer.out == f"wrote x.{ending}\n", answer.err
    data = Path(f"x.{ending}").read_bytes()
    assert len(data) > 500 and (ending != "png" or data.startswith(b"\x89PNG"))


def test_look_at_heads_and_at_given_translations(models):
    words = ("look", "alignment", models / "transformer", "--text", "one two", "--out", "head.json")
    assert ensue(*words, "--layer", 1, "--head", 2).code == 0
    assert ensue(*words, "--layer", 1, "--target", "2 1").code == 0
    refused(*words, "--layer", 9, says="there is no layer 9; there are 2")
    refused(*words, "--layer", 1, "--head", 3, says="there is no head 3; there are 2")
    refused(*words[:3], "--out", "x.json", says="alignment needs a text")
    refused("look", "alignment", models / "lstm", "--text", "one", says="does not translate")


def test_look_at_the_bottleneck(models, corpus):
    data = ("--data", corpus / "valid.en", "--data", corpus / "valid.num")
    answer = ensue("look", "bottleneck", models / "transformer", models / "seq2seq", *data, "--out", "x.json")
    assert answer.code == 0, answer.err
    drawn = json.loads(Path("x.json").read_text(encoding="utf-8"))
    assert drawn["encoding"]["color"]["scale"]["domain"] == ["transformer", "seq2seq"]  # paths do not fit a legend


def test_an_alignment_as_numbers(models):
    words = ("look", "alignment", models / "transformer", "--text", "one two", "--json")
    seen = ensue(*words).json
    assert seen["view"] == "alignment" and seen["source"][:2] == ["one", "two"] and seen["layer"] == 1
    assert len(seen["weights"]) == len(seen["target"]) and seen["written"] is None and not Path("look.html").exists()
    for row in seen["weights"]:
        assert len(row) == len(seen["source"]) and sum(row) == pytest.approx(1, abs=1e-5)
    given = ensue(*words, "--target", "2 1", "--layer", 2, "--out", "x.svg").json
    assert given["target"][:2] == ["2", "1"] and len(given["heads"]) == 2 and Path(given["written"]).exists()
    torch.testing.assert_close(torch.tensor(given["heads"]).mean(0), torch.tensor(given["weights"]))
    assert ensue(*words, "--target", "2 1", "--layer", 2, "--head", 1).json["weights"] == given["heads"][0]


def test_what_is_aligned_is_what_translate_finds(models):
    for beam in (1, 4):
        words = (models / "transformer", "--text", "nine eight seven one", "--beam", beam, "--json")
        (found,) = ensue("translate", *words).json["translations"]
        assert " ".join(ensue("look", "alignment", *words).json["target"][:-1]) == found["text"]


def test_bottleneck_and_curves_as_numbers(models, corpus):
    data = ("--data", corpus / "valid.en", "--data", corpus / "valid.num")
    seen = ensue("look", "bottleneck", models / "transformer", models / "seq2seq", *data, "--json").json
    score = ensue("score", models / "seq2seq", *data[1::2], "--json").json
    assert [one["run"] for one in seen["runs"]] == [str(models / "transformer"), str(models / "seq2seq")]
    assert seen["runs"][1]["by_length"] == score["by_length"] and "change" in seen["runs"][1]
    (curve,) = ensue("look", "curves", models / "seq2seq", "--json").json["runs"]
    assert [one["step"] for one in curve["records"] if "valid_loss" in one] == [3, 6]
    counted = ensue("look", "ngrams", corpus / "train.num", "--json").json
    assert counted["parameters"].keys() == {"lstm", "gpt"}
    assert counted["ngrams"][0]["different"] <= counted["vocabulary"] < counted["ngrams"][1]["possible"]


@pytest.mark.parametrize("what", ["transformer", "seq2seq", "class"])
def test_check(what, models):
    found = ensue("check", "ensue.models.seq2seq:Seq2Seq" if what == "class" else models / what, "--json")
    assert found.code == 0, found.err or found.out
    laws = {one["name"] for one in found.json["findings"]}
    assert {"chunk law", "rows law", "source padding law", "source rows law"} <= laws


def test_killed_and_resumed_to_the_bit(models, monkeypatch):
    """``ensue check RUN --resume``: one training unbroken, one killed in a process of its own and resumed here."""

    def finish(command):
        answer = ensue(*command[3:])
        assert answer.code == 0, answer.err

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(checking, "_finish", finish)
    monkeypatch.setattr(checking, "PROOF_STEPS", 12)
    answer = ensue("check", models / "transformer", "--resume", "--json")
    assert answer.code == 0, answer.err
    assert "the same SHA-256" in answer.json["findings"][0]["detail"]


WRONG = [
    (("fit", "transformer", "TRAIN.en"), "has one column"),
    (("fit", "transformer", "TRAIN.en", "short.num"), "the files are not parallel: 60 lines and 2 lines"),
    (("fit", "transformer", "TRAIN.en", "nowhere.num"), "there is no such file"),
    (("fit", "transformer", "TRAIN.en", "TRAIN.num", "TRAIN.num"), "do not come from 3 files"),
    (("fit", "transformer", "TRAIN.en", "TRAIN.num", "--valid", "TRAIN.en"), "has one column"),
    (("fit", "transformer", "TRAIN.en", "TRAIN.num", "--columns", "1,2"), "columns are named as source=2,target=1"),
    (("fit", "transformer", "TRAIN.en", "TRAIN.num", "--set", "context=0"), "context"),
    (
        ("fit", "seq2seq", "PAIRS.tsv", "--set", "data.holdout=0", "--sample-every", "2", "--json"),
        "or hold something out",
    ),
    (("fit", "transformer", "TRAIN.en", "TRAIN.num", "--set", "heads=3"), "a divisor of hidden"),
    (("fit", "transformer", "TRAIN.en", "TRAIN.num", "--set", "atention=dot"), "unknown setting 'atention'"),
    (("fit", "seq2seq", "TRAIN.en", "TRAIN.num", "--set", "attention=dott"), "attention"),
    (("fit", "seq2seq", "TRAIN.en", "TRAIN.num", "--preset", "gnnt"), "did you mean 'gnmt'?"),
    (("fit", "seq2seq", "pydoc"), "pydoc: the corpus is text and has no translations; give sentence pairs"),
    (("fit", "seq2seq", "pydoc"), "systems that learn from text are ngram, window, rnn"),
    (("score", "RUN", "stdlib"), "stdlib: the corpus is text and has no translations"),
    (("score", "LSTM", "dates"), "dates: the corpus holds sentence pairs, not text"),
    (("translate", "nowhere", "--text", "one"), "there is no such run"),
    (("translate", "RUN", "nowhere.txt"), "there is no such file"),
    (("translate", "RUN", "latin.txt"), "not UTF-8"),
    (("translate", "RUN", "--text", "one", "--beam", "0"), "beam"),
    (("translate", "RUN", "--text", "one", "--length", "long"), "long"),
    (("translate", "RUN", "--text", "one", "--length", "gnmt", "--alpha", "-1"), "alpha"),
    (("translate", "RUN", "--text", "one", "--alpha", "0.7"), "--length mean has no α; leave out --alpha"),
    (("translate", "RUN", "nowhere.txt", "--text", "one"), "name a file or give --text, not both"),
    (("translate", "RUN", "--text", "one", "--longest", "-1"), "--longest -1 must be at least 1"),
    (("translate", "RUN", "--text", "one", "--longest", "2", "--shortest", "3"), "--longest 2 must be at least 3"),
    (("translate", "RUN", "--text", "one", "--shortest", "-1"), "shortest = -1 must be 0 or more"),
    (("translate", "RUN", "--text", "one", "--prefix", "1 2 3", "--longest", "2"), "prefix 1 has 3 tokens"),
    (("translate", "RUN", "--text", "one", "--forbid", "nobody"), "there is no token 'nobody'"),
    (
        ("fit", "transformer", "TRAIN.en", "TRAIN.num", "--field", "text"),
        "learns from sentence pairs: use data.columns",
    ),
    (("translate", "LSTM", "--text", "one"), "lstm cannot translate"),
    (("generate", "RUN", "--prompt", "one"), "transformer cannot generate text"),
    (("next", "RUN", "one"), "transformer cannot predict the next token"),
    (("score", "RUN", "--text", "one"), "a translation model is scored on pairs"),
    (("score", "RUN", "TRAIN.en"), "has one column"),
    (("score", "RUN", "nowhere.en", "TRAIN.num", "--per-token"), "transformer cannot use --per-token"),
    (("score", "RUN", "nowhere.en", "TRAIN.num", "--streams", "2"), "transformer cannot use --streams"),
    (("score", "RUN", "nowhere.en", "TRAIN.num", "--field", "text"), "use --columns source=…,target=…"),
    (("score", "LSTM", "nowhere.en", "--columns", "source=1"), "columns of a text are named as text=2, not 'source=1'"),
    (
        ("look", "curves", "RUN", "--text", "one"),
        "curves cannot use --text; it is for attention, next, context, surprise, alignment",
    ),
    (("look", "curves", "RUN", "--tokenizer", "word"), "curves cannot use --tokenizer; it is for ngrams"),
    (
        ("look", "alignment", "RUN", "--text", "one", "--data", "x"),
        "alignment cannot use --data; it is for context, surprise, bottleneck",
    ),
    (("look", "alignment", "RUN", "--text", "one", "--target", "1", "--beam", "2"), "--target is not searched for"),
    (("look", "alignment", "RUN", "--text", "one", "--beam", "0"), "beam = 0 must be at least 1"),
    (("look", "bottleneck", "RUN", "--data", "nowhere.en", "--out", "x.gif"), "'x.gif' is not a picture format"),
    (("race", "TRAIN.en", "--systems", "transformer,rnn"), "transformer"),
]


@pytest.mark.parametrize(("words", "says"), WRONG, ids=[" ".join(words)[:60] for words, _ in WRONG])
def test_unsupported_requests_are_refused_in_one_line(words, says, models, corpus):
    Path("short.num").write_text("1\n2\n")
    Path("latin.txt").write_bytes(b"one\ncaf\xe9\n")
    names = {"TRAIN.en": corpus / "train.en", "TRAIN.num": corpus / "train.num", "LSTM": models / "lstm"}
    names["RUN"], names["PAIRS.tsv"] = models / "transformer", Path("pairs.tsv")
    Path("pairs.tsv").write_text(rows("tsv"), encoding="utf-8")
    tiny = SMALL[words[1]] if words[0] == "fit" else ()
    before = sorted(Path().iterdir())
    given = (*words[:2], *tiny, *words[2:])
    refused(*(names.get(word, word) for word in given), says=says)
    assert sorted(Path().iterdir()) == before


def test_standard_input_that_is_not_utf8(models):
    says = "standard input:3: not UTF-8"
    refused(b"one\ntwo\ncaf\xe9\n", "translate", models / "seq2seq", run=typed_in, says=says)


def test_standard_input_that_is_no_text(models):
    refused(b"one\ntwo\0\n", "translate", models / "seq2seq", run=typed_in, says="standard input:2: binary data")


def test_a_damaged_run_is_refused_in_one_line(models):
    shutil.copytree(models / "seq2seq", "broken")
    Path("broken/model.safetensors").write_bytes(b"nothing")
    refused("translate", "broken", "--text", "one", says="model.safetensors: is damaged")
    refused("translate", "broken", "--text", "one", "--no-verify", says="is damaged or missing")


def test_python_says_the_same_words(models, corpus):
    run = package.load(models / "transformer")
    lines = ["one two", "", "three"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        found = run.translate(lines)
    assert out.getvalue() == "" and [one.source for one in found] == lines
    Path("in.txt").write_text("\n".join(lines))
    assert ensue("translate", models / "transformer", "in.txt").out == "".join(one.text + "\n" for one in found)
    score = run.score(corpus / "valid.en", corpus / "valid.num")
    assert len(score.outputs) == 8 and score.figures["bleu"] >= 0
    source, target, seen = run.alignment("one two")
    assert source[:2] == ["one", "two"] and len(seen) == 2 and seen[0].shape == (2, len(target), len(source))


def test_several_texts_are_translated_each(models):
    one, two = (ensue("translate", models / "seq2seq", "--text", text).out for text in ("one two", "nine"))
    answer = ensue("translate", models / "seq2seq", "--text", "one two", "--text", "nine")
    assert answer.code == 0 and answer.out == one + two


def test_a_beam_that_no_machine_holds_and_a_folder_of_lines_are_refused(models):
    answer = ensue("translate", models / "seq2seq", "--text", "one", "--beam", "1000000")
    assert answer.code == 2 and "a beam of 1,000,000 is too wide; use at most 1,000" in answer.err
    refused("translate", models / "seq2seq", "--text", "one", "--nbest", 10**12, says="is too large; use at most 1,000")
    answer = ensue("translate", models / "seq2seq", models)
    assert answer.code == 2 and "is a folder; give one of its files" in answer.err


def test_a_trace_is_of_the_one_line_however_lines_come(models, monkeypatch):
    monkeypatch.setattr("ensue.data.lines.STDIN_CHUNK_BYTES", 4)  # a line at a time, as if typed
    answer = typed_in("one\ntwo\n", "translate", models / "seq2seq", "--trace", "x.json")
    assert answer.code == 2 and "--trace takes one line" in answer.err
    assert json.loads(Path("x.json").read_text())["source"] == "one"


def test_a_long_file_is_translated_in_blocks_and_tokenizers_are_read_once(models, monkeypatch):
    from ensue.runs import translation
    from ensue.verbs import translate

    reads = []
    load_tokenizers = translation.load_tokenizers
    monkeypatch.setattr(translation, "load_tokenizers", lambda folder: reads.append(folder) or load_tokenizers(folder))
    monkeypatch.setattr(translate, "BLOCK_LINES", 2)
    Path("five.txt").write_text("one\n\ntwo\nthree\none\n", encoding="utf-8")
    blocks = translate.translate(package.load(models / "transformer"), "five.txt")
    assert [[one.source for one in found] for found, _ in blocks] == [["one", ""], ["two", "three"], ["one"]]
    assert len(reads) == 1
