"""A small run of each kind: every way to write a run folder, trained for a few steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ensue

WORDS = ("the", "students", "opened", "their", "books", "and", "proctor", "started", "clock", "while", "rain", "fell")
STEPS = {"train.steps": 2}
TINY = {**STEPS, "hidden": 16, "train.batch": 4}
ENCODER = {**STEPS, "layers": 1, "heads": 2, "hidden": 16}


def sentences(lines: int, seed: int = 0) -> list[str]:
    """Random sentences of eight words."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=8)) for _ in range(lines)]


def write_data(folder: Path) -> dict[str, Path]:
    """Write a text, sentence pairs, labelled examples and word vectors."""
    lines = sentences(60)
    labelled = "".join(f"{'yes' if 'rain' in line else 'no'}\t{line}\n" for line in lines)
    contents = {
        "text.txt": "".join(f"{line}\n" for line in lines),
        "pairs.tsv": "".join(f"{line}\t{line[::-1]}\n" for line in lines),
        "labelled.tsv": f"label\ttext\n{labelled}",
        "vectors.txt": "2 2\nking 1 0\nqueen 0 1\n",
    }
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    return {Path(name).stem: folder / name for name in contents}


def make_runs(folder: Path) -> dict[str, Path]:
    """Make the runs and return their folders, by the way they were made."""
    data = write_data(folder)

    def fit(what: str, source: str, settings: dict[str, Any], **more: Any) -> Callable[[Path], Any]:
        return lambda out: ensue.fit(what, data.get(source, source), out=out, settings=settings, **more)

    ways: dict[str, Callable[[Path], Any]] = {
        "ngram": fit("ngram", "text", {}),
        "ngram counted on disk": fit("ngram", "text", {"train.memory": 100_000_000}),
        "lstm": fit("lstm", "text", TINY),
        "gpt": fit("gpt", "text", {**TINY, "layers": 1, "heads": 2}),
        "word2vec": fit("word2vec", "text", {**STEPS, "tokenizer.min_count": 1}),
        "seq2seq, two tokenizers": fit(
            "seq2seq", "pairs", {**STEPS, "hidden": 16, "tokenizer.kind": "char", "tokenizer.joint": False}
        ),
        "bert": fit("bert", "text", {**ENCODER, "tokenizer.kind": "wordpiece"}),
        "forecast": fit("forecast", "waves", {**STEPS, "hidden": 16}, model="lstm"),
        "classify": lambda out: ensue.fit(
            "classify", data["labelled"], out=out, settings={**STEPS, "begin_with": str(folder / "bert")}
        ),
        "distilled": lambda out: ensue.distil(
            folder / "classify", "bert", data["text"], valid=data["labelled"], out=out, settings=ENCODER
        ),
        "converted": lambda out: ensue.convert(data["vectors"], out=out),
    }
    runs = {}
    for name, make in ways.items():
        runs[name] = folder / name.replace(",", "").replace(" ", "-")
        make(runs[name])
    return runs
