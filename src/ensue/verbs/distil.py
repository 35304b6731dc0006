"""``ensue distil``: train a student to predict what its teacher predicts: labels of texts, or the next token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.run_folder import RunFolder
from ensue.data.sources import absolute_sources
from ensue.runs.load import Run, load
from ensue.tasks.labels.distillation import Teacher
from ensue.tasks.language_modelling import LanguageTask
from ensue.tasks.table import systems_for, trained_by_counting
from ensue.verbs.fit import fit


def distil(
    teacher: str | Path,
    student: str,
    unlabelled: str | Path | Sequence[str | Path] = (),
    *,
    labelled: str | Path | Sequence[str | Path] = (),
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    **options: Any,
) -> Run:
    """Train the system ``student`` to label, or to predict the next token, as the run ``teacher`` does; return its run.

    The student of a language model reads the text of ``unlabelled`` with the teacher's tokenizer, and learns its
    distributions and the text; ``settings`` are then ``distil.weight`` and ``distil.temperature``.

    The teacher labels the texts of ``unlabelled`` once; the student is also trained on the examples in ``labelled``.
    ``settings`` and ``options`` are those of ``fit``, with ``distil.temperature``, ``distil.labels`` and
    ``distil.hidden``. Without ``out`` the run goes to ``runs/STUDENT``.
    """
    settings = {**(settings or {}), "teacher": str(teacher)}
    if RunFolder(Path(teacher)).config.exists() and load(teacher).task == LanguageTask.name:
        return _distil_language(student, unlabelled, labelled, out, settings, resume, options)
    if files := absolute_sources(unlabelled):
        settings["distil.files"] = files
    out = out if out is not None else Path("runs") / student
    if resume:
        return fit(student, labelled, out=out, settings=settings, resume=True, **options)
    initial = options.get("begin_with") or settings.get("begin_with")
    if initial and load(initial).system != student:
        what = f"is a {load(initial).system}, so a {student} cannot be initialised from it"
        raise InputError(what, where=str(initial), hint="leave out --from, or name another student")
    task = str(Teacher(RunFolder(Path(teacher))).config["task"])
    return fit(task, labelled, model=student, out=out, settings=settings, **options)


def _distil_language(
    student: str, text: Any, labelled: Any, out: str | Path | None, settings: dict[str, Any], resume: bool, options: Any
) -> Run:
    """Train a language model with a language model as its teacher."""
    if labelled:
        raise InputError("a language model learns from text, not from labels", hint="leave out --labelled")
    if student not in systems_for(LanguageTask.name) or trained_by_counting(student, LanguageTask.name):
        what = f"{student} cannot learn the next token from a teacher"
        raise InputError(what, hint="train gpt, llama, lstm, gru, rnn or window")
    if not text and not resume:
        raise InputError("there is no text to learn from", hint="name some: --unlabelled text.txt")
    out = out if out is not None else Path("runs") / student
    return fit(student, text, out=out, settings=settings, resume=resume, **options)
