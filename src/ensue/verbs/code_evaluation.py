"""Let a language model write programs, run them in a sandbox, and measure pass@k.

    from ensue.verbs.code_evaluation import evaluate_code

    result = evaluate_code(run, "code", samples=10, k=(1, 10), out=Path("programs.jsonl"), report=display)
    result.lines()       # for people: pass@k with intervals, a table of outcomes, the exceptions
    result.table         # (columns, rows) of the outcomes
    result.as_dict()     # for JSON
    result.attempts      # every program with its outcome

``problems`` is a file of HumanEval's or MBPP's form, the name of the built-in problems ("code"), or their records, as
``json.loads`` gives them. Nothing is generated or run where the sandbox lacks a protection (InputError), unless
``allow_unprotected``. With ``out`` every program is kept as soon as it was run, and the same call continues an
interrupted one.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.files import atomic_file, sha256
from ensue.core.manifest import MANIFEST
from ensue.core.torchrun import available_cores
from ensue.data.chat_template import Message
from ensue.data.code_problems import CHAT_STOPS, Problem, make_problems, read_problems
from ensue.measure.code_results import Attempt, CodeResult
from ensue.measure.sandbox.execution import Limits, run_program
from ensue.runs.chat import chat_template
from ensue.runs.completions import BATCH, Completion, complete
from ensue.runs.run import Run
from ensue.search.sampling import Sampling
from ensue.verbs.eval_answers import ENDING, SavedAnswers

GREEDY = Sampling(tokens=384, temperature=0.0)
SAMPLED = Sampling(tokens=384, temperature=0.2, top_p=0.95)
"""What is used for one sample and for several, unless the caller says: as in Chen et al. (2021)."""


def default_sampling(samples: int) -> Sampling:
    """How programs are drawn, unless the caller says."""
    return GREEDY if samples == 1 else SAMPLED


def default_ks(samples: int) -> list[int]:
    """The values of k that a number of samples is reported for.

    >>> default_ks(1), default_ks(10), default_ks(20)
    ([1], [1, 10], [1, 10, 20])
    """
    return sorted({1, *(k for k in (10, 100) if k <= samples), samples})


def evaluate_code(
    run: Run,
    problems: str | Path | Sequence[Mapping[str, Any]],
    *,
    samples: int = 1,
    k: Sequence[int] = (),
    sampling: Sampling | None = None,
    shots: int = 0,
    shots_from: Sequence[Mapping[str, Any]] = (),
    chat: bool = False,
    limit: int = 0,
    seed: int = 0,
    limits: Limits | None = None,
    allow_unprotected: bool = False,
    batch: int = BATCH,
    int8: bool = False,
    out: Path | None = None,
    saved: SavedAnswers | None = None,
    report: Report = silent,
) -> CodeResult:
    """Write ``samples`` programs for each problem, run them, and return their outcomes and pass@k.

    samples      programs for each problem
    k            the values of k; 1, 10, 100 and ``samples`` by default
    sampling     how programs are drawn; by default greedily for one sample, else with temperature 0.2 and top-p 0.95
    shots        solved problems before each prompt (MBPP)
    shots_from   the records of problems to take the shots from; by default the data set's own
    chat         ask in the run's chat template and take the program from the answer's block of code
    limit        maximum number of problems, drawn with ``seed``; 0 means all
    out          a JSONL file for every program with its outcome
    saved        programs that are known already, and where new ones are kept; by default beside ``out``
    """
    how = replace(sampling or default_sampling(samples), n=samples, seed=seed)
    if how.temperature == 0 and samples > 1:
        raise InputError(f"{samples} greedy programs would be equal", hint="use --temperature 0.2, or one sample")
    ks = sorted(set(k) or default_ks(samples))
    if not 1 <= ks[0] <= ks[-1] <= samples:
        raise InputError(f"pass@k needs k from 1 to the number of samples, {samples}, not {', '.join(map(str, ks))}")
    if isinstance(problems, str | Path):
        found = read_problems(problems, shots, shots_from=shots_from)
    else:
        found = make_problems(problems, shots, shots_from=shots_from)
    if limit:
        kept = random.Random(seed).sample(range(len(found)), min(limit, len(found)))
        found = [found[index] for index in sorted(kept)]
    prompts = chat_prompts(run, found) if chat else [problem.prompt for problem in found]
    if saved is None:
        saved = _saved_beside(out, run, [prompts, how, chat, int8, limits])
    run_program("", allow_unprotected=allow_unprotected)  # raises InputError where programs cannot be run
    report("phase", {"name": "writing and running programs"})
    running = partial(_attempt, chat=chat, limits=limits or Limits(), allow_unprotected=allow_unprotected)
    options: dict[str, Any] = {
        "stops": CHAT_STOPS if chat else found[0].stops,
        "batch": batch,
        "int8": int8,
        "report": report,
    }
    _write_and_run(partial(complete, run, prompts, how, **options), running, found, samples, saved)
    keys = [(index, number) for index in range(len(found)) for number in range(samples)]
    attempts = [Attempt(**one) for key in keys for one in saved.get(key) or ()]
    write_attempts(attempts, out)
    if out is not None:
        saved.remove()
    return CodeResult(attempts, ks)


def _write_and_run(
    write: Callable[..., Any],
    run: Callable[[Problem, int, Completion], Attempt],
    problems: Sequence[Problem],
    samples: int,
    saved: SavedAnswers,
) -> None:
    """Write the programs that are not saved, and run each on a thread as soon as it is written."""
    saved.start()
    known = {
        (index, number)
        for index in range(len(problems))
        for number in range(samples)
        if saved.get((index, number)) is not None
    }
    with ThreadPoolExecutor(available_cores()) as pool:
        running: list[Future[None]] = []

        def finished(index: int, number: int, completion: Completion) -> None:
            def run_and_keep() -> None:
                saved.add([index, number], [run(problems[index], number + 1, completion).as_dict()])

            running.append(pool.submit(run_and_keep))

        try:
            write(finished=finished, skip=known)
            for one in running:
                one.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)  # waits for programs that are running; what has run is kept
            raise


def chat_prompts(run: Run, problems: Sequence[Problem]) -> list[list[int]]:
    """Return the tokens of each problem as a conversation in the run's chat template."""
    template = chat_template(run)
    return [template.tokens([Message(*one) for one in problem.messages]).tolist() for problem in problems]


