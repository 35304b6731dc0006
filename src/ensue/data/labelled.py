"""Labelled examples of every kind, and the reader of texts with a class or a number.

Every example knows where it comes from, so that what is wrong with it can be said with its file and line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from ensue.core.errors import InputError
from ensue.core.wording import counted, line_numbers
from ensue.data.column_inference import (
    Column,
    are_names,
    columns_of,
    label_among,
    number_of,
    score_among,
    stands_out,
    texts_among,
)
from ensue.data.lines import read_lines, source_name
from ensue.data.tables import (
    SAMPLE,
    Places,
    Role,
    Roles,
    Sample,
    Table,
    is_record,
    parse_columns,
    plain_name,
    read_table,
)

Task = Literal["classify", "pair", "regress"]

_TEXT = """
    text sentence review content comment utterance tweet message document body phrase headline title question query
"""
_FIRST = """
    text1 sentence1 premise question1 #1string texta sentencea s1 first left source1 question query context text
"""
_SECOND = """
    text2 sentence2 hypothesis question2 #2string textb sentenceb s2 second right source2 sentence answer passage
"""
_LABEL = """
    label goldlabel class sentiment quality target category polarity intent topic tag isduplicate entailmentjudgment
    labels gold y score similarity stars rating
"""
_SCORE = "score similarity relatedness relatednessscore similarityscore label rating stars target value y"
TEXT, FIRST, SECOND, LABEL, SCORE = (tuple(names.split()) for names in (_TEXT, _FIRST, _SECOND, _LABEL, _SCORE))
"""What headers call the only text, the first and the second of two, a class and a number; the likeliest first."""


LARGEST = 1e9
"""The largest number to learn: the square of its error must fit into single precision many times over."""

TOO_SHORT = "give all lines the same columns, or leave such lines out: --set data.bad_lines=skip"
"""What mends a line with too few columns."""


@dataclass(frozen=True)
class Reading:
    """How examples are read."""

    columns: str = ""
    """Which columns or fields are meant; empty means as they are found."""
    wanted: bool = True
    """Whether each must have its label."""
    learn: bool = True
    """Whether they are to be learnt from, so that there must be several labels."""
    skip: bool = False
    """Whether lines with too few columns are left out."""


@dataclass(frozen=True)
class Labelled:
    """One text or two, with a label: a class, or a number as text."""

    texts: tuple[str, ...]
    label: str | None
    where: str
    """The file and line it comes from."""


@dataclass(frozen=True)
class Choice:
    """A beginning and ways to go on, of which one is right."""

    context: str
    choices: tuple[str, ...]
    label: int | None
    """Which choice is right, counted from 0."""
    where: str


@dataclass(frozen=True)
class Tagged:
    """A sentence and the tag of each word."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    where: str
    """The file and line of the first word."""
    lines: tuple[int, ...] = ()
    """The line of each word, where each has one of its own."""

    def at(self, place: int) -> str:
        """The file and line of a word."""
        return f"{self.where.rpartition(':')[0]}:{self.lines[place]}" if self.lines else self.where


@dataclass(frozen=True)
class Answer:
    """A stretch of a passage."""

    text: str
    start: int
    """Characters into the passage."""


@dataclass(frozen=True)
class Question:
    """A question, the passage that may answer it, and its answers."""

    id: str
    question: str
    passage: str
    answers: tuple[Answer, ...]
    impossible: bool
    """Whether it is known that the passage does not answer."""
    where: str


# Which column is what.


def text_roles(task: Task, labels_wanted: bool) -> Roles:
    """What a table of labelled texts is read for."""
    numeric = task == "regress"
    names = ("text",) if task == "classify" else ("text1", "text2")
    texts = [Role(name, called) for name, called in zip(names, (TEXT,) if task == "classify" else (FIRST, SECOND))]
    if numeric:  # one text or two
        texts = [Role("text1", FIRST + TEXT), Role("text2", SECOND, optional=True)]
    members = (*texts, Role("label", SCORE if numeric else LABEL, "value", optional=not labels_wanted))

    def guess(sample: Sample, known: Places) -> Places:
        return _guess(sample, known, names, numeric, labels_wanted)

    def is_header(first: list[str], places: Places, rest: Sample) -> bool:
        if not are_names(first):
            return False
        named = {name for role in members for name in role.called}
        if any(plain_name(cell) in named for cell in first):
            return True
        key = places.get("label")
        return isinstance(key, int) and 0 <= key < len(first) and stands_out(first[key], Column(key, rest.column(key)))

    return Roles(members, "example", guess, is_header, TOO_SHORT)


