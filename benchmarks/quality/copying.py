"""Copying over a gap: over how many tokens do an RNN, a GRU, an LSTM and a Transformer learn to remember a letter?

python -m benchmarks.quality.copying [--budget 60s] [--seeds 3] [--systems rnn,gru,lstm,gpt] [--limit 30000]

All are trained on the built-in corpus ``copying`` (letters that come again after 0 to 60 dots), with the same budget
each; accuracy is how often the right one of four letters is the likeliest. The chart of the first seed is written
beside the results. A gradient must reach back over the whole gap, so the recurrent systems are trained on stretches of
128 tokens.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import ensue
from benchmarks.record import RESULTS, record
from ensue.data.copy_task import copy_text
from ensue.verbs.look import look

RECURRENT = {"hidden": 64, "train.length": 128, "train.batch": 16, "train.lr": 1e-2, "train.clip": 1.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "rnn": {**RECURRENT, "train.lr": 2e-3},
    "gru": RECURRENT,
    "lstm": RECURRENT,
    "gpt": {"hidden": 128, "layers": 2, "heads": 4, "context": 128, "train.batch": 8, "train.lr": 3e-3},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--systems", default="rnn,gru,lstm,gpt")
    parser.add_argument("--limit", type=int, default=30_000, help="lines of the corpus")
    parser.add_argument("--out", type=Path)
    typed = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = typed.out or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        text = folder / "copying.txt"
        text.write_text(copy_text(lines=typed.limit), encoding="utf-8")
        systems = typed.systems.split(",")
        for seed in range(typed.seeds):
            runs = [fit(system, seed, text, typed.budget, folder) for system in systems]
            chart = RESULTS / "copying.svg" if seed == 0 else None
            seen = look("copying", [run.folder.path for run in runs], out=chart)
            for run, told in zip(runs, seen.numbers["runs"], strict=True):
                figures = {
                    "system": run.system,
                    "budget": typed.budget,
                    "lines": typed.limit,
                    "settings": SETTINGS[run.system],
                    "steps": int(run.settings["train.steps"]),
                    "seconds": run.config["figures"]["seconds"],
                    "parameters": run.config["figures"]["parameters"],
                    "accuracy_by_gap": {row["gap"]: round(row["accuracy"], 3) for row in told["by_gap"]},
                }
                record("copying", figures, seed=seed)


def fit(system: str, seed: int, text: Path, budget: str, folder: Path) -> ensue.Run:
    settings = {**SETTINGS[system], "tokenizer.kind": "char"}
    out = folder / f"{system}-{seed}"
    return ensue.fit(system, str(text), settings=settings, budget=budget, seed=seed, out=out)


if __name__ == "__main__":
    main()
