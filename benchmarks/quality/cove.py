"""CoVe: the encoder of a translation model (Multi30k, English to German) under a tagger or classifier; against none.

ENSUE_DATA=… python -m benchmarks.quality.cove --data conll2003 --out runs/cove
ENSUE_DATA=… python -m benchmarks.quality.cove --data sst2 --labels 1000 --out runs/cove-sst2

Both have the same LSTM in both directions over the same tokens; one of them also reads the encoder's states, which stay
as they are. The figures are those of the development set, which also chose the weights of both. A run that is in the
folder already is gone on with, so whoever stops may go on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import ensue
from benchmarks.record import data_folder, record
from ensue.core.settings import parse_assignments
from ensue.data.tokenizers.registry import save_tokenizer

PAIRS = "translation/multi30k"
DATA = {
    "conll2003": ("tag", "tagged/conll2003/train.txt.gz", "tagged/conll2003/valid.txt.gz"),
    "sst2": ("classify", "labelled/sst2/train.tsv.gz", "labelled/sst2/dev.tsv.gz"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", choices=DATA, default="conll2003")
    parser.add_argument("--system", choices=("seq2seq", "transformer"), default="seq2seq")
    parser.add_argument("--translation", default="10m", help="the training of the translation model")
    parser.add_argument("--labels", type=int, default=0, help="learn from so many examples; 0 means all")
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--set", action="append", default=[], help="settings of the translation model")
    parser.add_argument("--tune", action="append", default=[], help="settings of both labelling models")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/cove"))
    typed = parser.parse_args()
    folder = data_folder()
    task, train, valid = DATA[typed.data]
    pairs = {part: [folder / PAIRS / f"{part}.{side}" for side in ("en", "de")] for part in ("train", "valid")}
    lender = trained(
        typed.system,
        [present(file) for file in pairs["train"]],
        typed.out / "translation",
        valid=[present(file) for file in pairs["valid"]],
        budget=typed.translation,
        seed=typed.seed,
        settings={"tokenizer.kind": "bpe", **parse_assignments(typed.set)},
    )
    source = typed.out / "source.json"
    save_tokenizer(lender.translator().source_tokenizer, source)
    labels = {"data.limit": typed.labels, "train.epochs": typed.epochs, "dropout": 0.3, **parse_assignments(typed.tune)}
    starts: dict[str, dict[str, Any]] = {
        "cove": {"settings": {**labels, "begin_with": str(lender.folder.path)}},
        "none": {
            "model": "lstm",
            "settings": {**labels, "tokenizer.kind": str(source), "head.directions": "both"},
        },
    }
    for name, how in starts.items():
        run = trained(task, [folder / train], typed.out / name, valid=[folder / valid], seed=typed.seed, **how)
        held, score = run.config["figures"], run.config["figures"]["valid"]
        record(
            "cove",
            {
                "features": name,
                "data": typed.data,
                "task": task,
                **{key: round(score[key], 4) for key in ("accuracy", "f1") if score.get(key) is not None},
                "scored_on": "the development set, which also chose the weights",
                "train_examples": run.config["data"]["train_examples"],
                "parameters": held["parameters"],
                "training_seconds": held["seconds"],
                "training_threads": run.settings["train.threads"],
                "epochs": typed.epochs,
                "translation": f"{typed.system}, {typed.translation}",
                "translation_bleu": round(lender.config["figures"]["valid"]["bleu"], 2),
                "settings": [*typed.set, *typed.tune],
            },
            seed=typed.seed,
        )


def present(file: Path) -> Path:
    """A file, or the same compressed."""
    return file if file.exists() else file.with_name(f"{file.name}.gz")


def trained(what: str, data: list[Path], out: Path, **how: Any) -> Any:
    """A run: trained, gone on with, or finished before."""
    if (out / "run.toml").exists():
        return ensue.fit(what, out=out, resume=True)
    return ensue.fit(what, data, out=out, **how)


if __name__ == "__main__":
    main()
