"""Let a language model write programs, run them in a sandbox, and measure pass@k.

    from ensue.verbs.code_evaluation import evaluate_code

    result = evaluate_code(run, "code", samples=10, k=(1, 10), out=Path("programs.jsonl"), report=display)
    result.lines()       # for people: pass@k with intervals, a table of outcomes, the exceptions
    result.table         # (columns, rows) of the outcomes
    result.as_dict()     # for JSON
    result.attempts      # every program with its outcome

``problems`` is a file of HumanEval's or MBPP's form, the name of the built-in problems ("code"), or their records, as
``json.loads`` gives them. Nothing is generated or run where the sandbox lacks a protection (InputError), unless
``allow_unprotected``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.files import atomic_file
from ensue.core.torchrun import available_cores
from ensue.data.code_problems import Problem, make_problems, read_problems
from ensue.measure.code_results import Attempt, CodeResult
from ensue.measure.sandbox.execution import Limits, run_program
from ensue.runs.completions import BATCH, Completion, complete
from ensue.runs.run import Run
from ensue.search.sampling import Sampling

GREEDY = Sampling(tokens=384, temperature=0.0)
SAMPLED = Sampling(tokens=384, temperature=0.2, top_p=0.95)
"""What is used for one sample and for several, unless the caller says: as in Chen et al. (2021)."""


def evaluate_code(
    run: Run,
    problems: str | Path | Sequence[Mapping[str, Any]],
    *,
    samples: int = 1,
    k: Sequence[int] = (),
    sampling: Sampling | None = None,
    shots: int = 0,
    limit: int = 0,
    seed: int = 0,
    limits: Limits | None = None,
    allow_unprotected: bool = False,
    batch: int = BATCH,
    int8: bool = False,
    out: Path | None = None,
    report: Report = silent,
) -> CodeResult:
    """Write ``samples`` programs for each problem, run them, and return their outcomes and pass@k.

    samples      programs for each problem
    k            the values of k; 1 and ``samples`` by default
    sampling     how programs are drawn; by default greedily for one sample, else with temperature 0.2 and top-p 0.95
    shots        solved problems before each prompt (MBPP)
    limit        maximum number of problems, drawn with ``seed``; 0 means all
    out          a JSONL file for every program with its outcome
    """
    how = replace(sampling or (GREEDY if samples == 1 else SAMPLED), n=samples, seed=seed)
    if how.temperature == 0 and samples > 1:
        raise InputError(f"{samples} greedy programs would be equal", hint="use --temperature 0.2, or one sample")
    ks = sorted(set(k) or {1, samples})
    if not 1 <= ks[0] <= ks[-1] <= samples:
        raise InputError(f"pass@k needs k from 1 to the number of samples, {samples}, not {', '.join(map(str, ks))}")
    found = read_problems(problems, shots) if isinstance(problems, str | Path) else make_problems(problems, shots)
    if limit:
        kept = random.Random(seed).sample(range(len(found)), min(limit, len(found)))
        found = [found[index] for index in sorted(kept)]
    run_program("", allow_unprotected=allow_unprotected)  # raises InputError where programs cannot be run
    attempts: dict[tuple[int, int], Future[Attempt]] = {}
    report("phase", {"name": "writing and running programs"})
    with ThreadPoolExecutor(available_cores()) as pool:

        def finished(index: int, number: int, completion: Completion) -> None:
            done = (found[index], number + 1, completion, limits or Limits(), allow_unprotected)
            attempts[index, number] = pool.submit(_attempt, *done)

        prompts, stops = [problem.prompt for problem in found], found[0].stops
        try:
            complete(run, prompts, how, stops=stops, batch=batch, int8=int8, finished=finished, report=report)
            results = [attempts[key].result() for key in sorted(attempts)]
        except BaseException:  # what was run is kept
            pool.shutdown(cancel_futures=True)
            done = [attempts[key] for key in sorted(attempts) if not attempts[key].cancelled()]
            write_attempts([one.result() for one in done if one.exception() is None], out)
            raise
    write_attempts(results, out)
    return CodeResult(results, ks)


def _attempt(problem: Problem, number: int, completion: Completion, limits: Limits, allow_unprotected: bool) -> Attempt:
    """Run a program."""
    program = problem.program(completion.text)
    ended = run_program(program, problem.tests, limits, allow_unprotected=allow_unprotected)
    how = (ended.outcome, ended.error, ended.message, round(ended.seconds, 3))
    return Attempt(problem.id, number, completion.text, program, *how, completion.tokens, completion.finish)


def write_attempts(attempts: Sequence[Attempt], out: Path | None) -> None:
    """Write every program with its outcome as a line of JSON."""
    if out is not None and attempts:
        with atomic_file(out) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            for one in attempts:
                file.write(json.dumps(one.as_dict(), ensure_ascii=False) + "\n")
