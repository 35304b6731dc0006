"""The plan of a race: which systems are trained with which settings, on the same data, tokenizer and budget.

The system of a pre-trained run is trained twice, from its weights and from scratch, in the same shape; a language model
from its weights only, with its own tokenizer. On shares of the
labels everything is trained once for each share. The examples of a small share are among those of a larger one, and the
labels of each share have the same frequencies as all.

With ``attention`` each system that has this setting is trained once with each of its values.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.core.durations import seconds
from ensue.core.errors import InputError, unknown_name
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.core.wording import counted, listed
from ensue.data.labelled_rows import RowBatches
from ensue.data.sources import absolute_sources
from ensue.look.label_curve import SCRATCH
from ensue.models.bert import BERT
from ensue.models.table import SYSTEMS
from ensue.nn.mixers.mixer import MIXERS
from ensue.runs.adapter_training import has_frozen_weights
from ensue.runs.init_from import inherited_settings
from ensue.runs.load import Run, load
from ensue.runs.settings_resolution import own_settings, resolve, setting_names, without_unused
from ensue.tasks.labels.encoding import row_length
from ensue.tasks.labels.task import batch_tokens
from ensue.tasks.settings import Settings
from ensue.tasks.spec import RaceSpec, Task
from ensue.tasks.table import check_task, model_class, race_task, task_name
from ensue.verbs.racing.equal_sizes import equal_sizes

PRETRAINED = "pre-trained"
MATCHES = ("time", "cpu", "params", "tokens")
EQUAL_CPU: dict[str, Any] = {"train.budget_clock": "cpu", "train.threads": 1, "device": "cpu"}
"""The settings of every system in a race of equal CPU time."""
DEFAULT_BUDGET = "60s"
ATTENTION, ALL = "attention", "all"
LANGUAGE = "language"
DEFAULT_RANK = 8
"""The rank of adapters where the weights of the initial run cannot be trained."""
MIN_UPDATES = 60
"""The fewest updates on a share of the labels without a budget. With the task's epochs alone a hundred examples would
make a dozen updates, and the curve would show how short training was."""


@dataclass(frozen=True, kw_only=True)
class RacePlan:
    """The arguments of a race, checked."""

    task: Task
    rules: RaceSpec
    systems: tuple[str, ...]
    budget: str
    """Training time of each; empty means the task's epochs, but at least ``MIN_UPDATES`` updates."""
    match: str
    seeds: int
    shares: tuple[int, ...]
    """Numbers of labels to train on, ascending; empty means all labels."""
    initial: Run | None
    """The run that pre-trained candidates are initialised from."""
    typed: dict[str, Any]
    """Settings for all, or for one system with its name in front."""
    attention: tuple[str, ...] = ()
    """Values of the setting ``attention`` to compare; empty means that of each system."""

    def variants(self, system: str) -> tuple[str, ...]:
        """The attentions that a system is trained with; "" is its own."""
        if self.attention and ATTENTION in setting_names(system, self.task.name):
            return usable_attentions(model_class(system, self.task.name).Config.directions, self.attention)
        return ("",)

    def own(self, system: str) -> dict[str, Any]:
        """The settings typed for a system; that of the initial run inherits its shape."""
        shape: dict[str, Any] = {}
        if self.initial is not None and system == self.initial.system and self.task.labels:
            shape = inherited_settings(self.initial, system, self.task.name, {}, self.typed)
        shared = {**self.rules.settings, **self.typed}
        return {**shape, **without_unused(system, self.task.name, own_settings(system, shared))}

    def resolved(self, system: str, **more: Any) -> Settings:
        """All settings of a system."""
        return resolve(system, task=self.task.name, layers=[self.own(system), more])


@dataclass(frozen=True)
class Candidate:
    """A system to train, with its start and its number of labels; it is trained once for each seed."""

    system: str
    start: str
    labels: int
    name: str
    """For people."""
    folder: str
    """The name of its run's folder in the folder of the race."""
    settings: dict[str, Any]
    attention: str = ""
    """Its attention, in a race of attentions."""


