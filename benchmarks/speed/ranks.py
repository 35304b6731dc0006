"""The same batches by one process on one thread and by two ranks on one thread each: tokens a second in updates.

python -m benchmarks.speed.ranks [--rounds 2] [--steps 20]          # some four minutes

On two cores two ranks can be at most twice as fast. What is lost goes into adding gradients up, and into waiting for
the slower of both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.turns import Contest, Mark, Round, Work, hold

BATCH, CONTEXT, WIDTH, LAYERS = 16, 128, 256, 4
RANKS = ("-m", "torch.distributed.run", "--nproc-per-node", "2")


def program(launcher: tuple[str, ...], steps: int, *more: str) -> Work:
    """Trains anew each round; what a run's metrics call seconds are those of its updates."""

    def work(turn: int) -> Round:
        with tempfile.TemporaryDirectory() as folder:
            settings = {
                "layers": LAYERS,
                "hidden": WIDTH,
                "heads": 4,
                "context": CONTEXT,
                "train.batch": BATCH,
                "train.steps": steps,
                "train.threads": 1,
                "train.log_every": 5,
                "train.eval_every": 10 * steps,
                "data.holdout": 0,
            }
            words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
            command = [sys.executable, *launcher, "-m", "ensue", "fit", "gpt", "pydoc", *words, *more]
            quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
            subprocess.run([*command, "--out", f"{folder}/run"], check=True, capture_output=True, env=quiet)
            lines = (Path(folder) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        first, second, last = (json.loads(lines[at]) for at in (0, 1, -1))  # the first steps warm up
        work = (last["step"] - first["step"]) * BATCH * CONTEXT
        return Round(work, last["seconds"] - first["seconds"], second["loss"])

    return work


def agree(done: dict[str, list[Round]]) -> dict[str, float]:
    """All must have had the same losses in the first ten steps; later rounding grows, as it does in any training."""
    losses = {name: rounds[-1].result for name, rounds in done.items()}
    apart = max(losses.values()) - min(losses.values())
    if apart > 1e-5:
        raise SystemExit(f"these are not the same trainings: {losses}")
    return {"loss_difference": apart}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    ours = {"two ranks": partial(program, RANKS, asked.steps)}
    ours["two ranks, sharded"] = partial(program, RANKS, asked.steps, "--shard")
    contest = Contest(
        result="ranks",
        work="gpt training by two ranks of one thread each",
        size=f"{LAYERS} layers, width {WIDTH}, {BATCH} rows of {CONTEXT} tokens",
        unit="tokens",
        programs={**ours, "one process": partial(program, (), asked.steps)},
        marks=[Mark(name, "one process") for name in ours],
    )
    hold(contest, asked.rounds, agree)


if __name__ == "__main__":
    main()
