"""pass@k of a language model on HumanEval, MBPP and the built-in problems, and what became of the programs.

    ENSUE_DATA=… python -m benchmarks.quality.code_pass runs/smollm2 [--samples 10] [--temperature 0.8] [--chat]
        [--limit 50] [--first 60] [--only HumanEval]

The data sets are read from $ENSUE_DATA/probes/lm_tasks. Every program is kept in --keep, to be read; after an
interruption the same command continues.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.record import data_folder, record
from ensue.cli.display import Display
from ensue.data.evaluation.catalogue import find_task
from ensue.runs.load import load
from ensue.verbs.code_evaluation import default_sampling, evaluate_code

TASKS = {"code": ("code", 0), "HumanEval": ("HumanEval.jsonl.gz", 0), "MBPP": ("mbpp.jsonl.gz", 3)}


def main() -> None:
    """Measure each data set and record a line for it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("run", type=Path)
    asked.add_argument("--samples", type=int, default=1)
    asked.add_argument("--temperature", type=float)
    asked.add_argument("--chat", action="store_true")
    asked.add_argument("--shots", type=int)
    asked.add_argument("--limit", type=int, default=0)
    asked.add_argument("--first", type=int, help="the first problems of a file only")
    asked.add_argument("--only", choices=TASKS)
    asked.add_argument("--keep", type=Path, default=Path("/tmp"))
    given = asked.parse_args()
    run = load(given.run)
    how = default_sampling(given.samples)
    if given.temperature is not None:
        how = replace(how, temperature=given.temperature)
    for name, (source, usual) in TASKS.items():
        if given.only not in (None, name):
            continue
        shots = usual if given.shots is None else given.shots
        path = source if name == "code" else data_folder() / "probes" / "lm_tasks" / source
        start = time.monotonic()
        out = given.keep / f"{name}-{given.samples}-{how.temperature}{'-chat' * given.chat}.jsonl"
        options = {"samples": given.samples, "sampling": how, "shots": shots, "chat": given.chat}
        with Display() as display:
            problems = find_task(str(path)).problems[: given.first]
            result = evaluate_code(run, problems, limit=given.limit, out=out, report=display, **options)
        print("\n".join(result.lines()))
        facts = {"run": given.run.name, "task": name, "shots": shots, "chat": given.chat}
        facts |= {"temperature": how.temperature} | ({"first": given.first} if given.first else {})
        seconds = round(time.monotonic() - start, 1)
        record("code_pass", {**facts, "top_p": how.top_p, **result.as_dict(), "seconds": seconds})


if __name__ == "__main__":
    main()
