"""A race of attentions: the same model with each, the same CPU time on one thread, bits per byte of held-out text.

    ENSUE_DATA=… python -m benchmarks.quality.attention_race [--text linux] [--budget 10m] [--seeds 1] [--out FOLDER]
    python -m benchmarks.quality.attention_race --draw

A position sees at most 256 others in each attention with a pattern or buckets: ``local``, ``bigbird``, ``reformer`` and
``sinkhorn``; ``sparse`` and ``routing`` see about √n, as in their papers. Tokens are bytes. An interrupted race is
continued with the same words. A line of results has all attentions; the chart is of the newest line of each text.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any

import altair as alt

import ensue
from benchmarks.record import RESULTS, data_folder, record
from ensue.core.durations import seconds
from ensue.core.settings import parse_assignments
from ensue.look.chart_parts import by_name, heading, records
from ensue.look.saving import save_chart
from ensue.look.scaling_chart import spread

TEXTS = {"linux": "text/linux.c.txt.gz", "wikitext2": "text/wikitext2.valid.txt.gz"}
ATTENTIONS = (
    "full",
    "local:span=256",
    "sparse",
    "bigbird:block=32",
    "linear",
    "performer",
    "reformer",
    "routing",
    "sinkhorn:block=128",
    "mamba",
)
SETTINGS: dict[str, Any] = {
    "context": 1024,
    "layers": 4,
    "hidden": 128,
    "heads": 4,
    "positions": "rotary",
    "tokenizer.kind": "byte",
    "train.batch": 4,
}
NAME = "attention_race"
HEIGHT, LABEL = 420, 14
"""Pixels of the chart, and between its labels."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", choices=TEXTS, default="linux")
    parser.add_argument("--attention", default=",".join(ATTENTIONS))
    parser.add_argument("--budget", default="10m", help="CPU time of each attention and seed")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--valid-bytes", type=int, default=100_000, help="held out from the end of the text")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path, help="keep the runs here")
    parser.add_argument("--draw", action="store_true", help="only the chart, of the newest results")
    typed = parser.parse_args()
    if not typed.draw:
        with tempfile.TemporaryDirectory() as temporary:
            run_race(typed, typed.out or Path(temporary) / "race")
    draw()


def run_race(typed: argparse.Namespace, out: Path) -> None:
    """Train all and write a line of results."""
    train, valid = split(typed.text, typed.valid_bytes, out.with_name(f"{out.name}-data"))
    settings = {**SETTINGS, **parse_assignments(typed.set)}
    result = ensue.race(
        train,
        valid=valid,
        systems=["gpt"],
        attention=typed.attention.split(","),
        budget=typed.budget,
        match="cpu",
        seeds=typed.seeds,
        settings=settings,
        out=out,
        resume=(out / "race.json").exists(),
    )
    race = result.as_dict()
    if failed := [one["attention"] for one in race["systems"] if one["error"]]:
        print(f"failed: {', '.join(failed)}; the same words try again")
    figures = {
        "text": typed.text,
        "budget": typed.budget,
        "settings": {name: str(value) for name, value in settings.items()},
        "train_bytes": train.stat().st_size,
        "valid_bytes": valid.stat().st_size,
        "systems": [entrant(one, seconds(typed.budget)) for one in race["systems"]],
    }
    record(NAME, figures, seed=list(range(typed.seeds)))


def split(text: str, valid_bytes: int, folder: Path) -> tuple[Path, Path]:
    """The text but its end, and its end from the beginning of a line on, as files."""
    data = gzip.decompress((data_folder() / TEXTS[text]).read_bytes())
    at = data.index(b"\n", len(data) - valid_bytes) + 1
    folder.mkdir(parents=True, exist_ok=True)
    parts = {folder / f"{text}.train.txt": data[:at], folder / f"{text}.valid.txt": data[at:]}
    for path, part in parts.items():
        path.write_bytes(part)
    train, valid = parts
    return train, valid


def entrant(one: dict[str, Any], budget: float) -> dict[str, Any]:
    """The figures of an attention: the means over its seeds, and each seed's; time is the CPU time of the budget."""
    seeds = one["seeds"]
    return {
        "attention": one["attention"],
        "bits_per_byte": round(one["bits_per_byte"], 4) if seeds else None,
        "by_seed": [round(seed["bits_per_byte"], 4) for seed in seeds],
        "microseconds_per_token": round(mean(1e6 * budget / seed["tokens"] for seed in seeds), 2) if seeds else None,
        "tokens": [seed["tokens"] for seed in seeds],
        "parameters": one["parameters"],
        "other_cores_busy": one["others"],
        "error": one["error"],
    }


def draw() -> None:
    """The chart of each text's newest line: bits per byte against the time of a token in training."""
    lines = (RESULTS / f"{NAME}.jsonl").read_text(encoding="utf-8").splitlines()
    for text, line in {(one := json.loads(text))["text"]: one for text in lines}.items():
        for ending in ("svg", "png"):
            save_chart(chart(line), RESULTS / f"{NAME}_{text}.{ending}")


def chart(line: dict[str, Any]) -> Any:
    """A dot for each attention, with its name beside it, and a line from its best seed to its worst."""
    known = sorted((one for one in line["systems"] if one["by_seed"]), key=lambda one: one["bits_per_byte"])
    times = [one["microseconds_per_token"] for one in known]
    values = [value for one in known for value in one["by_seed"]]
    margin = 0.08 * (max(values) - min(values) or 1)
    low, high = min(values) - margin, max(values) + margin
    places = spread([one["bits_per_byte"] for one in known], (high - low) * LABEL / HEIGHT, low, high)
    right = max(times) * exp(0.08 * max(log(max(times) / min(times)), 1.0))
    points = [
        {
            "attention": one["attention"],
            "time": one["microseconds_per_token"],
            "value": one["bits_per_byte"],
            "best": min(one["by_seed"]),
            "worst": max(one["by_seed"]),
            "place": place,
            "right": right,
        }
        for one, place in zip(known, places, strict=True)
    ]
    scale = alt.Scale(type="log", nice=False, domain=[min(times) / 1.1, right])
    x = alt.X("time:Q", title="microseconds of CPU time for a token in training, one thread", scale=scale)
    axis = alt.Scale(zero=False, nice=False, domain=[low, high])
    y = alt.Y("value:Q", title="bits per byte, held out (lower is better)", scale=axis)
    base = alt.Chart(records(points)).encode(
        x=x, y=y, color=by_name("attention:N", [one["attention"] for one in known], None).legend(None)
    )
    leaders = base.mark_rule(strokeWidth=0.6, opacity=0.7).encode(x2="right:Q", y2="place:Q")
    seeds = base.mark_rule(strokeWidth=2).encode(y=alt.Y("best:Q", scale=axis), y2="worst:Q")
    dots = base.mark_circle(size=90, opacity=1)
    names = base.mark_text(align="left", dx=4).encode(x="right:Q", y="place:Q", text="attention:N")
    count = len(known[0]["by_seed"])
    caption = (
        f"gpt, layers = {line['settings']['layers']}, width {line['settings']['hidden']}, context "
        f"{line['settings']['context']} bytes; {line['budget']} of CPU time each, {count} seed{'s' * (count > 1)}."
    )
    title = heading(f"Attentions on {line['text']}: quality against speed", caption, 90)
    return (leaders + seeds + dots + names).properties(width=560, height=HEIGHT, title=title)


if __name__ == "__main__":
    main()