def _guess(sample: Sample, known: Places, names: tuple[str, ...], numeric: bool, labels_wanted: bool) -> Places:
    """The label first, since it is told more surely; then the longest of the other columns are the texts."""
    found: Places = dict(known)
    columns = columns_of(sample, found)
    missing = [name for name in names if name not in found]
    if "label" not in found and (labels_wanted or len(columns) > len(missing)):
        label = (score_among if numeric else label_among)(columns)
        if label is not None:
            found["label"] = label
    columns = [column for column in columns if column.key not in found.values()]
    texts = texts_among(columns, len(missing))
    if not texts and numeric and len(missing) == 2 and sum(not column.numbers for column in columns) == 1:
        texts = texts_among(columns, 1)
    return {**found, **dict(zip(missing, texts))}


# Labelled texts.


def read_labelled(
    files: Sequence[str | Path],
    task: Task,
    how: Reading,
    notes: list[str],
    keep_empty: bool = False,
) -> list[Labelled]:
    """The labelled texts of some files: one text for ``classify``, two for ``pair``, one or two for ``regress``.

    Columns are said as ``text=2,label=1``, or ``text1=``, ``text2=``, as far as they cannot be seen. With
    ``keep_empty`` lines without text keep their place.
    """
    found: list[Labelled] = []
    chosen = _columns(how.columns, task)
    for file in files:
        table = read_table(file, text_roles(task, how.wanted), chosen, notes, how.skip)
        examples = _examples(table, source_name(file), task, how.wanted, notes, keep_empty)
        notes.append(f"{source_name(file)}: {_understood(table, examples, task)}")
        notes += [f"{source_name(file)}: {note}" for note in _second_texts(table, task)]
        found += examples
    _check_texts(found)
    if how.wanted and how.learn:
        _check_labels(found, task, " and ".join(map(source_name, files)))
    return found


def _second_texts(table: Table, task: Task) -> Iterator[str]:
    """A word on each text that a table has beside the one that is read."""
    for name in table.names if task == "classify" else ():
        if plain_name(name) in SECOND and name not in table.called.values():
            yield f"{name!r} looks like a second text, which classify does not read; pair reads both"


def _columns(columns: str, task: Task) -> dict[str, str]:
    """What was said about columns; a regression may call its only text ``text``."""
    chosen = parse_columns(columns, "text=2,label=1" if task == "classify" else "text1=1,text2=2,label=3")
    if task == "regress" and "text" in chosen and "text1" not in chosen:
        chosen["text1"] = chosen.pop("text")
    return chosen


def _examples(
    table: Table, name: str, task: Task, labels_wanted: bool, notes: list[str], keep_empty: bool
) -> list[Labelled]:
    """The rows that have a text; a row that has one needs a label, too."""
    found, empty = [], []
    for number, row in table.rows:
        texts = tuple(text.strip() for role, text in row.items() if role != "label")
        where = f"{name}:{number}"
        if not all(texts):
            empty.append(number)
            found += [Labelled(texts, None, where)] if keep_empty else []
            continue
        label = _label(row.get("label", ""), task, labels_wanted, where)
        found.append(Labelled(texts, label, where))
    note_empty([] if keep_empty else empty, len(found), name, notes)
    return found


def note_empty(empty: list[int], full: int, name: str, notes: list[str]) -> None:
    """Say which lines were left out; an error if no line was kept."""
    if not full:
        raise InputError("there is no text in any line", where=name, hint="give lines with a text and its label")
    if empty:
        notes.append(f"{name}: left out {counted(len(empty), 'line')} without text ({line_numbers(empty)})")


def _label(text: str, task: Task, wanted: bool, where: str) -> str | None:
    """The label of one line."""
    label = text.strip()
    if not label:
        if wanted:
            raise InputError("the label is missing", where=where, hint="give every line a label, or leave the line out")
        return None
    if task == "regress" and abs(number_of(label) or 0.0) > LARGEST:
        raise InputError(f"the label {short(label)!r} is too large", where=where, hint="divide all of them")
    if task == "regress" and number_of(label) is None:
        hint = "give finite numbers; classes are learned with classify or pair"
        raise InputError(f"the label {short(label)!r} is not a number", where=where, hint=hint)
    return label


