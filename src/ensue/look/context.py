"""``ensue look context``: the loss of language models against how far back they may look."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np
from torch import nn

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.look.chart_parts import by_name, records, titled
from ensue.look.runs import language_run, named
from ensue.look.view import View
from ensue.measure.reach import (
    LONGEST,
    TARGETS,
    choose_targets,
    effective_context,
    losses_by_reach,
    reaches_up_to,
)
from ensue.nn.mixers.xl import XLAttention
from ensue.runs.language import LanguageRun
from ensue.runs.run import Run

CAPTION = (
    "Bits per byte of the same targets, given only the last tokens before them (the reach); bars are one standard "
    "error. A diamond marks the effective context: the shortest reach at which the loss is at most 1\u00a0% above the "
    "run's lowest."
)


def context(
    runs: Sequence[Run],
    *,
    text: str = "",
    data: Sequence[Any] = (),
    length: int = LONGEST,
    samples: int = TARGETS,
    memory: int | None = None,
    seed: int = 0,
    report: Report = silent,
) -> View:
    """The loss of one or more runs at reaches 1, 2, 4 … ``length``: how many tokens back the model may look.

    ``samples`` is the number of tokens that are predicted at each reach. Their loss, in bits per token and per byte,
    and the effective context of each run are the numbers. ``memory`` is that of runs with a memory of segments, if it
    should not be what they were trained with. See ``ensue.measure.reach`` for the definitions.
    """
    if bool(text.strip()) == bool(data):
        raise InputError("context needs a text", hint="give it with --text-file FILE or --text")
    for option, value in (("length", length), ("samples", samples)):
        if value < 1:
            raise InputError(f"--{option} {value} must be 1 or more")
    if memory is not None:
        _use_memory(runs, memory)
    curves = []
    for name, run in named(runs, "context"):
        report("phase", {"name": f"reading with {name}"})
        curves.append({"run": name, **reach_curve(language_run(run), text, data, length, samples, seed, report)})
    table = context_table(curves)
    return View(partial(context_chart, curves), {"runs": curves}, lambda: table, note=table)


def _use_memory(runs: Sequence[Run], size: int) -> None:
    """Set the memory of all runs that have one."""
    neural = [run for run in runs if isinstance(run.model, nn.Module)]
    having = [run for run in neural if any(isinstance(layer, XLAttention) for layer in run.model.modules())]
    if not having:
        raise InputError("none of these runs has a memory of segments", hint="leave out --memory")
    for run in having:
        run.use_memory(size)


def reach_curve(
    run: LanguageRun, text: str, data: Sequence[Any], length: int, samples: int, seed: int, report: Report = silent
) -> dict[str, Any]:
    """The losses of one run at every reach."""
    if not run.model.traits.steps:
        what = f"a {run.system} sees both sides of a word, so it has no reach"
        raise InputError(what, where=str(run), hint="use lstm, gpt or transformer-xl")
    tokenized = run.tokens(*data, text=text if text.strip() else None)
    tokens = tokenized.tokens
    targets, reaches = choose_targets(len(tokens), length, samples, seed), reaches_up_to(length)
    bits = losses_by_reach(run.model, tokens, targets, reaches, report)
    means, errors = bits.mean(1), bits.std(1, ddof=1) / len(targets) ** 0.5 if len(targets) > 1 else 0 * bits[:, 0]
    density, lost = (len(tokens) - 1) / tokenized.bytes, tokenized.surcharge / tokenized.bytes
    return {
        "system": run.system,
        "targets": len(targets),
        "context": run.model.traits.context,
        "reaches": reaches,
        "bits_per_token": means.round(6).tolist(),
        "bits_per_byte": (means * density + lost).round(6).tolist(),
        "error": (errors * density).round(6).tolist(),
        "effective_context": effective_context(reaches, means.tolist()),
        "bytes_per_token": round(float(np.reciprocal(density)), 4),
    }


def context_table(curves: Sequence[dict[str, Any]]) -> str:
    """Bits per byte of every reach, a column for each run, and the effective contexts."""
    rows = [["reach", *(curve["run"] for curve in curves)]]
    for at, reach in enumerate(curves[0]["reaches"]):
        rows.append([f"{reach:,}", *(f"{curve['bits_per_byte'][at]:.4f}" for curve in curves)])
    rows.append(["effective context", *(f"{curve['effective_context']:,}" for curve in curves)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    sizes = {curve["targets"] for curve in curves}
    targets = " or ".join(f"{size:,}" for size in sorted(sizes))
    head = f"bits per byte of {targets} tokens, by how many tokens before them are given"
    units = {curve["bytes_per_token"] for curve in curves}
    if len(units) > 1:
        lines.append("a token has " + ", ".join(f"{c['bytes_per_token']:.2f} bytes in {c['run']}" for c in curves))
    return "\n".join([head, *lines])


def context_chart(curves: Sequence[dict[str, Any]]) -> Any:
    """Bits per byte against the reach, a line for each run."""
    names = [curve["run"] for curve in curves]
    points = [
        {
            "run": curve["run"],
            "reach": reach,
            "loss": loss,
            "low": loss - error,
            "high": loss + error,
            "effective": reach == curve["effective_context"],
        }
        for curve in curves
        for reach, loss, error in zip(curve["reaches"], curve["bits_per_byte"], curve["error"], strict=True)
    ]
    ticks = sorted({reach for curve in curves for reach in curve["reaches"]})
    scale = alt.Scale(type="log", base=2, nice=False, padding=12)
    x = alt.X("reach:Q", title="tokens back that the model may look", scale=scale, axis=alt.Axis(values=ticks))
    y = alt.Y("loss:Q", title="bits per byte", scale=alt.Scale(zero=False))
    base = alt.Chart(records(points)).encode(x=x, color=by_name("run:N", names, "run", symbolOpacity=1))
    tips = ["run:N", "reach:Q", alt.Tooltip("loss:Q", title="bits per byte", format=".4f")]
    bars = base.mark_rule(opacity=0.45).encode(y=alt.Y("low:Q", title="bits per byte"), y2="high:Q")
    dots = base.mark_point(filled=True, size=36, opacity=1).encode(y=y, tooltip=tips)
    marks = base.transform_filter("datum.effective").mark_point(shape="diamond", filled=True, size=200, opacity=1)
    layers = base.mark_line().encode(y=y) + bars + dots + marks.encode(y=y, tooltip=tips)
    ends = "; ".join(
        f"{curve['run']}: {curve['bits_per_byte'][0]:.3f} with {curve['reaches'][0]} token, "
        f"{curve['bits_per_byte'][-1]:.3f} with {curve['reaches'][-1]:,}, effective context "
        f"{curve['effective_context']:,}"
        for curve in curves
    )
    return titled(layers, "Loss against how far back a model may look", CAPTION, ends, wrap=95, width=600, height=380)
