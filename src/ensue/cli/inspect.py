"""`ensue systems`, `check`, `doctor`, `convert` and `look`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ensue.cli.options import Force, Json, check_beam
from ensue.cli.output import emit, say, show


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


def convert(
    src: Annotated[
        Path, typer.Argument(help="A run, a folder of Hugging Face's library, an ARPA file, or a file of word vectors.")
    ],
    to: Annotated[
        str, typer.Option(help="hf, onnx, arpa or word2vec; without it a folder or file becomes a run.")
    ] = "",
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
        str,
        typer.Argument(
            help="attention, next, surprise, curves, training, gradients, gates, copying, alignment, steps, "
            "bottleneck, words, senses, layers, forecast (of runs), race (of its folder), ngrams (of a text), "
            "positions, bptt (of neither)."
        ),
    ],
    what: Annotated[
        list[str] | None, typer.Argument(help="Runs; for ngrams a text; for senses RUN WORD [FILE].")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="x.html, x.png, x.svg or x.json (steps, bptt: html or json); with --json none is needed.",
            show_default="look.html; bptt: the terminal",
        ),
    ] = None,
    text: Annotated[
        str,
        typer.Option(
            help="alignment, steps: the sentence to translate; attention, next, surprise, gradients, gates: the text."
        ),
    ] = "",
    target: Annotated[
        str,
        typer.Option(
            help="alignment, attention, steps: a translation to show, not the model's own; forecast: a column."
        ),
    ] = "",
    beam: Annotated[
        int | None, typer.Option(help="alignment, steps: how many hypotheses are kept open.", show_default="5")
    ] = None,
    layer: Annotated[
        int,
        typer.Option(help="alignment, attention (all its heads), gradients, gates, senses: a layer, counted from 1."),
    ] = 0,
    head: Annotated[int, typer.Option(help="alignment, attention (as lines): one head, counted from 1.")] = 0,
    word: Annotated[str, typer.Option(help="attention: what this word looks at, a colour a head.")] = "",
    rolled: Annotated[bool, typer.Option("--rolled", help="attention: all layers as one, rolled out.")] = False,
    part: Annotated[
        str, typer.Option(help="attention of a translation model: cross or source.", show_default="cross")
    ] = "",
    data: Annotated[
        list[str],
        typer.Option(help="bottleneck: the pairs; repeat it for two files; forecast: other series; surprise: a file."),
    ] = [],
    top: Annotated[int | None, typer.Option(help="next: so many tokens.", show_default="10")] = None,
    rows: Annotated[int | None, typer.Option(help="positions: so many.", show_default="20")] = None,
    width: Annotated[int | None, typer.Option(help="positions: so many dimensions.", show_default="100")] = None,
    tokenizer: Annotated[str, typer.Option(help="ngrams: the tokenizer.", show_default="word")] = "",
    words: Annotated[str, typer.Option(help='words: which, as "king queen"; else the commonest.')] = "",
    pairs: Annotated[str, typer.Option(help='words: arrows, as "king:queen man:woman".')] = "",
    method: Annotated[str, typer.Option(help="words: pca or tsne.", show_default="pca")] = "",
    steps: Annotated[int | None, typer.Option(help="bptt: how many steps of time.", show_default="3")] = None,
    hidden: Annotated[int | None, typer.Option(help="bptt: the width of the state.", show_default="1")] = None,
    seed: Annotated[int, typer.Option(help="bptt, copying: where random numbers come from.")] = 0,
    values: Annotated[
        list[str], typer.Option(metavar="NAME=NUMBERS", help="bptt: u, w, v, h0, x or y, e.g. w=0.5; repeatable.")
    ] = [],
    costs: Annotated[str, typer.Option(help="bptt: the steps whose cost counts, e.g. 3,4,5.", show_default="all")] = "",
    cut: Annotated[int, typer.Option(help="bptt: cut the graph after this step (truncated backpropagation).")] = 0,
    units: Annotated[int, typer.Option(help="gates: show so many units, those that change most.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw a view to a file, or give its numbers."""
    from ensue.look.views import TEXT_VIEWS
    from ensue.verbs.look import look as verb

    typed = {"text": text, "target": target, "layer": layer, "head": head, "data": data, "tokenizer": tokenizer}
    typed |= {"words": words, "pairs": pairs, "method": method, "word": word, "rolled": rolled, "part": part}
    typed |= {"seed": seed, "values": values, "costs": costs, "cut": cut, "units": units}
    how: dict[str, Any] = {name: value for name, value in typed.items() if value}
    counts = {"beam": beam, "steps": steps, "hidden": hidden, "top": top, "rows": rows, "width": width}
    how |= {name: value for name, value in counts.items() if value is not None}
    if beam is not None:
        check_beam(beam)
    path = out if out is not None or as_json or view in TEXT_VIEWS else Path("look.html")
    seen = verb(view, what or [], out=path, **how)
    if as_json:
        emit({"view": view, "written": str(path) if path else None, **seen.numbers})
    elif path is None and seen.text is not None:
        show(seen.text())
    else:
        for line in (seen.note, f"written: {path}"):
            say(line) if line else None
