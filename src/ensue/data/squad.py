"""Read questions whose answers are spans of a passage: SQuAD's JSON, tables and JSONL.

    passage[start : start + len(text)] = text        for every answer

An answer at the wrong offset is searched for in the passage; one that does not occur is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.wording import counted
from ensue.data.labelled import Answer, Question, ReadOptions
from ensue.data.lines import read_lines, source_name
from ensue.data.sources import is_jsonl
from ensue.data.tables import ColumnRole, TableSchema, parse_columns, read_table

NO_ANSWER = "ANSWERNOTFOUND"
"""SubjQA's placeholder for no answer, also at the end of its passages."""


@dataclass(frozen=True, slots=True)
class _RawQuestion:
    """A question as in the file, before its answers are located."""

    id: str
    question: str
    passage: str
    answers: list[tuple[str, int | None]] | None
    """Texts and their offsets; None if the file has no answers."""
    where: str


@dataclass(slots=True)
class _AnswerCounts:
    """The answers of one file: where they were moved or missing, and how many were located."""

    moved: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    located: int = 0
    questions: int = 0


QUESTION_SCHEMA = TableSchema(
    (
        ColumnRole("question", ("question", "query", "questiontext")),
        ColumnRole("passage", ("passage", "context", "review", "paragraph", "document", "text")),
        ColumnRole("answer", ("answers", "answer", "answertext", "humanansspans", "span"), "any", optional=True),
        ColumnRole("start", ("answerstart", "start", "humanansindices", "offset"), "any", optional=True),
        ColumnRole("id", ("id", "qid", "questionid", "qreviewid"), "value", optional=True),
    ),
    "question",
)


def read_questions(files: Sequence[str | Path], options: ReadOptions, notes: list[str]) -> list[Question]:
    """Read questions; rows with the same question and passage become one question with several answers.

    Columns of a table are given as ``question=2,passage=3,answer=4,start=5,id=1``; missing ones are inferred. For
    training, a question whose answers are not in its passage is left out; otherwise it is kept, with answers at -1.
    """
    chosen = parse_columns(options.columns, "question=1,passage=2,answer=3")
    by_id: dict[str, Question] = {}
    for file in files:
        counts, before = _AnswerCounts(), len(by_id)
        for raw in _read_file(file, chosen, notes, options.skip_short):
            counts.questions += 1
            if raw.answers is None and options.require_labels:
                hint = "give answers, or choose their column with --columns answer=…"
                raise InputError("the answer is missing", where=raw.where, hint=hint)
            if (question := _locate_answers(raw, counts, options.for_training)) is not None:
                _add(by_id, question)
        _note_answers(counts, list(by_id.values())[before:], source_name(file), notes, options.for_training)
    questions = list(by_id.values())
    if options.for_training and options.require_labels and not any(question.answers for question in questions):
        hint = "give some that have an answer in their passage, or choose its column with --columns answer=…"
        raise InputError("no question has an answer", where=" ".join(map(source_name, files)), hint=hint)
    return questions


def _add(by_id: dict[str, Question], question: Question) -> None:
    """Add a question; merge its answers if it is already there."""
    known = by_id.setdefault(question.id, question)
    if known is question:
        return
    if (known.question, known.passage) != (question.question, question.passage):
        hint = "give every question an id of its own"
        raise InputError(f"the id {question.id!r} is also that of {known.where}", where=question.where, hint=hint)
    answers = known.answers + question.answers
    by_id[question.id] = replace(known, answers=answers, impossible=known.impossible and not answers)


def _note_answers(
    counts: _AnswerCounts, questions: list[Question], name: str, notes: list[str], for_training: bool
) -> None:
    """Note how many questions were read, and problems with their answers."""
    missing, moved = counts.missing, counts.moved
    if missing:
        if not counts.located and for_training:
            hint = "give answers that are copied out of their passages"
            raise InputError(f"no answer is in its passage (first: {missing[0]})", where=name, hint=hint)
        what = f"{counted(len(missing), 'answer')} {'is' if len(missing) == 1 else 'are'} not in their passage"
        notes.append(f"{name}: {what} (first: {missing[0]}){', and left out' if for_training else ''}")
    if moved:
        what = f"{counted(len(moved), 'answer')} found at another offset of the passage, or with other spaces"
        notes.append(f"{name}: {what} (first: {moved[0]})")
    if not counts.questions:
        raise InputError("there is no question in this file", where=name, hint="give questions and passages")
    none = sum(question.impossible for question in questions)
    more = f", {none:,} of them without an answer" if none else ""
    notes.append(f"{name}: {counted(len(questions), 'question')}{more}")


# Locating answers.


def _locate_answers(raw: _RawQuestion, counts: _AnswerCounts, for_training: bool) -> Question | None:
    """Locate the answers in the passage; None if none occurs. Unless for training, missing ones are kept, at -1."""
    passage = raw.passage
    if passage.endswith(NO_ANSWER):
        passage = passage.removesuffix(NO_ANSWER).rstrip()
    given = [(text, start) for text, start in raw.answers or [] if text.strip() and text.strip() != NO_ANSWER]
    answers = []
    for text, start in given:
        answer = locate_answer(passage, text, start)
        if answer is None:
            counts.missing.append(raw.where)
            answers += [] if for_training else [Answer(text.strip(), -1)]
            continue
        if start is not None and answer != Answer(text, start):
            counts.moved.append(raw.where)
        answers.append(answer)
    counts.located += sum(answer.start >= 0 for answer in answers)
    if given and not answers:
        return None
    impossible = raw.answers is not None and not given
    return Question(raw.id, raw.question, passage, tuple(answers), impossible, raw.where)


