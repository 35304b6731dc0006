"""Labelled examples of every kind, and the reader for texts with a class or a score.

Every example knows its file and line, so that errors can name them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from ensue.core.errors import InputError
from ensue.core.wording import counted, line_numbers
from ensue.data.column_inference import (
    ColumnSample,
    differs_from_labels,
    find_label,
    find_score,
    find_texts,
    looks_like_header,
    parse_number,
    unassigned_columns,
)
from ensue.data.lines import read_lines, source_name
from ensue.data.tables import (
    SAMPLE_LINES,
    ColumnMap,
    ColumnRole,
    ParsedTable,
    TableSample,
    TableSchema,
    is_json_object,
    normalize_header,
    parse_columns,
    read_table,
    shorten,
)

TextTask = Literal["classify", "pair", "regress"]

_TEXT = (
    "text sentence review content comment utterance tweet message document body phrase headline title question query"
)
_FIRST = "text1 sentence1 premise question1 #1string texta sentencea s1 first left source1 question query context text"
_SECOND = (
    "text2 sentence2 hypothesis question2 #2string textb sentenceb s2 second right source2 sentence answer passage"
)
_LABEL = """
    label goldlabel class sentiment quality target category polarity intent topic tag isduplicate entailmentjudgment
    labels gold y score similarity stars rating
