"""Who runs in a race, and with what settings: same data, same tokenizer, same budget.

A system that was pre-trained runs twice, once with what it has learnt and once from scratch, in the same shape; on
shares of the labels everything runs once a share. The examples of a small share are among those of a larger one, and
labels are as frequent in each as in all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.core.durations import seconds
from ensue.core.errors import InputError, unknown_name
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.core.wording import counted
from ensue.data.labelled_rows import RowBatches
from ensue.look.label_curve import SCRATCH
from ensue.models.bert import BERT
from ensue.models.table import SYSTEMS
from ensue.runs.init_from import inherited_settings
from ensue.runs.load import Run, load
from ensue.runs.settings_resolution import own_settings, resolve
from ensue.tasks.example_encoding import row_length
from ensue.tasks.labelled import batch_tokens
from ensue.tasks.machine import data_files
from ensue.tasks.settings import Settings
from ensue.tasks.spec import RaceSpec, TaskSpec
from ensue.tasks.table import check_task, task_name
from ensue.verbs.racing.equal_sizes import matched_sizes

PRETRAINED = "pre-trained"
BUDGET = "60s"
"""What each has, where nothing says how long."""
UPDATES = 60
"""On shares of the labels without a budget, the fewest updates: by the task's epochs alone a hundred examples would
make a dozen, and the curve would show how short training was, not how few the labels."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What was agreed before the race."""

    task: TaskSpec
    rules: RaceSpec
    systems: tuple[str, ...]
    budget: str
    """Training time of each; empty means epochs as the task has them, but at least ``UPDATES`` updates."""
    match: str
    seeds: int
    shares: tuple[int, ...]
    """Of how many labels, the fewest first; empty means all there are."""
    first: Run | None
    """The run that the pre-trained begin with."""
    typed: dict[str, Any]
    """Settings for all, and with a system's name in front for one."""

    def own(self, system: str) -> dict[str, Any]:
        """What was typed for a system; the one that also runs pre-trained has that shape."""
        shape: dict[str, Any] = {}
        if self.first is not None and system == self.first.system:
            shape = inherited_settings(self.first, system, self.task.name, {}, self.typed)
        return {**shape, **own_settings(system, self.typed)}

    def resolved(self, system: str, **more: Any) -> Settings:
        """All settings of a system."""
        return resolve(system, task=self.task.name, layers=[self.own(system), more])


@dataclass(frozen=True)
class Lane:
    """One that runs: a system, how it begins, on how many labels; once a seed."""

    system: str
    start: str
    labels: int
    name: str
    """For people."""
    folder: str
    """Of its run, in that of the race."""
    settings: dict[str, Any]


def agreed(
    task: TaskSpec,
    rules: RaceSpec,
    *,
    systems: Sequence[str] | None,
    budget: str | None,
    match: str,
    seeds: int,
    labels: Sequence[int],
    begin_with: str | Path,
    files: Mapping[str, Sequence[str | Path]],
    settings: Mapping[str, Any],
) -> Terms:
    """The terms of a race, once what cannot be raced is refused."""
    if match not in ("time", "params", "tokens"):
        raise unknown_name("match", match, ("time", "params", "tokens"))
    if seeds < 1:
        raise InputError(f"--seeds {seeds} must be at least 1")
    if not task.labels and (labels or begin_with):
        what = "--labels is" if labels else "--from is, in a race,"
        raise InputError(f"{what} for tasks that label", hint="name one, such as --task classify, or leave it out")
    _check_shares(labels, settings)
    if not task.reads_text and match == "params":
        what = f"systems of equal size are not chosen for the task {task.name}"
        raise InputError(what, hint="leave out --match params")
    first = load(begin_with) if begin_with else None
    if first is not None and match == "params":
        what = "--from says how large its system is, so sizes cannot be made equal"
        raise InputError(what, hint="leave out --match params")
    if budget is None:
        budget = "" if labels and match == "time" else BUDGET
    else:
        seconds(budget)
    return Terms(
        task=task,
        rules=rules,
        systems=_entered(task, rules, systems, first),
        budget=budget,
        match=match,
        seeds=seeds,
        shares=tuple(sorted(set(labels))),
        first=first,
        typed={**settings, **{name: data_files(paths) for name, paths in files.items() if paths}},
    )


def _entered(task: TaskSpec, rules: RaceSpec, systems: Sequence[str] | None, first: Run | None) -> tuple[str, ...]:
    """Those who take part: as named, else the usual, with the one that was pre-trained in front."""
    chosen = list(rules.systems if systems is None else systems)
    if systems is None and first is not None:
        chosen.insert(0, first.system)
    if not chosen:
        raise InputError("a race of no systems", hint=f"--systems {','.join(rules.systems[-3:])}")
    for name in chosen:
        check_system(task, rules, name)
    if first is not None and first.system not in chosen:
        raise InputError(
            f"is a {first.system}, which does not take part", where=str(first.folder.path), hint="add it to --systems"
        )
    return tuple(dict.fromkeys(chosen))


def check_system(task: TaskSpec, rules: RaceSpec, system: str) -> None:
    """Refuse a system that cannot race at a task."""
    if task.by_name:
        check_task(system, task.name)
    elif task_name(system) != task.name:
        raise InputError(f"{system} is for {task_name(system)}, and a race is {rules.between}", hint="leave it out")
    elif refusal := rules.refusal(system):
        raise InputError(refusal, hint="leave it out")


