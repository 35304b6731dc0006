"""Progress events: long work calls a ``Report`` and prints nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Report = Callable[[str, dict[str, Any]], None]
"""Called with the kind of event and its values. Kinds:

phase       a phase starts: ``name``, and ``total`` if known
progress    progress of a phase: ``done``, ``total``; if known also the unit ``counts`` ("bytes"),
            ``per_second``, and the seconds ``left``
plan        the training plan: ``steps``, ``step_seconds``, ``threads``, and whether it is the ``first``
step        a training step: ``step``, ``steps``, ``loss``, ``lr``, ``norm``, ``left``,
            ``tokens_per_second`` and, for other units than tokens, ``counts``
evaluation  ``step`` and the measures
sample      a text generated during training: ``step``, ``text``
note        a message for the user: ``text``
"""

MAX_NOTES = 5
"""Notes of one kind that are reported one by one."""


class Abandoned(Exception):
    """Work was cancelled because the user asked to stop; it can be repeated."""


def silent(kind: str, values: dict[str, Any]) -> None:
    """A report that does nothing."""


def abandon_when(stop: Callable[[], bool]) -> Report:
    """Return a report that raises Abandoned when ``stop`` returns True."""

    def report(kind: str, values: dict[str, Any]) -> None:
        if stop():
            raise Abandoned

    return report


def report_all(notes: Sequence[str], report: Report) -> None:
    """Report every note."""
    for note in notes:
        report("note", {"text": note})


def report_notes(notes: Sequence[str], rest: str, report: Report) -> None:
    """Report the first notes, and ``rest`` with the number of the others in place of {}.

    >>> report_notes(["a", "b", "c", "d", "e", "f", "g"], "and {} more", lambda kind, values: print(values["text"]))
    a
    b
    c
    d
    e
    and 2 more
    """
    report_all(notes[:MAX_NOTES], report)
    if len(notes) > MAX_NOTES:
        report("note", {"text": rest.format(len(notes) - MAX_NOTES)})


def without_repeated_notes(report: Report) -> Report:
    """Wrap a report so that each note is passed on once, e.g. for several runs on the same data.

    >>> once = without_repeated_notes(lambda kind, values: print(values["text"]))
    >>> for text in ("a", "a", "b"):
    ...     once("note", {"text": text})
    a
    b
    """
    seen: set[str] = set()

    def filtered(kind: str, values: dict[str, Any]) -> None:
        if kind == "note":
            if values["text"] in seen:
                return
            seen.add(values["text"])
        report(kind, values)

    return filtered