def _saved_beside(out: Path | None, run: Run, made_of: Sequence[Any]) -> SavedAnswers:
    """The programs of an interrupted call with the same ``out``; what they depend on is compared."""
    if out is None:
        return SavedAnswers()
    manifest = run.folder.path / MANIFEST
    digest = hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
    settings = {"digest": sha256(manifest)[:16] if manifest.exists() else "", "questions": digest}
    return SavedAnswers(out.with_name(out.name.removesuffix(".jsonl") + ENDING), settings)


def _attempt(
    problem: Problem, number: int, completion: Completion, *, chat: bool, limits: Limits, allow_unprotected: bool
) -> Attempt:
    """Run a program."""
    program = problem.answered_program(completion.text) if chat else problem.program(completion.text)
    ended = run_program(program, problem.tests, limits, allow_unprotected=allow_unprotected)
    how = (ended.outcome, ended.error, ended.message, round(ended.seconds, 3))
    return Attempt(problem.id, number, completion.text, program, *how, completion.tokens, completion.finish)


def write_attempts(attempts: Sequence[Attempt], out: Path | None) -> None:
    """Write every program with its outcome as a line of JSON."""
    if out is not None and attempts:
        with atomic_file(out) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            for one in attempts:
                file.write(json.dumps(one.as_dict(), ensure_ascii=False) + "\n")
