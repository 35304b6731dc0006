"""`ensue systems`, `check`, `doctor`, `convert` and `look`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from ensue.cli.options import Force, Json, NoVerify, check_beam
from ensue.cli.output import print_json, print_line, print_lines, print_rich
from ensue.core.errors import InputError
from ensue.core.escapes import escape_controls


def systems(
    name: Annotated[str, Argument(help="system to describe, or `attention` for the table of attentions")] = "",
    as_json: Json = False,
) -> None:
    """list all systems, or describe one: equation, settings, presets"""
    if not name:
        from ensue.models.table import SYSTEMS

        if as_json:
            print_json({"systems": [{"system": n, "summary": e.summary} for n, e in SYSTEMS.entries.items()]})
            return
        for n, entry in SYSTEMS.entries.items():
            print_line(f"{n:<12} {entry.summary}")
        return
    if name == "attention":
        from ensue.cli.cost import print_attentions
        from ensue.verbs.cost_attention import attentions

        found = attentions()
        if as_json:
            print_json({"attentions": found})
        else:
            print_attentions(found)
            print_line("use one by --set attention=NAME; `ensue cost attention --measure` times them here")
        return
    from ensue.tasks.table import all_tasks
    from ensue.verbs.systems import systems as verb

    system = verb(name)
    if as_json:
        print_json(system)
        return
    print_line(f"{name}: {system['summary']}\n\n{system['equation']}\n")
    print_line("settings (--set NAME=VALUE) and their defaults:")
    for setting in system["settings"]:
        print_line(f"  {setting['name']} = {_value(setting['default'])}\n      {setting['meaning']}")
    recipes = system["recipes"]
    print_line("\npresets (--preset NAME) and what they change:")
    for preset, values in system["presets"].items():
        use = ", to fine-tune with --from" if preset in recipes else ""
        changes = ", ".join(f"{name}={_value(value)}" for name, value in values.items())
        print_line(f"  {preset}{use}: {changes or 'the defaults'}")
    for figure in system["figures"]:
        print_line(f"\nexpected result: {figure}")
    for task in (spec for spec in all_tasks() if spec.name in system):
        settings = ", ".join(setting["name"] for setting in system[task.name]["settings"])
        command = f"ensue fit {task.name} {task.example_file} --model {name}"
        print_line(f"\nsettings for {task.name} (`{command}`): {settings}")


def _value(value: Any) -> str:
    """A setting as --set takes it: lists are separated by commas."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _print_checks(checks: list[dict[str, Any]], width: int) -> None:
    for check in checks:
        print_line(
            f"{'ok  ' if check['kept'] else 'FAIL'}  {check['name']:<{width}} {escape_controls(check['detail'])}"
        )


