"""ELECTRA against BERT at equal compute: pre-trained for the same CPU time, then fine-tuned on SST-2 and CoNLL-2003.

ENSUE_DATA=… python -m benchmarks.quality.electra_bert --budget 6m --out runs/electra-bert
ENSUE_DATA=… python -m benchmarks.quality.electra_bert --budget 1h --text imdb --shape small --out runs/electra-bert-1h

All systems share one tokenizer, the shape, rows, batches and text: Brown and the articles of WikiText-2's validation
part, or reviews of IMDb's training part. Each gets as much CPU time as the others (a budget that other processes hardly
change), and afterwards the same CPU time on each task, from each of the seeds. The figures are those of the development
sets, of the last weights. "scratch" is fine-tuned without pre-training. Runs that exist are gone on with.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ensue
from benchmarks.record import data_folder, record
from ensue.core.settings import parse_assignments

TEXTS = ("text/brown.txt.gz", "text/wikitext2.valid.txt.gz")
REVIEWS = 12_000
TASKS = {
    "sst2": ("classify", "labelled/sst2/train.tsv.gz", "labelled/sst2/dev.tsv.gz", "accuracy"),
    "conll2003": ("tag", "tagged/conll2003/train.txt.gz", "tagged/conll2003/valid.txt.gz", "f1"),
}
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "heads": 2, "hidden": 128},
    "small": {"layers": 4, "heads": 4, "hidden": 256},
}
SYSTEMS: dict[str, dict[str, Any]] = {
    "bert": {"next_sentence": False, "pooled": False},
    "electra": {"embedding": 0},
}
"""Neither is trained on pairs, so that only what is predicted of tokens differs."""
PRE_TRAINING = ("masked_loss", "accuracy", "unigram_loss", "replaced_accuracy", "replaced_f1", "generator_bits")


def files(text: str, out: Path) -> list[Path]:
    """The text to learn from; of IMDb its reviews as documents, a line for each sentence."""
    folder = data_folder()
    if text == "brown":
        return [folder / name for name in TEXTS]
    path = out / "imdb.txt"
    if not path.exists():
        with gzip.open(folder / "labelled/imdb/train.tsv.gz", "rt", encoding="utf-8") as file:
            rows = [row[1] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if len(row) > 1]
        step = max(1, len(rows) // REVIEWS)
        documents = (re.sub(r"(?<=[.!?]) +", "\n", re.sub(r"<br */?>", " ", row)) for row in rows[::step])
        path.write_text("\n\n".join(documents), encoding="utf-8")
    return [path]


def made(out: Path, **how: Any) -> Any:
    """The run in a folder, trained there unless it is finished."""
    return ensue.fit(how["what"], out=out, resume=True) if (out / "run.toml").exists() else ensue.fit(out=out, **how)


def common(typed: argparse.Namespace, budget: str) -> dict[str, Any]:
    """Settings of every training."""
    return {"train.budget_clock": "cpu", "train.threads": typed.threads, "train.keep": "last", "budget": budget}


def pre_trained(system: str, typed: argparse.Namespace, tokenizer: Path | None) -> Any:
    """A pre-trained run of a system."""
    settings = {**SHAPES[typed.shape], **SYSTEMS[system], **common(typed, ""), "train.lr": typed.lr}
    settings |= parse_assignments(typed.set if system == "bert" else [*typed.set, *typed.electra])
    settings.pop("budget")
    if tokenizer is not None:
        settings["tokenizer.kind"] = str(tokenizer)
    return made(
        typed.out / system,
        what=system,
        data=files(typed.text, typed.out),
        settings=settings,
        budget=typed.budget,
        seed=typed.seeds[0],
    )


def fine_tuned(system: str, start: Any, task: str, seed: int, typed: argparse.Namespace) -> float:
    """The measure of a run that is fine-tuned to a task, from the weights of ``start``, or from random ones."""
    name, train, valid, measure = TASKS[task]
    settings = {**common(typed, ""), "train.lr": typed.tune_lr}
    settings.pop("budget")
    if system == "scratch":
        settings |= {k: v for k, v in start.config["model"].items() if k != "vocabulary"}
        settings["tokenizer.kind"] = str(start.folder.tokenizer)
    else:
        settings["begin_with"] = str(start.folder.path)
    run = made(
        typed.out / f"{system}-{task}-{seed}",
        what=name,
        data=[data_folder() / train],
        valid=[data_folder() / valid],
        model=start.system,
        settings=settings,
        budget=typed.tune,
        seed=seed,
    )
    return float(run.config["figures"]["valid"][measure])


def line(system: str, run: Any, scores: Iterable[tuple[str, list[float]]], typed: argparse.Namespace) -> None:
    figures = run.config["figures"]
    found = figures["valid"] if system != "scratch" else {}
    record(
        "electra_bert",
        {
            "system": system,
            "shape": typed.shape,
            "text": typed.text,
            "budget": typed.budget,
            "tuning": typed.tune,
            "settings": [*typed.set, *(typed.electra if system == "electra" else [])],
            **{name: round(found[name], 4) for name in PRE_TRAINING if found.get(name) is not None},
            **{f"{task}_{TASKS[task][3]}": [round(one, 4) for one in values] for task, values in scores},
            "steps": figures["steps"] if system != "scratch" else 0,
            "tokens": figures["tokens"] if system != "scratch" else 0,
            "parameters": figures["parameters"],
        },
        seed=typed.seeds,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", default="6m", help="CPU time of each pre-training")
    parser.add_argument("--tune", default="90s", help="CPU time of each fine-tuning")
    parser.add_argument("--text", choices=("brown", "imdb"), default="brown")
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--tune-lr", type=float, default=5e-4)
    parser.add_argument("--systems", default="bert,electra,scratch")
    parser.add_argument("--set", action="append", default=[], help="a setting of both")
    parser.add_argument("--electra", action="append", default=[], help="a setting of ELECTRA")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/electra-bert"))
    typed = parser.parse_args()
    typed.out.mkdir(parents=True, exist_ok=True)
    tokenizer: Path | None = None
    for system in typed.systems.split(","):
        start = pre_trained("bert" if system == "scratch" else system, typed, tokenizer)
        tokenizer = tokenizer or start.folder.tokenizer
        scores = [(task, [fine_tuned(system, start, task, seed, typed) for seed in typed.seeds]) for task in TASKS]
        line(system, start, scores, typed)


if __name__ == "__main__":
    main()
