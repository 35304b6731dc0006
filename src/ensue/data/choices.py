"""Questions with choices, of which one is right: SWAG's table, or JSONL with a list of endings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.wording import counted
from ensue.data.labelled import TOO_SHORT, Choice, Reading, note_empty, short
from ensue.data.lines import source_name
from ensue.data.tables import Role, Roles, Table, parse_columns, read_table

ENDINGS = 10
"""The most choices that columns may hold, numbered from 0 or from 1."""


SURE = 20
"""Labels of which so many would be 0 by chance, and none is, do not count from 0."""


def choice_roles(labels_wanted: bool) -> Roles:
    """What a table of choices is read for: endings in a column each, or all in one field of JSONL."""
    endings = [
        Role(f"ending{n}", tuple(f"{word}{n}" for word in ("ending", "choice", "option", "answer")), optional=True)
        for n in range(ENDINGS + 1)
    ]
    return Roles(
        (
            Role("context", ("context", "sent1", "startphrase", "ctx", "ctxa", "premise", "question", "text")),
            Role("start", ("sent2", "start", "ctxb"), optional=True),
            Role("endings", ("endings", "choices", "options"), "any", optional=True),
            *endings,
            Role("label", ("label", "answer", "gold", "correct"), "value", optional=not labels_wanted),
        ),
        "question",
        too_short=TOO_SHORT,
    )


def read_choices(files: Sequence[str | Path], how: Reading, notes: list[str]) -> list[Choice]:
    """The questions with choices of some files, in SWAG's form or as JSONL with ``context``, ``endings`` and ``label``.

    Where an ending has its beginning in a column of its own (``sent2``), that stands before each choice.
    """
    chosen = parse_columns(how.columns, "context=1,ending0=2,ending1=3,label=4")
    found: list[Choice] = []
    for file in files:
        name = source_name(file)
        table = read_table(file, choice_roles(how.wanted), chosen, notes, how.skip)
        if not any(role.startswith("ending") for role in table.called):
            hint = "name the columns ending0, ending1, … or choose them with --columns ending0=…,ending1=…"
            raise InputError("there are no choices", where=name, hint=hint)
        found += _choices(table, name, how.wanted, notes)
    return found


def _choices(table: Table, name: str, labels_wanted: bool, notes: list[str]) -> list[Choice]:
    """The questions of one table, their labels counted from 0."""
    rows: list[tuple[str, tuple[str, ...], str, str]] = []
    empty = []
    for number, row in table.rows:
        where = f"{name}:{number}"
        context, choices = row["context"].strip(), _endings(row, where)
        if not context or not all(choices):
            empty.append(number)
            continue
        if len(choices) < 2:
            raise InputError(f"{counted(len(choices), 'choice')} where there must be two", where=where)
        rows.append((context, choices, row.get("label", "").strip(), where))
    note_empty(empty, len(rows), name, notes)
    labels = [_index(label, labels_wanted, where) for _, _, label, where in rows]
    first = _counted_from(labels, [len(choices) for _, choices, _, _ in rows])
    if first:
        notes.append(f"{name}: labels count the choices from 1")
    notes.append(f"{name}: {table.understood()}; {counted(len(rows), 'question')}")
    found = []
    for (context, choices, said, where), label in zip(rows, labels):
        right = None if label is None else label - first
        if right is not None and not 0 <= right < len(choices):
            raise InputError(f"the label {said} is none of {len(choices)} choices", where=where)
        found.append(Choice(context, choices, right, where))
    return found


def _endings(row: dict[str, Any], where: str) -> tuple[str, ...]:
    """The choices of one row, each after the beginning they share."""
    endings = [row[name] for n in range(ENDINGS + 1) if (name := f"ending{n}") in row]
    if "endings" in row:
        held = row["endings"]
        if isinstance(held, dict):  # as the Hub's sets of questions have it: {"text": […], "label": […]}
            held = held.get("text")
        if held and not (isinstance(held, list) and all(isinstance(ending, str) for ending in held)):
            raise InputError("the choices are not a list of texts", where=where, hint='write ["…", "…"]')
        endings += held or []
    start = row.get("start", "").strip()
    return tuple(f"{start} {ending.strip()}".strip() if ending.strip() else "" for ending in endings)


def _index(label: str, wanted: bool, where: str) -> int | None:
    """The number that a label says; letters count from A."""
    if len(label) == 1 and "A" <= label.upper() <= "J":
        return ord(label.upper()) - ord("A")
    if label.isdecimal():
        return int(label)
    if label or wanted:
        what = f"the label {short(label)!r} is not the number of a choice" if label else "the label is missing"
        raise InputError(what, where=where, hint="give the number of the right choice, counted from 0")
    return None


def _counted_from(labels: Sequence[int | None], sizes: Sequence[int]) -> int:
    """1 if no label is 0 and one is as high as there are choices, or so many labels can hardly all miss 0; else 0."""
    known = [(label, size) for label, size in zip(labels, sizes) if label is not None]
    sure = any(label == size for label, size in known) or sum(1 / size for _, size in known) > SURE
    return int(0 not in (label for label, _ in known) and sure)
