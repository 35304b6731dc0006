"""`ensue score RUN --probe FILE`: minimal pairs."""

from __future__ import annotations

from pathlib import Path

from ensue.cli.output import print_json, print_line, print_table

MAX_ROWS = 40
"""Groups with more values than this appear only with --json and --out."""


def score_probe(run: Path, probe: Path, out: Path | None, as_json: bool) -> None:
    """Print how often the model gives the correct text of a minimal pair the higher probability."""
    from ensue.cli.display import Display
    from ensue.runs.load import load
    from ensue.verbs.probe import probe as verb

    with Display(quiet=as_json) as display:
        display("phase", {"name": "scoring pairs"})
        figures = verb(load(run), probe, out=out, report=display)
    if as_json:
        print_json(figures)
        return
    ties = f", {figures['ties']:,} ties" if figures["ties"] else ""
    print_line(f"accuracy {figures['accuracy']:.2%} on {figures['pairs']:,} pairs{ties} (chance: 50 %)")
    for name, rows in figures["by"].items():
        if 1 < len(rows) <= MAX_ROWS:
            print_line()
            cells = [[str(row["value"]), f"{row['accuracy']:.1%}", f"{row['pairs']:,}"] for row in rows]
            print_table([name, "accuracy", "pairs"], cells)
    if figures["unknown"]:
        print_line(f"\n{figures['unknown']:,} of {2 * figures['pairs']:,} texts contain unknown words")
