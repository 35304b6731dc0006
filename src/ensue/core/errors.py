"""Errors that are shown to users in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

FEW = 6
"""Names that are quickly read."""


class InputError(ValueError):
    """Invalid input from the user.

    The message is one line: what is wrong, where (file and line), and a hint how to fix it.

    >>> str(InputError("the text is empty", where="my.txt", hint="give a file with words in it"))
    'my.txt: the text is empty; give a file with words in it'
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        line = f"{where}: {what}" if where else what
        super().__init__(f"{line}; {hint}" if hint else line)


@contextmanager
def errors_in(where: object, *damaged: type[Exception], hint: str = "the file may be damaged") -> Iterator[None]:
    """Name a file in every InputError that is raised inside; exceptions of the types ``damaged`` become one.

    >>> with errors_in("config.json", KeyError):
    ...     {}["layers"]
    Traceback (most recent call last):
    ensue.core.errors.InputError: config.json: cannot be read (KeyError: 'layers'); the file may be damaged
    """
    try:
        yield
    except InputError as error:
        if str(error).startswith(str(where)):
            raise
        raise InputError(str(error), where=str(where)) from error
    except damaged as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(f"cannot be read ({ascii(reason)[1:-1][:200]})", where=str(where), hint=hint) from error


@contextmanager
def read_errors(path: Path, damaged: str) -> Iterator[None]:
    """Turn errors of opening and parsing a file into InputError; ``damaged`` says what a wrong content is."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError("is missing", where=str(path)) from error
    except IsADirectoryError as error:
        raise InputError("is a folder, not a file", where=str(path)) from error
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=str(path)) from error
    except RecursionError as error:
        raise InputError(f"{damaged}, or nested too deeply", where=str(path)) from error
    except ValueError as error:  # not UTF-8, not the format, or a number of more digits than Python reads
        reason = ascii(str(error).splitlines()[0])[1:-1][:100]
        raise InputError(f"{damaged} ({reason})", where=str(path)) from error


class Interrupted(Exception):
    """The user stopped training; a checkpoint is saved, and ``again`` is the command that resumes."""

    def __init__(self, folder: Path, again: str) -> None:
        self.folder = folder
        super().__init__(f"stopped; everything is saved in {folder}\nresume with: {again}")


class Paused(Interrupted):
    """The user stopped before there was a run folder; ``kept`` says which work is saved, ``again`` the command."""

    def __init__(self, kept: str, again: str = "") -> None:
        onwards = f"; continue with: {again}" if again else ", and the same command continues from there"
        Exception.__init__(self, f"stopped; {kept}{onwards}")


class RankError(InputError):
    """An error on one rank only, which that rank must report itself."""


class OtherRankFailed(Exception):
    """Another rank failed and reports why; this one exits silently."""


class InvalidDistribution(RuntimeError):
    """A model returned NaN or infinite logits, so no token can be sampled."""

    def __init__(self) -> None:
        super().__init__("the model's output is not a probability distribution: check its weights for NaN")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for an unknown name, with the nearest known one.

    >>> str(unknown_name("system", "ltsm", ["lstm", "gru"]))
    "unknown system 'ltsm'; did you mean 'lstm'?"
    >>> str(unknown_name("rule", "worst", ["all", "best", "first"]))
    "unknown rule 'worst'; available: all, best, first"
    """
    names = sorted(known)
    cutoff = 0.5 if len(names) > FEW else 0.65  # a short list helps more than a poor guess
    near = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    hint = f"did you mean {near[0]!r}?" if near else f"available: {', '.join(names)}"
    return InputError(f"unknown {kind} {name!r}", hint=hint)
