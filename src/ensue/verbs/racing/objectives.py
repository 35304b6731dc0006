"""A race of pre-training objectives: the same text and compute for each, then the same labelled data.

    text ── objective ──> body ── fine-tuning ──> score            for each objective, labelled set and seed

All bodies have the same shape and read the same tokens. The row "from scratch" is a body of that shape which is only
fine-tuned, so the table also says what pre-training is worth.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ensue.core.durations import seconds
from ensue.core.errors import InputError, unknown_name
from ensue.core.run_files import TOKENIZER
from ensue.core.wording import counted, listed
from ensue.data.sources import absolute_sources
from ensue.look.label_curve import SCRATCH
from ensue.runs.settings_resolution import own_settings, resolve, setting_names
from ensue.tasks.spec import RaceSpec
from ensue.tasks.table import race_task, task_name
from ensue.verbs.racing.folder import RaceKind
from ensue.verbs.racing.plan import EQUAL_CPU

SHAPE = ("layers", "hidden", "heads", "context")
"""Settings that are the same for all bodies; those of ``bert`` where none are typed."""
THEN = "then."
"""What the settings of fine-tuning begin with."""
MATCHES = ("time", "cpu", "tokens")
NOISE = 2.0
"""Objectives differ if the best and the worst are further apart than this many standard deviations of a seed."""


@dataclass(frozen=True)
class Objective:
    """A pre-training objective: a system that has it, with some of its settings."""

    title: str
    system: str
    settings: Mapping[str, Any] = field(default_factory=dict)


OBJECTIVES = {
    "mlm": Objective("masked tokens (RoBERTa)", "bert", {"next_sentence": False}),
    "span": Objective("masked spans (SpanBERT)", "bert", {"next_sentence": False, "train.mask_unit": "spans"}),
    "nsp": Objective("masked tokens, and whether a text follows (BERT)", "bert", {}),
    "sop": Objective("masked tokens, and which of two texts is first (ALBERT)", "bert", {"not_next": "swapped"}),
    "rtd": Objective("replaced tokens (ELECTRA)", "electra", {}),
    "clm": Objective("next tokens (GPT)", "gpt", {}),
}
"""Every objective by name."""
RESULTS = "objectives.json"
FILES = (RESULTS, "objectives.md", "objectives.html", "objectives.png", "objectives.svg", TOKENIZER)
RUN_NAME = re.compile(rf"({'|'.join(OBJECTIVES)}|scratch)-\d+(-.+)?")
OBJECTIVE_RACE = RaceKind(
    RESULTS, FILES, {"objectives": list, "then": list, "seeds": int}, lambda name: bool(RUN_NAME.fullmatch(name))
)
FROM_SCRATCH = Objective("no pre-training", "bert", {"next_sentence": False})


@dataclass(frozen=True)
class LabelledSet:
    """Labelled data that every body is fine-tuned on."""

    name: str
    """Part of the names of folders."""
    file: str
    task: str
    valid: str = ""
    """A file to score on; empty means that examples of ``file`` are held out."""

    @property
    def rules(self) -> RaceSpec:
        """How results on it are compared."""
        return race_task(self.task)[1]


@dataclass(frozen=True, kw_only=True)
class ObjectivePlan:
    """The arguments of a race of objectives, checked."""

    objectives: tuple[str, ...]
    then: tuple[LabelledSet, ...]
    budget: str
    match: str
    seeds: int
    files: dict[str, Any]
    typed: dict[str, Any]
    """Settings of pre-training, for all or for one system with its name in front."""
    tuning: dict[str, Any]
    """Settings of fine-tuning."""
    shape: dict[str, Any]

    def pretraining(self, name: str, tokenizer: str) -> dict[str, Any]:
        """The settings of an objective."""
        one, limit = OBJECTIVES[name], self._limit()
        own = {**self.shape, **dict(one.settings), **own_settings(one.system, self.typed), **self.files, **limit}
        others = {other for name in self.objectives for other in _setting_names(OBJECTIVES[name].system)}
        unused = others.difference(_setting_names(one.system), self._typed_for(one.system))
        return {**{name: value for name, value in own.items() if name not in unused}, "tokenizer.kind": tokenizer}

    def _typed_for(self, system: str) -> set[str]:
        """Settings that were typed for one system alone."""
        return {name.partition(".")[2] for name in self.typed if name.startswith(f"{system}.")}

    def fine_tuning(self, labelled: LabelledSet, start: str, tokenizer: str) -> dict[str, Any]:
        """The settings of fine-tuning from the run ``start``, or from scratch where there is none."""
        begin = {"begin_with": start} if start else {**self._scratch(labelled), "tokenizer.kind": tokenizer}
        one_thread = {"train.threads": 1, "device": "cpu"} if self.match == "cpu" else {}
        return {**begin, **one_thread, **self.tuning}

    def _scratch(self, labelled: LabelledSet) -> dict[str, Any]:
        system = FROM_SCRATCH.system
        names = setting_names(system, labelled.task)
        typed = own_settings(system, self.typed)
        return {name: value for name, value in {**self.shape, **typed}.items() if name in names and "." not in name}

    def _limit(self) -> dict[str, Any]:
        """What ends pre-training."""
        if self.match == "tokens":
            return {} if self.typed.get("train.steps") or self.typed.get("train.epochs") else {"train.epochs": 1.0}
        cpu = EQUAL_CPU if self.match == "cpu" else {}
        return {"train.budget": seconds(self.budget), "train.budget_covers": "training", **cpu}


def _setting_names(system: str) -> list[str]:
    return setting_names(system, task_name(system))


def plan_objectives(
    data: str | Path | Sequence[str | Path],
    objectives: Sequence[str],
    then: Sequence[str],
    *,
    then_valid: Sequence[str],
    budget: str | None,
    match: str,
    seeds: int,
    settings: Mapping[str, Any],
) -> ObjectivePlan:
    """Validate the arguments of a race of objectives and return its plan."""
    for name in objectives:
        if name not in OBJECTIVES:
            raise unknown_name("objective", name, OBJECTIVES)
    if not objectives:
        raise InputError("--objectives names nothing", hint=f"for example {','.join(OBJECTIVES)}")
    if not then:
        raise InputError("--objectives needs labelled data to compare them on", hint="add --then labelled.tsv")
    if len(then_valid) > len(then):
        raise InputError(f"{counted(len(then_valid), '--then-valid')} for {counted(len(then), '--then')}")
    if match not in MATCHES:
        raise InputError(f"objectives are not raced with --match {match}", hint=f"use {', '.join(MATCHES)}")
    if seeds < 1:
        raise InputError(f"--seeds {seeds} must be at least 1")
    if match == "tokens" and budget is not None:
        raise InputError("--match tokens reads the text once, so --budget has no effect", hint="leave out one of them")
    budget = "" if match == "tokens" else "60s" if budget is None else budget
    if budget:
        seconds(budget)
    tuning = {name.removeprefix(THEN): value for name, value in settings.items() if name.startswith(THEN)}
    if "train.budget" in tuning:
        tuning["train.budget"] = seconds(str(tuning["train.budget"]))
    typed = {name: value for name, value in settings.items() if not name.startswith(THEN)}
    bert = resolve("bert", layers=[{name: typed[name] for name in SHAPE if name in typed}])
    return ObjectivePlan(
        objectives=tuple(dict.fromkeys(objectives)),
        then=labelled_sets(then, then_valid),
        budget=budget,
        match=match,
        seeds=seeds,
        files={"data.files": absolute_sources(data)},
        typed=typed,
        tuning=tuning,
        shape={name: bert.model[name] for name in SHAPE},
    )


def labelled_sets(then: Sequence[str], valid: Sequence[str]) -> tuple[LabelledSet, ...]:
    """The labelled sets of ``--then [TASK:]FILE``; without a task texts are classified."""
    found: list[LabelledSet] = []
    for number, text in enumerate(then):
        task, colon, file = text.partition(":")
        if not colon or not (task.isalpha() and len(task) > 1) or Path(text).exists():
            task, file = "classify", text
        spec, _ = race_task(task)
        if not spec.labels:
            raise InputError(f"--then {text}: the task {task} does not label", hint="for example classify or tag")
        for path in (file, *valid[number : number + 1]):
            if not Path(path).is_file():
                raise InputError("is no file", where=path, hint="--then takes [TASK:]FILE")
        name = Path(file).name.split(".")[0] or task
        taken = {one.name for one in found}
        name = name if name not in taken else next(f"{name}{n}" for n in range(2, 99) if f"{name}{n}" not in taken)
        scored = valid[number] if number < len(valid) else ""
        found.append(
            LabelledSet(name, str(Path(file).absolute()), task, str(Path(scored).absolute()) if scored else "")
        )
    return tuple(found)


@dataclass
class ObjectiveResult:
    """What an objective has reached: figures of its pre-training, and scores of each seed by labelled set."""

    name: str
    title: str
    system: str
    seconds: float = 0.0
    tokens: int = 0
    parameters: int = 0
    scores: dict[str, list[float]] = field(default_factory=dict)
    error: str = ""

    def mean(self, labelled: str) -> float | None:
        """The mean over seeds; None if none worked."""
        values = self.scores.get(labelled)
        return mean(values) if values else None

    def deviation(self, labelled: str) -> float:
        """The standard deviation over seeds; 0 for one."""
        values = self.scores.get(labelled, ())
        return stdev(values) if len(values) > 1 else 0.0


@dataclass
class ObjectiveRace:
    """All results of a race of objectives."""

    facts: dict[str, Any]
    then: tuple[LabelledSet, ...]
    results: list[ObjectiveResult] = field(default_factory=list)

    def ranked(self) -> list[ObjectiveResult]:
        """Best first, by the mean of the scores over labelled sets; what failed last."""

        def merit(one: ObjectiveResult) -> tuple[bool, float]:
            values = [one.mean(labelled.name) for labelled in self.then]
            signs = [1.0 if labelled.rules.lower else -1.0 for labelled in self.then]
            complete = [sign * value for sign, value in zip(signs, values) if value is not None]
            return (len(complete) < len(values), mean(complete) if complete else 0.0)

        return sorted(self.results, key=merit)

    def as_dict(self) -> dict[str, Any]:
        """What objectives.json holds."""
        then = [{"name": one.name, "task": one.task, "measure": one.rules.measure.key} for one in self.then]
        entries = []
        for one in self.ranked():
            scores = {
                name: {"mean": one.mean(name), "deviation": one.deviation(name), "seeds": values}
                for name, values in one.scores.items()
            }
            kept = {
                name: getattr(one, name) for name in ("title", "system", "seconds", "tokens", "parameters", "error")
            }
            entries.append({"objective": one.name, **kept, "scores": scores})
        return {**self.facts, "then": then, "objectives": entries}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The table for people, as columns and rows."""
        scored = [f"{one.name}: {one.rules.measure.title}" for one in self.then]
        columns = ["objective", *scored, "seconds", "tokens", "parameters"]
        rows = []
        for one in self.ranked():
            cells = [self._cell(one, labelled) for labelled in self.then]
            cost = [f"{one.seconds:.0f}", f"{one.tokens:,}"] if one.name != SCRATCH else ["–", "–"]
            rows.append([one.name, *cells, *cost, f"{one.parameters:,}"])
        return columns, rows

    def _cell(self, one: ObjectiveResult, labelled: LabelledSet) -> str:
        value, form = one.mean(labelled.name), labelled.rules.measure.format_spec
        if value is None:
            return "failed"
        several = len(one.scores[labelled.name]) > 1
        return format(value, form) + (f" ± {one.deviation(labelled.name):{form}}" if several else "")

    def remarks(self) -> list[str]:
        """Sentences below the table: what the objectives are, what failed, and whether they differ."""
        named = [f"{one.name}: {one.title}" for one in self.ranked() if one.name != SCRATCH]
        failed = [f"{one.name} failed: {one.error}" for one in self.results if one.error]
        return [*failed, *(self._verdict(labelled) for labelled in self.then), f"objectives: {'; '.join(named)}"]

    def _verdict(self, labelled: LabelledSet) -> str:
        """Whether the objective matters on a labelled set, more than the seed does."""
        form, name = labelled.rules.measure.format_spec, labelled.name
        known = [one for one in self.results if one.mean(name) is not None]
        trained = [one for one in known if one.name != SCRATCH]
        if len(trained) < 2:
            return f"{name}: too few results to compare"
        best, worst = (pick(trained, key=lambda one: one.mean(name) or 0.0) for pick in (max, min))
        gap = (best.mean(name) or 0.0) - (worst.mean(name) or 0.0)
        between = f"{best.name} and {worst.name}" if gap else "all objectives"
        text = f"{name}: {between} are {gap:{form}} apart"
        deviations = [one.deviation(name) for one in trained if len(one.scores[name]) > 1]
        if deviations:
            noise = mean(value**2 for value in deviations) ** 0.5
            verdict = "more than seeds explain" if gap > NOISE * noise else "no more than seeds explain"
            text += f", {verdict} (one standard deviation of a seed: {noise:{form}})"
        else:
            text += "; one seed cannot say whether that is chance"
        scratch = next((one.mean(name) for one in known if one.name == SCRATCH), None)
        if scratch is not None:
            gains = [(one.mean(name) or 0.0) - scratch for one in trained]
            text += f"; pre-training changes it by {min(gains):+{form}} to {max(gains):+{form}}"
        return text

    def markdown(self) -> str:
        """The text of objectives.md."""
        (columns, rows), facts = self.table(), self.facts
        each = "one pass over the text each" if not facts["budget"] else f"{facts['budget']} each"
        each += " of CPU time" if facts["match"] == "cpu" else ""
        shape = listed([f"{name} {value}" for name, value in facts["shape"].items()])
        text = ", ".join(facts["data"])
        lines = [
            f"Pre-training objectives on {text}: {each}, {counted(facts['seeds'], 'seed')}; {shape}.",
            "",
            "| " + " | ".join(columns) + " |",
            "|---" * len(columns) + "|",
            *("| " + " | ".join(row) + " |" for row in rows),
            "",
            *(f"- {line}" for line in self.remarks()),
        ]
        return "\n".join(lines) + "\n"
