"""The words people type: each command parses, calls its verb and prints. Nothing heavy is imported before that."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ensue.core.errors import InputError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train, race, open up and serve sequence models, from n-grams to GPT, on the machine you have.",
)

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else there.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `ensue fit` made.")]
Seed = Annotated[int, typer.Option(help="Where random numbers come from.")]
Field = Annotated[str, typer.Option(help="Which field of a JSONL file holds the text.")]
Set = Annotated[
    list[str], typer.Option("--set", metavar="NAME=VALUE", help="A setting, e.g. train.lr=3e-4; repeatable.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps or auto.")]
Force = Annotated[bool, typer.Option(help="Replace what is there.")]
Data = Annotated[
    list[str] | None,
    typer.Argument(metavar="DATA…", help="Files, folders, - or a built-in corpus (pydoc, stdlib, hello)."),
]
Valid = Annotated[list[str], typer.Option(help="Validation text; repeatable. Without it the text's end is held out.")]


class Match(StrEnum):
    """What systems in a race have in common."""

    time = "time"
    params = "params"
    tokens = "tokens"


def emit(value: Any) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")


def say(text: str = "") -> None:
    """A line for people on standard output."""
    sys.stdout.write(text + "\n")


def table(columns: list[str], rows: list[list[str]]) -> None:
    """A table for people: the first column to the left, the others to the right."""
    widths = [max(len(str(line[i])) for line in [columns, *rows]) for i in range(len(columns))]
    for line in [columns, ["─" * width for width in widths], *rows]:
        cells = [str(cell).ljust(w) if i == 0 else str(cell).rjust(w) for i, (cell, w) in enumerate(zip(line, widths))]
        say("  ".join(cells).rstrip())


@app.command()
def fit(
    what: Annotated[str, typer.Argument(help="A system, e.g. lstm; see `ensue systems`.")] = "",
    data: Data = None,
    valid: Valid = [],
    tokenizer: Annotated[str, typer.Option(help="byte, char, word, bpe, wordpiece, unigram, or a path.")] = "",
    preset: Annotated[str, typer.Option(help="Settings to begin with; see `ensue systems NAME`.")] = "",
    config: Annotated[Path | None, typer.Option(help="A run.toml to take settings from.")] = None,
    set_: Set = [],
    budget: Annotated[str, typer.Option(help="How long to train: 45s, 10m, 2h.")] = "",
    seed: Annotated[int | None, typer.Option(help="Where random numbers come from (0).")] = None,
    field: Field = "",
    sample_every: Annotated[int, typer.Option(help="Show what the model writes every so many steps.")] = 0,
    device: Device = "",
    compile_: Annotated[bool, typer.Option("--compile", help="Compile the model with torch.compile.")] = False,
    out: Annotated[Path | None, typer.Option(help="The run folder (runs/SYSTEM).")] = None,
    force: Force = False,
    resume: Annotated[bool, typer.Option(help="Go on with the run in --out, to the bit.")] = False,
    as_json: Json = False,
) -> None:
    """Train a system on a text."""
    from ensue.cli.display import Display
    from ensue.core.settings import parse_assignments, read_toml
    from ensue.verbs.fit import fit as verb

    if resume and out is None and what and not data and Path(what).is_dir():
        out = Path(what)  # `ensue fit RUN --resume`
    if not what and config is not None and not resume:
        what = str(read_toml(config).get("system", ""))
    if not what and not (resume and out):
        raise InputError("fit what?", mend="name a system and a text: ensue fit lstm my.txt")
    typed: dict[str, Any] = dict(parse_assignments(set_))
    named = {
        "tokenizer.kind": tokenizer,
        "preset": preset,
        "seed": seed,
        "data.field": field,
        "train.sample_every": sample_every,
        "device": device,
        "compile": compile_,
    }
    typed |= {name: value for name, value in named.items() if value or (value == 0 and name == "seed")}
    typed = {name: value for name, value in typed.items() if value is not False}
    with Display(quiet=as_json) as display:
        run = verb(
            what,
            data or [],
            valid=valid,
            out=out,
            settings=typed,
            config=config,
            budget=budget or None,
            resume=resume,
            force=force,
            report=display,
        )
    figures = run.config["figures"]
    if as_json:
        emit({"run": str(run.folder.path), "system": run.system, **figures})
        return
    say(f"{run.system} in {run.folder.path}: {figures['steps']:,} steps, {figures['parameters']:,} parameters")
    if figures["stopped"] == "budget":
        say("the budget ended before the planned steps; --resume does the rest")
    if "valid" in figures:
        show_score(figures["valid"])


def show_score(score: dict[str, Any]) -> None:
    """The figures of a language model, for people."""
    per = score["perplexity"]
    bits = "pseudo-likelihood" if score["bits_per_byte"] is None else f"{score['bits_per_byte']:.4f} bits per byte"
    say(f"{bits} · perplexity {per['token']:.2f} per token, {per['word']:.2f} per word, {per['byte']:.4f} per byte")
    say(f"{score['tokens']:,} tokens, {score['words']:,} words, {score['bytes']:,} bytes, {score['unknown']:,} unknown")


@app.command()
def score(
    run: RunPath,
    data: Data = None,
    text: Annotated[str | None, typer.Option(help="A text instead of files.")] = None,
    field: Field = "",
    per_token: Annotated[bool, typer.Option(help="Say what each token costs, in bits.")] = False,
    streams: Annotated[int, typer.Option(help="Parallel streams; 1 reads the text in one go (0: by its length).")] = 0,
    as_json: Json = False,
) -> None:
    """Say how well a model predicts a text."""
    from dataclasses import asdict
    from math import log

    from ensue.cli.display import Display
    from ensue.verbs.run import load

    if (text is None) == (not data):
        raise InputError("score what?", mend="name files or give --text, not both")
    with Display(quiet=as_json) as display:
        held = load(run)
        display("phase", {"name": "scoring"})
        result = asdict(held.score(*(data or []), text=text, field=field or None, streams=streams, report=display))
        tokens = held.per_token(*(data or []), text=text, field=field or None) if per_token else []
    if as_json:
        if per_token:
            result["per_token"] = [{"token": token, "bits": -value / log(2)} for token, value in tokens]
        emit({name: value for name, value in result.items() if name != "pseudo" or value})
        return
    for token, value in tokens:
        say(f"{-value / log(2):8.3f}  {token}")
    show_score(result)


@app.command()
def generate(
    run: RunPath,
    prompt: Annotated[str, typer.Option(help="What the text begins with (a backward model: ends with).")] = "",
    tokens: Annotated[int, typer.Option(help="At most so many tokens.")] = 100,
    temperature: Annotated[float, typer.Option(help="Below 1 safer, above 1 bolder, 0 always the likeliest.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw from the k likeliest tokens (0: all).")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the likeliest tokens that make up this mass.")] = 1.0,
    n: Annotated[int, typer.Option(help="How many tries; all are shown, with scores.")] = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Let a model write."""
    from ensue.verbs.run import load

    held = load(run)
    how = {"tokens": tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "n": n, "seed": seed}
    texts = held.generate(prompt, **how)
    if as_json:
        emit({"system": held.system, "prompt": prompt, **how, "samples": [text.as_dict() for text in texts]})
        return
    for number, text in enumerate(texts, 1):
        if n > 1:
            mean, whole = text.sample.mean_log_prob, text.sample.log_prob
            say(f"— {number} of {n}: log P = {whole:.2f}, {mean:.3f} a token")
        say(text.text if held.direction == "backward" else prompt + text.text)


