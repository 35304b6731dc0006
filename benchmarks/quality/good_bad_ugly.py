"""Writes docs/good-bad-ugly.md: what a language model does well, badly, and how its texts fall apart.

python -m benchmarks.quality.good_bad_ugly --runs SMALL,LARGER,LARGEST --data FOLDER --work FOLDER [--limit 200]

Accuracy against shots (the last run) and against size (all runs), repetition and names along generated texts, and
physical common sense (PIQA). --work keeps the evaluations of each run, as ``ensue eval --out``, and the figures of its
texts, and is continued.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

import ensue
from benchmarks.record import record
from ensue.core.files import write_json
from ensue.core.wording import counted
from ensue.look.chart_parts import by_run, records, titled
from ensue.look.eval_chart import eval_chart
from ensue.look.saving import save_chart
from ensue.measure.coherence import segments
from ensue.measure.task_scores import mean_and_error
from ensue.runs.completions import complete
from ensue.search.sampling import Sampling

TEMPLATE = Path(__file__).with_suffix(".md")
DOCS = Path(__file__).resolve().parents[2] / "docs"
BY_SIZE = "arc-easy,piqa,lambada,trivia"
BY_SHOTS = "arc-easy,piqa,lambada,boolq,arithmetic,translation,trivia"
PROMPTS = (
    "One morning in March, Anna and her brother Tom took the early train to the coast. Anna carried",
    "The old lighthouse of Skerry had been empty for years. Then a keeper called Martin Hale",
    "Glaciers are rivers of ice. In the Alps, the Aletsch glacier",
    "Detective Rosa Lind looked at the map of Lisbon on her wall. Rosa knew that",
    "In 1912 a young engineer named Paul Weber arrived in Chicago. Paul wanted to",
    "How to bake bread at home. First, take flour, water, salt and yeast. Then",
)
TOKENS, SEGMENT = 400, 50
SAMPLINGS = {
    "most probable token": Sampling(tokens=TOKENS, temperature=0.0),
    "temperature 0.8, top-p 0.95": Sampling(tokens=TOKENS, temperature=0.8, top_p=0.95),
}


def coherence(run: Any, name: str) -> list[dict[str, Any]]:
    """Figures of each segment of generated texts: means over those that are long enough, if at least half are."""
    rows = []
    for how, sampling in SAMPLINGS.items():
        texts = [one.text for (one,) in complete(run, PROMPTS, sampling)]
        found = [segments(prompt, text, SEGMENT) for prompt, text in zip(PROMPTS, texts)]
        for number in range(max(map(len, found), default=0)):
            here = [one[number] for one in found if len(one) > number]
            if len(here) < len(PROMPTS) / 2:  # too few to speak for
                break
            means = {key: float(np.mean([getattr(one, key) for one in here])) for key in here[0]._fields}
            words = (number + 1) * SEGMENT
            rows.append({"run": name, "how": how, "words": words, "texts": len(here), **means})
        rows.append({"run": name, "how": how, "sample": texts[0]})
    return rows


def kept_coherence(path: Path, file: Path) -> list[dict[str, Any]]:
    """The figures of a run's texts, from a file if they are there."""
    if not file.exists():
        write_json(file, coherence(ensue.load(path), path.name))
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return rows


def coherence_chart(rows: list[dict[str, Any]], names: list[str]) -> Any:
    """The share of repeated 4-grams against the position in the text."""
    points = [one for one in rows if "words" in one]
    y = alt.Y(
        "repeated:Q", title="4-grams that occurred before", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])
    )
    line = (
        alt.Chart(records(points))
        .mark_line(point=True)
        .encode(x=alt.X("words:Q", title="words generated", scale=alt.Scale(domainMin=0)), y=y, color=by_run(names))
    )
    charts = [
        line.transform_filter(alt.datum.how == how).properties(title=how, width=280, height=200) for how in SAMPLINGS
    ]
    summary = "; ".join(f"{one['run']}, {one['how']}, {one['words']} words: {one['repeated']:.0%}" for one in points)
    return titled(alt.hconcat(*charts), "Repetition along a text", f"Means over {len(PROMPTS)} texts.", summary)


def score(result: dict[str, Any]) -> str:
    figure = result["figures"][result["measure"]]
    return f"{figure['value']:.1%} ± {figure['error']:.1%}"


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def size_table(by_run_name: dict[str, list[dict[str, Any]]], facts: dict[str, dict[str, Any]]) -> str:
    tasks = BY_SIZE.split(",")
    rows = []
    for name, results in by_run_name.items():
        found = {one["task"]: one for one in results if one["shots"] == 0}
        rows.append(
            [
                name,
                facts[name]["system"],
                f"{facts[name]['parameters']:,}" if facts[name]["parameters"] else "–",
                *(score(found[task]) for task in tasks),
            ]
        )
    some = next(iter(by_run_name.values()))
    chance = {one["task"]: one["chance"] for one in some}
    rows.append(["chance", "", "", *("" if chance[task] is None else f"{chance[task]:.1%}" for task in tasks)])
    return table(["run", "system", "parameters", *tasks], rows)