def check(
    what: Annotated[str, Argument(help="run, or package.module:Class of your own model")],
    resume: Annotated[
        bool, Option(help="instead, kill and resume a copy of the run, and compare the weights", show_default=False)
    ] = False,
    files: Annotated[
        bool, Option("--files", help="instead, compare all files of the run and its checkpoints with their digests")
    ] = False,
    write: Annotated[
        bool, Option("--write", help="with --files: first write manifest.json for the files as they are")
    ] = False,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """test that a model follows the model protocol

    Checks that results do not depend on chunking, batch order or padding, and that the model is causal.
    """
    from ensue.cli.display import Display
    from ensue.verbs.check import check as verb

    if write and not files:
        raise InputError("--write is for --files", hint="add --files, or leave it out")
    with Display(quiet=as_json) as display:
        findings = verb(what, resume=resume, files=files, write=write, report=display)
    passed = all(finding["kept"] for finding in findings)
    if as_json:
        print_json({"what": what, "kept": passed, "findings": findings})
    else:
        _print_checks(findings, max(28, *(len(finding["name"]) for finding in findings)) if findings else 28)
    if not passed:
        raise typer.Exit(1)


def doctor(as_json: Json = False) -> None:
    """test this installation in half a minute"""
    from ensue.cli.display import Display
    from ensue.verbs.doctor import doctor as verb

    with Display(quiet=as_json) as display:
        result = verb(report=display)
    if as_json:
        print_json(result)
    else:
        for name, value in result["facts"].items():
            print_line(f"{name:<14} {value}")
        print_line()
        for part in result["parts"]:
            version = part["version"] or f"not installed  {part['get']}"
            print_line(f"{part['name']:<14} {version}".rstrip())
        print_line()
        _print_checks(result["tests"], 44)
        print_line("\nall tests passed" if result["well"] else "\nsome tests failed: see FAIL above")
    if not result["well"]:
        raise typer.Exit(1)


def convert(
    src: Annotated[Path, Argument(help="run, Hugging Face folder, GGUF file, ARPA file or file of word vectors")],
    to: Annotated[
        str, Option(help="format to write a run as: hf, gguf, onnx, arpa or word2vec", show_default="make a run of SRC")
    ] = "",
    out: Annotated[Path | None, Option(help="file or folder to write")] = None,
    task: Annotated[str, Option(help="pair, if a Hugging Face classifier labels pairs of texts")] = "",
    weights: Annotated[
        str,
        Option(
            help="how the weights of a language model are stored: as-is, float32, bf16, int8 or int4; with --to hf: "
            "float32 or bf16; of a run: float32, int8 or int4, with adapters merged",
            show_default="as-is; with --to hf: float32",
        ),
    ] = "",
    force: Force = False,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """convert a model from or to another tool's format"""
    from ensue.cli.display import Display
    from ensue.verbs.convert import convert as verb

    with Display(quiet=as_json) as display:
        result = verb(src, to=to or None, out=out, task=task, weights=weights, force=force, report=display)
    notes = {"notes": display.notes} if display.notes else {}
    print_json({"out": str(result), **notes}) if as_json else print_line(f"wrote {escape_controls(result)}")


def look(
    view: Annotated[
        str,
        Argument(
            help="view of a run: attention, next, surprise, context, curves, training, gradients, gates, copying, "
            "alignment, steps, bottleneck, words, senses, layers, forecast, bias; of a race: race; of a text: ngrams; "
            "of an attention: pattern; without data: positions, bptt, equivalence"
        ),
    ],
    what: Annotated[
        list[str] | None,
        Argument(help="runs; a race folder for race, a text for ngrams, RUN WORD [FILE] for senses, names for others"),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            help="file to write: x.html, x.png, x.svg or x.json (steps, bptt: html or json)",
            show_default="look.html; bptt, bias, context, equivalence: the terminal",
        ),
    ] = None,
    text: Annotated[
        str,
        Option(
            help="alignment, steps: sentence to translate; attention, context, next, surprise, gradients, gates: text "
            "to read"
        ),
    ] = "",
    target: Annotated[
        str,
        Option(help="alignment, attention, steps: translation to show instead of the model's own; forecast: column"),
    ] = "",
    beam: Annotated[int | None, Option(help="alignment, steps: beam size", show_default="5")] = None,
    layer: Annotated[
        int, Option(help="alignment, attention, gradients, gates, senses: layer to show, from 1", show_default=False)
    ] = 0,
    head: Annotated[int, Option(help="alignment, attention, pattern: head to show, from 1", show_default=False)] = 0,
    length: Annotated[
        int,
        Option(
            help="pattern: number of positions; context: tokens back to look, at most",
            show_default="64; context: 512",
        ),
    ] = 0,
    direction: Annotated[str, Option(help="pattern: causal or both", show_default="causal if it can be")] = "",
    word: Annotated[str, Option(help="attention: show what this word attends to, one colour per head")] = "",
    rolled: Annotated[bool, Option("--rolled", help="attention: combine all layers by attention rollout")] = False,
    part: Annotated[str, Option(help="attention of a translation model: cross or source", show_default="cross")] = "",
    data: Annotated[
        list[str],
        Option(
            "--data",
            "--text-file",
            help="bottleneck: sentence pairs (repeat it for two files); forecast: series; context, surprise: file; "
            "bias: CrowS-Pairs, WinoBias, Winogender or BOLD (can be repeated)",
        ),
    ] = [],
    top: Annotated[int | None, Option(help="next: number of tokens", show_default="10")] = None,
    rows: Annotated[int | None, Option(help="positions: number of positions", show_default="20")] = None,
    width: Annotated[int | None, Option(help="positions: number of dimensions", show_default="100")] = None,
    tokenizer: Annotated[str, Option(help="ngrams: tokenizer", show_default="word")] = "",
    words: Annotated[
        str, Option(help='words: words to show, e.g. "king queen"', show_default="the most frequent")
    ] = "",
    pairs: Annotated[str, Option(help='words: pairs to draw arrows for, e.g. "king:queen man:woman"')] = "",
    method: Annotated[str, Option(help="words: projection, pca or tsne", show_default="pca")] = "",
    steps: Annotated[int | None, Option(help="bptt: number of time steps", show_default="3")] = None,
    hidden: Annotated[int | None, Option(help="bptt: hidden size", show_default="1")] = None,
    seed: Annotated[
        int, Option(help="bptt, copying, bias, context, pattern, equivalence: seed of the random number generator")
    ] = 0,
    values: Annotated[
        list[str], Option(metavar="NAME=NUMBERS", help="bptt: set u, w, v, h0, x or y, e.g. w=0.5; can be repeated")
    ] = [],
    costs: Annotated[str, Option(help="bptt: steps whose loss counts, e.g. 3,4,5", show_default="all")] = "",
    cut: Annotated[int, Option(help="bptt: truncate backpropagation after this step", show_default=False)] = 0,
    units: Annotated[
        int, Option(help="gates: number of units to show, those that change most", show_default=False)
    ] = 0,
    classifier: Annotated[
        str,
        Option(metavar="RUN", help="bias: classifier that scores sentiment", show_default="a list of words"),
    ] = "",
    samples: Annotated[
        int | None,
        Option(help="bias: continuations of each prompt; context: tokens to predict", show_default="8; context: 256"),
    ] = None,
    memory: Annotated[
        int | None,
        Option(help="context: memory of a transformer-xl, in positions", show_default="as it was trained"),
    ] = None,
    limit: Annotated[
        int, Option(help="bias: most items to use of each --data", show_default="all pairs, 400 others")
    ] = 0,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """draw a view of a model, a race or a text

    Writes a chart or an interactive page to a file; --json prints its numbers instead. Each option says which views
    it is for.
    """
    from ensue.cli.display import Display
    from ensue.look.views import TEXT_VIEWS
    from ensue.verbs.look import look as verb

    given = {"text": text, "target": target, "layer": layer, "head": head, "data": data, "tokenizer": tokenizer}
    given |= {"words": words, "pairs": pairs, "method": method, "word": word, "rolled": rolled, "part": part}
    given |= {"seed": seed, "values": values, "costs": costs, "cut": cut, "units": units}
    given |= {"classifier": classifier, "limit": limit, "length": length, "direction": direction}
    options: dict[str, Any] = {name: value for name, value in given.items() if value}
    counts = {"beam": beam, "steps": steps, "hidden": hidden, "top": top, "rows": rows, "width": width}
    counts |= {"samples": samples, "memory": memory}
    options |= {name: value for name, value in counts.items() if value is not None}
    if beam is not None:
        check_beam(beam)
    path = out if out is not None or as_json or view in TEXT_VIEWS else Path("look.html")
    with Display(quiet=as_json) as display:
        drawn = verb(view, what or [], out=path, report=display, **options)
    if as_json:
        print_json({"view": view, "written": str(path) if path else None, **drawn.numbers})
    elif path is None and drawn.text is not None:
        print_rich(drawn.text())
    else:
        print_lines(filter(None, (drawn.note, f"wrote {escape_controls(path)}")))