"""
_SCORE = "score similarity relatedness relatednessscore similarityscore label rating stars target value y"
TEXT_HEADERS, FIRST_HEADERS, SECOND_HEADERS, LABEL_HEADERS, SCORE_HEADERS = (
    tuple(names.split()) for names in (_TEXT, _FIRST, _SECOND, _LABEL, _SCORE)
)
"""Headers of a single text, the first and the second of two, a class and a score; most likely first."""

MAX_LABEL_VALUE = 1e9
"""Largest regression target: sums of squared errors must fit into float32."""

SHORT_LINE_HINT = "give all lines the same columns, or leave such lines out: --set data.bad_lines=skip"


@dataclass(frozen=True)
class ReadOptions:
    """How examples are read."""

    columns: str = ""
    """Columns or fields by role; empty to infer them."""
    require_labels: bool = True
    """Raise an error for examples without a label."""
    for_training: bool = True
    """The examples are for training, so there must be several labels."""
    skip_short: bool = False
    """Leave out lines with too few columns."""


@dataclass(frozen=True)
class LabelledText:
    """One text or two, with a label: a class, or a number as text."""

    texts: tuple[str, ...]
    label: str | None
    where: str
    """File and line."""


@dataclass(frozen=True)
class ChoiceQuestion:
    """A context and possible continuations, one of which is right."""

    context: str
    choices: tuple[str, ...]
    label: int | None
    """Index of the right choice."""
    where: str


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence and the tag of each word."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    where: str
    """File and line of the first word."""
    lines: tuple[int, ...] = ()
    """The line of each word, if words are on separate lines."""

    def where_word(self, index: int) -> str:
        """Return the file and line of a word."""
        return f"{self.where.rpartition(':')[0]}:{self.lines[index]}" if self.lines else self.where


@dataclass(frozen=True)
class Answer:
    """A span of a passage."""

    text: str
    start: int
    """Character offset in the passage."""


@dataclass(frozen=True)
class Question:
    """A question, a passage, and its answers."""

    id: str
    question: str
    passage: str
    answers: tuple[Answer, ...]
    impossible: bool
    """True if the passage is known not to contain an answer."""
    where: str


# Column roles.


def text_schema(task: TextTask, require_labels: bool) -> TableSchema:
    """Return the schema of a table of labelled texts."""
    numeric = task == "regress"
    label = ColumnRole("label", SCORE_HEADERS if numeric else LABEL_HEADERS, "value", optional=not require_labels)
    roles: tuple[ColumnRole, ...] = (ColumnRole("text", TEXT_HEADERS), label)
    if task != "classify":  # regression takes one text or two
        first = ColumnRole("text1", FIRST_HEADERS + TEXT_HEADERS if numeric else FIRST_HEADERS)
        roles = (first, ColumnRole("text2", SECOND_HEADERS, optional=numeric), label)
    texts = tuple(role.name for role in roles[:-1])
    infer = partial(_infer_columns, texts=texts, numeric=numeric, require_labels=require_labels)

    def is_header(first: list[str], columns: ColumnMap, rest: TableSample) -> bool:
        if not looks_like_header(first):
            return False
        known = {name for role in roles for name in role.headers}
        if any(normalize_header(cell) in known for cell in first):
            return True
        key = columns.get("label")
        if not isinstance(key, int) or not 0 <= key < len(first):
            return False
        return differs_from_labels(first[key], ColumnSample(key, rest.column(key)))

    return TableSchema(roles, "example", infer, is_header, SHORT_LINE_HINT)


def _infer_columns(
    sample: TableSample, known: ColumnMap, texts: tuple[str, ...], numeric: bool, require_labels: bool
) -> ColumnMap:
    """Infer the label first, since it is more certain, then take the longest of the other columns as texts."""
    inferred: ColumnMap = dict(known)
    columns = unassigned_columns(sample, inferred)
    missing = [name for name in texts if name not in inferred]
    if "label" not in inferred and (require_labels or len(columns) > len(missing)):
        label = (find_score if numeric else find_label)(columns)
        if label is not None:
            inferred["label"] = label
    columns = [column for column in columns if column.key not in inferred.values()]
    keys = find_texts(columns, len(missing))
    if not keys and numeric and len(missing) == 2 and sum(not column.numbers for column in columns) == 1:
        keys = find_texts(columns, 1)
    return {**inferred, **dict(zip(missing, keys))}


# Labelled texts.


def read_labelled(
    files: Sequence[str | Path], task: TextTask, options: ReadOptions, notes: list[str], keep_empty: bool = False
) -> list[LabelledText]:
    """Read labelled texts: one text for ``classify``, two for ``pair``, one or two for ``regress``.

    Columns are given as ``text=2,label=1``, or ``text1=``, ``text2=``; missing ones are inferred. With ``keep_empty``
    lines without text are kept.
    """
    examples: list[LabelledText] = []
    columns = _parse_text_columns(options.columns, task)
    for file in files:
        name = source_name(file)
        table = read_table(file, text_schema(task, options.require_labels), columns, notes, options.skip_short)
        read = _read_examples(table, name, task, options.require_labels, notes, keep_empty)
        notes.append(f"{name}: {_describe(table, read, task)}")
        notes += [f"{name}: {note}" for note in _second_text_notes(table, task)]
        examples += read
    _check_texts(examples)
    if options.require_labels and options.for_training:
        _check_labels(examples, task, " and ".join(map(source_name, files)))
    return examples


def _second_text_notes(table: ParsedTable, task: TextTask) -> Iterator[str]:
    """Note each column that looks like a second text, which ``classify`` ignores."""
    for name in table.names if task == "classify" else ():
        if normalize_header(name) in SECOND_HEADERS and name not in table.column_names.values():
            yield f"{name!r} looks like a second text, which classify does not read; pair reads both"


def _parse_text_columns(columns: str, task: TextTask) -> dict[str, str]:
    """Parse the columns option; a regression may call its only text ``text``."""
    parsed = parse_columns(columns, "text=2,label=1" if task == "classify" else "text1=1,text2=2,label=3")
    if task == "regress" and "text" in parsed and "text1" not in parsed:
        parsed["text1"] = parsed.pop("text")
    return parsed


def _read_examples(
    table: ParsedTable, name: str, task: TextTask, require_labels: bool, notes: list[str], keep_empty: bool
) -> list[LabelledText]:
    """Read the rows with a text; each needs a label if ``require_labels``."""
    examples, empty = [], []
    for number, row in table.rows:
        texts = tuple(text.strip() for role, text in row.items() if role != "label")
        where = f"{name}:{number}"
        if not all(texts):
            empty.append(number)
            examples += [LabelledText(texts, None, where)] if keep_empty else []
            continue
        label = _parse_label(row.get("label", ""), task, require_labels, where)
        examples.append(LabelledText(texts, label, where))
    note_empty_lines([] if keep_empty else empty, len(examples), name, notes)
    return examples


def note_empty_lines(empty: list[int], full: int, name: str, notes: list[str]) -> None:
    """Note the lines that were left out; raise an error if no line was kept."""
    if not full:
        raise InputError("there is no text in any line", where=name, hint="give lines with a text and its label")
    if empty:
        notes.append(f"{name}: left out {counted(len(empty), 'line')} without text ({line_numbers(empty)})")


def _parse_label(text: str, task: TextTask, required: bool, where: str) -> str | None:
    label = text.strip()
    if not label:
        if required:
            raise InputError("the label is missing", where=where, hint="give every line a label, or leave the line out")
        return None
    if task == "regress":
        number = parse_number(label)
        if number is None:
            hint = "give finite numbers; use classify or pair for classes"
            raise InputError(f"the label {shorten(label)!r} is not a number", where=where, hint=hint)
        if abs(number) > MAX_LABEL_VALUE:
            raise InputError(f"the label {shorten(label)!r} is too large", where=where, hint="divide all of them")
    return label


def _check_texts(examples: Sequence[LabelledText]) -> None:
    """Check that all examples have the same number of texts."""
    for example in examples:
        if len(example.texts) != len(examples[0].texts):
            what = f"{counted(len(example.texts), 'text')} where {examples[0].where} has {len(examples[0].texts)}"
            raise InputError(what, where=example.where, hint="give files with the same columns")


def _check_labels(examples: Sequence[LabelledText], task: TextTask, name: str) -> None:
    """Check that labels are neither all the same nor, for classes, all different."""
    counts = Counter(example.label for example in examples)
    if len(counts) == 1:
        what = f"every line has the label {shorten(str(examples[0].label))!r}, so there is nothing to learn"
        raise InputError(what, where=name, hint="give examples of at least two labels, or other --columns")
    if task != "regress" and len(examples) >= 20 and len(counts) == len(examples):
        hint = "choose the label with --columns, or use regress for numbers"
        raise InputError("every line has a different label", where=name, hint=hint)


def _describe(table: ParsedTable, examples: Sequence[LabelledText], task: TextTask) -> str:
    """Describe how a table was read, with its labels and its first example."""
    labels = {example.label for example in examples if example.label is not None}
    values = label_range(labels) if task == "regress" else label_list(labels)
    first = examples[0]
    shown = " and ".join(f"“{shorten(text)}”" for text in first.texts)
    answer = f" → {shorten(first.label)}" if first.label is not None else ""
    return f"{table.describe({'label': values})}; first: {shown}{answer}"


def label_list(labels: Iterable[str]) -> str:
    """List some labels in order, at most five of many.

    >>> label_list(["10", "9"]), label_list("gfedcba")
    ('9, 10', '7 labels: a, b, c, d, e, …')
    """
    ordered = sorted(labels, key=lambda label: (parse_number(label) or 0.0, label))
    if len(ordered) <= 5:
        return ", ".join(map(shorten, ordered))
    return f"{len(ordered):,} labels: {', '.join(map(shorten, ordered[:5]))}, …"


def label_range(labels: Iterable[str]) -> str:
    """Return the minimum and maximum of numeric labels.

    >>> label_range(["0.00", "10", "9.5"])
    '0 to 10'
    """
    numbers = [float(label) for label in labels]
    return f"{min(numbers):g} to {max(numbers):g}" if numbers else ""


# Texts to predict.


def read_texts(
    file: str | Path,
    columns: str,
    n_texts: int,
    notes: list[str] | None = None,
    numeric: bool = False,
    keep_empty: bool = False,
) -> list[LabelledText]:
    """Read texts to predict: one per line, or two with a tab between them (``n_texts`` is 0 for either).

    Labels are kept if there are any; with ``numeric`` they are numbers. A table is recognised by its tabs or by a
    header that names the text; any other file has a text per line. With ``keep_empty`` a line without text is kept as
    an empty text.
    """
    notes = [] if notes is None else notes
    task: TextTask = "regress" if numeric else "classify" if n_texts == 1 else "pair"
    if columns or n_texts == 2 or _is_table(file):
        examples = read_labelled([file], task, ReadOptions(columns, require_labels=False), notes, keep_empty)
        if n_texts and len(examples[0].texts) != n_texts:
            what = f"{counted(len(examples[0].texts), 'text')} in a line where the model takes {n_texts}"
            raise InputError(what, where=examples[0].where, hint="choose them with --columns text1=…,text2=…")
        return examples
    name, examples, empty = source_name(file), [], []
    for number, line in enumerate(read_lines(file), start=1):
        if line.strip() or keep_empty:
            examples.append(LabelledText((line.strip(),), None, f"{name}:{number}"))
        else:
            empty.append(number)
    note_empty_lines(empty, len(examples), name, notes)
    return examples


def _is_table(file: str | Path) -> bool:
    """Return whether lines have columns: tabs, JSON objects, or commas under a header that names the text."""
    lines = [line for line in islice(read_lines(file), SAMPLE_LINES) if line.strip()]
    if not lines:
        return False
    cells = [normalize_header(cell.strip('"')) for cell in lines[0].split(",")]
    has_header = len(cells) > 1 and bool({*TEXT_HEADERS} & {*cells}) and looks_like_header(cells)
    return is_json_object(lines[0]) or 2 * sum("\t" in line for line in lines) >= len(lines) or has_header