@app.command("next")
def next_(
    run: RunPath,
    text: Annotated[str, typer.Argument(help="What comes before.")],
    top: Annotated[int, typer.Option(min=1, help="How many to show.")] = 10,
    as_json: Json = False,
) -> None:
    """Show what a model expects next."""
    from ensue.verbs.run import load

    held = load(run)
    found = held.next(text, top)
    if as_json:
        emit({"system": held.system, "text": text, "next": [{"token": t, "probability": p} for t, p in found]})
        return
    for token, p in found:
        say(f"{p:7.4f}  {'█' * max(1, round(40 * p / found[0][1]))}  {token}")


@app.command()
def race(
    data: Data = None,
    systems: Annotated[str, typer.Option(help="Names with commas between.")] = "ngram,window,rnn,gru,lstm,gpt",
    budget: Annotated[str, typer.Option(help="Training time of each system: 45s, 10m.")] = "60s",
    match: Annotated[Match, typer.Option(help="Race at equal time, equal size or equal data.")] = Match.time,
    seeds: Annotated[int, typer.Option(min=1, help="Train each so often, with other seeds.")] = 1,
    valid: Valid = [],
    tokenizer: Annotated[str, typer.Option(help="The tokenizer all share.")] = "",
    set_: Set = [],
    field: Field = "",
    out: Annotated[Path, typer.Option(help="The folder for runs, race.json, race.md and the chart.")] = Path(
        "runs/race"
    ),
    force: Force = False,
    resume: Annotated[bool, typer.Option(help="Keep the systems that are done and go on.")] = False,
    as_json: Json = False,
) -> None:
    """Find out which system suits a text: same data, same budget, one table."""
    from ensue.cli.display import Display
    from ensue.core.settings import parse_assignments
    from ensue.verbs.race import race as verb

    if not data:
        raise InputError("race on what?", mend="name a text: ensue race my.txt")
    settings: dict[str, Any] = dict(parse_assignments(set_))
    settings |= {name: value for name, value in (("tokenizer.kind", tokenizer), ("data.field", field)) if value}
    with Display(quiet=as_json) as display:
        result = verb(
            data,
            systems=[name.strip() for name in systems.split(",") if name.strip()],
            budget=budget,
            match=match.value,
            seeds=seeds,
            valid=valid,
            settings=settings,
            out=out,
            force=force,
            resume=resume,
            report=display,
        )
    if as_json:
        emit(result.as_dict())
        return
    table(*result.table())
    for line in result.remarks():
        say(line)
    say(f"table and chart: {out / 'race.md'}, {out / 'race.png'}, {out / 'race.html'}")


