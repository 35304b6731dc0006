"""How long work tells what it is doing: it calls a ``Report`` and prints nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Report = Callable[[str, dict[str, Any]], None]
"""Called with the kind of event and its values. Kinds:

phase       a stretch of work begins: ``name``, and ``total`` where it is known
progress    where a phase stands: ``done``, ``total``; where they are known also what ``counts`` ("bytes"),
            how many ``per_second``, and the seconds ``left``
plan        what training will do: ``steps``, ``seconds``
step        a training step: ``step``, ``steps``, ``loss``, ``lr``, ``norm``, ``left``,
            ``tokens_per_second`` and, where they are no tokens, what ``counts``
evaluation  ``step`` and the measures
sample      what a model writes as it learns: ``step``, ``text``
note        something people should know: ``text``
"""

MOST_NOTES = 5
"""So many notes of a kind are told one by one."""


class Abandoned(Exception):
    """Work that was given up because somebody asked to stop; it can be done again."""


def silent(kind: str, values: dict[str, Any]) -> None:
    """Tell nobody."""


def tell_notes(notes: Sequence[str], rest: str, report: Report) -> None:
    """The first few notes, and in ``rest`` how many more there are: its {} stands for their number.

    >>> tell_notes(["a", "b", "c", "d", "e", "f", "g"], "and {} more", lambda kind, values: print(values["text"]))
    a
    b
    c
    d
    e
    and 2 more
    """
    for note in notes[:MOST_NOTES]:
        report("note", {"text": note})
    if len(notes) > MOST_NOTES:
        report("note", {"text": rest.format(len(notes) - MOST_NOTES)})


def told_once(report: Report) -> Report:
    """A report that leaves out notes it has passed on before: of many runs on the same data each would say the same.

    >>> once = told_once(lambda kind, values: print(values["text"]))
    >>> for text in ("a", "a", "b"):
    ...     once("note", {"text": text})
    a
    b
    """
    told: set[str] = set()

    def tell(kind: str, values: dict[str, Any]) -> None:
        if kind == "note":
            if values["text"] in told:
                return
            told.add(values["text"])
        report(kind, values)

    return tell
