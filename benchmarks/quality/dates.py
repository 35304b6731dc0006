"""The built-in corpus ``dates``: the share of held-out dates that come out exactly right, and how long training took.

python -m benchmarks.quality.dates [--system transformer] [--seed 0] [--out runs/dates]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import ensue
from benchmarks.record import record


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--system", default="transformer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/dates"))
    typed = parser.parse_args()
    run = ensue.fit(typed.system, "dates", out=typed.out, seed=typed.seed, force=True)
    figures = run.config["figures"]
    record(
        "dates",
        {
            "system": typed.system,
            "exact": figures["valid"]["exact"],
            "sentences": figures["valid"]["sentences"],
            "training_seconds": figures["seconds"],
            "training_threads": run.settings["train.threads"],
            "steps": figures["steps"],
            "parameters": figures["parameters"],
        },
        seed=typed.seed,
    )


if __name__ == "__main__":
    main()
