"""Multi30k English to German: BLEU on test2016 of a preset, as trained on the machine at hand.

ENSUE_DATA=… python -m benchmarks.quality.multi30k --system transformer --preset multi30k --out runs/multi30k
ENSUE_DATA=… python -m benchmarks.quality.multi30k --system seq2seq --set attention=none --out runs/none

A run that is in the folder already is gone on with, or only scored where it is finished. ``--name`` puts the line into
another file of results.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import ensue
from benchmarks.record import data_folder, record
from ensue.core.settings import parse_assignments


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--system", default="transformer")
    parser.add_argument("--preset", default="multi30k")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--budget", default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="multi30k")
    parser.add_argument("--out", type=Path, default=Path("runs/multi30k"))
    typed = parser.parse_args()
    folder = data_folder() / "translation" / "multi30k"

    def pair(part: str) -> list[Path]:
        return [folder / f"{part}.{language}.gz" for language in ("en", "de")]

    if (typed.out / "run.toml").exists():  # where it is finished this does nothing
        ensue.fit(typed.system, out=typed.out, resume=True)
    else:
        ensue.fit(
            typed.system,
            pair("train"),
            valid=pair("valid"),
            out=typed.out,
            preset=typed.preset,
            budget=typed.budget,
            seed=typed.seed,
            settings=parse_assignments(typed.set),
        )
    run = ensue.load(typed.out)
    score = run.score(*pair("test2016"))
    figures = run.config["figures"]
    kept = (
        "bleu",
        "bleu_signature",
        "bleu_lower_tokenised",
        "bleu_lower_tokenised_signature",
        "chrf",
        "chrf_signature",
    )
    record(
        typed.name,
        {
            "system": typed.system,
            "preset": typed.preset,
            "settings": typed.set,
            **{name: round(v, 2) if isinstance(v := score.figures[name], float) else v for name in kept},
            "perplexity_per_token": round(score.figures["perplexity"]["token"], 3),
            "by_length": [{"words": row["label"], "bleu": round(row["bleu"], 2)} for row in score.by_length],
            "valid_bleu": round(figures["valid"]["bleu"], 2),
            "training_seconds": figures["seconds"],
            "training_threads": run.settings["train.threads"],
            "steps": figures["steps"],
            "target_tokens": figures["tokens"],
            "parameters": figures["parameters"],
        },
        seed=typed.seed,
    )


if __name__ == "__main__":
    main()
