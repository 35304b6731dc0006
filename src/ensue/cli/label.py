"""`ensue predict`, `ensue embed` and `ensue fill`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ensue.cli.options import Columns, Horizon, Int8, Json, NoVerify, RunPath, Seed
from ensue.cli.output import print_bar, print_json, print_line, print_lines
from ensue.core.errors import InputError
from ensue.core.escapes import escape_controls


def predict(
    run: RunPath,
    file: Annotated[
        str, Argument(metavar="FILE", help="file with one text per line, or a table; - is standard input")
    ] = "",
    text: Annotated[
        list[str], Option(help="text to label instead of a file; pairs have a tab between them; can be repeated")
    ] = [],
    columns: Columns = "",
    int8: Int8 = False,
    horizon: Horizon = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """predict labels, tags, answers or forecasts"""
    from ensue.cli.display import Display
    from ensue.runs.load import load

    if bool(file) == bool(text):
        raise InputError("predict what?", hint="name a file, - for standard input, or give --text")
    with Display(quiet=as_json) as display:
        loaded = load(run)
        loaded.check_options(["int8"] if int8 else [])
        display("phase", {"name": "reading"})
        options: dict[str, Any] = {"columns": columns, "int8": int8, "report": display}
        if horizon and "horizon" not in loaded.predict_options:
            raise InputError(f"{loaded.system} cannot use --horizon", where=str(run), hint="it is for forecasters")
        options |= {"horizon": horizon} if horizon else {}
        if text or (file == "-" and loaded.spec.reads_text):
            predictions = loaded.predict(text or _stdin_lines(), **options)
        else:
            predictions = loaded.predict(file=file, **options)
    if as_json:
        print_json({"run": str(run), "task": loaded.task, "predictions": predictions, "notes": display.notes})
        return
    print_lines(loaded.prediction_lines(predictions))


def _stdin_lines() -> list[str]:
    """The lines of standard input, checked to be UTF-8."""
    try:
        lines = [text.rstrip("\n") for text in sys.stdin]
        "".join(lines).encode()  # under a C locale Python decodes invalid bytes to surrogates, which fail here
    except UnicodeError as error:
        raise InputError("is not UTF-8", where="standard input", hint="convert it to UTF-8") from error
    return [lines[0].removeprefix("\ufeff"), *lines[1:]] if lines else []


def embed(
    run: RunPath,
    file: Annotated[str, Argument(metavar="FILE", help="file with one text per line; - is standard input")],
    out: Annotated[
        Path | None, Option(help="file to write: x.npy, x.tsv or x.jsonl", show_default="print JSON lines")
    ] = None,
    pooling: Annotated[str, Option(help="how token vectors become one: mean, cls, last or max")] = "mean",
    normalise: Annotated[bool, Option(help="scale vectors to unit length, so that a dot product is a cosine")] = True,
    int8: Int8 = False,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """compute a vector for each line of a file"""
    from ensue.cli.display import Display
    from ensue.verbs.embed import embed as verb

    with Display(quiet=as_json) as display:
        texts = _stdin_lines() if file == "-" else None
        vectors = verb(run, file, texts=texts, out=out, pooling=pooling, normalise=normalise, int8=int8, report=display)
    if as_json:
        facts = {"texts": len(vectors), "width": vectors.shape[1], "out": str(out) if out else None}
        print_json(facts if out else {**facts, "vectors": [[round(float(x), 6) for x in row] for row in vectors]})
    elif out is not None:
        print_line(f"wrote {escape_controls(out)} ({len(vectors):,} vectors of size {vectors.shape[1]})")
    else:
        for row in vectors:
            print_line(json.dumps([round(float(x), 6) for x in row]))


def fill(
    run: RunPath,
    text: Annotated[str, Argument(help='text with masked tokens, e.g. "the man went to the [MASK]"')],
    top: Annotated[int, Option(min=1, help="number of candidates to show for each mask")] = 5,
    rounds: Annotated[int, Option(help="rounds of mask-predict decoding; 0 means one for each mask, at most 10")] = 0,
    temperature: Annotated[float, Option(help="softmax temperature for sampling; 0 is greedy")] = 0.0,
    seed: Seed = 0,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """fill in the masked tokens of a text"""
    from ensue.cli.display import Display
    from ensue.runs.load import load

    with Display(quiet=as_json) as display:
        filled = load(run).fill(text, top=top, rounds=rounds, temperature=temperature, seed=seed, report=display)
    if as_json:
        print_json(filled.as_dict() | ({"notes": display.notes} if display.notes else {}))
        return
    for number, gap in enumerate(filled.gaps, start=1):
        print_line(f"mask {number}:")
        for token, p in gap:
            print_line("  ", end="")
            print_bar(p, gap[0][1], token, width=30)
    if len(filled.steps) > 1:
        for number, step in enumerate(filled.steps, start=1):
            tokens = zip(step["tokens"], step["probabilities"], step["hidden_again"])
            line = " ".join(f"{token}{'?' if masked_again else ''} {p:.2f}" for token, p, masked_again in tokens)
            print_line(f"round {number}: {escape_controls(line)}")
    print_line(filled.text)
