"""Options that several commands share."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ensue.core.errors import InputError
from ensue.core.verification import VERIFY

Json = Annotated[bool, Option("--json", help="print one JSON object and nothing else")]
RunPath = Annotated[Path, Argument(metavar="RUN", help="folder of a trained run, as made by `ensue fit`")]
Seed = Annotated[int, Option(help="seed of the random number generator")]
OptionalSeed = Annotated[int | None, Option(help="seed of the random number generator", show_default="0")]
Field = Annotated[str, Option(help="field of a JSONL file that holds the text")]
Columns = Annotated[str, Option(help="columns or fields by role, e.g. source=2,target=1 or text=review,label=1")]
KeyValueCacheType = Annotated[
    str, Option("--kv-cache", metavar="TYPE", help="key–value cache in float32, or in bf16 with half of its memory")
]
Memory = Annotated[
    int | None,
    Option(help="transformer-xl: positions before a segment that each layer sees", show_default="as it was trained"),
]
Int8 = Annotated[bool, Option("--int8", help="run linear layers in int8: faster, nearly the same results")]


def _skip_verification(chosen: bool) -> None:
    """Turn off verification, for this command and the processes it starts."""
    if chosen:
        os.environ[VERIFY] = "0"


NoVerify = Annotated[
    bool,
    Option(
        "--no-verify",
        help="load runs without checking the digests of their files",
        callback=_skip_verification,
        expose_value=False,
    ),
]
Set = Annotated[
    list[str], Option("--set", metavar="NAME=VALUE", help="change a setting, e.g. train.lr=3e-4; can be repeated")
]
Preset = Annotated[str, Option(help="named settings to start from; see `ensue systems NAME`")]
Device = Annotated[str, Option(help="cpu, cuda, mps or auto")]
Force = Annotated[bool, Option(help="overwrite existing output", show_default=False)]
Resume = Annotated[
    bool, Option(help="resume the run in --out from its last checkpoint, bit for bit", show_default=False)
]
Data = Annotated[
    list[str] | None,
    Argument(
        metavar="DATA…",
        help="files, folders, - (standard input) or a built-in corpus (pydoc, stdlib, hello, bank, dates, waves …)",
    ),
]
Valid = Annotated[
    list[str],
    Option(help="validation data; repeat it for parallel files. Without it, part of the training data is held out"),
]
Target = Annotated[list[str], Option(help="forecast: column to forecast, by name or number; can be repeated")]
Horizon = Annotated[int | None, Option(min=1, help="forecast: number of steps to forecast")]

MAX_BEAM = 1000


def typed_settings(assignments: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Settings by the flat names of run.toml, from --set and from other options; the latter win."""
    from ensue.core.settings import parse_assignments

    given = {name: value for name, value in options.items() if value or (name == "seed" and value is not None)}
    return {**parse_assignments(assignments), **given}


def attention_names(text: str | None) -> list[str]:
    """The names of ``--attention``, separated by commas; none where it is not given."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if text is not None and not names:
        raise InputError("--attention names nothing", hint="for example --attention full,linear")
    return names


def check_beam(beam: int, nbest: int = 1) -> None:
    """Raise InputError for a beam or an n-best list that would not fit into memory."""
    if beam > MAX_BEAM:
        raise InputError(f"a beam of {beam:,} is too wide", hint=f"use at most {MAX_BEAM:,}; 5 is usual")
    if nbest > MAX_BEAM:
        raise InputError(f"--nbest {nbest:,} is too large", hint=f"use at most {MAX_BEAM:,}")


def resume_command(words: list[str]) -> str:
    """The command that resumes what was interrupted: what it deleted must not be deleted again.

    >>> resume_command(["race", "my text.txt", "--force"])
    "ensue race 'my text.txt' --resume"
    >>> resume_command(["race", "pydoc", "--resume", "--repeat", "gpt,lstm", "--seeds", "3"])
    'ensue race pydoc --seeds 3 --resume'
    """
    kept = [
        word
        for before, word in zip(["", *words], words)
        if before != "--repeat" and word not in ("--force", "--resume", "--repeat") and not word.startswith("--repeat=")
    ]
    return shlex.join(["ensue", *kept, "--resume"])
