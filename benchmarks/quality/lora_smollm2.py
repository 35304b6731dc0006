"""Adapters on SmolLM2 with 4-bit weights, against SmolLM2 as it is and systems trained from scratch at the same budget.

python -m benchmarks.quality.lora_smollm2 --from runs/smollm2 [--budget 10m] [--texts ptb] [--systems ngram,lstm,gpt]

Each text is cut to the same size; its end is held out and never trained on. Reads $ENSUE_DATA. With ``--systems ""``
nothing is trained from scratch. ``--adapters RUN`` trains nothing: it merges the adapters of an earlier run into
weights of 8 and of 4 bits, and measures them.
"""

from __future__ import annotations

import argparse
import gzip
import os
import tempfile
from pathlib import Path
from typing import Any

import ensue
from benchmarks.record import data_folder, record
from ensue.verbs.convert import convert

TEXTS = {
    "ptb": "text/ptb/train.txt.gz",
    "brown": "text/brown.txt.gz",
    "linux": "text/linux.c.txt.gz",
    "shakespeare": "text/tinyshakespeare.txt.gz",
}
TRAIN_BYTES, HELD_BYTES = 760_000, 40_000


def write_parts(text: str, folder: Path) -> tuple[Path, Path]:
    """The start of a text to train on, and what follows it, in whole lines."""
    with gzip.open(data_folder() / TEXTS[text], "rt", encoding="utf-8") as file:
        lines = file.read(TRAIN_BYTES + HELD_BYTES).splitlines(keepends=True)[:-1]
    held: list[str] = []
    while sum(map(len, held)) < HELD_BYTES:
        held.insert(0, lines.pop())
    paths = folder / f"{text}.train.txt", folder / f"{text}.held.txt"
    for path, part in zip(paths, (lines, held), strict=True):
        path.write_text("".join(part), encoding="utf-8")
    return paths


def figures_of(run: Any) -> dict[str, Any]:
    """What a training did."""
    figures = run.config["figures"]
    used = {name: figures[name] for name in ("steps", "seconds", "tokens", "parameters", "bytes")}
    return used | {"tokens_per_second": round(figures["tokens"] / max(figures["seconds"], 1e-9), 1)}


def merged(run: Path, held: Path, folder: Path) -> dict[str, float]:
    """Bits per byte of a run of adapters, and of the same merged into weights of 8 and of 4 bits."""
    found = {"with adapters": ensue.load(run).score(held).bits_per_byte}
    for weights, bits in (("int8", 8), ("int4", 4)):
        out = convert(run, weights=weights, out=folder / f"merged-{bits}", force=True)
        found[f"merged, {bits} bits"] = ensue.load(out).score(held).bits_per_byte
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--from", dest="initial", type=Path, required=True)
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--texts", default="ptb")
    parser.add_argument("--systems", default="ngram,lstm,gpt")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--out", type=Path, help="keep the runs here")
    parser.add_argument("--adapters", type=Path, help="a run of adapters to merge; nothing is trained")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = chosen.out or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for text in chosen.texts.split(","):
            train, held = write_parts(text, folder)
            if chosen.adapters:
                figures = {"as it is": ensue.load(chosen.initial).score(held).bits_per_byte}
                figures |= merged(chosen.adapters, held, Path(name))
                record("lora_smollm2", {"text": text, "held_bytes": held.stat().st_size, "bits_per_byte": figures})
                continue
            base = ensue.load(chosen.initial)
            result: dict[str, Any] = {"text": text, "budget": chosen.budget, "rank": chosen.rank}
            result |= {"train_bytes": train.stat().st_size, "held_bytes": held.stat().st_size}
            result["bits_per_byte"] = {"as it is": base.score(held).bits_per_byte}
            options = {"train.lora": chosen.rank}
            where = {"valid": held, "out": folder / f"{text}-adapters", "begin_with": chosen.initial, "force": True}
            mine = ensue.fit("llama", train, budget=chosen.budget, settings=options, **where)
            result["bits_per_byte"]["with adapters"] = mine.config["figures"]["valid"]["bits_per_byte"]
            result["training"] = figures_of(mine)
            if chosen.systems:
                out = folder / f"{text}-race"
                raced = ensue.race(
                    train, valid=held, systems=chosen.systems.split(","), budget=chosen.budget, out=out, force=True
                ).as_dict()
                for one in raced["systems"]:
                    result["bits_per_byte"][f"{one['system']} from scratch"] = one["bits_per_byte"]
            result["load_average"] = [round(one, 1) for one in os.getloadavg()]
            record("lora_smollm2", result)


if __name__ == "__main__":
    main()
