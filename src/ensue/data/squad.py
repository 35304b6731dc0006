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
class _Asked:
    """A question as in the file, before its answers are located."""

    id: str
    question: str
    passage: str
    answers: list[tuple[str, int | None]] | None
    """Texts and their offsets; None if the file has no answers."""
    where: str


@dataclass(slots=True)
class _Tally:
    """Counts of located, moved and missing answers of one file."""

    moved: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    found: int = 0
    asked: int = 0


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
    found: dict[str, Question] = {}
    for file in files:
        name = source_name(file)
        tally, before = _Tally(), len(found)
        for asked in _asked(file, chosen, notes, options.skip_short):
            tally.asked += 1
            if asked.answers is None and options.require_labels:
                hint = "give answers, or choose their column with --columns answer=…"
                raise InputError("the answer is missing", where=asked.where, hint=hint)
            if (question := _located(asked, tally, options.for_training)) is not None:
                _add(found, question)
        _tell(tally, list(found.values())[before:], name, notes, options.for_training)
    questions = list(found.values())
    if options.for_training and options.require_labels and not any(question.answers for question in questions):
        hint = "give some that have an answer in their passage, or choose its column with --columns answer=…"
        raise InputError("no question has an answer", where=" ".join(map(source_name, files)), hint=hint)
    return questions


def _add(found: dict[str, Question], question: Question) -> None:
    """Add a question; merge its answers if it is already there."""
    known = found.get(question.id)
    if known is None:
        found[question.id] = question
        return
    if (known.question, known.passage) != (question.question, question.passage):
        hint = "give every question an id of its own"
        raise InputError(f"the id {question.id!r} stands for {known.where}, too", where=question.where, hint=hint)
    answers = known.answers + question.answers
    found[question.id] = replace(known, answers=answers, impossible=known.impossible and not answers)


def _tell(tally: _Tally, questions: list[Question], name: str, notes: list[str], to_learn: bool) -> None:
    """Note how many questions were read, and problems with their answers."""
    if tally.lost:
        said = f"{counted(len(tally.lost), 'answer')} {'is' if len(tally.lost) == 1 else 'are'} not in their passage"
        if not tally.found and to_learn:
            hint = "give answers that are copied out of their passages"
            raise InputError(f"no answer is in its passage (first: {tally.lost[0]})", where=name, hint=hint)
        notes.append(f"{name}: {said} (first: {tally.lost[0]}){', and left out' if to_learn else ''}")
    if tally.moved:
        said = f"{counted(len(tally.moved), 'answer')} found elsewhere in the passage than said, or with other spaces"
        notes.append(f"{name}: {said} (first: {tally.moved[0]})")
    if not tally.asked:
        raise InputError("there is no question in this file", where=name, hint="give questions and passages")
    none = sum(question.impossible for question in questions)
    more = f", {none:,} of them without an answer" if none else ""
    notes.append(f"{name}: {counted(len(questions), 'question')}{more}")


# Where answers stand.


def _located(asked: _Asked, tally: _Tally, to_learn: bool) -> Question | None:
    """Locate the answers of a question in its passage; None if it has answers but none occurs.

    Unless for training, missing answers are kept, at -1.
    """
    passage = asked.passage
    if passage.endswith(NO_ANSWER):
        passage = passage.removesuffix(NO_ANSWER).rstrip()
    said = [(text, start) for text, start in asked.answers or [] if text.strip() and text.strip() != NO_ANSWER]
    answers = []
    for text, start in said:
        answer = locate_answer(passage, text, start)
        if answer is None:
            tally.lost.append(asked.where)
            answers += [] if to_learn else [Answer(text.strip(), -1)]
            continue
        if start is not None and answer != Answer(text, start):
            tally.moved.append(asked.where)
        answers.append(answer)
    tally.found += sum(answer.start >= 0 for answer in answers)
    if said and not answers:
        return None
    impossible = asked.answers is not None and not said
    return Question(asked.id, asked.question, passage, tuple(answers), impossible, asked.where)


def locate_answer(passage: str, text: str, start: int | None) -> Answer | None:
    """Return an answer at its offset, or its nearest occurrence; white space may differ, letters may not.

    Whole words take precedence over parts of words, so that "art" is not found in "party" if it also occurs alone.

    >>> locate_answer("It's fun, fun!", "fun", 9), locate_answer("It's fun!", "It 's fun !", 0)
    (Answer(text='fun', start=10), Answer(text="It's fun!", start=0))
    """
    if start is not None and start >= 0 and passage.startswith(text, start):
        return Answer(text, start)
    wanted = start or 0
    for pattern in (re.escape(text), r"\s*".join(map(re.escape, "".join(text.split())))):
        places = list(re.finditer(pattern, passage))
        if places:
            found = min(places, key=lambda place: (_cuts_words(passage, place), abs(place.start() - wanted)))
            return Answer(found[0], found.start())
    return None


