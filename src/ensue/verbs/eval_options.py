"""The options of an evaluation, and the tasks for which they make sense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ensue.core.errors import InputError
from ensue.data.evaluation.task import EvalTask


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
    temperature: float | None = None
    """Temperature of programs; by default 0 for one and 0.2 for several."""

    def __post_init__(self) -> None:
        for name, valid, allowed in (
            ("num-samples", 1 <= self.samples <= 1000, "from 1 to 1,000"),
            ("limit", self.limit >= 0, "0 (all) or more"),
            ("seed", 0 <= self.seed < 2**63, "a number from 0 to 2^63 - 1"),
            ("draw", self.draw in ("one", "each"), "one or each"),
            ("temperature", self.temperature is None or 0 <= self.temperature <= 10, "from 0 to 10"),
        ):
            if not valid:
                value = self.samples if name == "num-samples" else getattr(self, name)
                raise InputError(f"--{name} {value} must be {allowed}")


DEFAULTS = EvalOptions()


def takes_shots(task: EvalTask) -> bool:
    """Return whether questions can have solved ones before them; whole texts and HumanEval's form cannot."""
    return task.kind != "perplexity" and (task.kind != "code" or "test_list" in task.problems[0])


def check_tasks(tasks: Sequence[EvalTask], execute: bool) -> None:
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


def unused_options(
    tasks: Sequence[EvalTask], counts: Sequence[int], options: EvalOptions, pool: EvalTask | None
) -> list[str]:
    """Return a note for each option that some of the tasks do not use; raise InputError if none of them does."""
    programs = [task for task in tasks if task.kind == "code"]
    others = [task for task in tasks if task.kind != "code"]
    texts = [task for task in tasks if task.kind == "perplexity"]
    fixed = [task for task in tasks if not takes_shots(task)]
    unused = [
        (options.draw == "each", "--draw each", programs, "the shots of programs are the same for all"),
        (options.chat, "--chat", texts, "whole texts are read as they are"),
        (any(counts), "--shots", fixed, "it is asked without shots"),
        (pool is not None, "--shots-from", fixed, "it is asked without shots"),
        (options.samples > 1, "--num-samples", others, "one answer is written"),
        (options.temperature is not None, "--temperature", others, "answers are the most probable ones"),
    ]
    notes = []
    for given, name, without, why in unused:
        if not given or not without:
            continue
        if len(without) == len(tasks) and not (name == "--shots" and 0 in counts):
            raise InputError(f"{name} has no effect on {without[0].name}: {why}", hint="leave it out")
        notes.append(f"{name} has no effect on {', '.join(task.name for task in without)}: {why}")
    if pool is not None and any((pool.kind == "code") != (task.kind == "code") for task in tasks if task not in fixed):
        raise InputError("--shots-from needs shots of the kind of the tasks", where=pool.source)
    return notes
