"""`ensue fit`, `ensue distil` and `ensue race`."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ensue.cli.options import Columns, Data, Device, Field, Force, Horizon, Json, Set, Target, Valid
from ensue.cli.output import emit, say, table
from ensue.cli.scores import show_figures
from ensue.core import torchrun as launch
from ensue.core.errors import InputError
from ensue.core.sizes import size_in_bytes

if TYPE_CHECKING:
    from ensue.runs.load import Run


class Match(StrEnum):
    """What systems in a race have in common."""

    time = "time"
    params = "params"
    tokens = "tokens"


def fit(
    what: Annotated[
        str,
        typer.Argument(
            help="A system, e.g. lstm (see `ensue systems`); or classify, pair, regress, choose, tag, answer, forecast."
        ),
    ] = "",
    data: Data = None,
    valid: Valid = [],
    tokenizer: Annotated[str, typer.Option(help="byte, char, word, bpe, wordpiece, unigram, or a path.")] = "",
    preset: Annotated[str, typer.Option(help="Settings to begin with; see `ensue systems NAME`.")] = "",
    config: Annotated[Path | None, typer.Option(help="A run.toml to take settings from.")] = None,
    set_: Set = [],
    budget: Annotated[str, typer.Option(help="How long to train: 45s, 10m, 2h.")] = "",
    seed: Annotated[int | None, typer.Option(help="Where random numbers come from (0).")] = None,
    field: Field = "",
    columns: Columns = "",
    begin_with: Annotated[
        str, typer.Option("--from", metavar="RUN", help="Begin with this run's weights and tokenizers.")
    ] = "",
    model: Annotated[
        str, typer.Option(metavar="SYSTEM", help="The system of a task that labels (bert) or forecasts (lstm).")
    ] = "",
    target: Target = [],
    horizon: Horizon = None,
    embeddings: Annotated[
        str, typer.Option(metavar="FILE", help="Begin with these word vectors: a vector file, or a run of word2vec.")
    ] = "",
    sample_every: Annotated[int, typer.Option(help="Show what the model writes every so many steps.")] = 0,
    memory: Annotated[str, typer.Option(help="n-grams: count within so much memory, on disk: 500M, 4G.")] = "",
    device: Device = "",
    compile_: Annotated[bool, typer.Option("--compile", help="Compile the model with torch.compile.")] = False,
    shard: Annotated[
        bool, typer.Option("--shard", help="Under torchrun: spread the weights over the ranks (FSDP).")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The run folder (runs/SYSTEM).")] = None,
    force: Force = False,
    resume: Annotated[bool, typer.Option(help="Go on with the run in --out, to the bit.")] = False,
    as_json: Json = False,
) -> None:
    """Train a system on a text or on sentence pairs, a model that labels on examples, or a forecaster on series."""
    from ensue.cli.display import Display
    from ensue.verbs.fit import fit as verb

    if resume and out is None and what and not data and Path(what).is_dir():
        out = Path(what)  # `ensue fit RUN --resume`
    if not (resume and out):
        what = _system(what, None if resume else config)
    options = {
        "tokenizer.kind": tokenizer,
        "preset": preset,
        "seed": seed,
        "data.field": field,
        "data.columns": columns,
        "begin_with": begin_with,
        "embeddings": embeddings,
        "data.target": tuple(target),
        "horizon": horizon,
        "train.sample_every": sample_every,
        "train.memory": size_in_bytes(memory) if memory else 0,
        "device": device,
        "compile": compile_,
        "train.shard": shard,
    }
    typed = _typed(set_, options)
    with Display(quiet=as_json or launch.rank() > 0) as display:
        run = verb(
            what,
            data or [],
            valid=valid,
            model=model,
            out=out,
            settings=typed,
            config=config,
            budget=budget or None,
            resume=resume,
            force=force,
            command=shlex.join(["ensue", *sys.argv[1:]]),
            report=display,
        )
    _show(run, as_json)


def distil(
    teacher: Annotated[Path, typer.Argument(metavar="TEACHER", help="A run that labels.")],
    student: Annotated[
        str, typer.Argument(metavar="STUDENT", help="The system of the new run: bert, lstm, gru, gpt …")
    ],
    unlabelled: Annotated[
        list[str],
        typer.Option(help="Texts for the teacher to label: one a line, pairs with a tab between; repeatable."),
    ] = [],
    labelled: Annotated[list[str], typer.Option(help="Examples with labels, to learn from beside; repeatable.")] = [],
    valid: Annotated[list[str], typer.Option(help="Examples with labels to validate with; repeatable.")] = [],
    tokenizer: Annotated[str, typer.Option(help="wordpiece, bpe, unigram, byte … or a path (the teacher's).")] = "",
    preset: Annotated[str, typer.Option(help="The student's size; see `ensue systems NAME`.")] = "",
    set_: Set = [],
    budget: Annotated[
        str, typer.Option(help="How long to train: 45s, 10m, 2h; the teacher's answers not counted.")
    ] = "",
    seed: Annotated[int | None, typer.Option(help="Where random numbers come from (0).")] = None,
    columns: Columns = "",
    begin_with: Annotated[
        str,
        typer.Option("--from", metavar="RUN", help="Begin with this run's weights; of more layers, some are taken."),
    ] = "",
    device: Device = "",
    out: Annotated[Path | None, typer.Option(help="The run folder (runs/STUDENT).")] = None,
    force: Force = False,
    resume: Annotated[bool, typer.Option(help="Go on with the run in --out, to the bit.")] = False,
    as_json: Json = False,
) -> None:
    """Train a smaller model to label as a larger one does, from texts without labels."""
    from ensue.cli.display import Display
    from ensue.verbs.distil import distil as verb

    options = {
        "tokenizer.kind": tokenizer,
        "preset": preset,
        "seed": seed,
        "data.columns": columns,
        "begin_with": begin_with,
        "device": device,
    }
    with Display(quiet=as_json or launch.rank() > 0) as display:
        run = verb(
            teacher,
            student,
            unlabelled,
            labelled=labelled,
            valid=valid,
            out=out,
            settings=_typed(set_, options),
            budget=budget or None,
            resume=resume,
            force=force,
            command=shlex.join(["ensue", *sys.argv[1:]]),
            report=display,
        )
    _show(run, as_json)


def _system(what: str, config: Path | None) -> str:
    """The system to train: as typed, or as a run.toml says."""
    from ensue.core.settings import read_toml

    if not what and config is not None:
        what = str(read_toml(config).get("system", ""))
    if not what:
        raise InputError("fit what?", hint="name a system and a text: ensue fit lstm my.txt")
    return what


def _typed(assignments: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """What was typed, by the flat names of run.toml: with --set, and with options of their own, which win."""
    from ensue.core.settings import parse_assignments

    said = {name: value for name, value in options.items() if value or (name == "seed" and value is not None)}
    return {**parse_assignments(assignments), **said}


def _show(run: Run, as_json: bool) -> None:
    """What came out of training; of several ranks the first says it."""
    if launch.rank():
        return
    figures = run.config["figures"]
    if as_json:
        emit({"run": str(run.folder.path), "system": run.system, **figures})
        return
    unit = figures["unit"] if figures["steps"] != 1 else {"steps": "step", "passes": "pass"}[figures["unit"]]
    learnt = "ngrams" if "ngrams" in figures else "parameters"
    size = f"{figures[learnt]:,} {learnt.replace('ngrams', 'n-grams')}"
    say(f"{run.system} in {run.folder.path}: {figures['steps']:,} {unit}, {size}")
    if figures["stopped"] == "budget":
        say("the budget ended before the planned steps; --resume does the rest")
    if "valid" in figures:
        show_figures(run.task, figures["valid"])


def _numbers(labels: str) -> list[int]:
    """What ``--labels`` asks for."""
    words = [word.strip() for word in labels.split(",")] if labels else []
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(f"--labels {labels!r} is no list of numbers", hint="write --labels 100,300,1000")
    return [int(word) for word in words]


def race(
    data: Data = None,
    task: Annotated[
        str, typer.Option(help="lm, translate, classify, pair, regress, choose, tag, answer, forecast.")
    ] = "lm",
    systems: Annotated[
        str | None, typer.Option(help="Names with commas between (lm: ngram,window,rnn,gru,lstm,gpt).")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Training time of each: 45s, 10m (60s; with --labels epochs as the task has).")
    ] = None,
    match: Annotated[Match, typer.Option(help="Race at equal time, equal size or equal data.")] = Match.time,
    seeds: Annotated[int, typer.Option(min=1, help="Train each so often, with other seeds.")] = 1,
    labels: Annotated[
        str, typer.Option(metavar="N,N…", help="Learn from so many labels each time, e.g. 100,300,1000, as a curve.")
    ] = "",
    begin_with: Annotated[
        str, typer.Option("--from", metavar="RUN", help="Tasks: this run's system also begins with its weights.")
    ] = "",
    valid: Valid = [],
    tokenizer: Annotated[str, typer.Option(help="The tokenizer all share.")] = "",
    set_: Set = [],
    field: Field = "",
    columns: Columns = "",
    target: Target = [],
    horizon: Horizon = None,
    out: Annotated[Path, typer.Option(help="The folder for runs, race.json, race.md and the chart.")] = Path(
        "runs/race"
    ),
    force: Force = False,
    resume: Annotated[bool, typer.Option(help="Keep the systems that are done and go on.")] = False,
    as_json: Json = False,
) -> None:
    """Find out which system suits a text or a task, and what pre-training saves: same data, same budget, one table."""
    from ensue.cli.display import Display
    from ensue.verbs.race import race as verb

    if not data:
        raise InputError("race on what?", hint="name a text: ensue race my.txt")
    typed = _typed(
        set_,
        {
            "tokenizer.kind": tokenizer,
            "data.field": field,
            "data.columns": columns,
            "data.target": tuple(target),
            "horizon": horizon,
        },
    )
    with Display(quiet=as_json) as display:
        result = verb(
            data,
            task=task,
            systems=None if systems is None else [name.strip() for name in systems.split(",") if name.strip()],
            budget=budget,
            match=match.value,
            seeds=seeds,
            labels=_numbers(labels),
            begin_with=begin_with,
            valid=valid,
            settings=typed,
            out=out,
            force=force,
            resume=resume,
            again=shlex.join(["ensue", *(word for word in sys.argv[1:] if word != "--force"), "--resume"]),
            report=display,
        )
    if as_json:
        emit(result.as_dict())
        return
    table(*result.table())
    for line in result.remarks():
        say(line)
    if all(entrant.value is None for entrant in result.entrants):
        raise InputError("every system failed", where=str(out))
    say(f"table and chart: {out / 'race.md'}, {out / 'race.png'}, {out / 'race.html'}")
