"""`ensue translate`."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ensue.cli.options import Int8, Json, NoVerify, RunPath, check_beam
from ensue.cli.output import print_json, print_line, warn
from ensue.core.errors import InputError
from ensue.core.escapes import escape_breaks


class Length(StrEnum):
    """Length normalisation of hypothesis scores."""

    none = "none"
    mean = "mean"
    gnmt = "gnmt"


class Long(StrEnum):
    """What to do with a line that exceeds the model's context."""

    CUT = "cut"
    SPLIT = "split"


def translate(
    run: RunPath,
    file: Annotated[str, Argument(metavar="FILE", help="file with one sentence per line; - is standard input")] = "-",
    text: Annotated[list[str], Option(help="sentence to translate instead of a file; can be repeated")] = [],
    beam: Annotated[int, Option(help="beam size; 1 is greedy search")] = 5,
    length: Annotated[
        Length, Option(help="length normalisation: none, mean log P per token, or GNMT's length penalty")
    ] = Length.mean,
    alpha: Annotated[float | None, Option(help="α of GNMT's length penalty", show_default="0.6")] = None,
    coverage: Annotated[float, Option(help="β of GNMT's coverage penalty; 0 means none")] = 0.0,
    nbest: Annotated[int, Option(help="number of translations to show for each line, with scores")] = 1,
    trace: Annotated[Path | None, Option(help="write the search tree of one line to x.html, x.json or x.txt")] = None,
    replace_unknown: Annotated[
        bool, Option("--replace-unknown", help="replace unknown words by the source word with most attention")
    ] = False,
    ensemble: Annotated[list[Path], Option(help="another run to average with; can be repeated")] = [],
    prefix: Annotated[str, Option(help="text that every translation must start with")] = "",
    shortest: Annotated[int, Option(help="minimum number of tokens of a translation")] = 0,
    longest: Annotated[
        int, Option(help="maximum number of tokens of a translation", show_default="2 × source length + 20")
    ] = 0,
    forbid: Annotated[
        list[str], Option(help="token that must not be generated, as traces name it; can be repeated")
    ] = [],
    long: Annotated[Long, Option(help="cut lines that are too long, or split them into parts")] = Long.CUT,
    int8: Int8 = False,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """translate text line by line"""
    from ensue.cli.display import Display
    from ensue.runs.load import load
    from ensue.search.beam import Search
    from ensue.verbs.translate import translate as verb

    if text and file != "-":
        raise InputError("translate what?", hint="name a file or give --text, not both")
    check_beam(beam, nbest)
    _check_lengths(length, alpha, shortest, longest)
    loaded = load(run)
    search = Search(beam=beam, length=length.value, coverage=coverage, nbest=nbest, shortest=shortest)
    search = search if alpha is None else replace(search, alpha=alpha)
    results: list[dict[str, Any]] = []
    with Display(quiet=as_json or not sys.stderr.isatty()) as display:
        display("phase", {"name": "translating"})
        blocks = verb(
            loaded,
            file,
            texts=text,
            search=search,
            forbid=forbid,
            ensemble=ensemble,
            int8=int8,
            trace=trace,
            report=display,
            long=long.value,
            replace_unknown=replace_unknown,
            prefix=prefix,
            most=longest,
        )
        for translations, notes in blocks:
            for note in notes:
                warn(f"note: {note}")
            if as_json:
                results += [translation.as_dict() for translation in translations]
            else:
                _print_translations(translations, nbest)
    if as_json:
        print_json({"system": loaded.system, "beam": beam, "length": length.value, "translations": results})
    elif trace is not None:
        warn(f"wrote {trace}")


def _check_lengths(length: Length, alpha: float | None, shortest: int, longest: int) -> None:
    """Raise InputError for options about length that contradict each other."""
    if alpha is not None and length is not Length.gnmt:
        raise InputError(f"--length {length.value} has no α", hint="leave out --alpha, or use --length gnmt")
    if longest < 0 or 0 < longest < shortest:
        raise InputError(f"--longest {longest} must be at least {max(1, shortest)}")


def _print_translations(translations: list[Any], nbest: int) -> None:
    """Print each translation on one line, or its n best with scores."""
    for translation in translations:
        if nbest > 1 and translation.best:
            for text, hypothesis in translation.best:
                print_line(f"{hypothesis.score:9.4f}  {escape_breaks(text)}")
        else:
            print_line(escape_breaks(translation.text))
    sys.stdout.flush()
