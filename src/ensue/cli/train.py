"""`ensue fit`, `ensue distil` and `ensue race`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ensue.cli import options
from ensue.cli.output import print_json, print_line, print_lines, print_table
from ensue.core import torchrun
from ensue.core.errors import InputError
from ensue.core.escapes import escape_controls
from ensue.core.sizes import size_in_bytes

if TYPE_CHECKING:
    from ensue.runs.load import Run


class Match(StrEnum):
    """What is equal for all systems of a race."""

    time = "time"
    cpu = "cpu"
    params = "params"
    tokens = "tokens"


def fit(
    what: Annotated[
        str,
        Argument(
            metavar="SYSTEM",
            help="system to train, e.g. lstm (see `ensue systems`), or a task: classify, pair, regress, choose, tag, "
            "answer, forecast",
        ),
    ] = "",
    data: options.Data = None,
    valid: options.Valid = [],
    tokenizer: Annotated[str, Option(help="byte, char, word, bpe, wordpiece, unigram, or a path")] = "",
    preset: options.Preset = "",
    config: Annotated[Path | None, Option(help="run.toml to take settings from")] = None,
    set_: options.Set = [],
    budget: Annotated[str | None, Option(help="training time, e.g. 45s, 10m or 2h")] = None,
    seed: options.OptionalSeed = None,
    field: options.Field = "",
    columns: options.Columns = "",
    begin_with: Annotated[
        str, Option("--from", metavar="RUN", help="run to initialise weights and tokenizers from")
    ] = "",
    model: Annotated[
        str, Option(metavar="SYSTEM", help="system to use for a task", show_default="bert; forecast: lstm")
    ] = "",
    target: options.Target = [],
    horizon: options.Horizon = None,
    embeddings: Annotated[
        str, Option(metavar="FILE", help="word vectors to initialise embeddings from: a vector file or word2vec run")
    ] = "",
    sample_every: Annotated[int, Option(help="print a generated sample every N steps; 0 means never", metavar="N")] = 0,
    memory: Annotated[
        str, Option(help="n-grams: memory limit for counting, e.g. 500M or 4G; the rest goes to disk")
    ] = "",
    device: options.Device = "",
    compile_: Annotated[bool, Option("--compile", help="compile the model with torch.compile")] = False,
    shard: Annotated[
        bool, Option("--shard", help="shard the weights over all ranks (FSDP), when started by torchrun")
    ] = False,
    out: Annotated[Path | None, Option(help="run folder to write", show_default="runs/SYSTEM")] = None,
    force: options.Force = False,
    resume: options.Resume = False,
    no_verify: options.NoVerify = False,
    as_json: options.Json = False,
) -> None:
    """train a model

    Trains a language or translation model on text or sentence pairs, a classifier, tagger or question answerer on
    labelled examples, or a forecaster on time series, and writes a run folder.
    """
    from ensue.verbs.fit import fit as verb

    if resume and out is None and what and not data and Path(what).is_dir():
        out = Path(what)  # `ensue fit RUN --resume`
    if not (resume and out):
        what = _system(what, None if resume else config)
    given: dict[str, Any] = {"tokenizer.kind": tokenizer, "preset": preset, "seed": seed, "device": device}
    given |= {"data.field": field, "data.columns": columns, "data.target": tuple(target), "horizon": horizon}
    given |= {"begin_with": begin_with, "embeddings": embeddings, "compile": compile_, "train.shard": shard}
    given |= {"train.sample_every": sample_every, "train.memory": size_in_bytes(memory) if memory else 0}
    work = partial(verb, what, data or [], valid=valid, model=model, config=config, settings=_settings(set_, given))
    _train(partial(work, out=out, budget=budget, resume=resume, force=force), as_json)


def distil(
    teacher: Annotated[Path, Argument(metavar="TEACHER", help="run of a labelling task, or of a language model")],
    student: Annotated[str, Argument(metavar="STUDENT", help="system of the new run: bert, lstm, gru, gpt …")],
    unlabelled: Annotated[
        list[str],
        Option(help="texts for the teacher to label, one per line, pairs with a tab, or to read; can be repeated"),
    ] = [],
    labelled: Annotated[list[str], Option(help="labelled examples to train on as well; can be repeated")] = [],
    valid: Annotated[list[str], Option(help="labelled examples to validate on; can be repeated")] = [],
    tokenizer: Annotated[
        str, Option(help="wordpiece, bpe, unigram, byte … or a path", show_default="the teacher's")
    ] = "",
    preset: options.Preset = "",
    set_: options.Set = [],
    budget: Annotated[
        str | None, Option(help="training time, e.g. 45s, 10m or 2h, without the teacher's labelling")
    ] = None,
    seed: options.OptionalSeed = None,
    columns: options.Columns = "",
    begin_with: Annotated[
        str,
        Option("--from", metavar="RUN", help="run to initialise weights from; some layers are skipped if it has more"),
    ] = "",
    device: options.Device = "",
    out: Annotated[Path | None, Option(help="run folder to write", show_default="runs/STUDENT")] = None,
    force: options.Force = False,
    resume: options.Resume = False,
    no_verify: options.NoVerify = False,
    as_json: options.Json = False,
) -> None:
    """train a small model to imitate a larger one

    The teacher labels texts or predicts next tokens; the student learns its probabilities (knowledge distillation).
    """
    from ensue.verbs.distil import distil as verb

    given = {"tokenizer.kind": tokenizer, "preset": preset, "seed": seed, "begin_with": begin_with, "device": device}
    settings = _settings(set_, {**given, "data.columns": columns})
    work = partial(verb, teacher, student, unlabelled, labelled=labelled, valid=valid, settings=settings)
    _train(partial(work, out=out, budget=budget, resume=resume, force=force), as_json)


def _system(what: str, config: Path | None) -> str:
    """The system to train, as given or from run.toml."""
    from ensue.core.settings import read_toml

    if not what and config is not None:
        what = str(read_toml(config).get("system", ""))
    if not what:
        raise InputError("fit what?", hint="name a system and a text: ensue fit lstm my.txt")
    return what


def _settings(assignments: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Settings by the flat names of run.toml, from --set and from other options; the latter win."""
    from ensue.core.settings import parse_assignments

    given = {name: value for name, value in options.items() if value or (name == "seed" and value is not None)}
    return {**parse_assignments(assignments), **given}


