"""``ensue look copying``: how far back a run remembers, measured by copying a letter over a gap."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np

from ensue.data.copy_task import COPY_LETTERS, MAX_GAP, copy_questions
from ensue.look.chart_parts import by_run, records, titled
from ensue.look.runs import language_run, named
from ensue.look.view import View
from ensue.measure.probes import text_log_probs
from ensue.runs.language import LanguageRun
from ensue.runs.run import Run

GAPS = (0, 1, 2, 4, 6, 8, 12, 16, 20, 25, 30, 40, 50, 60)


def copying(runs: Sequence[Run], *, seed: int = 0) -> View:
    """Accuracy of runs trained on the corpus ``copying``, by the length of the gap."""
    rows = []
    for name, run in named(runs, "copying"):
        by_gap = [{"gap": gap, **copy_accuracy(language_run(run), gap, seed)} for gap in GAPS]
        rows.append({"name": name, "run": str(run), "system": run.system, "by_gap": by_gap})
    chance = 1 / len(COPY_LETTERS)
    return View(partial(copying_chart, rows, chance, MAX_GAP), {"runs": rows, "chance": chance, "longest": MAX_GAP})


def copy_accuracy(run: LanguageRun, gap: int, seed: int = 0) -> dict[str, Any]:
    """How often the right letter is the most probable of all letters after a gap."""
    questions = copy_questions(gap, seed=seed)
    texts = [text + letter for text, letters, _ in questions for letter in letters]
    log_probs = text_log_probs(run.model, run.tokenizer, texts).reshape(len(questions), -1)
    right = [letters[int(best)] == answer for (_, letters, answer), best in zip(questions, log_probs.argmax(1))]
    return {"accuracy": float(np.mean(right)), "asked": len(questions)}


def copying_chart(runs: list[dict[str, Any]], chance: float, longest: int) -> Any:
    """Accuracy against the gap, a line per run; the dashed line is chance."""
    rows = [{"run": run["name"], **row} for run in runs for row in run["by_gap"]]
    lines = (
        alt.Chart(records(rows))
        .mark_line(point=alt.OverlayMarkDef(size=50, filled=True), strokeWidth=2)
        .encode(
            x=alt.X("gap:Q", title="gap: dots between a letter and its copy"),
            y=alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
            color=by_run([run["name"] for run in runs]),
            tooltip=["run:N", "gap:Q", alt.Tooltip("accuracy:Q", format=".1%"), "asked:Q"],
        )
    )
    rule = alt.Chart(records([{"y": chance}])).mark_rule(strokeDash=[6, 4]).encode(y=alt.Y("y:Q", title="accuracy"))
    caption = (
        f"How often the right one of {round(1 / chance)} letters is the most probable. "
        f"Gaps in training were up to {longest}. Dashed: chance."
    )
    summary = "; ".join(
        f"{run['name']}: " + ", ".join(f"{r['gap']}: {r['accuracy']:.0%}" for r in run["by_gap"]) for run in runs
    )
    return titled(lines + rule, "Copying a letter over a gap", caption, summary, width=600, height=340)
