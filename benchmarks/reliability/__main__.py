"""Everything that is promised about reliability, measured in one go and printed as one table; within an hour.

python -m benchmarks.reliability [--short] [--only budget,damage,files,gguf_files,sandbox,server]

Ends with 1 if something does not hold. ``--short`` takes a quarter of the time: fewer rounds, cases and requests.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module

from benchmarks.record import record
from benchmarks.reliability.row import Row

PARTS = {
    "budget": "budgets, threads and races beside busy processes; killed and resumed",
    "damage": "damaged run folders and checkpoints; killed while saving",
    "files": "hostile files of every kind",
    "gguf_files": "GGUF files with changed bits",
    "sandbox": "programs that attack the sandbox of generated code",
    "server": "clients that do not read; memory over many requests",
}


def table(rows: list[Row]) -> str:
    """The rows as a table in Markdown."""
    lines = ["| what | target | measured | |", "|---|---|---|---|"]
    for what, target, measured, holds in rows:
        lines.append(f"| {what} | {target} | {measured} | {'holds' if holds else '**does not hold**'} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS))
    chosen = parser.parse_args()
    rows: list[Row] = []
    for part in chosen.only.split(","):
        print(f"— {PARTS[part]}", file=sys.stderr)
        started = time.perf_counter()
        found: list[Row] = import_module(f"benchmarks.reliability.{part}").measure(chosen.short)
        seconds = round(time.perf_counter() - started)
        record("reliability", {"part": part, "rows": [row._asdict() for row in found], "seconds": seconds})
        rows += found
    print(table(rows))
    return int(not all(row.holds for row in rows))


if __name__ == "__main__":
    sys.exit(main())
