"""`ensue systems`, `check`, `doctor`, `cost`, `convert` and `look`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ensue.cli.options import Force, Json, Set, check_beam
from ensue.cli.output import emit, say


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
            say(f"{n:<12} {entry.summary}")
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
    if "forecast" in found:
        own = ", ".join(setting["name"] for setting in found["forecast"]["settings"])
        say(f"\nas a forecaster (`ensue fit forecast my.csv --model {name}`): {own}")


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


def convert(
    src: Annotated[Path, typer.Argument(help="A run, a folder of Hugging Face's library, or an ARPA file.")],
    to: Annotated[str, typer.Option(help="hf, onnx or arpa; without it a folder or file becomes a run.")] = "",
    out: Annotated[Path | None, typer.Option(help="The file or folder to write.")] = None,
    task: Annotated[str, typer.Option(help="pair, where a classifier's folder is of one that labels two texts.")] = "",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Exchange models with other tools."""
    from ensue.cli.display import Display
    from ensue.verbs.convert import convert as verb

    with Display(quiet=as_json) as display:
        result = verb(src, to=to or None, out=out, task=task, force=force, report=display)
    emit({"out": str(result)}) if as_json else say(f"written: {result}")


def look(
    view: Annotated[
        str, typer.Argument(help="curves, alignment, steps, bottleneck or forecast (of runs), ngrams (of a text).")
    ],
    what: Annotated[list[str], typer.Argument(help="Runs, or for ngrams a text.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="x.html, x.png, x.svg or x.json (steps: html or json); with --json none is needed.",
            show_default="look.html",
        ),
    ] = None,
    text: Annotated[str, typer.Option(help="alignment, steps: the sentence to translate.")] = "",
    target: Annotated[
        str, typer.Option(help="alignment, steps: a translation to show, not the model's own; forecast: a column.")
    ] = "",
    beam: Annotated[
        int | None, typer.Option(help="alignment, steps: how many hypotheses are kept open.", show_default="5")
    ] = None,
    layer: Annotated[int, typer.Option(help="alignment: a layer, counted from 1; all its heads are shown.")] = 0,
    head: Annotated[int, typer.Option(help="alignment: one head, counted from 1.")] = 0,
    data: Annotated[
        list[str], typer.Option(help="bottleneck: the pairs; repeat it for two files; forecast: other series.")
    ] = [],
    tokenizer: Annotated[str, typer.Option(help="ngrams: the tokenizer.", show_default="word")] = "",
    as_json: Json = False,
) -> None:
    """Draw a view to a file, or give its numbers."""
    from ensue.verbs.look import look as verb

    typed = {"text": text, "target": target, "layer": layer, "head": head, "data": data, "tokenizer": tokenizer}
    how: dict[str, Any] = {name: value for name, value in typed.items() if value}
    if beam is not None:
        check_beam(beam)
        how["beam"] = beam
    path = out if out is not None or as_json else Path("look.html")
    seen = verb(view, what, out=path, **how)
    if as_json:
        emit({"view": view, "written": str(path) if path else None, **seen.numbers})
    else:
        say(f"written: {path}")