def plan_race(
    task: str,
    *,
    systems: Sequence[str] | None,
    budget: str | None,
    match: str,
    seeds: int,
    labels: Sequence[int],
    begin_with: str | Path,
    data: str | Path | Sequence[str | Path],
    valid: str | Path | Sequence[str | Path],
    settings: Mapping[str, Any],
    attention: Sequence[str] = (),
) -> RacePlan:
    """Validate the arguments of a race and return its plan."""
    spec, rules = race_task(task)
    if attention and (match == "params" or begin_with):
        what = "--match params" if match == "params" else "--from"
        raise InputError(f"--attention and {what} exclude each other", hint="leave out one")
    if match not in MATCHES:
        raise unknown_name("match", match, MATCHES)
    if seeds < 1:
        raise InputError(f"--seeds {seeds} must be at least 1")
    if not spec.labels and (labels or (begin_with and spec.name != LANGUAGE)):
        what = "--labels is for tasks" if labels else "--from is, in a race, for language models and tasks"
        raise InputError(f"{what} that label", hint="name one, such as --task classify, or leave it out")
    if labels and min(labels) < 1:
        raise InputError(f"--labels {min(labels)} must be at least 1")
    if labels and settings.get("data.limit"):
        raise InputError("--labels and data.limit both limit the training examples", hint="leave out one")
    if match == "params" and (not spec.reads_text or begin_with):
        what = f"sizes cannot be made equal for the task {spec.name}"
        what = "--from sets the size of its system, so sizes cannot be made equal" if begin_with else what
        raise InputError(what, hint="leave out --match params")
    if match == "cpu":
        _check_equal_cpu(settings)
    if budget is None:
        limited = labels or settings.get("train.steps") or settings.get("train.epochs")
        budget = "" if limited and match == "time" else DEFAULT_BUDGET
    else:
        seconds(budget)
    initial = load(begin_with) if begin_with else None
    files = {"data.files": absolute_sources(data), "data.valid": absolute_sources(valid)}
    plan = RacePlan(
        task=spec,
        rules=rules,
        systems=_check_systems(spec, rules, systems, initial),
        budget=budget,
        match=match,
        seeds=seeds,
        shares=tuple(sorted(set(labels))),
        initial=initial,
        typed={**settings, **{name: paths for name, paths in files.items() if paths}},
        attention=tuple(dict.fromkeys(attention)),
    )
    if attention and all(plan.variants(system) == ("",) for system in plan.systems):
        raise InputError(f"--attention: {listed(plan.systems)} has no attention to choose", hint="--systems gpt has")
    return plan