def _cuts_words(passage: str, found: re.Match[str]) -> bool:
    """Return whether a span begins or ends inside a word."""
    edges = (found.start(), found.end())
    return any(passage[edge - 1 : edge].isalnum() and passage[edge : edge + 1].isalnum() for edge in edges if edge)


# Files.


def _asked(file: str | Path, columns: dict[str, str], notes: list[str], skip: bool) -> Iterator[_Asked]:
    """Yield the questions of a file in any format."""
    if (file == "-" or not is_jsonl(Path(file))) and (data := _json(file)) is not None:
        return _articles(data, source_name(file))
    return _rows(file, columns, notes, skip)


def _json(file: str | Path) -> Any:
    """Return the contents of a JSON file; None if its lines are records or columns."""
    first = next((line for line in read_lines(file) if line.strip()), "").strip()
    if not first.startswith(("{", "[")):
        return None
    lines = list(islice((line for line in read_lines(file) if line.strip()), 2))
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        record = None
    if isinstance(record, dict) and ("data" not in record or len(lines) > 1):
        return None
    try:
        return json.loads("\n".join(read_lines(file)))
    except (ValueError, RecursionError) as error:
        hint = 'give SQuAD\'s JSON, {"data": [{"paragraphs": […]}]}, or one JSON object a line'
        raise InputError(f"not JSON ({error})", where=source_name(file), hint=hint) from error


def _articles(data: Any, name: str) -> Iterator[_Asked]:
    """Yield the questions of SQuAD's JSON, 1.1 or 2.0."""
    for a, article in enumerate(_held(data, "data", list, name)):
        at = f"{name}: data[{a}]"
        for p, paragraph in enumerate(_held(article, "paragraphs", list, at)):
            place = f"{at}.paragraphs[{p}]"
            passage = _held(paragraph, "context", str, place)
            for q, asked in enumerate(_held(paragraph, "qas", list, place)):
                where = f"{place}.qas[{q}]"
                question = _held(asked, "question", str, where)
                own = str(asked.get("id", where))
                answers = [] if asked.get("is_impossible") else _answers(asked.get("answers"), None, where)
                yield _Asked(own, question, passage, answers, f"{name}: {own}")


def _held(record: Any, name: str, kind: type, where: str) -> Any:
    """Return a field of SQuAD's JSON."""
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        what = f"there is no {'list' if kind is list else 'text'} {name!r}"
        raise InputError(what, where=where, hint="give SQuAD's JSON: data, paragraphs, context, qas, question")
    return value


def _rows(file: str | Path, columns: dict[str, str], notes: list[str], skip: bool) -> Iterator[_Asked]:
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
        own = row.get("id", "").strip() or first.setdefault((question, passage), where)
        answers = _answers(row["answer"], row.get("start"), where) if "answer" in row else None
        yield _Asked(own, question, passage, answers, where)


def _answers(held: Any, start: Any, where: str) -> list[tuple[str, int | None]] | None:
    """Parse answers: a text, a list, SQuAD's list of objects, or lists of texts and of offsets."""
    if held is None:
        return None
    if isinstance(held, str):
        return [(held, _start(start, where))]
    if isinstance(held, dict):
        texts, starts = held.get("text"), held.get("answer_start")
        if isinstance(texts, list):
            starts = starts if isinstance(starts, list) and len(starts) == len(texts) else [None] * len(texts)
            held = [{"text": text, "answer_start": begins} for text, begins in zip(texts, starts)]
        else:
            held = [held]
    if not isinstance(held, list):
        raise InputError("the answer is not a text", where=where, hint='write {"text": "…", "answer_start": 0}')
    starts = start if isinstance(start, list) and len(start) == len(held) else [start] * len(held)
    found = []
    for answer, begins in zip(held, starts):
        text = answer.get("text") if isinstance(answer, dict) else answer
        if not isinstance(text, str):
            raise InputError("the answer is not a text", where=where, hint='write {"text": "…", "answer_start": 0}')
        found.append((text, _start(answer.get("answer_start") if isinstance(answer, dict) else begins, where)))
    return found


def _start(value: Any, where: str) -> int | None:
    """Parse the offset of an answer; of ``(526, 540)`` the first number."""
    if value is None or value in ("", []):
        return None
    number = re.match(r"\s*[(\[]?\s*(-?\d+)\s*(?:[,)\]]|$)", str(value))
    if number is None:
        raise InputError(f"the answer's start {str(value)[:40]!r} is not a number", where=where)
    return int(number[1])
