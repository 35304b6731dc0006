"""CoNLL-2003 names: the same recurrent tagger with random vectors, and with ELMo's layers beside them.

ENSUE_DATA=… python -m benchmarks.quality.elmo_tagging --elmo runs/elmo --out runs/elmo-tagging
ENSUE_DATA=… python -m benchmarks.quality.elmo_tagging --elmo runs/elmo --out runs/pos --task pos --layers

Both have the same words, cells, steps and seeds; they differ in the features alone. ``--layers`` also trains one tagger
on each layer alone: which layer tells parts of speech (``--task pos``: those of UD EWT)? Figures are of the validation
set, which also chose the weights. ``--limit`` takes that many sentences only.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import ensue
from benchmarks.record import data_folder, record
from ensue.core.settings import parse_assignments

DATA = {
    "ner": ("tagged/conll2003/train.txt.gz", "tagged/conll2003/valid.txt.gz"),
    "pos": ("tagged/ud_ewt/en_ewt-ud-train.conllu.gz", "tagged/ud_ewt/en_ewt-ud-dev.conllu.gz"),
}
SETTINGS: dict[str, Any] = {
    "hidden": 128,
    "embedding": 100,
    "dropout": 0.3,
    "train.epochs": 8.0,
    "train.lr": 2e-3,
    "train.batch_tokens": 600,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--elmo", type=Path, required=True, help="a run of elmo")
    parser.add_argument("--task", choices=DATA, default="ner")
    parser.add_argument("--layers", action="store_true", help="also each layer alone")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path, default=Path("runs/elmo-tagging"))
    typed = parser.parse_args()
    depth = int(ensue.load(typed.elmo).config["model"]["layers"]) + 1
    starts: dict[str, dict[str, Any]] = {"random": {}, "elmo": {"begin_with": str(typed.elmo)}}
    if typed.layers:
        starts |= {f"layer {layer}": {"begin_with": str(typed.elmo), "features.layer": layer} for layer in range(depth)}
    for seed in range(typed.seeds):
        for name, start in starts.items():
            tagged(typed, seed, name, start)


def tagged(typed: argparse.Namespace, seed: int, name: str, start: dict[str, Any]) -> None:
    """Train one tagger and record it."""
    train, valid = DATA[typed.task]
    out = typed.out / f"{name.replace(' ', '-')}-{seed}"
    if (out / "run.toml").exists():
        run = ensue.fit("tag", out=out, resume=True)
    else:
        settings = {**SETTINGS, "data.limit": typed.limit}
        run = ensue.fit(
            "tag",
            data_folder() / train,
            valid=data_folder() / valid,
            model="lstm",
            out=out,
            seed=seed,
            settings={**settings, **parse_assignments(typed.set), **start},
        )
    figures = run.config["figures"]
    held = run.config.get("features") or {}
    record(
        "elmo_tagging",
        {
            "task": typed.task,
            "vectors": name,
            "settings": typed.set,
            **{key: round(figures["valid"][key], 4) for key in ("f1", "accuracy") if figures["valid"].get(key)},
            "scored_on": "the validation set, which also chose the weights",
            "shares": held.get("shares"),
            "scale": held.get("scale"),
            "train_examples": run.config["data"]["train_examples"],
            "steps": figures["steps"],
            "training_seconds": figures["seconds"],
            "parameters": figures["parameters"],
        },
        seed=seed,
    )


if __name__ == "__main__":
    main()
