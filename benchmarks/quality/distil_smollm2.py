"""A small GPT that learns from SmolLM2's probabilities, against the same GPT that learns from the text alone.

ENSUE_DATA=… python -m benchmarks.quality.distil_smollm2 --from runs/smollm2 [--budget 5m] [--texts ptb] [--seeds 2]

Both have SmolLM2's tokenizer, the same settings and the same budget, which is CPU time of one thread, so that other
work on the machine does not count. The teacher's reading is part of the budget, so its student sees fewer tokens; a
third one has the text alone and as many steps as that student. The end of the text is held out and never trained on.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

import ensue
from benchmarks.quality import lora_smollm2
from benchmarks.quality.lora_smollm2 import write_parts
from benchmarks.record import record

STUDENT: dict[str, Any] = {"layers": 2, "hidden": 128, "heads": 4, "context": 64, "train.budget_clock": "cpu"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="teacher", type=Path, required=True)
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--texts", default="ptb")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=lora_smollm2.TRAIN_BYTES, help="of text to train on")
    parser.add_argument("--out", type=Path, help="keep the runs here")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    lora_smollm2.TRAIN_BYTES = chosen.bytes
    with tempfile.TemporaryDirectory() as name:
        folder = chosen.out or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for text in chosen.texts.split(","):
            train, held = write_parts(text, folder)
            found: dict[str, list[float]] = {name: [] for name in ("text", "teacher and text", "text, as many steps")}
            steps: dict[str, list[int]] = {name: [] for name in found}

            def note(name: str, run: Any, held: Path = held, found: Any = found, steps: Any = steps) -> Any:
                found[name].append(run.score(held).bits_per_byte)
                steps[name].append(run.config["figures"]["steps"])
                return run

            for seed in range(chosen.seeds):
                how: dict[str, Any] = {"seed": seed, "force": True}
                text_alone = {"tokenizer": str(chosen.teacher), **how}
                given = {"settings": STUDENT, "budget": chosen.budget}
                note("text", ensue.fit("gpt", train, out=folder / f"{text}-text-{seed}", **given, **text_alone))
                out = folder / f"{text}-teacher-{seed}"
                taught = ensue.distil(chosen.teacher, "gpt", [train], out=out, **given, **how)
                note("teacher and text", taught)
                settings = {**STUDENT, "train.steps": steps["teacher and text"][-1]}
                out = folder / f"{text}-steps-{seed}"
                note("text, as many steps", ensue.fit("gpt", train, out=out, settings=settings, **text_alone))
            record(
                "distil_smollm2",
                {
                    "text": text,
                    "budget": f"{chosen.budget} of CPU time",
                    "train_bytes": train.stat().st_size,
                    "held_bytes": held.stat().st_size,
                    "student": STUDENT | {"parameters": taught.config["figures"]["parameters"]},
                    "bits_per_byte": {who: statistics.mean(each) for who, each in found.items()},
                    "spread": {who: [min(each), max(each)] for who, each in found.items()},
                    "steps": steps,
                    "teacher_bits_per_byte": ensue.load(chosen.teacher).score(held).bits_per_byte,
                    "seeds": chosen.seeds,
                },
            )


if __name__ == "__main__":
    main()
