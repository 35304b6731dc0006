"""``ensue eval``: what a language model can do from a prompt.

A task is a built-in one, a known data set, or a file. Every task is asked with each number of shots, by the same seed
for every run, so that runs can be compared question by question.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
from ensue.verbs.eval_code import run_code_task, takes_shots
from ensue.verbs.eval_folder import EvalFolder
from ensue.verbs.eval_task import ask

MAX_SHOTS = 1000
UNSEEN = (
    "what published weights were trained on is not known here: questions may be in it. Those of the built-in "
    "arithmetic, copying, dates and unscrambling are generated, not taken from anywhere"
)
"""The note on contamination for weights of others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalOptions:
    """Options of an evaluation that every result depends on."""

    limit: int = 0
    """Questions of each task, drawn at random; 0 asks all."""
    seed: int = 0
    """Seed of the shots and of the questions of a limit."""
    draw: str = "one"
    """one: the same shots for all questions; each: drawn for each question."""
    shots_from: str = ""
    """File to draw shots from, instead of the task's own other examples."""
    chat: bool = False
    """Put each prompt into the run's chat template."""
    int8: bool = False
    """Run linear layers in int8."""
    samples: int = 1
    """Programs for each problem of a task of programs; more than one are drawn at random, for pass@k."""

    def __post_init__(self) -> None:
        for name, valid, allowed in (
            ("num-samples", 1 <= self.samples <= 1000, "from 1 to 1,000"),
            ("limit", self.limit >= 0, "0 (all) or more"),
            ("seed", 0 <= self.seed < 2**63, "a number from 0 to 2^63 - 1"),
            ("draw", self.draw in ("one", "each"), "one or each"),
        ):
            if not valid:
                value = self.samples if name == "num-samples" else getattr(self, name)
                raise InputError(f"--{name} {value} must be {allowed}")


def eval(
    runs: str | PathLike[str] | Run | Sequence[str | PathLike[str] | Run],
    tasks: str | Sequence[str],
    *,
    shots: int | Sequence[int] = 0,
    data: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    force: bool = False,
    execute: bool = False,
    report: Report = silent,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate runs on tasks with each number of shots; ``options`` are those of ``EvalOptions``.

    ``data`` is the file or folder of known data sets. With ``out`` all prompts, numbers and answers are kept there.
    ``execute`` allows programs that a model wrote to be run.
    """
    chosen = EvalOptions(**options)
    counts = _shot_counts(shots)
    folder = EvalFolder(None if out is None else Path(out), force)
    found = [find_task(name, data) for name in _names(tasks)]
    _check_tasks(found, execute)
    pool = None if not chosen.shots_from else find_task(chosen.shots_from, data)
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
    folder.make()
    results: list[dict[str, Any]] = []
    try:
        for one in work:
            results.append(evaluation.result(*one))
    except KeyboardInterrupt:
        if out is None:
            raise
        raise Paused(f"{counted(len(results), 'result')} of {len(work)} are saved in {out}") from None
    evaluation.facts["notes"] = [_contamination(name, run, found, report) for name, run in zip(names, loaded)]
    folder.write(evaluation.facts, chart=True)
    return {**evaluation.facts, "results": results}


class _Evaluation:
    """The results of several runs, made one by one."""

    def __init__(
        self, options: EvalOptions, pool: EvalTask | None, folder: EvalFolder, runs: dict[str, Run], report: Report
    ) -> None:
        self.options, self.pool, self.folder, self.runs, self.report = options, pool, folder, runs, report
        self.facts: dict[str, Any] = {"runs": [_run_facts(name, run) for name, run in runs.items()], "notes": []}
        self._prompters: dict[str, Prompter] = {}

    def check(self, name: str, task: EvalTask, shots: int) -> None:
        """Raise InputError for what cannot be evaluated, before anything is."""
        run, options = self.runs[name], self.options
        check_prompts(run, options.chat)
        self.folder.find(name, task.name, shots, self._settings(run, task))
        if shots and task.kind != "code":
            drawer = ShotDrawer(self._pool(task), shots, options.seed)
            for number in select(task.size, options.limit, options.seed):
                drawer.draw(task.examples[number], number)

    def _pool(self, task: EvalTask) -> Sequence[Example]:
        """What shots are drawn from."""
        return task.examples if self.pool is None else self.pool.examples

    def result(self, name: str, task: EvalTask, shots: int) -> dict[str, Any]:
        """The result of a run on a task: from the folder, or evaluated and added to it."""
        settings = self._settings(self.runs[name], task)
        result = self.folder.find(name, task.name, shots, settings)
        if result is not None:
            return result
        several = len(self.runs) > 1
        self.report("phase", {"name": f"{name}: " * several + f"{task.name}, {counted(shots, 'shot')}"})
        if name not in self._prompters:
            self._prompters[name] = Prompter(self.runs[name], chat=self.options.chat, int8=self.options.int8)
        measured, records = self._measure(self._prompters[name], task, shots)
        result = {"run": name, "task": task.name, "shots": shots, **measured, "settings": settings}
        self.folder.add(result, records, several)
        self.folder.write(self.facts, chart=False)
        return self.folder.results[-1]

    def _measure(self, prompter: Prompter, task: EvalTask, shots: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The figures of a task, and the record of each question."""
        options, begun = self.options, time.perf_counter()
        if task.kind == "code":
            drawn = {"samples": options.samples, "limit": options.limit, "seed": options.seed}
            measured, records = run_code_task(prompter, task, shots, report=self.report, **drawn)
        else:
            asked = select(task.size, options.limit, options.seed)
            drawer = ShotDrawer(self._pool(task), shots, options.seed, options.draw == "each")
            records = ask(prompter, task, make_prompts(task, drawer, asked), self.report)
            measured = {
                "examples": len(asked),
                "measure": task.style.measure or MEASURES[task.kind][0],
                "figures": summarise(task.kind, records),
                "chance": chance_level(task.kind, [len(task.examples[number].options) for number in asked]),
                "cut": sum(bool(one.get("cut")) for one in records),
            }
        seconds = time.perf_counter() - begun
        speed = {"seconds": seconds, "examples_per_second": measured["examples"] / seconds}
        return {"kind": task.kind, **measured, **speed}, records

    def _settings(self, run: Run, task: EvalTask) -> dict[str, Any]:
        """What a result depends on, beside the task's name and the number of shots."""
        manifest = run.folder.path / MANIFEST
        digest = sha256(manifest)[:16] if manifest.exists() else ""
        questions = _digest(task) + ("" if self.pool is None else _digest(self.pool))
        return {**asdict(self.options), "source": task.source, "digest": digest, "questions": questions}


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
    """The numbers of shots that a task is asked with: whole texts, and programs to continue, have none."""
    without = task.kind == "perplexity" or (task.kind == "code" and not takes_shots(task))
    return [0] if without else counts


def _check_tasks(tasks: Sequence[EvalTask], execute: bool) -> None:
    """Refuse tasks that cannot be told apart, and programs that nobody allowed to be run."""
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"there are two tasks {name}", hint="evaluate them one by one, or rename a file")
    code = [task for task in tasks if task.kind == "code"]
    if code and not execute:
        what = f"{code[0].name} runs programs that the model wrote"
        raise InputError(what, where=code[0].source, hint="add --execute to allow it")
    if execute and not code:
        raise InputError("--execute is for tasks of programs, such as humaneval", hint="leave it out")


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
