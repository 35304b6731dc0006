"""`ensue predict`, `ensue embed` and `ensue fill`: what a model says of texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ensue.cli.options import Columns, Horizon, Int8, Json, RunPath, Seed
from ensue.cli.output import emit, say, table
from ensue.core.errors import InputError


def predict(
    run: RunPath,
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="A text a line, or a table; - is standard input.")
    ] = "",
    text: Annotated[list[str], typer.Option(help="A text in place of a file (pairs: a tab between); repeatable.")] = [],
    columns: Columns = "",
    int8: Int8 = False,
    horizon: Horizon = None,
    as_json: Json = False,
) -> None:
    """Label texts: a label with its probability, tags, or an answer; or forecast how series go on."""
    from ensue.cli.display import Display
    from ensue.runs.load import load

    if bool(file) == bool(text):
        raise InputError("predict what?", hint="name a file, - for standard input, or give --text")
    with Display(quiet=as_json) as display:
        held = load(run)
        held.check_options(["int8"] if int8 else [])
        display("phase", {"name": "reading"})
        how: dict[str, Any] = {"columns": columns, "int8": int8, "report": display}
        if horizon and held.task != "forecast":
            raise InputError(f"{held.system} cannot use --horizon", where=str(run), hint="it is for runs that forecast")
        if held.task == "forecast" and not text:
            found = held.predict(file=file, horizon=horizon or 0, **how)
        else:
            found = held.predict(text, **how) if text else held.predict(**_given(file), **how)
    if as_json:
        emit({"run": str(run), "task": held.task, "predictions": found, "notes": display.notes})
        return
    if held.task == "forecast":
        show_forecasts(found)
        return
    for one in found:
        say(line(one))


def _given(file: str) -> dict[str, Any]:
    """A file, or the lines of standard input."""
    if file != "-":
        return {"file": file}
    return {"texts": _typed()}


def _typed() -> list[str]:
    """The lines of standard input."""
    try:
        lines = [text.rstrip("\n") for text in sys.stdin]
        "".join(lines).encode()  # a plain locale hides bytes that are no text in surrogates
    except UnicodeError as error:
        raise InputError("is not UTF-8", where="standard input", hint="convert it to UTF-8") from error
    return [lines[0].removeprefix("\ufeff"), *lines[1:]] if lines else []


def line(one: dict[str, Any]) -> str:
    """An answer as a line for people; an empty text keeps its line."""
    return next((write(one) for key, write in LINES.items() if key in one), "")


LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "label": lambda one: f"{one['label']}\t{one['probabilities'][one['label']]:.4f}",
    "follows": lambda one: f"{'follows' if one['follows'] else 'does not follow'}\t{one['probability']:.4f}",
    "value": lambda one: f"{one['value']:.4f}",
    "choice": lambda one: f"{one['choice']}\t{one['probabilities'][one['choice']]:.4f}\t{one['text']}",
    "tags": lambda one: " ".join(
        f"{word}/{tag}" if tag != "O" else word for word, tag in zip(one["words"], one["tags"])
    ),
    "answer": lambda one: one["answer"] or "(no answer)",
}
"""How an answer is written, by the key that tells its kind."""


def show_forecasts(found: list[dict[str, Any]]) -> None:
    """A table: a row for each step, a column for each target, with its lowest and highest quantile."""
    first = found[0]
    lead: list[str] = [name for name in ("series", "step", "date") if name in first]
    columns, rows = list(lead), []
    for name in first["forecast"]:
        columns.append(name)
        columns += [f"{level}" for level in _ends(first, name)]
    for line in found:
        row = [str(line.get(name, "")) for name in lead]
        for name, value in line["forecast"].items():
            row.append(f"{value:.5g}")
            row += [f"{line['quantiles'][name][level]:.5g}" for level in _ends(line, name)]
        rows.append(row)
    table(columns, rows)


def _ends(line: dict[str, Any], name: str) -> list[str]:
    """The lowest and the highest quantile."""
    held = list(line.get("quantiles", {}).get(name, ()))
    return [held[0], held[-1]] if held else []


def embed(
    run: RunPath,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A text a line; - is standard input.")],
    out: Annotated[
        Path | None, typer.Option(help="x.npy (a matrix), x.tsv or x.jsonl; without it, JSON lines.")
    ] = None,
    pooling: Annotated[str, typer.Option(help="mean, cls, last or max.")] = "mean",
    normalise: Annotated[bool, typer.Option(help="Vectors of length one, so that a dot product is a cosine.")] = True,
    int8: Int8 = False,
    as_json: Json = False,
) -> None:
    """Turn each line of a file into a vector."""
    from ensue.cli.display import Display
    from ensue.verbs.embed import embed as verb

    with Display(quiet=as_json) as display:
        texts = _typed() if file == "-" else None
        vectors = verb(run, file, texts=texts, out=out, pooling=pooling, normalise=normalise, int8=int8, report=display)
    if as_json:
        facts = {"texts": len(vectors), "width": vectors.shape[1], "out": str(out) if out else None}
        emit(facts if out else {**facts, "vectors": [[round(float(x), 6) for x in row] for row in vectors]})
    elif out is not None:
        say(f"written: {out} ({len(vectors):,} vectors of {vectors.shape[1]})")
    else:
        for row in vectors:
            say(json.dumps([round(float(x), 6) for x in row]))


def fill(
    run: RunPath,
    text: Annotated[str, typer.Argument(help='A text with gaps: "the man went to the [MASK]".')],
    top: Annotated[int, typer.Option(min=1, help="How many fillings of each gap to show.")] = 5,
    rounds: Annotated[int, typer.Option(help="Rounds of mask-predict (0: one for each gap, at most 10).")] = 0,
    temperature: Annotated[
        float, typer.Option(help="Draw tokens: below 1 safer, above 1 bolder; 0 the likeliest.")
    ] = 0.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fill in what is hidden in a text, and show how."""
    from ensue.runs.load import load

    found = load(run).fill(text, top=top, rounds=rounds, temperature=temperature, seed=seed)
    if as_json:
        emit(found.as_dict())
        return
    for number, gap in enumerate(found.gaps, start=1):
        say(f"gap {number}:")
        for token, p in gap:
            say(f"  {p:7.4f}  {'█' * max(1, round(30 * p / gap[0][1]))}  {token}")
    if len(found.steps) > 1:
        for number, step in enumerate(found.steps, start=1):
            sure = " ".join(
                f"{token}{'?' if again else ''} {p:.2f}"
                for token, p, again in zip(step["tokens"], step["probabilities"], step["hidden_again"])
            )
            say(f"round {number}: {sure}")
    say(found.text)
