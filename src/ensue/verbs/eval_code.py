"""Where evaluation tasks of programs are run (HumanEval, MBPP)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.data.evaluation.task import EvalTask
from ensue.runs.prompts import Prompter


def run_code_task(
    prompter: Prompter, task: EvalTask, asked: Sequence[int], report: Report
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the figures of a task of programs, and the record of each problem."""
    raise InputError(f"{task.name} cannot be run by this version", where=task.source)
