"""`ensue race`: systems, attentions or pre-training objectives on the same data."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from ensue.cli import options
from ensue.cli.output import print_json, print_line, print_lines, print_table
from ensue.core.errors import InputError
from ensue.core.escapes import escape_controls


class Match(StrEnum):
    """What is equal for all systems of a race."""

    time = "time"
    cpu = "cpu"
    params = "params"
    tokens = "tokens"


def _names(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _label_counts(labels: str) -> list[int]:
    """``--labels`` as numbers."""
    words = [word.strip() for word in labels.split(",")] if labels else []
    if not all(word.isascii() and word.isdigit() and len(word) < 19 for word in words):
        raise InputError(f"--labels {labels!r} is not a list of numbers", hint="write --labels 100,300,1000")
    return [int(word) for word in words]


def race(
    data: options.Data = None,
    task: Annotated[str, Option(help="lm, translate, classify, pair, regress, choose, tag, answer or forecast")] = "lm",
    systems: Annotated[
        str | None,
        Option(help="systems to compare, separated by commas", show_default="lm: ngram,window,rnn,gru,lstm,gpt"),
    ] = None,
    budget: Annotated[
        str | None,
        Option(
            help="training time of each system, e.g. 45s or 10m", show_default="60s; with --labels the task's epochs"
        ),
    ] = None,
    match: Annotated[
        Match,
        Option(
            help="what is equal: training time, CPU time (with one thread each; a busy machine takes longer, but ranks "
            "alike), parameters or training tokens"
        ),
    ] = Match.time,
    attention: Annotated[
        str | None,
        Option(metavar="NAME,…", help="train each system with each of these attentions; all: every one it can use"),
    ] = None,
    objectives: Annotated[
        str | None,
        Option(
            metavar="NAME,…",
            help="pre-train with each of these objectives (mlm, span, nsp, sop, rtd, clm), then fine-tune each on "
            "--then FILE",
        ),
    ] = None,
    then: Annotated[
        list[str], Option(metavar="[TASK:]FILE", help="--objectives: labelled data to fine-tune on; can be repeated")
    ] = [],
    then_valid: Annotated[
        list[str], Option(metavar="FILE", help="--objectives: data to score each --then on, in the same order")
    ] = [],
    seeds: Annotated[int, Option(min=1, help="number of seeds to train each system with")] = 1,
    labels: Annotated[
        str, Option(metavar="N,N…", help="draw a learning curve: train on N labelled examples each time")
    ] = "",
    begin_with: Annotated[
        str, Option("--from", metavar="RUN", help="tasks: also train this run's system from its pre-trained weights")
    ] = "",
    valid: options.Valid = [],
    tokenizer: Annotated[str, Option(help="tokenizer of all systems")] = "",
    set_: options.Set = [],
    field: options.Field = "",
    columns: options.Columns = "",
    target: options.Target = [],
    horizon: options.Horizon = None,
    out: Annotated[Path, Option(help="folder to write runs, race.json, race.md and charts to")] = Path("runs/race"),
    force: options.Force = False,
    resume: Annotated[
        bool, Option(help="keep the systems that are finished and train the others", show_default=False)
    ] = False,
    repeat: Annotated[str, Option(metavar="SYSTEM,…", help="with --resume: train these systems again")] = "",
    no_verify: options.NoVerify = False,
    as_json: options.Json = False,
) -> None:
    """compare systems on the same data and budget

    Trains each system, evaluates it on held-out data and prints one table.
    """
    from ensue.cli.display import Display
    from ensue.verbs.race import race as verb

    if not data:
        raise InputError("race on what?", hint="name a text: ensue race my.txt")
    given = {"data.field": field, "data.columns": columns, "data.target": tuple(target), "horizon": horizon}
    settings = options.typed_settings(set_, {**given, "tokenizer.kind": tokenizer})
    if objectives is not None or then or then_valid:
        others = {"--task": task != "lm", "--systems": systems is not None, "--attention": attention is not None}
        others |= {"--labels": bool(labels), "--from": bool(begin_with), "--valid": bool(valid)}
        others |= {"--repeat": bool(repeat)}
        _check_alone(objectives, others)
        how = {"budget": budget, "match": match.value, "seeds": seeds, "force": force, "resume": resume}
        _race_objectives(data, _names(objectives or ""), then, then_valid, settings, out, how, as_json)
        return
    with Display(quiet=as_json) as display:
        result = verb(
            data,
            task=task,
            systems=None if systems is None else _names(systems),
            budget=budget,
            match=match.value,
            attention=options.attention_names(attention),
            seeds=seeds,
            labels=_label_counts(labels),
            begin_with=begin_with,
            valid=valid,
            settings=settings,
            out=out,
            force=force,
            resume=resume,
            repeat=_names(repeat),
            again=options.resume_command(sys.argv[1:]),
            report=display,
        )
    if as_json:
        print_json(result.as_dict())
        return
    print_table(*result.table())
    print_lines(map(escape_controls, [*result.remarks(), *result.conditions()]))
    if all(entrant.value is None for entrant in result.entrants):
        raise InputError("every system failed", where=str(out))
    files = ", ".join(str(out / name) for name in ("race.md", "race.png", "race.html"))
    print_line(f"table and chart: {escape_controls(files)}")


def _check_alone(objectives: str | None, others: dict[str, bool]) -> None:
    """Refuse options that a race of objectives does not take."""
    if objectives is None:
        raise InputError("--then is for races of objectives", hint="add --objectives mlm,clm")
    for name, given in others.items():
        if given:
            raise InputError(f"--objectives and {name} exclude each other", hint="leave out one")


def _race_objectives(
    data: list[str],
    objectives: list[str],
    then: list[str],
    then_valid: list[str],
    settings: dict[str, Any],
    out: Path,
    how: dict[str, Any],
    as_json: bool,
) -> None:
    """Race pre-training objectives and print the table."""
    from ensue.cli.display import Display
    from ensue.verbs.race_objectives import race_objectives

    again = options.resume_command(sys.argv[1:])
    with Display(quiet=as_json) as display:
        result = race_objectives(
            data,
            objectives,
            then,
            then_valid=then_valid,
            settings=settings,
            out=out,
            again=again,
            report=display,
            **how,
        )
    if as_json:
        print_json(result.as_dict())
        return
    print_table(*result.table())
    print_lines(map(escape_controls, result.remarks()))
    if not any(one.scores for one in result.results):
        raise InputError("every objective failed", where=str(out))
    files = ", ".join(str(out / name) for name in ("objectives.md", "objectives.png", "objectives.html"))
    print_line(f"table and chart: {escape_controls(files)}")
