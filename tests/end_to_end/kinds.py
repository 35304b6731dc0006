"""A tiny run of every kind that the page can show, trained in seconds."""

import math

from labelled_files import write_all
from typed import WORDS, ensue, sentences

FEW = ("--set", "train.steps=3", "--set", "hidden=16", "--set", "train.eval_every=3")
SMALL = (*FEW, "--set", "heads=2", "--set", "layers=2")
SHOUT = "<script>window.hacked=1</script>"
"""A word of the corpus, so that a model can say it."""


def train_kinds(folder):
    """Runs by name, and a race; the last run's own name would be markup, if it were taken for that."""
    text = folder / "text.txt"
    lines = [line.replace("clock", SHOUT) for line in sentences(150).splitlines()]
    text.write_text("\n".join(lines), encoding="utf-8")
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"{a} {b} {a}\t{b} {a}\n" for a in WORDS for b in WORDS[:4]), encoding="utf-8")
    series = folder / "series.csv"
    series.write_text("y\n" + "".join(f"{math.sin(n / 3):.4f}\n" for n in range(240)), encoding="utf-8")
    files = write_all(folder)
    word = ("--tokenizer", "word")
    one = ("--set", "train.epochs=1", "--set", "tokenizer.min_count=1")
    fits = {
        "lstm": ("lstm", text, *word, *FEW),
        "gru": ("gru", text, *word, *FEW),
        "gpt": ("gpt", text, *word, *SMALL, "--set", "context=32"),
        "ngram": ("ngram", text, *word, "--set", "order=3"),
        "translator": ("transformer", pairs, *word, *SMALL),
        "vectors": ("word2vec", text, *one, "--set", "embedding=8"),
        "classify": ("classify", files["classify"], "--model", "lstm", *FEW),
        "pair": ("pair", files["pair"], "--model", "lstm", *FEW),
        "tag": ("tag", files["tag"], "--model", "lstm", *FEW),
        "answer": ("answer", files["answer"], "--model", "bert", *SMALL),
        "bert": ("bert", files["documents"], *SMALL),
        "forecast": ("forecast", series, "--model", "linear", "--set", "window=24", "--set", "horizon=6"),
        SHOUT.replace("/", ""): ("ngram", text, "--set", "order=2"),
    }
    for name, words in fits.items():
        answer = ensue("fit", *words, "--out", folder / name)
        assert answer.code == 0, f"{name}: {answer.err}"
    systems = ("--systems", "ngram,rnn", "--budget", "1s", "--set", "rnn.hidden=8", "--set", "tokenizer.kind=word")
    raced = ensue("race", text, *systems, "--out", folder / "race")
    assert raced.code == 0, raced.err
    return [folder / name for name in (*fits, "race")]
