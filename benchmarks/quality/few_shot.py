"""SmolLM2 on data sets and built-in tasks, against the number of shots and beside published figures.

python -m benchmarks.quality.few_shot --run RUN --data FOLDER [--limit 200] [--shots 0,1,4] [--out FOLDER]

Evaluates with ``ensue eval``. An --out that holds results already is continued, and all that it holds is recorded, so
that tasks can have other limits. Published: the model's card (lighteval, ``acc_norm``), and an evaluation with
lm-evaluation-harness, both of the weights before they were quantised to 4 bits.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import ensue
from benchmarks.record import record

TASKS = ("arc-easy", "arithmetic", "translation", "trivia", "lambada", "boolq", "piqa", "hellaswag")
PUBLISHED: dict[str, dict[str, float]] = {
    "arc-easy": {"lm-eval acc": 0.541},
    "piqa": {"card acc_norm": 0.663, "lm-eval acc_norm": 0.669},
    "hellaswag": {"card acc_norm": 0.409, "lm-eval acc_norm": 0.430},
}


def figures(result: dict[str, Any]) -> dict[str, Any]:
    """The figures of one task and number of shots."""
    measured = {name: one for name, one in result["figures"].items() if name != "groups"}
    shown = {
        name: {key: None if value is None else round(value, 4) for key, value in one.items()}
        for name, one in measured.items()
    }
    return {
        "task": result["task"],
        "shots": result["shots"],
        "questions": result["examples"],
        "measure": result["measure"],
        **shown,
        "chance": result["chance"],
        "questions_per_second": round(result["examples_per_second"], 2),
        **({"published": PUBLISHED[result["task"]]} if result["task"] in PUBLISHED and not result["shots"] else {}),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--shots", default="0,1,4")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        out = chosen.out or Path(name) / "eval"
        ensue.eval(
            chosen.run,
            chosen.tasks,
            shots=[int(count) for count in chosen.shots.split(",")],
            data=chosen.data,
            limit=chosen.limit,
            out=out,
        )
        result = json.loads((out / "eval.json").read_text(encoding="utf-8"))
    rows = [figures(one) for one in result["results"]]
    run = {key: result["runs"][0][key] for key in ("run", "system", "parameters")}
    record("few_shot", {"run": run, "results": rows})


if __name__ == "__main__":
    main()