def shots_table(results: list[dict[str, Any]]) -> str:
    counts = sorted({one["shots"] for one in results})
    tasks = list(dict.fromkeys(one["task"] for one in results))
    found = {(one["task"], one["shots"]): one for one in results}
    rows = [
        [task, next(one["measure"] for one in results if one["task"] == task)]
        + [score(found[task, count]) if (task, count) in found else "–" for count in counts]
        for task in tasks
    ]
    return table(["task", "measure", *(counted(count, "shot") for count in counts)], rows)


def coherence_table(rows: list[dict[str, Any]]) -> str:
    points = [one for one in rows if "words" in one]
    shown = []
    for name, how in dict.fromkeys((one["run"], one["how"]) for one in points):
        own = [one for one in points if (one["run"], one["how"]) == (name, how)]
        first, last = own[0], own[-1]
        shown.append([name, how])
        shown[-1] += [f"{first[key]:.0%} → {last[key]:.0%}" for key in ("repeated", "distinct", "kept")]
        shown[-1] += [f"{np.mean([one['new'] for one in own]):.1f}", str(last["words"])]
    columns = [
        "run",
        "tokens drawn",
        "4-grams seen before",
        "distinct words",
        "names of the prompt",
        "new names",
        "words",
    ]
    return table(columns, shown)


def page(facts: dict[str, Any], results: dict[str, Any], rows: list[dict[str, Any]], limit: int) -> str:
    largest = list(results)[-1]
    piqa = next(one for one in results[largest] if one["task"] == "piqa" and one["shots"] == 0)
    both = {name: mean_and_error([one["right"][name] for one in piqa["lines"]]) for name in ("acc", "acc_norm")}
    sample = next(one["sample"] for one in rows if "sample" in one and one["run"] == largest)
    quoted = " ".join(f"{PROMPTS[0]}{sample}".split())[:900]
    return TEMPLATE.read_text(encoding="utf-8").format(
        limit=limit,
        points=round(100 * (0.25 / limit) ** 0.5, 1),
        largest=largest,
        segment=SEGMENT,
        quoted=quoted,
        shots_table=shots_table(results[largest]),
        size_table=size_table(results, facts),
        coherence_table=coherence_table(rows),
        piqa=f"{both['acc'][0]:.1%} ± {both['acc'][1]:.1%}",
        piqa_norm=f"{both['acc_norm'][0]:.1%}",
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--shots", default="0,1,4")
    parser.add_argument("--tasks", default=BY_SHOTS, help="tasks that the last run is asked with shots")
    chosen = parser.parse_args()
    paths = [Path(name) for name in chosen.runs.split(",")]
    names = [path.name for path in paths]
    results, facts, rows = dict[str, Any](), dict[str, Any](), list[dict[str, Any]]()
    for path in paths:
        given = {"data": chosen.data, "limit": chosen.limit, "out": chosen.work / path.name}
        found = ensue.eval(path, BY_SIZE, shots=0, **given)
        if path == paths[-1]:
            ensue.eval(path, chosen.tasks, shots=[int(n) for n in chosen.shots.split(",")], **given)
            held = json.loads((given["out"] / "eval.json").read_text(encoding="utf-8"))
            found["results"] = held["results"]  # with what was evaluated before
            save_chart(eval_chart(held["results"]), DOCS / "pictures" / "eval-shots.svg")
        results[path.name], (facts[path.name],) = found["results"], found["runs"]
        rows += kept_coherence(path, chosen.work / f"{path.name}-texts.json")
    for one in results[names[-1]]:
        if one["task"] == "piqa":
            text = (chosen.work / names[-1] / one["records"]).read_text(encoding="utf-8")
            one["lines"] = [json.loads(line) for line in text.splitlines()]
    save_chart(coherence_chart(rows, names), DOCS / "pictures" / "coherence.svg")
    (DOCS / "good-bad-ugly.md").write_text(page(facts, results, rows, chosen.limit), encoding="utf-8")
    scores = [
        {
            "run": name,
            "task": one["task"],
            "shots": one["shots"],
            "measure": one["measure"],
            **one["figures"][one["measure"]],
        }
        for name, some in results.items()
        for one in some
    ]
    record(
        "good_bad_ugly",
        {
            "runs": [{key: one[key] for key in ("run", "system", "parameters")} for one in facts.values()],
            "scores": scores,
            "coherence": [r for r in rows if "words" in r],
        },
    )


if __name__ == "__main__":
    main()
