"""Views of what models say and of what they are told: ``ensue look next``, ``surprise`` and ``positions``."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.look.marks import MOST_MARKS, cut_text, short_names
from ensue.look.next_token import next_chart
from ensue.look.positions import positions_chart
from ensue.look.surprise import surprise_chart
from ensue.nn.positions import LearnedPositions, sinusoids
from ensue.runs.language import LanguageRun
from ensue.runs.load import load
from ensue.verbs.view import Files, Place, View

MOST_TOKENS = 2000
"""Of a text that is coloured; more can't be read."""
SINES = (
    "PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i + 1) = cos(p / 10000^(2i/d)): the first dimensions turn fast, the "
    "last ones slowly, so that every position has a pattern of its own."
)


def next_tokens(runs: Files, *, text: str = "", top: int = 10) -> View:
    """The likeliest next tokens after a text, run by run."""
    if not runs:
        raise InputError("what comes next in which run?", hint="name one or more")
    if top < 1:
        raise InputError(f"{top} tokens cannot be shown", hint="give --top 1 or more")
    found = {name: load(path).next(text, top) for name, path in zip(short_names([str(run) for run in runs]), runs)}
    rows = [
        {"run": str(path), "next": [{"token": token, "probability": p} for token, p in pairs]}
        for path, pairs in zip(runs, found.values())
    ]
    return View(partial(next_chart, text, found), {"text": text, "runs": rows})


def surprise(runs: Files, *, text: str = "", data: Files = ()) -> View:
    """A text, or the beginning of a file, coloured by the bits that each token costs; several runs on one scale."""
    if not runs:
        raise InputError("what surprises which run?", hint="name one or more")
    if bool(text.strip()) == bool(data):
        raise InputError("surprise is shown on a text", hint='give it with --text "…" or --data FILE')
    rows, said = [], []
    for path in runs:
        row, total = _costs(path, text, data)
        rows.append(row)
        bits, cut = row["bits"], cut_text(len(row["bits"]), total)
        size = f"{sum(bits):,.0f} bits in {len(bits):,} tokens, {np.mean(bits):.2f} a token"
        said.append(
            f"{size}; the stronger the colour, the less expected. {cut}" if len(runs) == 1 else f"{size}. {cut}"
        )
    names = short_names([str(path) for path in runs])
    found = {name: (row["tokens"], row["bits"]) for name, row in zip(names, rows)}
    if len(runs) == 1:
        title = f"{Path(runs[0]).name} ({rows[0]['system']}): what surprises it"
        return View(partial(surprise_chart, found, title=title, caption=said[0].strip()), rows[0])
    caption = "The stronger the colour, the less expected; all runs on one scale. "
    caption += " ".join(f"{name}: {own.strip()}" for name, own in zip(names, said))
    told = {"runs": [{"run": str(path), **row} for path, row in zip(runs, rows)]}
    return View(partial(surprise_chart, found, title="What surprises each run", caption=caption), told)


def _costs(path: Place, text: str, data: Files) -> tuple[dict[str, Any], int]:
    """What the first tokens cost a run, and how many there are."""
    run = load(path)
    if not isinstance(run, LanguageRun):
        what = f"{run.system} does not say what each token costs"
        raise InputError(what, where=str(path), hint="name a language model")
    costs = run.per_token(*map(str, data), text=text if text.strip() else None)
    shown = costs[:MOST_TOKENS]
    bits = [-log_prob / math.log(2) for _, log_prob in shown]
    row = {"system": run.system, "tokens": [token for token, _ in shown], "bits": bits, "total_bits": sum(bits)}
    return row, len(costs)


def positions(runs: Files = (), *, rows: int = 20, width: int = 100) -> View:
    """Encodings of the first positions, by dimension: sinusoids, or what a run has learnt."""
    if min(rows, width) < 1 or rows * width > MOST_MARKS:
        raise InputError(f"{rows} × {width} is no map", hint=f"give 1 to {MOST_MARKS:,} cells")
    if len(runs) > 1:
        raise InputError(f"positions are of one run or of none, not {len(runs)}", hint="name one")
    if not runs:
        table = sinusoids(torch.arange(rows), width).numpy()
        return _map(table, f"Sinusoids: {rows} positions, {width} dimensions", SINES)
    run = load(runs[0])
    learnt = next((part for part in run.model.modules() if isinstance(part, LearnedPositions)), None)
    if learnt is None:
        hint = "bert has them, and gpt with positions=learned; without a run there are sinusoids"
        raise InputError(f"this {run.system} has no learned positions", where=str(runs[0]), hint=hint)
    table = learnt.weight.detach()[:rows, :width].numpy()
    title = f"{Path(runs[0]).name} ({run.system}): positions as they were learnt"
    return _map(table, title, "A row a position, a column a dimension; below 0 red, above it blue.")


def _map(table: np.ndarray, title: str, caption: str) -> View:
    draw = partial(positions_chart, table, title=title, caption=caption)
    return View(draw, {"positions": len(table), "dimensions": table.shape[1], "values": table.round(6).tolist()})
