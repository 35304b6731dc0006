"""The one kind of error that is meant for people."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class InputError(ValueError):
    """Something a person gave cannot be used.

    The message is one line: what is wrong, where (file and line of the data), how to fix it.

    >>> str(InputError("the text is empty", where="my.txt", hint="give a file with words in it"))
    'my.txt: the text is empty; give a file with words in it'
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        line = f"{where}: {what}" if where else what
        super().__init__(f"{line}; {hint}" if hint else line)


class Interrupted(Exception):
    """Somebody asked to stop; everything is saved, and ``again`` is the command that goes on."""

    def __init__(self, folder: Path, again: str) -> None:
        self.folder = folder
        super().__init__(f"stopped; everything is saved in {folder}\ngo on with: {again}")


class Paused(Interrupted):
    """Somebody asked to stop before there was a folder for a run; ``kept`` says what need not be done again."""

    def __init__(self, kept: str) -> None:
        Exception.__init__(self, f"stopped; {kept}, and the same command goes on from there")


class OwnError(InputError):
    """An error on one rank only, which that rank must report itself."""


class Lost(Exception):
    """Another rank failed and reports why; this one exits silently."""


class NoDistribution(RuntimeError):
    """A model answers something that is no number, so that no token can be drawn."""

    def __init__(self) -> None:
        super().__init__("the model's answer is no distribution: look whether its weights are numbers")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not in a list, with the nearest one that is.

    >>> str(unknown_name("system", "ltsm", ["lstm", "gru"]))
    "unknown system 'ltsm'; did you mean 'lstm'?"
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(names)}"
    return InputError(f"unknown {kind} {name!r}", hint=hint)
