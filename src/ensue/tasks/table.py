"""Every task by name. A task is imported when it is first used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ensue.core.errors import InputError, unknown_name
from ensue.core.table import Entry, Table
from ensue.models.table import SYSTEMS
from ensue.tasks.settings import Settings
from ensue.tasks.spec import RaceSpec, Task

TASKS = Table(
    "task",
    "ensue.tasks",
    {
        "language": Entry("ensue.tasks.language_modelling:TASK", "the next token of a text"),
        "translation": Entry("ensue.tasks.translation:TASK", "a sentence in another language"),
        "masked": Entry("ensue.tasks.masked_modelling:TASK", "masked tokens, and whether a text follows"),
        "spans": Entry("ensue.tasks.span_corruption:TASK", "spans that are left out of a text"),
        "contexts": Entry("ensue.tasks.contexts:TASK", "a word from both its sides"),
        "words": Entry("ensue.tasks.words:TASK", "a vector for each word"),
        "forecast": Entry("ensue.tasks.forecast:TASK", "the next values of a series"),
        "classify": Entry("ensue.tasks.labels.whole:CLASSIFY", "a label for a text"),
        "pair": Entry("ensue.tasks.labels.whole:PAIR", "a label for two texts"),
        "regress": Entry("ensue.tasks.labels.whole:REGRESS", "a number for a text"),
        "choose": Entry("ensue.tasks.labels.choose:CHOOSE", "the right one of several texts"),
        "tag": Entry("ensue.tasks.labels.tag:TAG", "a label for each word"),
        "answer": Entry("ensue.tasks.labels.answer:ANSWER", "the span of a passage that answers a question"),
    },
)
RACE_NAMES = {"lm": "language", "translate": "translation"}
"""Short names of tasks for ``ensue race --task``."""


def task_spec(name: str) -> Task:
    """Return a task by name."""
    spec: Task = TASKS.load(name)
    return spec


def task_of(settings: Settings) -> Task:
    """Return the task of a run; that of a student if the run has a teacher."""
    spec = task_spec(settings.run.task)
    return spec.with_teacher() if settings.run.teacher else spec


def all_tasks() -> list[Task]:
    """Return every task; this imports them all."""
    return [task_spec(name) for name in TASKS]


def race_task(name: str) -> tuple[Task, RaceSpec]:
    """Return the task that ``ensue race --task`` names, and how systems are compared on it."""
    task = RACE_NAMES.get(name, name)
    spec = task_spec(task) if task in TASKS else None
    if spec is None or spec.race is None:
        raise unknown_name("task", name, [spec.race.name for spec in all_tasks() if spec.race])
    return spec, spec.race


def task_name(system: str) -> str:
    """Return the default task of a system: language, unless its class names another."""
    return str(getattr(SYSTEMS.load(system), "task", "language"))


def model_class(system: str, task: str = "") -> type[Any]:
    """Return the class of a system's models for a task."""
    cls: type[Any] = (task_spec(task).systems if task else SYSTEMS).load(system)
    return cls


def trained_by_counting(system: str, task: str = "") -> bool:
    """True if a system is fitted by counting, not by gradient."""
    return hasattr(model_class(system, task), "counter")


def systems_for(task: str) -> list[str]:
    """Return the systems that can be trained for a task."""
    spec = task_spec(task)
    own = (name for name in spec.systems if task in tasks_of_class(spec.systems.load(name)))
    return list(spec.accepts or own)


def tasks_of_class(cls: type[Any]) -> tuple[str, ...]:
    """Return the tasks of a system's class: its own, and those that its data can choose instead."""
    return (str(getattr(cls, "task", "language")), *getattr(cls, "more_tasks", ()))


def task_by_data(system: str, files: Sequence[str]) -> str:
    """Return the task of a system for some files: its own, unless they are those of another that it has."""
    own, *more = tasks_of_class(SYSTEMS.load(system))
    return next((task for task in more if task_spec(task).suits(files)), own)


def check_task(system: str, task: str) -> None:
    """Raise InputError if a system cannot be trained for a task."""
    known = systems_for(task)
    if system not in known and task != task_name(system):
        raise InputError(f"{system} cannot be trained to {task}", hint=f"use {', '.join(known)}")