def _check_texts(examples: Sequence[Labelled]) -> None:
    """All have one text, or all have two."""
    for example in examples:
        if len(example.texts) != len(examples[0].texts):
            what = f"{counted(len(example.texts), 'text')} where {examples[0].where} has {len(examples[0].texts)}"
            raise InputError(what, where=example.where, hint="give files with the same columns")


def _check_labels(examples: Sequence[Labelled], task: Task, name: str) -> None:
    """There is something to learn: not all labels are the same, nor all classes different."""
    counts = Counter(example.label for example in examples)
    if len(counts) == 1:
        what = f"every line has the label {short(str(examples[0].label))!r}, so that there is nothing to learn"
        raise InputError(what, where=name, hint="give examples of two labels at least, or other --columns")
    if task != "regress" and len(examples) >= 20 and len(counts) == len(examples):
        hint = "choose the label with --columns, or learn numbers with regress"
        raise InputError("every line has a label of its own", where=name, hint=hint)


def _understood(table: Table, examples: Sequence[Labelled], task: Task) -> str:
    """What a table was taken for, with its labels and its first example."""
    labels = {example.label for example in examples if example.label is not None}
    values = label_range(labels) if task == "regress" else label_list(labels)
    first = examples[0]
    shown = " and ".join(f"“{short(text)}”" for text in first.texts)
    answer = f" → {short(first.label)}" if first.label is not None else ""
    return f"{table.understood({'label': values})}; first: {shown}{answer}"


def label_list(labels: Iterable[str]) -> str:
    """Some labels in order, the first few of many.

    >>> label_list(["10", "9"]), label_list("gfedcba")
    ('9, 10', '7 labels: a, b, c, d, e, …')
    """
    ordered = sorted(labels, key=lambda label: (number_of(label) or 0.0, label))
    if len(ordered) <= 5:
        return ", ".join(map(short, ordered))
    return f"{len(ordered):,} labels: {', '.join(map(short, ordered[:5]))}, …"


def label_range(labels: Iterable[str]) -> str:
    """The least and the greatest of labels that are numbers.

    >>> label_range(["0.00", "10", "9.5"])
    '0 to 10'
    """
    numbers = [float(label) for label in labels]
    return f"{min(numbers):g} to {max(numbers):g}" if numbers else ""


def short(text: str, most: int = 40) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


# Texts to predict.


def read_texts(
    file: str | Path,
    columns: str,
    n_texts: int,
    notes: list[str] | None = None,
    numeric: bool = False,
    keep_empty: bool = False,
) -> list[Labelled]:
    """Texts whose labels are asked for: one a line, or two with a tab between them (``n_texts`` is 0 where either will
    do); labels that are there are kept.

    A table is known by its tabs or by a header that names the text; any other file has a text a line. With
    ``numeric`` a label is a number. With ``keep_empty`` a line without text keeps its place, as an empty text.
    """
    notes = [] if notes is None else notes
    task: Task = "regress" if numeric else "classify" if n_texts == 1 else "pair"
    if columns or n_texts == 2 or _is_table(file):
        found = read_labelled([file], task, Reading(columns, wanted=False), notes, keep_empty)
        if n_texts and len(found[0].texts) != n_texts:
            what = f"{counted(len(found[0].texts), 'text')} in a line where the model takes {n_texts}"
            raise InputError(what, where=found[0].where, hint="choose them with --columns text1=…,text2=…")
        return found
    name, found, empty = source_name(file), [], []
    for number, line in enumerate(read_lines(file), start=1):
        if line.strip() or keep_empty:
            found.append(Labelled((line.strip(),), None, f"{name}:{number}"))
        else:
            empty.append(number)
    note_empty(empty, len(found), name, notes)
    return found


def _is_table(file: str | Path) -> bool:
    """Whether lines have columns: tabs, JSON objects, or commas under a header that names the text."""
    lines = [line for line in islice(read_lines(file), SAMPLE) if line.strip()]
    if not lines:
        return False
    cells = [plain_name(cell.strip('"')) for cell in lines[0].split(",")]
    headed = len(cells) > 1 and bool({*TEXT} & {*cells}) and are_names(cells)
    return is_record(lines[0]) or 2 * sum("\t" in line for line in lines) >= len(lines) or headed