@app.command()
def systems(
    name: Annotated[str, typer.Argument(help="One of them, to know all about it.")] = "",
    as_json: Json = False,
) -> None:
    """List the systems there are, or explain one."""
    if not name:
        from ensue.models.table import SYSTEMS

        if as_json:
            emit({"systems": [{"system": n, "summary": e.summary} for n, e in SYSTEMS.entries.items()]})
            return
        for n, entry in SYSTEMS.entries.items():
            say(f"{n:<10} {entry.summary}")
        return
    from ensue.verbs.systems import systems as verb

    found = verb(name)
    if as_json:
        emit(found)
        return
    say(f"{name}: {found['summary']}\n\n{found['equation']}\n")
    say("settings (--set NAME=VALUE), with their defaults:")
    for setting in found["settings"]:
        say(f"  {setting['name']} = {setting['default']}\n      {setting['meaning']}")
    say("\npresets (--preset NAME):")
    for preset, values in found["presets"].items():
        say(f"  {preset}: " + (", ".join(f"{k}={v}" for k, v in values.items()) or "the defaults"))
    for figure in found["figures"]:
        say(f"\nto expect: {figure}")


@app.command()
def check(
    what: Annotated[str, typer.Argument(help="A run, or package.module:Class of a model of yours.")],
    resume: Annotated[bool, typer.Option(help="Prove that a run can be killed and resumed to the bit.")] = False,
    as_json: Json = False,
) -> None:
    """Test whether a model keeps the laws."""
    from ensue.cli.display import Display
    from ensue.verbs.check import check as verb

    with Display(quiet=as_json) as display:
        findings = verb(what, resume=resume, report=display)
    if as_json:
        emit({"what": what, "kept": all(f["kept"] for f in findings), "findings": findings})
    else:
        for f in findings:
            say(f"{'ok  ' if f['kept'] else 'FAIL'}  {f['name']:<28} {f['detail']}")
    if not all(f["kept"] for f in findings):
        raise typer.Exit(1)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Test this installation: versions, device, optional parts, and a half-minute self-test."""
    from ensue.cli.display import Display
    from ensue.verbs.doctor import doctor as verb

    with Display(quiet=as_json) as display:
        result = verb(report=display)
    if as_json:
        emit(result)
    else:
        for name, value in result["facts"].items():
            say(f"{name:<14} {value}")
        say()
        for part in result["parts"]:
            say(
                f"{part['name']:<14} {part['version'] or 'not here'}  {'' if part['version'] else part['get']}".rstrip()
            )
        say()
        for test in result["tests"]:
            say(f"{'ok  ' if test['kept'] else 'FAIL'}  {test['name']:<44} {test['detail']}")
        say("\nall is well" if result["well"] else "\nsomething is wrong: see FAIL above")
    if not result["well"]:
        raise typer.Exit(1)


@app.command()
def cost(
    system: Annotated[str, typer.Argument(help="A system.")],
    vocabulary: Annotated[int, typer.Option(min=2, help="How many different tokens.")] = 10000,
    preset: Annotated[str, typer.Option(help="Settings to begin with.")] = "",
    set_: Set = [],
    as_json: Json = False,
) -> None:
    """Count a system's parameters and FLOPs before training it."""
    from ensue.core.settings import parse_assignments
    from ensue.verbs.cost import cost as verb

    result = verb(system, vocabulary=vocabulary, preset=preset, settings=parse_assignments(set_))
    if as_json:
        emit(result)
        return
    say(f"{system}, {vocabulary:,} tokens: {result['parameters']:,} parameters, {result['bytes']:,} bytes in float32")
    for part, count in result["parts"].items():
        say(f"  {part:<12} {count:>14,}")
    say(f"{result['flops_per_token']:,} FLOPs to predict a token, {result['train_flops_per_token']:,} to train on one")


