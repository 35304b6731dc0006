"""Evaluation tasks of programs (HumanEval, MBPP) in `ensue eval`: the model's programs are run in a sandbox."""

from __future__ import annotations

from typing import Any

from ensue.core.events import Report
from ensue.data.evaluation.task import EvalTask
from ensue.runs.prompts import Prompter
from ensue.verbs.code_evaluation import evaluate_code

MEASURE = "pass@1"


def takes_shots(task: EvalTask) -> bool:
    """Return whether problems can have solved ones before them; those in the form of HumanEval cannot."""
    return "test_list" in task.problems[0]


def run_code_task(
    prompter: Prompter, task: EvalTask, shots: int, *, samples: int, limit: int, seed: int, report: Report
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the figures of a task of programs, and the record of each program with its outcome."""
    options: dict[str, Any] = {"shots": shots, "samples": samples, "limit": limit, "seed": seed}
    result = evaluate_code(prompter.run, task.problems, int8=prompter.int8, report=report, **options)
    figures = {
        f"pass@{rate.k}": {"value": rate.value, "error": rate.error, "low": rate.low, "high": rate.high}
        for rate in result.rates
    }
    found = result.as_dict()
    counts = {"examples": found["problems"], "unfinished": found["cut"]}
    more = {"outcomes": found["outcomes"], "errors": found["errors"]}
    measured = {"measure": MEASURE, "figures": figures, "chance": None, **counts, **more}
    return measured, [one.as_dict() for one in result.attempts]
