"""Read multiple-choice questions: SWAG tables, or JSONL with a list of endings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.wording import counted
from ensue.data.labelled import SHORT_LINE_HINT, ChoiceQuestion, ReadOptions, note_empty_lines
from ensue.data.lines import source_name
from ensue.data.tables import ColumnRole, ParsedTable, TableSchema, parse_columns, read_table, shorten

MAX_CHOICES = 10
"""Maximum number of choices in columns, numbered from 0 or from 1."""
MIN_EXPECTED_ZEROS = 20
"""If this many labels should be 0 by chance and none is, labels count from 1."""


def choice_schema(require_labels: bool) -> TableSchema:
    """Return the schema of a table of choices: one column per ending, or a list in one JSONL field."""
    words, numbers = ("ending", "choice", "option", "answer"), range(MAX_CHOICES + 1)
    endings = [ColumnRole(f"ending{n}", tuple(f"{word}{n}" for word in words), optional=True) for n in numbers]
    return TableSchema(
        (
            ColumnRole("context", ("context", "sent1", "startphrase", "ctx", "ctxa", "premise", "question", "text")),
            ColumnRole("start", ("sent2", "start", "ctxb"), optional=True),
            ColumnRole("endings", ("endings", "choices", "options"), "any", optional=True),
            *endings,
            ColumnRole("label", ("label", "answer", "gold", "correct"), "value", optional=not require_labels),
        ),
        "question",
        short_line_hint=SHORT_LINE_HINT,
    )


def read_choices(files: Sequence[str | Path], options: ReadOptions, notes: list[str]) -> list[ChoiceQuestion]:
    """Read questions in SWAG's format or as JSONL with ``context``, ``endings`` and ``label``.

    If the start of the endings has its own column (``sent2``), it is prepended to each choice.
    """
    columns = parse_columns(options.columns, "context=1,ending0=2,ending1=3,label=4")
    questions: list[ChoiceQuestion] = []
    for file in files:
        name = source_name(file)
        table = read_table(file, choice_schema(options.require_labels), columns, notes, options.skip_short)
        if not any(role.startswith("ending") for role in table.column_names):
            hint = "name the columns ending0, ending1, … or choose them with --columns ending0=…,ending1=…"
            raise InputError("there are no choices", where=name, hint=hint)
        questions += _read_rows(table, name, options.require_labels, notes)
    return questions


def _read_rows(table: ParsedTable, name: str, require_labels: bool, notes: list[str]) -> list[ChoiceQuestion]:
    """Read the questions of one table, with labels counted from 0."""
    rows: list[tuple[str, tuple[str, ...], str, str]] = []
    empty = []
    for number, row in table.rows:
        where = f"{name}:{number}"
        context, choices = row["context"].strip(), _read_endings(row, where)
        if not context or not all(choices):
            empty.append(number)
            continue
        if len(choices) < 2:
            raise InputError(f"{counted(len(choices), 'choice')} where there must be two", where=where)
        rows.append((context, choices, row.get("label", "").strip(), where))
    note_empty_lines(empty, len(rows), name, notes)
    labels = [_parse_label(label, require_labels, where) for _, _, label, where in rows]
    first = _first_label(labels, [len(choices) for _, choices, _, _ in rows])
    if first:
        notes.append(f"{name}: labels count the choices from 1")
    notes.append(f"{name}: {table.describe()}; {counted(len(rows), 'question')}")
    questions = []
    for (context, choices, text, where), label in zip(rows, labels):
        right = None if label is None else label - first
        if right is not None and not 0 <= right < len(choices):
            raise InputError(f"the label {text} is none of {len(choices)} choices", where=where)
        questions.append(ChoiceQuestion(context, choices, right, where))
    return questions


def _read_endings(row: dict[str, Any], where: str) -> tuple[str, ...]:
    """Return the choices of one row, each with the start they share."""
    endings = [row[name] for n in range(MAX_CHOICES + 1) if (name := f"ending{n}") in row]
    if "endings" in row:
        listed = row["endings"]
        if isinstance(listed, dict):  # as in datasets of the Hugging Face Hub: {"text": […], "label": […]}
            listed = listed.get("text")
        if listed and not (isinstance(listed, list) and all(isinstance(ending, str) for ending in listed)):
            raise InputError("the choices are not a list of texts", where=where, hint='write ["…", "…"]')
        endings += listed or []
    start = row.get("start", "").strip()
    return tuple(f"{start} {ending.strip()}".strip() if ending.strip() else "" for ending in endings)


def _parse_label(label: str, required: bool, where: str) -> int | None:
    """Parse a label: a number, or a letter from A."""
    if len(label) == 1 and "A" <= label.upper() <= "J":
        return ord(label.upper()) - ord("A")
    if label.isdecimal() and len(label) <= 9:
        return int(label)
    if label or required:
        what = f"the label {shorten(label)!r} is not the number of a choice" if label else "the label is missing"
        raise InputError(what, where=where, hint="give the number of the right choice, counted from 0")
    return None


def _first_label(labels: Sequence[int | None], sizes: Sequence[int]) -> int:
    """Return whether labels count from 0 or 1: from 1 if none is 0 and one equals the number of choices, or if there
    are too many labels without a 0 for chance."""
    known = [(label, size) for label, size in zip(labels, sizes) if label is not None]
    likely = any(label == size for label, size in known) or sum(1 / size for _, size in known) > MIN_EXPECTED_ZEROS
    return int(0 not in (label for label, _ in known) and likely)
