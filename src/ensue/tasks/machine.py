"""What the settings of a run ask of the machine: a device, a precision, files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ensue.core.errors import InputError
from ensue.data.dates import DATES
from ensue.data.sources import is_builtin
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.waves import WAVES
from ensue.tasks.settings import Settings


def fill_common(settings: Settings, tokenizer: Tokenizer | None = None) -> Settings:
    """Fill in the device, the number of threads, and the kind and size of the tokenizer."""
    import torch

    train, tokens = settings.train, settings.tokenizer
    if tokenizer is not None:
        kind = tokenizer.kind if tokens.kind == "auto" else tokens.kind
        tokens = replace(tokens, kind=kind, vocabulary=tokens.vocabulary or tokenizer.size)
    return replace(
        settings,
        run=replace(settings.run, device=check_device(settings.run.device)),
        train=replace(train, threads=train.threads or torch.get_num_threads()),
        tokenizer=tokens,
    )


def check_bf16(device: str) -> None:
    """Refuse bf16 on a CPU that says it has it and dies of it: tried in another process, since it cannot be caught."""
    if device != "cpu":
        return
    trial = "import torch; x = torch.ones(1, 64, 64).bfloat16(); torch.nn.LSTM(64, 64).bfloat16()(x); x @ x"
    if subprocess.run([sys.executable, "-W", "ignore", "-c", trial], capture_output=True, check=False).returncode:
        raise InputError("this CPU does not compute bf16", hint="use --set train.precision=float32")


def check_device(name: str) -> str:
    """The device that a name stands for on this machine."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ValueError) as error:
        raise InputError(
            f"there is no device {name!r} here", hint="--device auto takes the fastest there is"
        ) from error
    return name


def data_files(sources: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    """Sources as run.toml names them: paths made absolute, so that a run can be resumed from anywhere."""
    sources = [sources] if isinstance(sources, str | Path) else sources
    if any(str(source) == "" for source in sources):
        raise InputError("the name of the text is empty", hint="name a file, a folder, - or a built-in corpus")
    return tuple(
        str(s) if s == "-" or is_builtin(s) or s in (DATES, WAVES) or not _there(Path(s)) else str(Path(s).absolute())
        for s in sources
    )


def _there(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have is left to the reader to refuse."""
    try:
        return path.exists()
    except OSError:
        return False