def _train(work: Callable[..., Run], as_json: bool) -> None:
    """Train with a progress bar, and print the result; on rank 0 only."""
    from ensue.cli.display import Display

    command = shlex.join(["ensue", *sys.argv[1:]]).encode("utf-8", "backslashreplace").decode()  # for run.toml
    with Display(quiet=as_json or torchrun.rank() > 0) as display:
        run = work(command=command, report=display)
    if torchrun.rank():
        return
    figures = run.config["figures"]
    if as_json:
        print_json({"run": str(run.folder.path), "system": run.system, **figures})
        return
    unit = figures["unit"] if figures["steps"] != 1 else {"steps": "step", "passes": "pass"}[figures["unit"]]
    counted = "ngrams" if "ngrams" in figures else "parameters"
    size = f"{figures[counted]:,} {counted.replace('ngrams', 'n-grams')}"
    print_line(f"{run.system} in {escape_controls(run.folder.path)}: {figures['steps']:,} {unit}, {size}")
    if figures["stopped"] == "budget":
        print_line("the budget ended before the planned steps; --resume trains the rest")
    if "valid" in figures:
        print_lines(run.score_lines(figures["valid"]))
    if "held_out" in figures:
        from ensue.runs.model_card import held_out_note

        print_line(f"measured with {held_out_note(figures['held_out'])}")


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
    settings = _settings(set_, {**given, "tokenizer.kind": tokenizer})
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