def _check_shares(labels: Sequence[int], settings: Mapping[str, Any]) -> None:
    """Refuse shares that are none."""
    if labels and min(labels) < 1:
        raise InputError(f"--labels {min(labels)} must be at least 1")
    if labels and settings.get("data.limit"):
        raise InputError("--labels and data.limit both say how many examples to learn from", hint="leave out one")


def common_corpus(terms: Terms, report: Report) -> Any:
    """What all learn from; a wrong setting of any system is found here, before anything is trained."""
    chosen = {name: terms.resolved(name) for name in terms.systems}
    name = next((name for name in terms.systems if issubclass(SYSTEMS.load(name), BERT)), terms.systems[0])
    settings = chosen[name]  # an encoder's, where there is one: its tokenizer has marks, and the others can read it
    if terms.task.labels:  # all read as much of a text as the one that reads least
        settings = terms.resolved(name, **{"data.length": min(row_length(one) for one in chosen.values())})
    folder = terms.first.folder if terms.first is not None else None
    corpus = terms.task.read_corpus(settings, folder, report)
    if corpus.valid is None:
        data = terms.task.data
        raise InputError(f"a race needs {data} to score on", hint=f"give --valid, or more {data}")
    if terms.shares and terms.shares[-1] > len(corpus.examples):
        what = f"--labels {terms.shares[-1]}: there are only {counted(len(corpus.examples), 'example')} to learn from"
        raise InputError(what, where=", ".join(terms.typed["data.files"]), hint="ask for fewer, or give more")
    return corpus


def begun_facts(terms: Terms) -> dict[str, Any] | None:
    """What race.json says of the run that the pre-trained begin with; a resumed race must find the same weights."""
    if terms.first is None:
        return None
    folder = terms.first.folder
    with folder.weights.open("rb") as file:
        weights = hashlib.file_digest(file, "sha256").hexdigest()
    return {"run": folder.path.resolve().name, "system": terms.first.system, "weights": weights}


def lanes(terms: Terms, corpus: Any, folder: RunFolder) -> list[Lane]:
    """All that run, share by share, in the order they run; ``folder`` has the tokenizer of all."""
    common: dict[str, Any] = {}
    if terms.task.reads_text:  # the tokenizer is fitted once
        common["tokenizer.kind"] = str(folder.tokenizer.absolute())
    sizes: dict[str, dict[str, Any]] = {}
    if terms.match == "params":
        sizes = matched_sizes(terms.systems, corpus.tokenizer.size, {**terms.typed, **common}, terms.task)
    common |= terms.rules.shared_settings(corpus)
    found = []
    for share in terms.shares or (0,):
        for system in terms.systems:
            own = {**terms.own(system), **common, **sizes.get(system, {})}
            for start in _starts(terms, system):
                found.append(_lane(terms, corpus, own, system, start, share))
    return found


def _starts(terms: Terms, system: str) -> list[str]:
    if not terms.task.labels:
        return [""]
    return [SCRATCH, PRETRAINED] if terms.first is not None and system == terms.first.system else [SCRATCH]


def _lane(terms: Terms, corpus: Any, own: dict[str, Any], system: str, start: str, share: int) -> Lane:
    settings = own | ({"data.limit": share} if share else {})
    if start == PRETRAINED:
        assert terms.first is not None
        settings = {name: value for name, value in settings.items() if not name.startswith("tokenizer.")}
        settings["begin_with"] = str(terms.first.folder.path.absolute())
    settings |= _limit(terms, corpus, settings, system, share)
    name = system if not start or terms.first is None else f"{system} {start}"
    labels = share or (len(corpus.examples) if terms.task.labels else 0)
    spoken = f"{name}, {counted(share, 'label')}" if share else name
    return Lane(system, start, labels, spoken, lane_folder(system, start, share), settings)


def lane_folder(system: str, start: str = "", share: int = 0) -> str:
    """Where in a race's folder one is kept.

    >>> lane_folder("bert", PRETRAINED, 100), lane_folder("lstm")
    ('bert-pretrained-100', 'lstm')
    """
    return "-".join([system, *(["pretrained"] if start == PRETRAINED else []), *([str(share)] if share else [])])


def _limit(terms: Terms, corpus: Any, own: Mapping[str, Any], system: str, share: int) -> dict[str, Any]:
    """How long one trains: so many times through the data where that should be equal or nothing says how long, else so
    many seconds."""
    equal = terms.match == "tokens"
    if terms.budget and not equal:
        return {"train.budget": seconds(terms.budget), "train.budget_covers": "training"}
    covers = {"train.budget_covers": "training"} if equal else {}
    if not terms.task.labels:
        return {"train.epochs": own.get("train.epochs", 1.0), **covers}
    if own.get("train.steps") or own.get("train.epochs"):
        return covers
    # pre-trained or not, equal data is the epochs of those who learn from nothing
    layer = {name: value for name, value in own.items() if not (equal and name == "begin_with")}
    train = resolve(system, task=terms.task.name, layers=[layer]).train
    batches = RowBatches(corpus.train.rows, batch_tokens(train, corpus.train.rows)).steps_per_epoch
    of_share = max(1.0, batches * (share or len(corpus.examples)) / len(corpus.examples))
    return {"train.epochs": max(train.epochs, UPDATES * train.accumulate / of_share), **covers}
