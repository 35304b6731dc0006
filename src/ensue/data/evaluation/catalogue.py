"""Find an evaluation task: a built-in one, a file, or a known data set in a folder.

>>> find_task("trivia").examples[0].answer
'Paris'
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, unknown_name
from ensue.data.evaluation import generated
from ensue.data.evaluation.forms import FORMS
from ensue.data.evaluation.reading import read_task
from ensue.data.evaluation.task import EvalTask, PromptStyle
from ensue.data.lines import is_folder
from ensue.data.sources import plain_suffix

DATA = "ENSUE_EVAL_DATA"
"""The environment variable that names the folder of data sets."""
ANSWER = PromptStyle(suffix="\nAnswer:")


def _read_own(name: str, file: str = "") -> Callable[[], EvalTask]:
    path = Path(__file__).parent / (file or f"{name}.jsonl")
    return lambda: read_task(path, name=name, source="built in")


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in task."""

    make: Callable[[], EvalTask]
    summary: str


BUILT_IN: dict[str, BuiltIn] = {
    "arithmetic": BuiltIn(generated.arithmetic, "sums, differences and products of one to three digits"),
    "copying": BuiltIn(generated.copying, "two to eight words to write again"),
    "dates": BuiltIn(generated.dates, "English dates to write as YYYY-MM-DD"),
    "unscrambling": BuiltIn(generated.unscrambling, "words whose letters were shuffled or moved round"),
    "translation": BuiltIn(_read_own("translation"), "English words and short sentences to translate to French"),
    "trivia": BuiltIn(_read_own("trivia"), "questions of geography, science, history and everyday life"),
    "code": BuiltIn(_read_own("code", "../code_problems.jsonl"), "small functions to write; needs --execute"),
}


@dataclass(frozen=True, slots=True)
class DataSet:
    """A published data set: how its files are called, its prompts, and where one gets it."""

    kind: str
    stems: tuple[str, ...]
    """Beginnings of file names, of letters and digits only."""
    style: PromptStyle
    form: str
    """The fields of a line, for people."""
    get: str


FOUNDRY = "llm-foundry (scripts/eval/local_data)"
DATA_SETS: dict[str, DataSet] = {
    "arc-easy": DataSet(
        "choice",
        ("arceasy",),
        ANSWER,
        "{query, choices, gold} or {question, choices, answerKey}",
        f"allenai/ai2_arc or {FOUNDRY}",
    ),
    "arc-challenge": DataSet(
        "choice",
        ("arcchallenge",),
        PromptStyle(suffix="\nAnswer:", measure="acc_norm"),
        "{query, choices, gold} or {question, choices, answerKey}",
        f"allenai/ai2_arc or {FOUNDRY}",
    ),
    "piqa": DataSet(
        "choice", ("piqa",), ANSWER, "{query, choices, gold} or {goal, sol1, sol2, label}", f"baber/piqa or {FOUNDRY}"
    ),
    "boolq": DataSet(
        "choice",
        ("boolq",),
        ANSWER,
        "{query, choices, gold} or {passage, question, answer}",
        f"google/boolq or {FOUNDRY}",
    ),
    "hellaswag": DataSet(
        "choice",
        ("hellaswag",),
        PromptStyle(measure="acc_norm"),
        "{query, choices, gold} or {ctx_a, ctx_b, activity_label, endings, label}",
        f"Rowan/hellaswag or {FOUNDRY}",
    ),
    "winogrande": DataSet(
        "choice",
        ("winogrande",),
        PromptStyle(),
        "{context_options, continuation, gold} or {sentence, option1, option2, answer}",
        f"allenai/winogrande or {FOUNDRY}",
    ),
    "copa": DataSet(
        "choice",
        ("copa",),
        PromptStyle(),
        "{query, choices, gold} or {premise, choice1, choice2, question, label}",
        f"SuperGLUE or {FOUNDRY}",
    ),
    "lambada": DataSet(
        "cloze",
        ("lambada",),
        PromptStyle(),
        "{context, continuation} or {text}",
        f"EleutherAI/lambada_openai or {FOUNDRY}",
    ),
    "simple-arithmetic": DataSet(
        "match",
        ("simplearithmeticnospaces",),
        PromptStyle(delimiter="", separator="\n", max_tokens=12),
        "{context, continuation}",
        FOUNDRY,
    ),
    "humaneval": DataSet(
        "code", ("humaneval",), PromptStyle(), "{task_id, prompt, entry_point, test}", "openai/human-eval"
    ),
    "mbpp": DataSet("code", ("mbpp",), PromptStyle(), "{text, code, test_list}", "google-research-datasets/mbpp"),
}
"""Data sets that are known by name; their files are not part of ensue."""


def find_task(name: str, data: str | PathLike[str] | None = None) -> EvalTask:
    """Return the task with a name, or in a file; ``data`` is the file or folder of a known data set."""
    if name in BUILT_IN:
        return BUILT_IN[name].make()
    if name in DATA_SETS:
        return _read_known(name, _find_file(name, data))
    if plain_suffix(name) == ".jsonl" or Path(name).exists():
        known = known_name(Path(name).name)
        return _read_known(known, Path(name)) if known else read_task(name, name=_stem(name))
    hint = "give a .jsonl file; `ensue eval` alone lists the tasks"
    error = unknown_name("task", name, [*BUILT_IN, *DATA_SETS])
    raise InputError(str(error), hint=hint) if "did you mean" not in str(error) else error


def catalogue() -> dict[str, Any]:
    """Return the built-in tasks, the known data sets, and the forms of files."""
    fields = {form.name: {"kind": form.kind, "fields": [one.split("|") for one in form.fields]} for form in FORMS}
    return {
        "built_in": {name: one.summary for name, one in BUILT_IN.items()},
        "data_sets": {name: {"kind": one.kind, "form": one.form, "from": one.get} for name, one in DATA_SETS.items()},
        "forms": fields,
    }


def known_name(file: str) -> str:
    """Return the known data set that a file name stands for, or an empty string.

    >>> known_name("ARC-Easy-Test.jsonl"), known_name("hellaswag_1k.jsonl.gz"), known_name("mine.jsonl")
    ('arc-easy', 'hellaswag', '')
    """
    plain = re.sub("[^a-z0-9]", "", file.lower())
    return next((name for name, one in DATA_SETS.items() if any(plain.startswith(stem) for stem in one.stems)), "")


def _read_known(name: str, path: Path) -> EvalTask:
    one = DATA_SETS[name]
    return read_task(path, name=name, kind=one.kind, style=one.style)


def _find_file(name: str, data: str | PathLike[str] | None) -> Path:
    """The file of a known data set."""
    folder = os.fspath(data) if data else os.environ.get(DATA)
    one = DATA_SETS[name]
    wanted = f"a JSONL file with lines {one.form}, from {one.get}"
    if not folder:
        raise InputError(f"{name} needs its data", hint=f"add --data FILE_OR_FOLDER with {wanted}")
    if not is_folder(folder):
        return Path(folder)
    found = sorted(p for p in Path(folder).iterdir() if plain_suffix(p) == ".jsonl" and known_name(p.name) == name)
    if len(found) == 1:
        return found[0]
    what = f"there is no file of {name}" if not found else f"there are {len(found)} files of {name}"
    hint = f"put {wanted} there" if not found else f"name one: {found[0]}"
    raise InputError(what, where=str(folder), hint=hint)


def _stem(name: str) -> str:
    """The name of a task from that of its file."""
    return Path(name).name.removesuffix(".gz").rpartition(".")[0] or Path(name).name
