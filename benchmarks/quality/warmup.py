"""Does a deep Transformer need a warm-up? Pre-norm against post-norm, with and without one, on the built-in corpus.

python -m benchmarks.quality.warmup [--steps 300]

Reported is the training loss, in nats a character, over the last tenth of the steps, for three seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import ensue
from benchmarks.record import record
from ensue.train.metrics import read_metrics


def final_loss(norm: str, warmup: float, seed: int, steps: int, folder: Path) -> float:
    settings = {
        "layers": 12,
        "heads": 2,
        "hidden": 64,
        "context": 32,
        "positions": "learned",
        "norm": norm,
        "train.steps": steps,
        "train.batch": 16,
        "train.lr": 3e-3,
        "train.schedule": "constant",
        "train.warmup": warmup,
        "train.clip": 0.0,
        "train.eval_every": steps,
        "train.log_every": max(1, steps // 10),
        "data.eval_tokens": 1000,
        "tokenizer.kind": "char",
    }
    run = ensue.fit("gpt", "pydoc", settings=settings, seed=seed, out=folder / f"{norm}-{warmup}-{seed}")
    return float(read_metrics(run.folder.path)[-1]["loss"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as name:
        for norm in ("pre", "post"):
            for warmup in (0.0, 0.5):
                losses = [round(final_loss(norm, warmup, seed, steps, Path(name)), 3) for seed in range(3)]
                record("warmup", {"norm": norm, "warmup": warmup, "steps": steps, "loss": losses}, seed=[0, 1, 2])


if __name__ == "__main__":
    main()
