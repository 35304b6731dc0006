"""BERT from nothing on two small corpora: masked loss against the unigram's, next sentence, and how much to hide.

ENSUE_DATA=… python -m benchmarks.quality.bert_pretraining --out runs/bert-scratch
ENSUE_DATA=… python -m benchmarks.quality.bert_pretraining --sweep 0.05,0.15,0.4 --set train.steps=2000 --out runs/sweep

The text is Brown and the articles of WikiText-2's validation part; every twentieth document is held out. All are scored
alike: 15 % of the held-out tokens hidden, as the paper does, whatever share a model was trained with.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import ensue
from benchmarks.record import data_folder, record
from ensue.core.events import silent
from ensue.core.run_folder import RunFolder
from ensue.core.settings import parse_assignments
from ensue.runs.settings_resolution import resolve
from ensue.tasks import masked_modelling as masked

TEXTS = ("text/brown.txt.gz", "text/wikitext2.valid.txt.gz")


def scored(run: Any) -> dict[str, Any]:
    """The held-out documents with 15 % hidden."""
    settings = resolve(run.system, layers=[run.settings])
    settings = replace(settings, train=replace(settings.train, mask=0.15))
    corpus = masked.TASK.read_corpus(settings, RunFolder(run.folder.path), silent)
    assert corpus.valid is not None
    return masked.score_documents(
        settings, run.model, corpus.valid, corpus.tokenizer, 2000, train=corpus.train
    ).as_dict()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweep", default="0.15", help="shares to hide, with commas between")
    parser.add_argument("--system", default="bert")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--budget", default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/bert-scratch"))
    typed = parser.parse_args()
    files = [data_folder() / name for name in TEXTS]
    for share in map(float, typed.sweep.split(",")):
        out = typed.out / f"{share:g}"
        if (out / "run.toml").exists():
            run = ensue.fit(typed.system, out=out, resume=True)
        else:
            run = ensue.fit(
                typed.system,
                files,
                out=out,
                preset=typed.preset,
                budget=typed.budget,
                seed=typed.seed,
                settings={**parse_assignments(typed.set), "train.mask": share},
            )
        figures = run.config["figures"]
        record(
            "bert_pretraining",
            {
                "system": typed.system,
                "preset": typed.preset,
                "settings": typed.set,
                "trained_with_hidden": share,
                **{name: round(v, 4) if isinstance(v, float) else v for name, v in scored(run).items()},
                "training_seconds": figures["seconds"],
                "training_threads": run.settings["train.threads"],
                "steps": figures["steps"],
                "tokens": figures["tokens"],
                "parameters": figures["parameters"],
            },
            seed=typed.seed,
        )


if __name__ == "__main__":
    main()
