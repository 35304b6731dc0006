"""`ensue score RUN --probe FILE`: minimal pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ensue.cli.output import emit, say, table

MOST_ROWS = 40
"""Groups with more values than this are left to --json and --out."""


def score_probe(run: Path, probe: Path, out: Path | None, as_json: bool) -> None:
    """Say how often a model finds the right text likelier, of all pairs and by kind."""
    from ensue.cli.display import Display
    from ensue.runs.load import load
    from ensue.verbs.probe import probe as verb

    with Display(quiet=as_json) as display:
        display("phase", {"name": "scoring pairs"})
        figures = verb(load(run), probe, out=out, report=display)
    if as_json:
        emit(figures)
        return
    ties = f", {figures['ties']:,} ties" if figures["ties"] else ""
    say(f"{figures['accuracy']:.2%} right of {figures['pairs']:,} pairs{ties} (chance: 50 %)")
    for name, rows in figures["by"].items():
        if 1 < len(rows) <= MOST_ROWS:
            say()
            table([name, "right", "pairs"], [_cells(row) for row in rows])
    if figures["unknown"]:
        say(f"\n{figures['unknown']:,} of {2 * figures['pairs']:,} texts have words that the model does not know")


def _cells(row: dict[str, Any]) -> list[str]:
    return [str(row["value"]), f"{row['accuracy']:.1%}", f"{row['pairs']:,}"]
