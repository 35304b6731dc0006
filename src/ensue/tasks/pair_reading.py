"""Read pairs of texts for a model that is conditioned on a source: one task, or a mixture of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.settings import check_not_negative
from ensue.data.dates import DATES
from ensue.data.pair_files import split_tasks
from ensue.data.pairs import Pairs, builtin_pairs, join_tasks
from ensue.data.posed import read_task, task_forms
from ensue.data.sources import is_builtin
from ensue.data.splitting import hold_out_pairs
from ensue.data.tables import parse_columns
from ensue.tasks.settings import DataSettings
from ensue.tasks.table import systems_for


@dataclass(frozen=True, kw_only=True, slots=True)
class PairSettings(DataSettings):
    """Where sentence pairs come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The pairs to learn from: two parallel files, a table, a JSONL file, - for standard input, the corpus dates; or
    several tables, each a task of its own."""
    prefix: tuple[str, ...] = ()
    """What is put before the sources of every file, or one for each file (- for none): "translate English to German: ".
    """
    pose: tuple[str, ...] = ()
    """What the lines of every file are, or of each: text (pairs of texts, the default), or the examples of a task that
    labels, which is posed as text: classify, pair, regress, choose, tag or answer."""
    labels: tuple[str, ...] = ()
    """Other names of targets, e.g. 0=negative,1=positive."""
    mix_limit: int = 0
    """The most pairs of a task in an epoch of a mixture; 0 means all of them."""
    columns: str = ""
    """Which columns or fields are used, e.g. source=2,target=1; empty means that they are inferred."""
    holdout: float = 0.1
    """The share of the pairs to hold out if there are no validation files (at most 2,000); 0 means none."""
    eval_pairs: int = 0
    """Validation pairs of an evaluation during training; 0 means 1,000."""

    def __post_init__(self) -> None:
        super(PairSettings, self).__post_init__()
        check_not_negative(self, "mix_limit")
        if self.files:
            task_forms(len(split_tasks(self.files)), self.prefix, self.pose, self.labels)


def check_pairs(sources: Sequence[str | Path]) -> None:
    """Raise InputError for the built-in texts."""
    for source in sources:
        if is_builtin(source):
            systems = ", ".join(systems_for("language"))
            hint = f"give sentence pairs, or the corpus {DATES}; systems that learn from text are {systems}"
            raise InputError("the corpus is text and has no translations", where=str(source), hint=hint)


def read_tasks(data: Any, files: Sequence[str | Path], notes: list[str]) -> Pairs:
    """Read the pairs of some files as the settings ``data`` say."""
    check_pairs(files)
    tasks = split_tasks(files)
    forms = task_forms(len(tasks), data.prefix, data.pose, data.labels)
    columns = parse_columns(data.columns) if all(form.pose == "text" for form in forms) else {}
    return join_tasks([read_task(own, form, columns, data.columns, notes) for own, form in zip(tasks, forms)])


def read_parts(data: PairSettings, notes: list[str]) -> tuple[Pairs, Pairs | None]:
    """Read the training pairs and the validation pairs."""
    check_pairs(data.valid)
    pairs = read_tasks(data, data.files, notes)
    if data.valid:
        return pairs, read_tasks(data, data.valid, notes)
    if tuple(data.files) == (DATES,):
        return pairs, builtin_pairs("valid")
    return hold_out_pairs(pairs, data.holdout) if data.holdout else (pairs, None)


def read_test_pairs(sources: Sequence[str | Path], data: PairSettings, notes: list[str]) -> Pairs:
    """Read pairs to score as those of a run were; of the built-in corpus those that are held out.

    A run of several tasks reads a file of each, or files whose sources have their prefixes already.
    """
    check_pairs(sources)
    if list(sources) == [DATES]:
        return builtin_pairs("valid")
    several = len(split_tasks(data.files)) > 1
    if several and len(sources) != len(data.files):
        if any(pose != "text" for pose in data.pose) and len({*data.pose}) > 1:
            what = f"this run learnt {len(data.files)} tasks, and {len(sources)} files are given"
            raise InputError(what, hint="give a file of each, in their order")
        data = replace(data, prefix=())
    return read_tasks(data, sources, notes)