def usable_attentions(directions: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The attentions to compare in a model that mixes in these directions; ``all`` are those of the table that can."""
    usable = [name for name in MIXERS if set(directions) <= set(MIXERS.load(name).directions)]
    return tuple(dict.fromkeys(one for name in names for one in (usable if name == ALL else [name])))


def _check_equal_cpu(settings: Mapping[str, Any]) -> None:
    """Refuse settings, of all systems or of one, that a race of equal CPU time would overrule."""
    for name, value in settings.items():
        for own, equal in EQUAL_CPU.items():
            if (name == own or name.endswith(f".{own}")) and str(value) != str(equal):
                hint = f"leave out {name} or --match cpu"
                raise InputError(f"--match cpu sets {own}={equal}, not {value}", hint=hint)


def _check_systems(task: Task, rules: RaceSpec, systems: Sequence[str] | None, initial: Run | None) -> tuple[str, ...]:
    """The systems of a race: those named, or those of the initial run and the task; each must be able to take part."""
    chosen = list(systems) if systems is not None else [*([initial.system] if initial else []), *rules.systems]
    if not chosen:
        raise InputError("a race of no systems", hint=f"--systems {','.join(rules.systems[-3:])}")
    for system in chosen:
        if task.by_name:
            check_task(system, task.name)
        elif task_name(system) != task.name:
            raise InputError(f"{system} is for {task_name(system)}, and a race is {rules.between}", hint="leave it out")
        elif refusal := rules.refusal(system):
            raise InputError(refusal, hint="leave it out")
    if initial is not None and initial.system not in chosen:
        what = f"is a {initial.system}, which does not take part"
        raise InputError(what, where=str(initial), hint="add it to --systems")
    return tuple(dict.fromkeys(chosen))


def read_shared_corpus(plan: RacePlan, report: Report) -> Any:
    """Read the data of all candidates; wrong settings of any system are refused here, before anything is trained."""
    resolved = {name: plan.resolved(name) for name in plan.systems}
    for system in plan.systems:
        for attention in filter(None, plan.variants(system)):
            plan.resolved(system, attention=attention)
    # an encoder's settings, if there is one: its tokenizer has special tokens, and the others can read it
    name = next((name for name in plan.systems if issubclass(SYSTEMS.load(name), BERT)), plan.systems[0])
    settings = resolved[name]
    if plan.task.labels:  # the shortest rows of all
        settings = plan.resolved(name, **{"data.length": min(row_length(one) for one in resolved.values())})
    # a language model keeps its own tokenizer, and bits per byte compare it with the others
    inherits = plan.initial is not None and plan.task.labels
    corpus = plan.task.read_corpus(settings, plan.initial.folder if plan.initial and inherits else None, report)
    if corpus.valid is None:
        data = plan.task.data
        raise InputError(f"a race needs {data} to score on", hint=f"give --valid, or more {data}")
    if plan.shares and plan.shares[-1] > len(corpus.examples):
        what = f"--labels {plan.shares[-1]}: there are only {counted(len(corpus.examples), 'example')} to train on"
        raise InputError(what, where=", ".join(plan.typed["data.files"]), hint="ask for fewer, or give more")
    return corpus


def initial_run_facts(plan: RacePlan) -> dict[str, Any] | None:
    """The initial run for race.json, with the hash of its weights, which a resumed race must find unchanged."""
    if plan.initial is None:
        return None
    folder = plan.initial.folder
    with folder.weights.open("rb") as file:
        weights = hashlib.file_digest(file, "sha256").hexdigest()
    return {"run": folder.path.resolve().name, "system": plan.initial.system, "weights": weights}


def candidates(plan: RacePlan, corpus: Any, folder: RunFolder) -> list[Candidate]:
    """All candidates in the order they are trained, share by share; ``folder`` has the tokenizer of all."""
    common: dict[str, Any] = {"tokenizer.kind": str(folder.tokenizer.absolute())} if plan.task.reads_text else {}
    sizes: dict[str, dict[str, Any]] = {}
    if plan.match == "params":
        sizes = equal_sizes(plan.systems, corpus.tokenizer.size, {**plan.typed, **common}, plan.task)
    common |= plan.rules.shared_settings(corpus)
    return [
        _candidate(plan, corpus, {**plan.own(system), **common, **sizes.get(system, {})}, system, start, share, one)
        for share in plan.shares or (0,)
        for system in plan.systems
        for one in plan.variants(system)
        for start in _starts(plan, system)
    ]


def _starts(plan: RacePlan, system: str) -> list[str]:
    """How a system is initialised: where a task labels, that of the initial run also from scratch, in its shape."""
    initial = plan.initial is not None and system == plan.initial.system
    if not plan.task.labels:
        return [PRETRAINED] if initial else [""]
    return [SCRATCH, PRETRAINED] if initial else [SCRATCH]


def _candidate(
    plan: RacePlan, corpus: Any, own: dict[str, Any], system: str, start: str, share: int, attention: str
) -> Candidate:
    settings = own | ({"data.limit": share} if share else {}) | ({ATTENTION: attention} if attention else {})
    if start == PRETRAINED:
        assert plan.initial is not None
        settings = {name: value for name, value in settings.items() if not name.startswith("tokenizer.")}
        settings["begin_with"] = str(plan.initial.folder.path.absolute())
        if has_frozen_weights(plan.initial):
            settings.setdefault("train.lora", DEFAULT_RANK)
    settings |= without_unused(system, plan.task.name, _training_limit(plan, corpus, settings, system, share))
    name = system if not start or plan.initial is None else f"{system} {start}"
    name += f" {attention}" if attention else ""
    labels = share or (len(corpus.examples) if plan.task.labels else 0)
    name += f", {counted(share, 'label')}" if share else ""
    folder = candidate_folder(system, start, share, attention)
    return Candidate(system, start, labels, name, folder, settings, attention)


def candidate_folder(system: str, start: str = "", share: int = 0, attention: str = "") -> str:
    """The name of a candidate's folder in that of the race.

    >>> candidate_folder("bert", PRETRAINED, 100), candidate_folder("gpt", attention="local:span=64*5,full")
    ('bert-pretrained-100', 'gpt+local.span=64x5.full')
    """
    name = system + (f"+{re.sub('[^A-Za-z0-9=_-]', '.', attention.replace('*', 'x'))}" if attention else "")
    return "-".join([name, *(["pretrained"] if start == PRETRAINED else []), *([str(share)] if share else [])])


def _training_limit(plan: RacePlan, corpus: Any, own: Mapping[str, Any], system: str, share: int) -> dict[str, Any]:
    """The settings that limit training: epochs if the data should be equal or there is no budget, otherwise time."""
    same_data = plan.match == "tokens"
    if plan.budget and not same_data:
        cpu = EQUAL_CPU if plan.match == "cpu" else {}
        return {"train.budget": seconds(plan.budget), "train.budget_covers": "training", **cpu}
    covers = {"train.budget_covers": "training"} if same_data else {}
    if own.get("train.steps") or own.get("train.epochs"):
        return covers
    if not plan.task.labels:
        return {"train.epochs": 1.0, **covers}
    # for equal data pre-trained candidates get the epochs of training from scratch
    layer = {name: value for name, value in own.items() if not (same_data and name == "begin_with")}
    train = resolve(system, task=plan.task.name, layers=[layer]).train
    batches = RowBatches(corpus.train.rows, batch_tokens(train, corpus.train.rows)).steps_per_epoch
    steps = max(1.0, batches * (share or len(corpus.examples)) / len(corpus.examples))
    return {"train.epochs": max(train.epochs, MIN_UPDATES * train.accumulate / steps), **covers}
