"""``ensue eval``: what a language model can do from a prompt.

A task is a built-in one, a known data set, or a file. Every task is asked with each number of shots, by the same seed
for every run, so that runs can be compared question by question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, Paused
from ensue.core.events import Report, silent
from ensue.core.files import sha256
from ensue.core.manifest import MANIFEST
from ensue.core.wording import counted
from ensue.data.evaluation.catalogue import find_task
from ensue.data.evaluation.overlap import WORDS_IN_ROW, training_overlap
from ensue.data.evaluation.prompts import ShotDrawer, make_prompts, select
from ensue.data.evaluation.task import MEASURES, EvalTask, Example
from ensue.look.chart_parts import short_names
from ensue.measure.task_scores import chance_level, summarise
from ensue.runs.load import Run, load
from ensue.runs.prompts import Prompter, check_prompts
from ensue.train.interrupts import sigterm_as_interrupt
from ensue.verbs.eval_answers import SavedAnswers
from ensue.verbs.eval_code import code_figures, run_code_task
from ensue.verbs.eval_folder import EvalFolder
from ensue.verbs.eval_options import DEFAULTS, EvalOptions, check_tasks, takes_shots, unused_options
from ensue.verbs.eval_task import ask

MAX_SHOTS = 1000
UNSEEN = (
    "what published weights were trained on is not known here: questions may be in it. Those of the built-in "
    "arithmetic, copying, dates and unscrambling are generated, not taken from anywhere"
)
"""The note on contamination for weights of others."""


def eval(
    runs: str | PathLike[str] | Run | Sequence[str | PathLike[str] | Run],
    tasks: str | Sequence[str],
    *,
    shots: int | Sequence[int] = 0,
    data: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    force: bool = False,
    resume: bool = False,
    execute: bool = False,
    again: str = "",
    report: Report = silent,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate runs on tasks with each number of shots; ``options`` are those of ``EvalOptions``.

    ``data`` is the file or folder of known data sets. With ``out`` all prompts, numbers and answers are kept there as
    they are given, and the same call continues an interrupted evaluation; ``resume`` insists that there is one.
    ``execute`` allows programs that a model wrote to be run. ``again`` is the command that continues, for the message.
    """
    chosen = EvalOptions(**options)
    counts = _shot_counts(shots)
    folder = EvalFolder(None if out is None else Path(out), force=force, resume=resume)
    if data is not None and not Path(data).exists():  # also where no task needs it
        raise InputError("there is no such file or folder", where=f"--data {data}", hint="name an existing one")
    found = [find_task(name, data) for name in _names(tasks)]
    pool = None if not chosen.shots_from else find_task(chosen.shots_from, data)
    check_tasks(found, execute)
    notes = unused_options(found, counts, chosen, pool)
    loaded = [load(run) for run in ([runs] if isinstance(runs, str | PathLike | Run) else runs)]
    if not loaded:
        raise InputError("there is no run to evaluate")
    names = short_names([str(run.folder.path) for run in loaded])
    if len(set(names)) < len(names):
        raise InputError("a run is named twice", hint="name each once")
    evaluation = _Evaluation(chosen, pool, folder, dict(zip(names, loaded)), report)
    work = [(name, task, k) for name in names for task in found for k in _counts_of(task, counts)]
    for one in work:
        evaluation.check(*one)
    evaluation.check_names(work)
    results: list[dict[str, Any]] = []
    with folder.made(evaluation.facts):
        try:
            with sigterm_as_interrupt():
                for one in work:
                    results.append(evaluation.result(*one))
        except KeyboardInterrupt:
            if out is None:
                raise
            raise Paused(_kept(len(results), len(work), evaluation.answers, out), again) from None
        seen = [_contamination(name, run, found, report) for name, run in zip(names, loaded)]
        evaluation.facts["notes"] = [*notes, *seen]
        folder.write(evaluation.facts, chart=True)
    return {**evaluation.facts, "results": results}


def _kept(finished: int, all_results: int, answers: SavedAnswers | None, out: str | PathLike[str]) -> str:
    """What an interrupted evaluation leaves."""
    more = f" and {counted(len(answers), 'answer')} of the next" if answers else ""
    return f"{counted(finished, 'result')} of {all_results}{more} are saved in {out}"


