"""`ensue fit` and `ensue distil`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ensue.cli import options
from ensue.cli.output import print_json, print_line, print_lines
from ensue.core import torchrun
from ensue.core.errors import InputError
from ensue.core.escapes import escape_controls
from ensue.core.sizes import size_in_bytes

if TYPE_CHECKING:
    from ensue.runs.load import Run


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
    work = partial(
        verb, what, data or [], valid=valid, model=model, config=config, settings=options.typed_settings(set_, given)
    )
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
    settings = options.typed_settings(set_, {**given, "data.columns": columns})
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