def locate_answer(passage: str, text: str, start: int | None) -> Answer | None:
    """Return an answer at its offset, or its nearest occurrence; white space may differ, letters may not.

    Whole words take precedence over parts of words, so that "art" is not found in "party" if it also occurs alone.

    >>> locate_answer("It's fun, fun!", "fun", 9), locate_answer("It's fun!", "It 's fun !", 0)
    (Answer(text='fun', start=10), Answer(text="It's fun!", start=0))
    """
    if start is not None and start >= 0 and passage.startswith(text, start):
        return Answer(text, start)

    def badness(match: re.Match[str]) -> tuple[bool, int]:
        inside = (
            passage[edge - 1 : edge].isalnum() and passage[edge : edge + 1].isalnum() for edge in match.span() if edge
        )
        return any(inside), abs(match.start() - (start or 0))

    for pattern in (re.escape(text), r"\s*".join(map(re.escape, "".join(text.split())))):
        if matches := list(re.finditer(pattern, passage)):
            best = min(matches, key=badness)
            return Answer(best[0], best.start())
    return None


# Files.


def _read_file(file: str | Path, columns: dict[str, str], notes: list[str], skip: bool) -> Iterator[_RawQuestion]:
    if (file == "-" or not is_jsonl(file)) and (data := _read_json(file)) is not None:
        return _read_articles(data, source_name(file))
    return _read_rows(file, columns, notes, skip)


def _read_json(file: str | Path) -> Any:
    """Return the contents of a JSON file; None if its lines are records or columns."""
    lines = list(islice((line for line in read_lines(file) if line.strip()), 2))
    if not lines or not lines[0].lstrip().startswith(("{", "[")):
        return None
    try:
        record = json.loads(lines[0])
    except (ValueError, RecursionError):
        record = None
    if isinstance(record, dict) and ("data" not in record or len(lines) > 1):
        return None
    try:
        return json.loads("\n".join(read_lines(file)))
    except (ValueError, RecursionError) as error:
        hint = 'give SQuAD\'s JSON, {"data": [{"paragraphs": […]}]}, or one JSON object a line'
        raise InputError(f"not JSON ({error})", where=source_name(file), hint=hint) from error


def _read_articles(data: Any, name: str) -> Iterator[_RawQuestion]:
    """Yield the questions of SQuAD's JSON, 1.1 or 2.0."""
    for a, article in enumerate(_field(data, "data", list, name)):
        in_data = f"{name}: data[{a}]"
        for p, paragraph in enumerate(_field(article, "paragraphs", list, in_data)):
            in_article = f"{in_data}.paragraphs[{p}]"
            passage = _field(paragraph, "context", str, in_article)
            for q, record in enumerate(_field(paragraph, "qas", list, in_article)):
                where = f"{in_article}.qas[{q}]"
                question = _field(record, "question", str, where)
                id_ = str(record.get("id", where))
                answers = [] if record.get("is_impossible") else _parse_answers(record.get("answers"), None, where)
                yield _RawQuestion(id_, question, passage, answers, f"{name}: {id_}")


def _field(record: Any, name: str, kind: type, where: str) -> Any:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        what = f"there is no {'list' if kind is list else 'text'} {name!r}"
        raise InputError(what, where=where, hint="give SQuAD's JSON: data, paragraphs, context, qas, question")
    return value


def _read_rows(file: str | Path, columns: dict[str, str], notes: list[str], skip: bool) -> Iterator[_RawQuestion]:
    """Yield the questions of a table or JSONL; without an id, equal questions about the same passage are one."""
    name = source_name(file)
    table = read_table(file, QUESTION_SCHEMA, columns, notes, skip)
    notes.append(f"{name}: {table.describe()}")
    first: dict[tuple[str, str], str] = {}
    for number, row in table.rows:
        where, question, passage = f"{name}:{number}", row["question"].strip(), row["passage"]
        if not question and not passage.strip():
            continue
        if not question or not passage.strip():
            what = f"the {'passage' if question else 'question'} is empty"
            raise InputError(what, where=where, hint="give every question its passage")
        id_ = row.get("id", "").strip() or first.setdefault((question, passage), where)
        answers = _parse_answers(row["answer"], row.get("start"), where) if "answer" in row else None
        yield _RawQuestion(id_, question, passage, answers, where)


def _parse_answers(answers: Any, start: Any, where: str) -> list[tuple[str, int | None]] | None:
    """Parse answers: a text, a list, SQuAD's list of objects, or lists of texts and of offsets."""
    if answers is None:
        return None
    if isinstance(answers, dict) and isinstance(answers.get("text"), list):
        answers, start = answers["text"], answers.get("answer_start")
        start = start if isinstance(start, list) and len(start) == len(answers) else None
    listed = answers if isinstance(answers, list) else [answers]
    starts = start if isinstance(start, list) and len(start) == len(listed) else [start] * len(listed)
    parsed = []
    for answer, offset in zip(listed, starts):
        text = answer.get("text") if isinstance(answer, dict) else answer
        if not isinstance(text, str):
            raise InputError("the answer is not a text", where=where, hint='write {"text": "…", "answer_start": 0}')
        parsed.append((text, _parse_start(answer.get("answer_start") if isinstance(answer, dict) else offset, where)))
    return parsed


def _parse_start(value: Any, where: str) -> int | None:
    """Parse the offset of an answer; of ``(526, 540)`` the first number."""
    if value is None or value in ("", []):
        return None
    number = re.match(r"\s*[(\[]?\s*(-?\d+)\s*(?:[,)\]]|$)", str(value))
    if number is None:
        raise InputError(f"the answer's start {str(value)[:40]!r} is not a number", where=where)
    return int(number[1])
