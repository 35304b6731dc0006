"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.core.errors import InputError

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else there.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `ensue fit` made.")]
Seed = Annotated[int, typer.Option(help="Where random numbers come from.")]
Field = Annotated[str, typer.Option(help="Which field of a JSONL file holds the text.")]
Columns = Annotated[
    str,
    typer.Option(help="Which columns or fields hold what: source=2,target=1 or text=review,label=1."),
]
Int8 = Annotated[bool, typer.Option("--int8", help="Compute linear layers in eight bits: faster, nearly the same.")]
Set = Annotated[
    list[str], typer.Option("--set", metavar="NAME=VALUE", help="A setting, e.g. train.lr=3e-4; repeatable.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps or auto.")]
Force = Annotated[bool, typer.Option(help="Replace what is there.")]
Data = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DATA…", help="Files, folders, - or a built-in corpus (pydoc, stdlib, hello, bank, dates, waves …)."
    ),
]
Valid = Annotated[
    list[str],
    typer.Option(help="Text or pairs to validate with; repeatable (parallel files: twice). Else a part is held out."),
]
Target = Annotated[list[str], typer.Option(help="forecast: a column to forecast, by name or number; repeatable.")]
Horizon = Annotated[int | None, typer.Option(min=1, help="forecast: how many steps ahead.")]

WIDEST = 1000
"""The widest beam."""


def check_beam(beam: int, nbest: int = 1) -> None:
    """Refuse a beam that no machine holds: all its hypotheses are open at once, and so many more are kept."""
    if beam > WIDEST:
        raise InputError(f"a beam of {beam:,} is too wide", hint=f"use at most {WIDEST:,}; 5 is usual")
    if nbest > WIDEST:
        raise InputError(f"the {nbest:,} best are too many", hint=f"use at most {WIDEST:,}")
