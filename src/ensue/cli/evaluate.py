"""`ensue eval`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ensue.cli.options import Force, Int8, Json, NoVerify, Seed, resume_command
from ensue.cli.output import print_json, print_line, print_table, warn
from ensue.core.errors import InputError
from ensue.core.escapes import escape_controls


def evaluate(
    run: Annotated[
        str, Argument(metavar="RUN", help="run, or several separated by commas; without it, list the tasks")
    ] = "",
    tasks: Annotated[str, Argument(metavar="TASKS", help="tasks and .jsonl files, separated by commas")] = "",
    shots: Annotated[str, Option(help="numbers of shots, e.g. 0,1,4")] = "0",
    data: Annotated[
        Path | None,
        Option(help="file or folder of known data sets (arc-easy, piqa …)", show_default="$ENSUE_EVAL_DATA"),
    ] = None,
    limit: Annotated[int, Option(help="questions of each task, drawn at random; 0 asks all")] = 0,
    draw: Annotated[str, Option(help="one: the same shots for all questions; each: drawn for each question")] = "one",
    shots_from: Annotated[str, Option(help="draw shots from this task or file", show_default="other questions")] = "",
    chat: Annotated[bool, Option("--chat", help="put each prompt into the run's chat template")] = False,
    execute: Annotated[bool, Option("--execute", help="run programs that the model writes, in a sandbox")] = False,
    num_samples: Annotated[int, Option("--num-samples", "--samples", help="programs for each problem, for pass@k")] = 1,
    temperature: Annotated[
        float | None, Option(help="temperature of programs", show_default="0 for one, 0.2 for several")
    ] = None,
    out: Annotated[Path | None, Option(help="folder to keep all prompts, answers and the chart in")] = None,
    seed: Seed = 0,
    int8: Int8 = False,
    resume: Annotated[
        bool, Option("--resume", help="continue the interrupted evaluation in --out, at the first unanswered question")
    ] = False,
    force: Force = False,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """test what language models can do from a prompt

    Tasks are multiple choice, last words, written answers, perplexity or programs. With --out, answers are kept as they
    are given: the same command continues an interrupted evaluation, and other tasks and shots are added to it.
    """
    if not run:
        _print_catalogue(as_json)
        return
    if not tasks:
        raise InputError("there is no task", hint="name one, e.g. arithmetic; `ensue eval` alone lists them")
    from ensue.cli.display import Display
    from ensue.verbs.eval import eval as verb

    options = {"limit": limit, "draw": draw, "shots_from": shots_from, "chat": chat, "seed": seed, "int8": int8}
    options |= {"samples": num_samples, "temperature": temperature}
    with Display(quiet=as_json) as display:
        result = verb(
            [part for part in run.split(",") if part],
            tasks,
            shots=_counts(shots),
            data=data,
            out=out,
            force=force,
            resume=resume,
            execute=execute,
            again=resume_command(sys.argv[1:]),
            report=display,
            **options,
        )
    if as_json:
        print_json(result)
        return
    _print_results(result)
    for note in result["notes"]:
        warn(f"note: {note}")
    if out is None:
        warn("note: --out FOLDER keeps all prompts and answers")
    else:
        print_line(f"\nall prompts and answers: {escape_controls(out)}; chart: {escape_controls(out / 'eval.html')}")


def _counts(text: str) -> list[int]:
    """Numbers separated by commas."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise InputError(f"--shots {text!r} is not a list of numbers", hint="write e.g. 0,1,4")
    return [int(part) for part in parts]


def _print_results(result: Mapping[str, Any]) -> None:
    several = len(result["runs"]) > 1
    rows = []
    for one in result["results"]:
        figures, measure = one["figures"], one["measure"]
        others = ", ".join(f"{name} {_shown(figures[name])}" for name in figures if name not in (measure, "groups"))
        error = figures[measure]["error"]
        chance = one.get("chance")
        rows.append(
            [
                *([one["run"]] if several else []),
                one["task"],
                str(one["shots"]),
                f"{one['examples']:,}",
                measure,
                _shown(figures[measure]),
                "" if error is None else f"±{error:.3g}",
                "" if chance is None else f"{chance:.3f}",
                f"{one['examples_per_second']:.1f}",
                others,
            ]
        )
    columns = ["task", "shots", "questions", "measure", "score", "error", "chance", "per second", "others"]
    named = [*(["run"] if several else []), *columns]
    filled = [n for n, name in enumerate(named) if name not in ("chance", "others") or any(row[n] for row in rows)]
    print_table([named[n] for n in filled], [[row[n] for n in filled] for row in rows])
    for one in result["results"]:
        if outcomes := one.get("outcomes"):
            run = f"{one['run']}, " * several
            ended = f"{_counted(outcomes)}; exceptions: {_counted(one['errors'])}"
            print_line(f"{run}{one['task']}, {one['shots']} shots: {ended}")
    cut = sum(one.get("cut") or 0 for one in result["results"])
    if cut:
        warn(f"note: {cut:,} prompts are longer than the model's context and were cut on the left")


def _counted(counts: Mapping[str, int]) -> str:
    """What occurred, and how often."""
    return ", ".join(f"{escape_controls(name)} {count:,}" for name, count in counts.items() if count) or "none"


def _shown(figure: Mapping[str, Any]) -> str:
    value = figure["value"]
    return "–" if value is None else f"{value:.3f}" if abs(value) < 1000 else f"{value:.4g}"


def _print_catalogue(as_json: bool) -> None:
    from ensue.data.evaluation.catalogue import catalogue

    found = catalogue()
    if as_json:
        print_json(found)
        return
    _print_part("built-in tasks", found["built_in"])
    known = {name: f"{one['kind']:<6}  {one['form']}" for name, one in found["data_sets"].items()}
    _print_part("known data sets: give their files with --data FILE_OR_FOLDER, or name a file", known)
    forms = {
        name: f"{one['kind']:<10}  {', '.join('|'.join(names) for names in one['fields'])}"
        for name, one in found["forms"].items()
    }
    _print_part("forms of .jsonl and .jsonl.gz files, recognised by the fields of a line", forms)


def _print_part(title: str, rows: Mapping[str, str]) -> None:
    width = max(map(len, rows))
    print_line(f"{title}\n")
    for name, text in rows.items():
        print_line(f"  {name:<{width}}  {text}")
    print_line()