@app.command()
def convert(
    src: Annotated[Path, typer.Argument(help="A run, or an ARPA file.")],
    to: Annotated[str, typer.Option(help="arpa; without it a file becomes a run.")] = "",
    out: Annotated[Path | None, typer.Option(help="The file or folder to write.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Exchange models with other tools."""
    from ensue.verbs.convert import convert as verb

    result = verb(src, to=to or None, out=out, force=force)
    emit({"out": str(result)}) if as_json else say(f"written: {result}")


@app.command()
def look(
    view: Annotated[str, typer.Argument(help="curves (of runs) or ngrams (of a text).")],
    what: Annotated[list[str], typer.Argument(help="Runs, or for ngrams a text.")],
    out: Annotated[Path, typer.Option(help="x.html, x.png, x.svg or x.json.")] = Path("look.html"),
    tokenizer: Annotated[str, typer.Option(help="For ngrams: the tokenizer.")] = "word",
) -> None:
    """Draw a view to a file."""
    from ensue.verbs.look import look as verb

    say(f"written: {verb(view, what, out=out, tokenizer=tokenizer)}")


def version(value: bool) -> None:
    """Print the version and stop."""
    if value:
        from ensue import __version__

        say(f"ensue {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version_: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Say which version this is.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Options that stand before a command; --debug may stand anywhere."""


def fail(text: str, code: int) -> NoReturn:
    """One line on standard error, and an exit code."""
    sys.stderr.write(f"{text}\n")
    raise SystemExit(code)


def main() -> None:
    """Run the command; an error is one line, unless --debug asks for all of it."""
    debug = "--debug" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--debug"]
    try:
        app()
    except InputError as error:
        if debug:
            raise
        fail(f"ensue: {error}", 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except OSError as error:
        if debug:
            raise
        fail(f"ensue: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""), 2)
    except Exception as error:
        if type(error).__name__ == "Interrupted":
            fail(f"\nensue: {error}", 130)
        raise
