"""`ensue translate`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ensue.cli.options import Int8, Json, RunPath, check_beam
from ensue.cli.output import emit, say
from ensue.core.errors import InputError

LINES_AT_ONCE = 2000
"""Lines of a file that are translated together, so that a long one shows its beginning before its end is read."""


class Length(StrEnum):
    """What a finished hypothesis is worth."""

    none = "none"
    mean = "mean"
    gnmt = "gnmt"


class Long(StrEnum):
    """What becomes of a line that is too long."""

    CUT = "cut"
    SPLIT = "split"


def translate(
    run: RunPath,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Lines to translate; - or nothing: standard input.")
    ] = "-",
    text: Annotated[list[str], typer.Option(help="A line instead of a file; repeatable.")] = [],
    beam: Annotated[int, typer.Option(help="How many hypotheses are kept open; 1 is greedy.")] = 5,
    length: Annotated[Length, typer.Option(help="Compare log P as it is, a token, or by GNMT's rule.")] = Length.mean,
    alpha: Annotated[float | None, typer.Option(help="α of GNMT's rule.", show_default="0.6")] = None,
    coverage: Annotated[float, typer.Option(help="β of GNMT's coverage penalty (0: none).")] = 0.0,
    nbest: Annotated[int, typer.Option(help="Show so many translations of each line, with scores.")] = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Write the whole search of one line: x.html, x.json, or x.txt (a tree).")
    ] = None,
    replace_unknown: Annotated[
        bool, typer.Option("--replace-unknown", help="Put the source word it looked at for an unknown word.")
    ] = False,
    ensemble: Annotated[list[Path], typer.Option(help="Another run to ask as well; repeatable.")] = [],
    prefix: Annotated[str, typer.Option(help="What every translation begins with.")] = "",
    shortest: Annotated[int, typer.Option(help="The fewest tokens of a translation.")] = 0,
    longest: Annotated[
        int, typer.Option(help="The most tokens of a translation.", show_default="twice the source's and 20")
    ] = 0,
    forbid: Annotated[
        list[str], typer.Option(help="A token that no translation has, as traces name it; repeatable.")
    ] = [],
    long: Annotated[
        Long, typer.Option(help="Cut a line that is too long, or split it and translate the parts.")
    ] = Long.CUT,
    int8: Int8 = False,
    as_json: Json = False,
) -> None:
    """Translate lines: each gives one line, an empty one an empty one."""
    from ensue.cli.display import Display
    from ensue.data.lines import line_blocks
    from ensue.runs.load import load
    from ensue.search.beam import Search
    from ensue.verbs.translate import check_ending, named_tokens, trace_of, write_trace

    if text and file != "-":
        raise InputError("translate what?", hint="name a file or give --text, not both")
    check_beam(beam, nbest)
    if alpha is not None and length is not Length.gnmt:
        raise InputError(f"--length {length.value} has no α", hint="leave out --alpha, or use --length gnmt")
    if trace is not None:
        check_ending(trace)
    alpha = Search().alpha if alpha is None else alpha
    if longest < 0 or 0 < longest < shortest:
        raise InputError(f"--longest {longest} is no length", hint=f"give {max(1, shortest)} or more")
    held, others = load(run), [load(path) for path in ensemble]
    search = Search(
        beam=beam,
        length=length.value,
        alpha=alpha,
        coverage=coverage,
        nbest=nbest,
        shortest=shortest,
        forbidden=named_tokens(held.tokenizer, forbid),
    )
    said: list[dict[str, Any]] = []
    how: dict[str, Any] = {
        "search": search,
        "ensemble": others,
        "long": long.value,
        "replace_unknown": replace_unknown,
        "prefix": prefix,
        "most": longest,
        "trace": trace is not None,
        "int8": int8,
    }
    with Display(quiet=as_json or not sys.stderr.isatty()) as display:
        display("phase", {"name": "translating"})
        done = 0
        for lines in [text] if text else line_blocks(file, LINES_AT_ONCE):
            if trace is not None and done + len(lines) > 1:
                raise InputError("a trace is of one line", hint="give it with --text")
            notes: list[str] = []
            found = held.translate(lines, notes=notes, report=display, first=done + 1, **how)
            done += len(lines)
            for note in notes:
                sys.stderr.write(f"note: {note}\n")
            if trace is not None:
                write_trace(trace_of(found[0], held.tokenizer, search), trace)
            said += _show(found, nbest, as_json)
    if trace is not None and not done:
        raise InputError("there is no line, so there is nothing to trace", hint="give one with --text")
    if as_json:
        emit({"system": held.system, "beam": beam, "length": length.value, "translations": said})
    elif trace is not None:
        sys.stderr.write(f"written: {trace}\n")


def _show(found: list[Any], nbest: int, as_json: bool) -> list[dict[str, Any]]:
    """Print what was found, or answer it for JSON."""
    if as_json:
        return [one.as_dict() for one in found]
    for one in found:
        if nbest > 1 and one.best:
            for text, hypothesis in one.best:
                say(f"{hypothesis.score:9.4f}  {text}")
        else:
            say(one.text)
    sys.stdout.flush()
    return []
