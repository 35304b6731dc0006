"""Labelled examples as pairs of texts, for models that write their answers (T5; Raffel et al., 2020, appendix D).

    text        as it is                                          the second text
    classify    the text                                          its label
    pair        sentence1: A sentence2: B                         the label
    regress     the text, or as a pair                            the number, with one decimal
    choose      choice1: … choice2: … context: …                  1, 2, …
    tag         the words                                         their tags
    answer      question: … context: …                            the first answer, or unanswerable

A prefix before every source says which task it is. Labels may get other names: a label of 1 says less than "positive".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from ensue.core.errors import InputError, unknown_name
from ensue.data.choices import read_choices
from ensue.data.conll import read_tagged
from ensue.data.labelled import ReadOptions, read_labelled
from ensue.data.lines import source_name
from ensue.data.pairs import PairRow, Pairs, complete_pairs, read_pairs
from ensue.data.squad import read_questions

NO_ANSWER = "unanswerable"
TEXT = "text"


def pose_texts(texts: Sequence[str]) -> str:
    """One text as it is, or two with their names.

    >>> pose_texts(["It rains.", "It is wet."])
    'sentence1: It rains. sentence2: It is wet.'
    """
    return texts[0] if len(texts) == 1 else f"sentence1: {texts[0]} sentence2: {texts[1]}"


def _number_of(where: str) -> int:
    last = where.rpartition(":")[2]
    return int(last) if last.isdecimal() else 0


def _labelled(task: str) -> Callable[..., Iterator[PairRow]]:
    def read(file: str | Path, options: ReadOptions, notes: list[str]) -> Iterator[PairRow]:
        for one in read_labelled([file], cast(Literal["classify", "pair", "regress"], task), options, notes):
            label = one.label or ""
            if task == "regress" and label:
                label = f"{float(label):.1f}"
            yield _number_of(one.where), pose_texts(one.texts), label

    return read


def _choices(file: str | Path, options: ReadOptions, notes: list[str]) -> Iterator[PairRow]:
    for one in read_choices([file], options, notes):
        shown = " ".join(f"choice{number}: {text}" for number, text in enumerate(one.choices, start=1))
        label = "" if one.label is None else str(one.label + 1)
        yield _number_of(one.where), f"{shown} context: {one.context}".strip(), label


def _tags(file: str | Path, options: ReadOptions, notes: list[str]) -> Iterator[PairRow]:
    for one in read_tagged([file], options, notes):
        yield _number_of(one.where), " ".join(one.words), " ".join(one.tags or ())


def _answers(file: str | Path, options: ReadOptions, notes: list[str]) -> Iterator[PairRow]:
    for one in read_questions([file], options, notes):
        answer = one.answers[0].text if one.answers and not one.impossible else NO_ANSWER
        yield _number_of(one.where), f"question: {one.question} context: {one.passage}", answer


POSES: dict[str, Callable[..., Iterator[PairRow]]] = {
    **{task: _labelled(task) for task in ("classify", "pair", "regress")},
    "choose": _choices,
    "tag": _tags,
    "answer": _answers,
}
"""How the lines of a file become pairs, by the task that they are for; ``text`` is the other one."""


@dataclass(frozen=True)
class TaskForm:
    """What a file of pairs is."""

    prefix: str = ""
    """What is put before every source."""
    pose: str = TEXT
    """A name in ``POSES``, or text."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Other names of targets."""

    def source(self, text: str) -> str:
        """A source with the prefix; one that has it already stays as it is."""
        return text if text.startswith(self.prefix) else self.prefix + text


def parse_labels(named: Sequence[str]) -> dict[str, str]:
    """Parse names of labels.

    >>> parse_labels(["0=negative", "1=positive"])
    {'0': 'negative', '1': 'positive'}
    """
    found = {}
    for one in named:
        label, equals, name = one.partition("=")
        if not (equals and label and name) or label in found:
            what = f"data.labels: {one!r} is not label=name" if label not in found else f"{label!r} is named twice"
            raise InputError(what, hint="write for example 0=negative,1=positive")
        found[label] = name
    return found


def task_forms(count: int, prefixes: Sequence[str], poses: Sequence[str], labels: Sequence[str]) -> list[TaskForm]:
    """Return the form of each of ``count`` files: settings are for all of them, or one for each."""
    names = parse_labels(labels)
    for pose in poses:
        if pose not in (TEXT, *POSES):
            raise unknown_name("data.pose", pose, (TEXT, *POSES))
    each: dict[str, Any] = {}
    for name, values, default in (("prefix", prefixes, ""), ("pose", poses, TEXT)):
        if len(values) not in (0, 1, count):
            what = f"data.{name} has {len(values)} values, and there are {count} files of pairs"
            raise InputError(what, hint="give one for all, or one for each")
        each[name] = list(values) * (count if len(values) == 1 else 1) or [default] * count
    return [TaskForm("" if p == "-" else p, pose, names) for p, pose in zip(each["prefix"], each["pose"])]


def read_posed(file: str | Path, form: TaskForm, columns: str, notes: list[str], labelled: bool = True) -> Pairs:
    """Read the pairs of a file of labelled examples."""
    name = source_name(file)
    options = ReadOptions(columns, for_training=False)
    rows = list(POSES[form.pose](file, options, notes))
    if not rows:
        raise InputError("there is no example", where=name, hint="give some")
    return complete_pairs(rows, f"{name} as {form.pose}", name, notes)


def read_task(
    sources: Sequence[str | Path], form: TaskForm, columns: Mapping[str, str], text: str, notes: list[str]
) -> Pairs:
    """Read the pairs of one task: of a file, or of two parallel ones; ``text`` are the columns as typed."""
    if form.pose == TEXT:
        pairs = read_pairs(sources, columns or None, notes)
    elif len(sources) == 1:
        pairs = read_posed(sources[0], form, text, notes)
    else:
        raise InputError(f"{len(sources)} files are not one task", hint="give one file for each")
    pairs.source[:] = [form.source(line) for line in pairs.source]
    pairs.target[:] = [form.labels.get(line, line) for line in pairs.target]
    return pairs
