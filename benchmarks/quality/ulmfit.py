"""ULMFiT on IMDb: a language model, the same fine-tuned to reviews, then 1,000 labels; against the same from nothing.

ENSUE_DATA=… python -m benchmarks.quality.ulmfit --out runs/ulmfit
ENSUE_DATA=… python -m benchmarks.quality.ulmfit --out runs/ulmfit --seed 1 --general none --language 15m

Three steps: general text (the Brown corpus), the text of all 25,000 training reviews without their labels, and so many
labels. The classifier from nothing has the same shape, tokenizer, labels and number of epochs; all of its layers learn,
at the rates that tasks have by themselves. Nothing is held out and the last weights are kept, so that no label beyond
those counted chooses anything. Scored on the test reviews: of the 5,000 lines of that file some are broken, and those
without a label and one text are left out. A run that is in the folder already is gone on with, so whoever stops may go
on.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ensue
from benchmarks.record import data_folder, record
from ensue.core.settings import parse_assignments
from ensue.data.sources import TableColumn
from ensue.data.tokenizers.registry import fit_tokenizer, save_tokenizer
from ensue.runs.load import Run

TRAIN, TEST, GENERAL = "labelled/imdb/train.tsv.gz", "labelled/imdb/test5k.tsv.gz", "text/brown.txt.gz"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--general", default="2m", help="the first language model's training; none leaves it out")
    parser.add_argument("--language", default="10m", help="the training on reviews without labels")
    parser.add_argument("--labels", type=int, default=1000)
    parser.add_argument("--epochs", type=float, default=8.0, help="of the labels, for both classifiers")
    parser.add_argument("--vocabulary", type=int, default=6000)
    parser.add_argument("--set", action="append", default=[], help="settings of all runs' model, e.g. hidden=256")
    parser.add_argument("--tune", action="append", default=[], help="settings of both classifiers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/ulmfit"))
    typed = parser.parse_args()
    folder, shape, out = data_folder(), parse_assignments(typed.set), typed.out
    tokenizer = shared_tokenizer(folder, out, typed.vocabulary)
    begun: dict[str, Any] = {**shape, "tokenizer.kind": str(tokenizer)}
    if typed.general != "none":
        begun = {"begin_with": trained("ulmfit", folder / GENERAL, out / "general", typed, typed.general, begun)}
    reviews = {"data.columns": "text=2", "data.holdout": 0.02, **begun}
    language = trained("ulmfit", folder / TRAIN, out / "language", typed, typed.language, reviews)
    labels = {
        "data.limit": typed.labels,
        "data.holdout": 0.0,
        "train.epochs": typed.epochs,
        "train.keep": "last",
        **parse_assignments(typed.tune),
    }
    tuned = trained("classify", folder / TRAIN, out / "tuned", typed, None, {**labels, "begin_with": language})
    plain = {**labels, **shape, "tokenizer.kind": str(tokenizer)}
    scratch = trained("classify", folder / TRAIN, out / "scratch", typed, None, plain, model="ulmfit")
    test = whole_lines(folder / TEST, out / "test.tsv")
    score = ensue.load(language).config["figures"]["valid"]
    for name, path in (("ulmfit", tuned), ("scratch", scratch)):
        run = ensue.load(path)
        record("ulmfit", {"start": name, **figures(run, test), **facts(typed, score)}, seed=typed.seed)


def shared_tokenizer(folder: Path, out: Path, vocabulary: int) -> Path:
    """A tokenizer of the reviews, which all runs share."""
    path = out / "tokenizer.json"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        save_tokenizer(fit_tokenizer("bpe", [TableColumn(folder / TRAIN, "text=2")], vocabulary=vocabulary), path)
    return path


def whole_lines(source: Path, path: Path) -> Path:
    """The lines of a test file that have a label and a text, as a file."""
    with gzip.open(source, "rt", encoding="utf-8", newline="\n") as file:
        lines = [line for line in file if line.count("\t") == 1 and line.split("\t")[0] in ("0", "1")]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def trained(
    what: str,
    data: Path,
    out: Path,
    typed: argparse.Namespace,
    budget: str | None,
    settings: Mapping[str, Any],
    model: str = "",
) -> str:
    """The folder of a run: trained, gone on with, or finished before."""
    if (out / "run.toml").exists():
        ensue.fit(what, out=out, resume=True)
    else:
        ensue.fit(what, data, out=out, model=model, budget=budget, seed=typed.seed, settings=dict(settings))
    return str(out)


def figures(run: Run, test: Path) -> dict[str, Any]:
    """How a classifier does on the test reviews, and what it cost."""
    score, held = run.score(test).figures, run.config["figures"]
    return {
        "accuracy": round(score["accuracy"], 4),
        "f1": round(score["f1"], 4),
        "examples": score["examples"],
        "train_examples": run.config["data"]["train_examples"],
        "parameters": held["parameters"],
        "training_seconds": held["seconds"],
        "training_threads": run.settings["train.threads"],
        "steps": held["steps"],
        "epochs": run.settings["train.epochs"],
        "lr": run.settings["train.lr"],
    }


def facts(typed: argparse.Namespace, score: Mapping[str, Any]) -> dict[str, Any]:
    """What came before the labels."""
    return {
        "general": typed.general,
        "language": typed.language,
        "language_bits_per_byte": round(score["bits_per_byte"], 4),
        "language_perplexity_per_token": round(score["perplexity"]["token"], 2),
        "vocabulary": typed.vocabulary,
        "settings": [*typed.set, *typed.tune],
        "scored_on": "the test reviews; nothing was held out and the last weights were kept",
    }


if __name__ == "__main__":
    main()
