"""``ensue distil``: a student that learns to answer as its teacher does, from texts that nobody has labelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.run_folder import RunFolder
from ensue.runs.load import Run, load
from ensue.tasks.distillation import Teacher
from ensue.tasks.machine import data_files
from ensue.verbs.fit import fit


def distil(
    teacher: str | Path,
    student: str,
    unlabelled: str | Path | Sequence[str | Path] = (),
    *,
    labelled: str | Path | Sequence[str | Path] = (),
    valid: str | Path | Sequence[str | Path] = (),
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    budget: str | float | None = None,
    resume: bool = False,
    force: bool = False,
    command: str = "",
    report: Report = silent,
    **flat: Any,
) -> Run:
    """Train the system ``student`` to label as the run ``teacher`` does, and return its run.

    The teacher answers about the texts of ``unlabelled``, once; examples in ``labelled`` count beside, by their labels
    too. ``settings`` and keywords are those of ``fit``, with ``distil.temperature``, ``distil.labels`` and
    ``distil.hidden``. Without ``out`` the run goes to ``runs/STUDENT``.
    """
    files = [unlabelled] if isinstance(unlabelled, str | Path) else list(unlabelled)
    typed: dict[str, Any] = {**(settings or {}), "teacher": str(teacher)}
    if files:
        typed["distil.files"] = data_files(files)
    if not resume:
        _check_beginning(flat.get("begin_with") or typed.get("begin_with"), student)
    return fit(
        student if resume else str(Teacher(RunFolder(Path(teacher))).config["task"]),
        labelled,
        valid=valid,
        model="" if resume else student,
        out=out if out is not None else Path("runs") / student,
        settings=typed,
        budget=budget,
        resume=resume,
        force=force,
        command=command,
        report=report,
        **flat,
    )


def _check_beginning(begun: Any, student: str) -> None:
    """A student can only begin with a run of its own system."""
    if begun and load(begun).system != student:
        what = f"is a {load(begun).system}, so a {student} cannot begin with it"
        raise InputError(what, where=str(begun), hint="leave out --from, or name another student")
