"""Learning curves of runs, and what n-grams cost as n grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from ensue.look.marks import by_name, by_run, dashes, heading, plain

CAPTION = "Lower is better. Where validation (dashed) rises while training falls, a run learns by heart."


def curves_chart(runs: dict[str, list[dict[str, Any]]], units: Sequence[str] = ("nats a token",)) -> Any:
    """Loss against steps: lines for training and for validation; ``units`` are those that losses are in."""
    rows = [
        {"run": run, "step": r["step"], "loss": r[key], "on": name}
        for run, records in runs.items()
        for r in thinned(records)
        for key, name in (("loss", "training"), ("valid_loss", "validation"))
        if key in r
    ]
    ends = {
        (row["run"], row["on"]): f"{row['run']}, {row['on']}: {row['loss']:.4g} at step {row['step']:,}" for row in rows
    }
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=len(rows) < 400)
        .encode(
            x=alt.X("step:Q", title="step"),
            y=alt.Y("loss:Q", title=", ".join(filter(None, ("loss", " or ".join(units)))), scale=alt.Scale(zero=False)),
            color=by_run(list(runs)),
            strokeDash=dashes("on:N", ("training", "validation"), "measured on"),
            tooltip=["run:N", "on:N", "step:Q", "loss:Q"],
        )
        .properties(
            width=640,
            height=400,
            title=heading("Learning curves", CAPTION),
            description=plain(f"Learning curves. {'; '.join(ends.values())}"),
        )
    )


def thinned(records: list[dict[str, Any]], most: int = 2000) -> list[dict[str, Any]]:
    """At most so many records, evaluations always among them."""
    stride = max(1, len(records) // most)
    return [r for n, r in enumerate(records) if n % stride == 0 or "valid_loss" in r]


def ngram_chart(counts: list[int], tokens: int, vocabulary: int, neural: dict[str, int]) -> Any:
    """Distinct n-grams of a text against n, beside what could exist (Vⁿ) and the size of neural models, which stays."""
    rows = [{"n": n, "number": count, "what": "different n-grams seen"} for n, count in enumerate(counts, 1)]
    rows += [
        {"n": n, "number": sum(counts[:n]), "what": "entries of an n-gram model"} for n in range(1, len(counts) + 1)
    ]
    rows += [
        {"n": n, "number": float(vocabulary) ** n, "what": "n-grams that could be (Vⁿ)"}
        for n in range(1, len(counts) + 1)
    ]
    rows += [
        {"n": n, "number": size, "what": f"parameters of {name}"}
        for name, size in neural.items()
        for n in range(1, len(counts) + 1)
    ]
    kinds = list(dict.fromkeys(str(row["what"]) for row in rows))
    title = f"What n costs: {tokens:,} tokens, {vocabulary:,} different"
    seen = ", ".join(f"{count:,} different {n}-grams" for n, count in enumerate(counts, 1))
    sizes = ", ".join(f"{name} has {size:,} parameters" for name, size in neural.items())
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("n:O", title="n", axis=alt.Axis(labelAngle=0)),
            y=alt.Y(
                "number:Q",
                title="how many (logarithmic)",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(format="~e"),
            ),
            color=by_name("what:N", kinds, None),
            tooltip=["what:N", "n:O", alt.Tooltip("number:Q", format=",.0f")],
        )
        .properties(
            width=560,
            height=400,
            title=heading(
                title, "Tables grow with n until most n-grams are seen once; the size of a neural model does not."
            ),
            description=f"{title}. {seen}; {sizes}",
        )
    )
