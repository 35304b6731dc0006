"""Evaluation tasks of programs (HumanEval, MBPP) in `ensue eval`: the model's programs are run in a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ensue.core.events import Report
from ensue.data.evaluation.task import EvalTask
from ensue.measure.code_results import Attempt, CodeResult
from ensue.runs.prompts import Prompter
from ensue.verbs.code_evaluation import default_ks, default_sampling, evaluate_code
from ensue.verbs.eval_answers import Records, SavedAnswers
from ensue.verbs.eval_options import EvalOptions

MEASURE = "pass@1"


def run_code_task(
    prompter: Prompter,
    task: EvalTask,
    shots: int,
    options: EvalOptions,
    pool: EvalTask | None,
    answers: SavedAnswers,
    report: Report,
) -> Records:
    """Return the record of each program with its outcome."""
    how = default_sampling(options.samples)
    if options.temperature is not None:
        how = replace(how, temperature=options.temperature)
    result = evaluate_code(
        prompter.run,
        task.problems,
        samples=options.samples,
        sampling=how,
        shots=shots,
        shots_from=() if pool is None else pool.problems,
        chat=options.chat,
        limit=options.limit,
        seed=options.seed,
        int8=options.int8,
        saved=answers,
        report=report,
    )
    return [one.as_dict() for one in result.attempts]


def code_figures(records: Sequence[dict[str, Any]], samples: int) -> dict[str, Any]:
    """Return the figures of a task of programs: pass@k and how the programs ended."""
    result = CodeResult([Attempt(**one) for one in records], default_ks(samples))
    figures = {
        f"pass@{rate.k}": {"value": rate.value, "error": rate.error, "low": rate.low, "high": rate.high}
        for rate in result.rates
    }
    found = result.as_dict()
    counts = {"examples": found["problems"], "unfinished": found["cut"]}
    more = {"outcomes": found["outcomes"], "errors": found["errors"]}
    return {"measure": MEASURE, "figures": figures, "chance": None, **counts, **more}
