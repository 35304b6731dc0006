"""kill -9 at random moments, then --resume: are the weights those of an unbroken run, to the bit?

python -m benchmarks.quality.kill_resume [--kills 10]

Each trial trains an lstm with dropout (streams, carried state), kills the process at a random moment and resumes it.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.record import record
from ensue.core.files import sha256

SETTINGS = (
    "hidden=32",
    "dropout=0.2",
    "train.steps=150",
    "train.checkpoint_every=7",
    "train.eval_every=20",
    "train.log_every=1",
)


def command(out: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "ensue", "fit", "lstm", "pydoc", "--out", str(out), "--tokenizer", "char", "--json"]
    for setting in (*SETTINGS, "data.eval_tokens=2000", "train.batch=8"):
        words += ["--set", setting]
    return [*words, *more]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    kills = parser.parse_args().kills
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(command(Path(name) / "whole"), check=True, capture_output=True)
        expected = sha256(Path(name) / "whole" / "model.safetensors")
        moments, same = [], 0
        for trial in range(kills):
            out = Path(name) / f"broken-{trial}"
            process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            log, moment = out / "metrics.jsonl", chance.randint(1, 145)
            while process.poll() is None and (not log.exists() or log.read_text().count("\n") < moment):
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.02))  # anywhere within a step, a checkpoint or an evaluation
            process.kill()
            process.wait()
            moments.append(log.read_text().count("\n"))
            more = ["--resume"] if (out / "run.toml").exists() else []
            subprocess.run(command(out, *more), check=True, capture_output=True)
            same += sha256(out / "model.safetensors") == expected
    record("kill_resume", {"kills": kills, "equal_hashes": same, "steps_when_killed": moments})


if __name__ == "__main__":
    main()
