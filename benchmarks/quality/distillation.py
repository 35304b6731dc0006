"""A two-layer student of an SST-2 teacher: taught by what the teacher says of texts, against taught by labels alone.

ENSUE_DATA=… python -m benchmarks.quality.distillation --teacher runs/sst2 --out runs/distil [--labels 0] [--epochs 4]

Both students are the same: two layers of MiniLM, evenly spaced, with its embeddings. One is fine-tuned on the labels;
the other sees no label, only the teacher's answers on the same sentences, on those of train_tail, whose labels nobody
looks at, and on ``--more N`` sentences of IMDb's reviews, which never had one. ``--labels N`` gives the first student
(and should have given the teacher) only so many labels. The development set chooses the weights of both, and is what
both are scored on.
"""

from __future__ import annotations

import argparse
import gzip
import re
from pathlib import Path
from typing import Any

import ensue
from benchmarks.minilm import minilm_run
from benchmarks.record import data_folder, record
from ensue.core.settings import parse_assignments


def imdb_sentences(count: int, out: Path) -> Path:
    """The first so many sentences of 5 to 40 words in IMDb's reviews, in SST-2's small letters, as a file."""
    out.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    with gzip.open(data_folder() / "labelled" / "imdb" / "train.tsv.gz", "rt", encoding="utf-8") as file:
        for line in file:
            text = line.rstrip("\n").partition("\t")[2].replace("<br />", " ")
            sentences = (" ".join(sentence.split()).lower() for sentence in re.split(r"(?<=[.!?]) ", text))
            found += [sentence for sentence in sentences if 5 <= len(sentence.split()) <= 40]
            if len(found) >= count:
                break
    path = out / "sentences.txt"
    path.write_text("\n".join(found[:count]) + "\n", encoding="utf-8")
    return path


def gone_on_with(out: Path) -> Any | None:
    """The run in a folder, finished where it is not; None where there is none."""
    return ensue.fit("classify", out=out, resume=True) if (out / "run.toml").exists() else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--teacher", type=Path, default=Path("runs/sst2"))
    parser.add_argument("--labels", type=int, default=0)
    parser.add_argument("--more", type=int, default=0)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/distil"))
    typed = parser.parse_args()
    folder = data_folder() / "labelled" / "sst2"
    train, tail, dev = (folder / f"{part}.tsv.gz" for part in ("train", "train_tail", "dev"))
    start = str(minilm_run(typed.out.parent / "minilm").folder.path)
    shared = {
        "layers": typed.layers,
        "train.epochs": typed.epochs,
        "begin_with": start,
        **parse_assignments(typed.set),
    }
    alone = gone_on_with(typed.out / "labels") or ensue.fit(
        "classify",
        train,
        valid=dev,
        out=typed.out / "labels",
        seed=typed.seed,
        settings={**shared, "data.limit": typed.labels},
    )
    texts = [train, tail, *([imdb_sentences(typed.more, typed.out)] if typed.more else [])]
    taught = gone_on_with(typed.out / "taught") or ensue.distil(
        typed.teacher, "bert", texts, valid=dev, out=typed.out / "taught", seed=typed.seed, settings=shared
    )
    teacher = ensue.load(typed.teacher).score(dev).figures["accuracy"]
    figures = {name: run.config["figures"] for name, run in (("labels", alone), ("taught", taught))}
    accuracy = {name: found["valid"]["accuracy"] for name, found in figures.items()}
    record(
        "distillation",
        {
            "data": "sst2",
            "student": f"bert, {typed.layers} layers of MiniLM",
            "settings": typed.set,
            "labels": typed.labels or alone.config["data"]["train_examples"],
            "unlabelled": taught.config["data"]["train_texts"],
            "teacher_accuracy": round(teacher, 4),
            "student_accuracy_by_labels": round(accuracy["labels"], 4),
            "student_accuracy_distilled": round(accuracy["taught"], 4),
            "gain_in_points": round(100 * (accuracy["taught"] - accuracy["labels"]), 2),
            "scored_on": "the development set, which also chose the weights",
            "training_seconds": {name: found["seconds"] for name, found in figures.items()},
            "parameters": figures["taught"]["parameters"],
        },
        seed=typed.seed,
    )


if __name__ == "__main__":
    main()
