"""Read an evaluation task from a JSONL file.

Its first line may be settings: {"task": {"kind": "match", "description": "…", "delimiter": " ", "stop": ["\\n"]}}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, unknown_name
from ensue.data.code_problems import make_problems
from ensue.data.evaluation.forms import Form, form_of, last_word, logged_pairs
from ensue.data.evaluation.task import KINDS, MEASURES, EvalTask, Example, PromptStyle
from ensue.data.lines import located_lines, parse_object

HEADER = "task"
READY = PromptStyle(delimiter="", separator="")
"""Finished prompts are used as they are."""
ASKED_AS = {"cloze": ("cloze", "match"), "match": ("match", "cloze"), "perplexity": ("perplexity", "cloze")}
"""The kinds of task that lines of a form can be asked as, where it is more than their own."""


def read_task(
    path: str | Path, *, name: str, kind: str = "", style: PromptStyle | None = None, source: str = ""
) -> EvalTask:
    """Read the task in a file; ``kind`` and ``style`` are used where its first line doesn't say."""
    lines = _records(path)
    where, first = next(lines, ("", None))
    if first is None:
        raise InputError("there is no example in this file", where=str(path))
    if set(first) == {HEADER}:
        given, style = _header(first[HEADER], where, style or PromptStyle())
        kind = given or kind
        where, first = next(lines, ("", None))
        if first is None:
            raise InputError("there is no example after the settings", where=str(path))
    form = form_of(first, where)
    if kind and not form.ready and kind not in ASKED_AS.get(form.kind, (form.kind,)):
        raise InputError(f"a line in the form {form.name!r} is no task of the kind {kind}", where=where)
    records = [(where, first), *lines]
    source = source or str(path)
    if form.kind == "code":
        problems = [record for _, record in records]
        make_problems(problems, places=[where for where, _ in records])  # raises InputError with the line
        return EvalTask(kind="code", examples=(), problems=problems, name=name, source=source)
    examples = [_example(form, record, where, kind) for where, record in records]
    if form.ready:
        style, kind = _logged_style(first)
    kind, style = kind or form.kind, style or PromptStyle()
    if style.measure and style.measure not in MEASURES[kind]:
        raise InputError(str(unknown_name(f"measure of the kind {kind}", style.measure, MEASURES[kind])), where=source)
    return EvalTask(kind=kind, examples=examples, style=style, name=name, source=source)


def _records(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file with their lines."""
    for where, line in located_lines(path):
        if line.strip():
            yield where, parse_object(line, where, '"query": "…", "choices": ["…", "…"], "gold": 0')


def _example(form: Form, record: dict[str, Any], where: str, kind: str) -> Example:
    if not form.fits(record):
        missing = next(field for field in form.fields if not any(name in record for name in field.split("|")))
        what = f"there is no field {missing.replace('|', ' or ')}, which the first line has"
        raise InputError(what, where=where, hint="all lines of a file have one form")
    assert form.read is not None
    example = form.read(record, where)
    if form.kind == "perplexity" and kind == "cloze":
        return last_word(example.options[0], where)
    return example


def _logged_style(record: Mapping[str, Any]) -> tuple[PromptStyle, str]:
    """How the lines that lm-evaluation-harness logged are asked, and their kind."""
    pairs = logged_pairs(record)
    ending = pairs[0][1]
    if not isinstance(ending, Mapping):
        return READY, "choice" if len(pairs) > 1 else "cloze"
    until, most = ending.get("until", READY.stop), ending.get("max_gen_toks", READY.max_tokens)
    listed = [until] if isinstance(until, str) else until if isinstance(until, list) else READY.stop
    stop = tuple(one for one in listed if isinstance(one, str) and one)
    return replace(READY, stop=stop, max_tokens=most if type(most) is int and most > 0 else READY.max_tokens), "match"


def _header(given: Any, where: str, style: PromptStyle) -> tuple[str, PromptStyle]:
    """The kind and the style that the first line sets."""
    if not isinstance(given, Mapping):
        raise InputError('"task" is not an object of settings', where=where, hint='write {"task": {"kind": "match"}}')
    kinds = {field.name: field.type for field in fields(PromptStyle)}
    settings = dict(given)
    kind = settings.pop("kind", "")
    if kind and kind not in KINDS:
        raise InputError(str(unknown_name("kind of task", str(kind), KINDS)), where=where)
    for name, value in settings.items():
        if name not in kinds:
            raise InputError(str(unknown_name("setting", str(name), kinds)), where=where)
        if name == "stop":
            valid = isinstance(value, list) and all(isinstance(one, str) and one for one in value)
        elif name == "max_tokens":
            valid = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 100_000
        else:
            valid = isinstance(value, str)
        if not valid:
            expected = {"stop": "a list of texts", "max_tokens": "a number from 1"}.get(name, "text")
            raise InputError(f"{name} should be {expected}", where=where)
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    return kind, replace(style, **settings)
