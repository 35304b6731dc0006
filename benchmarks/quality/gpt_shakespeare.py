"""gpt on tiny Shakespeare, character by character: nats a character on the whole last tenth.

ENSUE_DATA=… python -m benchmarks.quality.gpt_shakespeare --preset nanogpt --seeds 3
ENSUE_DATA=… python -m benchmarks.quality.gpt_shakespeare --preset shakespeare --seeds 1
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import tempfile
from pathlib import Path

import ensue
from benchmarks.record import data_folder, record


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="nanogpt")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    text = gzip.decompress((data_folder() / "text" / "tinyshakespeare.txt.gz").read_bytes()).decode()
    cut = len(text) * 9 // 10
    losses, seconds = [], []
    with tempfile.TemporaryDirectory() as name:
        train, valid = Path(name) / "train.txt", Path(name) / "valid.txt"
        train.write_text(text[:cut], encoding="utf-8")
        valid.write_text(text[cut:], encoding="utf-8")
        for seed in range(chosen.seeds):
            run = ensue.fit("gpt", train, valid=valid, preset=chosen.preset, seed=seed, out=Path(name) / f"run-{seed}")
            losses.append(run.score(valid).nll)
            seconds.append(run.config["figures"]["seconds"])
    record(
        "gpt_shakespeare",
        {
            "preset": chosen.preset,
            "nats_per_character": round(statistics.mean(losses), 4),
            "each_seed": [round(loss, 4) for loss in losses],
            "training_seconds": seconds,
            "steps": run.config["figures"]["steps"],
            "parameters": run.config["figures"]["parameters"],
        },
        seed=list(range(chosen.seeds)),
    )


if __name__ == "__main__":
    main()