class _Evaluation:
    """The results of several runs, made one by one."""

    def __init__(
        self, options: EvalOptions, pool: EvalTask | None, folder: EvalFolder, runs: dict[str, Run], report: Report
    ) -> None:
        self.options, self.pool, self.folder, self.runs, self.report = options, pool, folder, runs, report
        self.facts: dict[str, Any] = {"runs": [_run_facts(name, run) for name, run in runs.items()], "notes": []}
        self.answers: SavedAnswers | None = None
        """Those of the task that is asked."""
        self._prompters: dict[str, Prompter] = {}

    def check(self, name: str, task: EvalTask, shots: int) -> None:
        """Raise InputError for what cannot be evaluated, before anything is."""
        run, options = self.runs[name], self.options
        check_prompts(run, options.chat)
        settings = self._settings(run, task)
        if self.folder.find(name, task.name, shots, settings) is None:
            self.folder.answers(name, task.name, shots, settings)
        if shots and task.kind != "code":
            drawer = ShotDrawer(self._pool(task), shots, options.seed)
            for number in select(task.size, options.limit, options.seed):
                drawer.draw(task.examples[number], number)

    def check_names(self, work: Sequence[tuple[str, EvalTask, int]]) -> None:
        """Raise InputError if results could not be told apart in the folder, before anything is evaluated."""
        settings = ((name, task.name, k, self._settings(self.runs[name], task)) for name, task, k in work)
        self.folder.check_names(list(settings))

    def _pool(self, task: EvalTask) -> Sequence[Example]:
        """What shots are drawn from."""
        return task.examples if self.pool is None else self.pool.examples

    def result(self, name: str, task: EvalTask, shots: int) -> dict[str, Any]:
        """The result of a run on a task: from the folder, or evaluated and added to it."""
        settings = self._settings(self.runs[name], task)
        result = self.folder.find(name, task.name, shots, settings)
        if result is not None:
            return result
        self.answers = self.folder.answers(name, task.name, shots, settings)
        several = len(self.runs) > 1
        self.report("phase", {"name": f"{name}: " * several + f"{task.name}, {counted(shots, 'shot')}"})
        if name not in self._prompters:
            self._prompters[name] = Prompter(self.runs[name], chat=self.options.chat, int8=self.options.int8)
        measured, records = self._measure(self._prompters[name], task, shots, self.answers)
        result = {"run": name, "task": task.name, "shots": shots, **measured, "settings": settings}
        self.folder.add(result, records, several)
        self.folder.write(self.facts, chart=False)
        self.answers.remove()
        self.answers = None
        return self.folder.results[-1]

    def _measure(
        self, prompter: Prompter, task: EvalTask, shots: int, answers: SavedAnswers
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The figures of a task, and the record of each question."""
        options = self.options
        if task.kind == "code":
            records = run_code_task(prompter, task, shots, options, self.pool, answers, self.report)
            measured = code_figures(records, options.samples)
        else:
            asked = select(task.size, options.limit, options.seed)
            drawer = ShotDrawer(self._pool(task), shots, options.seed, options.draw == "each")
            records = ask(prompter, task, make_prompts(task, drawer, asked), self.report, answers)
            measured = {
                "examples": len(asked),
                "measure": task.style.measure or MEASURES[task.kind][0],
                "figures": summarise(task.kind, records),
                "chance": chance_level(task.kind, [len(task.examples[number].options) for number in asked]),
                "cut": sum(bool(one.get("cut")) for one in records),
            }
        speed = {"seconds": answers.seconds, "examples_per_second": measured["examples"] / max(1e-9, answers.seconds)}
        return {"kind": task.kind, **measured, **speed}, records

    def _settings(self, run: Run, task: EvalTask) -> dict[str, Any]:
        """What a result depends on, beside the task's name and the number of shots."""
        manifest = run.folder.path / MANIFEST
        digest = sha256(manifest)[:16] if manifest.exists() else ""
        questions = _digest(task) + ("" if self.pool is None else _digest(self.pool))
        options = asdict(self.options)
        unused = ("draw",) if task.kind == "code" else ("samples", "temperature")
        options |= {name: getattr(DEFAULTS, name) for name in unused}
        return {**options, "source": task.source, "digest": digest, "questions": questions}


def _digest(task: EvalTask) -> str:
    """A digest of a task's questions and of how they become prompts."""
    return hashlib.sha256(repr((task.kind, task.style, task.examples, task.problems)).encode()).hexdigest()[:16]


def _names(tasks: str | Sequence[str]) -> list[str]:
    """The names of tasks, from a list or from text with commas."""
    names = tasks.split(",") if isinstance(tasks, str) else list(tasks)
    names = [name.strip() for name in names if name.strip()]
    if not names:
        raise InputError("there is no task", hint="name one, e.g. arithmetic; `ensue eval` alone lists them")
    return names


def _shot_counts(shots: int | Sequence[int]) -> list[int]:
    counts = [shots] if isinstance(shots, int) else list(shots)
    for count in counts:
        if not 0 <= count <= MAX_SHOTS:
            raise InputError(f"--shots {count} must be from 0 to {MAX_SHOTS:,}")
    return list(dict.fromkeys(counts)) or [0]


def _counts_of(task: EvalTask, counts: Sequence[int]) -> Sequence[int]:
    """The numbers of shots that a task is asked with."""
    return counts if takes_shots(task) else [0]


def _run_facts(name: str, run: Run) -> dict[str, Any]:
    figures = run.config.get("figures", {})
    return {"run": name, "path": str(run.folder.path), "system": run.system, "parameters": figures.get("parameters")}


def _contamination(name: str, run: Run, tasks: Sequence[EvalTask], report: Report) -> str:
    """A note on what the run may have seen of the tasks in training."""
    files = [str(file) for file in run.settings.get("data.files") or []]
    found = training_overlap(files, {task.name: task.examples for task in tasks if task.kind != "code"}, report)
    if found is None:
        unsearched = f"its training text ({', '.join(files)[:80]}) was not searched for the questions"
        return f"{name}: {unsearched if files else UNSEEN}"
    seen = ", ".join(f"{task} {count:,}" for task, count in found.items() if count)
    return f"{name}: questions that share {WORDS_IN_ROW} words in a row with its training text: {seen or 'none'}"
