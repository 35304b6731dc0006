"""Damaged files of every format: how many cases end well.

python -m benchmarks.reliability.files [--short]

Without ``--short`` a hundred thousand cases; see ``benchmarks.reliability.fuzz``.
"""

from __future__ import annotations

import sys

from benchmarks.record import record
from benchmarks.reliability.fuzz import MEMORY, Tally, run_apart, target_names
from benchmarks.reliability.row import Row

CASES, SECONDS = 100_000, 3600.0
SHORT_CASES, SHORT_SECONDS = 4_000, 150.0


def measure(short: bool) -> list[Row]:
    """Run the cases of all targets in processes of their own."""
    names = target_names()
    if short:  # a process takes seconds to start: a spread of targets instead of all
        names = names[::6]
    tallies = run_apart(names, SHORT_CASES if short else CASES, SHORT_SECONDS if short else SECONDS)
    total = Tally()
    for tally in tallies.values():
        total.merge(tally)
    for problem in total.problems[:20]:
        print(problem)
    counts = {ending: total.endings[ending] for ending in ("traceback", "crash", "foreign")}
    read, refused = total.endings["read"], total.endings["refused"]
    return [
        Row(
            "damaged files opened",
            "each read or refused",
            f"{total.cases:,} of {len(names)} targets: {read:,} read, {refused:,} refused",
            read + refused == total.cases,
        ),
        Row("damaged files: tracebacks", "0", f"{counts['traceback']:,}", not counts["traceback"]),
        Row("damaged files: crashes", "0", f"{counts['crash']:,}", not counts["crash"]),
        Row(
            "damaged files: peak memory",
            f"below {MEMORY >> 20:,} MiB",
            f"{total.peak >> 20:,} MiB",
            total.peak < MEMORY,
        ),
        Row("damaged files: other files opened", "0", f"{counts['foreign']:,}", not counts["foreign"]),
    ]


def main() -> None:
    """Measure, print the rows and append them to the results."""
    rows = measure("--short" in sys.argv)
    for row in rows:
        print(f"{'holds' if row.holds else 'FAILS'}  {row.what}: {row.measured} (target: {row.target})")
    record("reliability", {"part": "files", "rows": [row._asdict() for row in rows]})


if __name__ == "__main__":
    main()
