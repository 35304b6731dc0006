"""``ensue distil``: train a student to predict what its teacher predicts, on texts without labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.run_folder import RunFolder
from ensue.data.sources import absolute_sources
from ensue.runs.load import Run, load
from ensue.tasks.labels.distillation import Teacher
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
    """Train the system ``student`` to label as the run ``teacher`` does, and return its run.

    The teacher labels the texts of ``unlabelled`` once; the student is also trained on the examples in ``labelled``.
    ``settings`` and ``options`` are those of ``fit``, with ``distil.temperature``, ``distil.labels`` and
    ``distil.hidden``. Without ``out`` the run goes to ``runs/STUDENT``.
    """
    settings = {**(settings or {}), "teacher": str(teacher)}
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
