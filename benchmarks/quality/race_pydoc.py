"""The race on the built-in corpus: what ``make demo`` runs.

python -m benchmarks.quality.race_pydoc [--budget 40s] [--seeds 1]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import ensue
from benchmarks.record import RESULTS, record

SYSTEMS = ("ngram", "window", "rnn", "gru", "gru-cho", "lstm", "gpt")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", default="40s")
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "race"
        result = ensue.race("pydoc", systems=SYSTEMS, budget=chosen.budget, match="cpu", seeds=chosen.seeds, out=out)
        for ending in ("md", "svg", "png"):
            shutil.copyfile(out / f"race.{ending}", RESULTS / f"race_pydoc.{ending}")
    record("race_pydoc", result.as_dict(), seed=list(range(chosen.seeds)))


if __name__ == "__main__":
    main()
