"""ELMo from scratch on the Brown corpus: forward and backward perplexity on held-out sentences.

ENSUE_DATA=… python -m benchmarks.quality.elmo --out runs/elmo --epochs 5
ENSUE_DATA=… python -m benchmarks.quality.elmo --out runs/elmo-exact --set samples=0
ENSUE_DATA=… python -m benchmarks.quality.elmo --system context2vec --out runs/context2vec

5 % of the sentences, in blocks of 30, are held out. Words seen once are beyond the vocabulary: they are read by their
letters and predicted as the unknown word. ``--limit`` takes that many lines only, to try the script. A run that is in
the folder already is gone on with.
"""

from __future__ import annotations

import argparse
import gzip
from itertools import islice
from pathlib import Path

import ensue
from benchmarks.record import data_folder, record
from ensue.core.settings import parse_assignments


def text(limit: int, folder: Path) -> Path:
    """The corpus, or its first lines in a file of their own."""
    whole = data_folder() / "text" / "brown.txt.gz"
    if not limit:
        return whole
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(whole, "rt", encoding="utf-8") as file:
        lines = "".join(islice(file, limit))
    part = folder / f"brown-{limit}.txt"
    part.write_text(lines, encoding="utf-8")
    return part


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--system", choices=("elmo", "context2vec"), default="elmo")
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--limit", type=int, default=0, help="lines of the corpus; 0 means all")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/elmo"))
    typed = parser.parse_args()
    if (typed.out / "run.toml").exists():
        run = ensue.fit(typed.system, out=typed.out, resume=True)
    else:
        settings = {"train.epochs": typed.epochs, **parse_assignments(typed.set)}
        file = text(typed.limit, typed.out.parent)
        run = ensue.fit(typed.system, file, out=typed.out, seed=typed.seed, settings=settings)
    figures, data = run.config["figures"], run.config["data"]
    valid = figures["valid"]
    record(
        "elmo",
        {
            "system": typed.system,
            "data": "brown" if not typed.limit else f"brown, {typed.limit} lines",
            "settings": typed.set,
            "perplexity_per_word": {name: round(value, 2) for name, value in valid["perplexity"].items()},
            "valid_words": valid["words"],
            "beyond_vocabulary": valid["unknown"],
            "vocabulary": data["vocabulary"],
            "train_words": data["train_tokens"],
            "parameters": figures["parameters"],
            "steps": figures["steps"],
            "training_seconds": figures["seconds"],
            "words_per_second": round(figures["tokens"] / max(figures["seconds"], 1e-9)),
            "training_threads": run.settings["train.threads"],
        },
        seed=typed.seed,
    )


if __name__ == "__main__":
    main()
