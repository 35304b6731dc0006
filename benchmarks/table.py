"""The table of speed in docs/performance.md, made anew from benchmarks/results.

python -m benchmarks.table

The newest result of every kind of work and peer is a line; what stands between the two marks in the page is written
over, the text around it stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS

PAGE = RESULTS.parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- table -->", "<!-- /table -->"
HEADS = (
    "work",
    "peer",
    "times as fast",
    "target",
    "per second: ours, theirs",
    "peak MB: ours, theirs",
    "share of the limit",
)


def newest(results: Path = RESULTS) -> list[dict[str, Any]]:
    """The last line of every kind of work, size and peer, in the order in which they first appear."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for path in sorted(results.glob("*.jsonl")):
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if {"work", "ratio", "peer"} <= line.keys() and "--short" not in line["command"]:
                found[line["work"], line["size"], line["ours"], line["peer"]] = line
    return list(found.values())


def row(line: Mapping[str, Any]) -> str:
    """One result as a row."""
    unit, speeds = next((name.removesuffix("_per_second"), line[name]) for name in line if name.endswith("_per_second"))
    low, high = line["ratio_spread"]
    mark = f"{line['mark']:g}" if "mark" in line else ""
    memory = line.get("peak_megabytes", {})
    if "mark_memory" in line:
        mark += f", memory {line['mark_memory']:g}"
    shares = [
        f"{share['ours']:.0%} of {what}"
        for key, what in (("share_of_flops", "FLOPs"), ("share_of_bandwidth", "bandwidth"))
        if (share := line.get(key))
    ]
    cells = [
        f"{line['work']} ({line['size']})",
        line["peer"] if line["ours"] == "ours" else f"{line['peer']}; {line['ours']}",
        f"**{line['ratio']:.2f}** ({low:.2f} to {high:.2f})",
        mark,
        f"{speeds['ours']:,.4g}, {speeds['theirs']:,.4g} {unit}"
        if speeds["theirs"] < 1000
        else f"{speeds['ours']:,.0f}, {speeds['theirs']:,.0f} {unit}",
        f"{memory['ours']:,}, {memory['theirs']:,}" if memory else "",
        "; ".join(shares),
    ]
    return "| " + " | ".join(cells) + " |"


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Results as a table."""
    return "\n".join([f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS), *map(row, lines)])


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(newest())}\n{END}{after}", encoding="utf-8")
    print(f"{PAGE.name}: {len(newest())} lines")


if __name__ == "__main__":
    main()
