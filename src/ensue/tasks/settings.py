"""All settings of a run, and how they come together: defaults, then the preset, then a file, then what was typed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, unknown_name
from ensue.core.events import Report, silent
from ensue.core.run_folder import CLOSING
from ensue.core.settings import build, check, check_below_one, describe, read_toml, toml_lines
from ensue.data.dates import DATES
from ensue.data.sources import is_builtin
from ensue.models.table import SYSTEMS
from ensue.train.settings import PairTrainSettings, TextTrainSettings

DEFAULT_BUDGET = 300.0
"""Seconds, where nothing says how long to train."""
VOCABULARIES = ("vocabulary", "source_vocabulary")
"""Settings of models that the tokenizers say."""
MOST_EVAL_TOKENS = 200_000
"""How many tokens an evaluation during training reads at the most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSettings:
    """Where the text comes from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The text to learn from: files, folders, - for standard input, or a built-in corpus."""
    valid: tuple[str, ...] = ()
    """The text to validate with; where there is none, the end of the text is held out."""
    field: str = ""
    """Which field of a JSONL file holds the text; empty means text."""
    holdout: float = 0.1
    """The share of the text that is held out where there is no validation text; 0 holds out nothing."""
    direction: str = "forward"
    """forward, or backward: the text is read from its end, so each word is predicted from those after it."""
    eval_tokens: int = 0
    """How many tokens of the validation text are looked at during training, all of them at its end; 0 means 200,000, or
    fewer where the budget is short."""
    hash: str = ""
    """Of the tokens trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check_below_one(self, "holdout")
        check(self, "direction", self.direction in ("forward", "backward"), "forward or backward")
        check(self, "eval_tokens", self.eval_tokens >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class PairSettings:
    """Where sentence pairs come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The pairs to learn from: two parallel files, a table, a JSONL file, - for standard input, or the corpus dates."""
    valid: tuple[str, ...] = ()
    """The pairs to validate with; where there are none, some are held out."""
    columns: str = ""
    """Which columns of a table or fields of JSONL are meant, e.g. source=2,target=1; empty means as they are found."""
    holdout: float = 0.1
    """The share of the pairs that is held out where there are none to validate with (at most 2,000); 0: none."""
    eval_pairs: int = 0
    """How many validation pairs are looked at during training; 0 means 1,000."""
    hash: str = ""
    """Of the tokens trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check_below_one(self, "holdout")
        check(self, "eval_pairs", self.eval_pairs >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerSettings:
    """How text becomes tokens, under ``tokenizer.`` in run.toml."""

    kind: str = "auto"
    """byte, char, word, bpe, wordpiece, unigram, a path to a tokenizer, or auto: char for a small text, else bpe."""
    vocabulary: int = 0
    """At most so many tokens; 0 means what suits the tokenizer and the size of the text."""
    min_count: int = 0
    """What is rarer is unknown (word, char) or not joined (bpe, wordpiece, unigram); 0 means the tokenizer's own."""

    def __post_init__(self) -> None:
        check(self, "vocabulary", self.vocabulary >= 0, "0 or more")
        check(self, "min_count", self.min_count >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class PairTokenizerSettings(TokenizerSettings):
    """How pairs become tokens, under ``tokenizer.`` in run.toml."""

    joint: bool = True
    """One vocabulary for both languages; without it, one each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """What stands first in run.toml."""

    system: str
    """The system that was trained."""
    preset: str = "default"
    """The preset its settings began with."""
    seed: int = 0
    """Where all random numbers come from."""
    device: str = "auto"
    """cpu, cuda, another name torch knows, or auto: a GPU where there is one."""
    compile: bool = False
    """Compile the model with torch.compile before training."""
    begin_with: str = ""
    """A run whose tokenizers and weights this one begins with; empty means from nothing."""
    command: str = ""
    """What was typed to begin this run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that run.toml says."""

    run: RunSettings
    model: dict[str, Any]
    train: Any
    """TextTrainSettings or PairTrainSettings, as the task's tables say; so with the other tables."""
    data: Any
    tokenizer: Any

    def toml(self) -> str:
        """The text of run.toml: every setting with its meaning; the model's stand at the top, the rest in tables."""
        config = SYSTEMS.load(self.run.system).Config(**self.model)
        lines = [*toml_lines(self.run), "", "# The model", *toml_lines(config)]
        for table in tables(self.run.system):
            lines += ["", f"[{table}]", *toml_lines(getattr(self, table))]
        return "\n".join([*lines, "", CLOSING]) + "\n"


TABLES: dict[str, dict[str, type[Any]]] = {
    "language": {"train": TextTrainSettings, "data": DataSettings, "tokenizer": TokenizerSettings},
    "translation": {"train": PairTrainSettings, "data": PairSettings, "tokenizer": PairTokenizerSettings},
}
"""The tables of run.toml, by task."""
MATERIAL = {"language": "text", "translation": "sentence pairs"}
"""What each task learns from."""
COUNTERPARTS = (
    ("train.batch", "train.batch_tokens"),
    ("data.field", "data.columns"),
    ("data.eval_tokens", "data.eval_pairs"),
)
"""Settings that do for text and for pairs what the other does there."""


def tables(system: str) -> dict[str, type[Any]]:
    """The tables of run.toml for a system."""
    return TABLES[task_name(system)]


def task_name(system: str) -> str:
    """What a system is trained for: language, unless it says otherwise."""
    return str(getattr(SYSTEMS.load(system), "task", "language"))


def systems_for(task: str) -> list[str]:
    """The systems that are trained for a task."""
    return [name for name in SYSTEMS if task_name(name) == task]


def foreign(system: str) -> dict[str, tuple[str, Any]]:
    """Settings that only other tasks have, by flat name: the task, and the default there."""
    own = set(all_names(system))
    return {
        f"{table}.{field.name}": (task, field.default)
        for task, kinds in TABLES.items()
        for table, kind in kinds.items()
        for field in describe(kind)
        if f"{table}.{field.name}" not in own
    }


def check_foreign(system: str, names: Iterable[str]) -> None:
    """Refuse settings that would do nothing for a system because they are another task's."""
    others = foreign(system)
    for name in names:
        if name in others:
            instead = dict((*COUNTERPARTS, *(pair[::-1] for pair in COUNTERPARTS))).get(name)
            learns = f"{system} learns from {MATERIAL[task_name(system)]}"
            mend = f"{learns}: use {instead}" if instead else f"{learns}, so leave it out"
            raise InputError(f"setting {name!r} is for {MATERIAL[others[name][0]]}", mend=mend)


def read_settings(path: Path, system: str = "", report: Report = silent) -> dict[str, Any]:
    """A run.toml as flat names, for a system or the one it names.

    Older versions wrote down every task's settings. Those of another task never did anything and are left out; where
    they are not at their default, somebody meant something by them, so it is said.
    """
    flat = read_toml(path)
    others = foreign(system or str(flat.get("system", "")))
    for name in sorted(name for name in flat if name in others and flat[name] != others[name][1]):
        what = f"{path}: {name} = {flat[name]!r} is left out: it is for {MATERIAL[others[name][0]]}"
        report("note", {"text": what})
    return {name: value for name, value in flat.items() if name not in others}


def resolve(system: str, *, preset: str = "", layers: list[Mapping[str, Any]]) -> Settings:
    """The settings of a run from several layers of flat names; later layers win."""
    cls = SYSTEMS.load(system)
    presets = cls.presets or {"default": {}}
    chosen = preset or next((str(layer["preset"]) for layer in reversed(layers) if layer.get("preset")), "default")
    if chosen not in presets and chosen != "default":
        raise unknown_name("preset", chosen, {"default", *presets})
    flat: dict[str, Any] = dict(presets.get(chosen, {}))
    if any(layer.get(name) for layer in layers for name in ("train.steps", "train.epochs")):
        flat.pop("train.budget", None)  # who says how far does not want the preset's time
    for layer in layers:
        flat.update(layer)
    flat |= {"system": system, "preset": chosen}
    check_foreign(system, flat)
    kinds = tables(system)
    groups: dict[str, dict[str, Any]] = {"": {}, **{name: {} for name in kinds}}
    for name, value in flat.items():
        table, dot, inner = name.partition(".")
        if dot and table not in kinds:
            raise unknown_name("setting", name, all_names(system))
        groups[table if dot else ""][inner if dot else name] = value
    top, own = {f.name for f in describe(RunSettings)}, {f.name for f in describe(cls.Config)}
    for name in groups[""]:
        if name not in top | own:
            raise unknown_name("setting", name, all_names(system))
    settings = Settings(
        run=build(RunSettings, {k: v for k, v in groups[""].items() if k in top}),
        model=_model_values(cls.Config, {k: v for k, v in groups[""].items() if k in own}),
        **{name: build(kind, groups[name], f"{name}.") for name, kind in kinds.items()},
    )
    return _with_defaults(settings)


def own_settings(system: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that concern a system: ``lstm.hidden=256`` is hidden=256 for lstm alone."""
    result = {}
    for name, value in settings.items():
        head, dot, rest = name.partition(".")
        if not (dot and head in SYSTEMS):
            result[name] = value
        elif head == system:
            result[rest] = value
    return result


def _model_values(config: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The model's settings, checked, before the vocabulary is known."""
    known = {f.name for f in describe(config)}
    trial = build(config, {**{name: 2 for name in VOCABULARIES if name in known}, **values})
    return {f.name: getattr(trial, f.name) for f in describe(config)}


def _with_defaults(settings: Settings) -> Settings:
    """A budget where nothing says how long, and evaluations that are short where the budget is."""
    train, data = settings.train, settings.data
    counts = hasattr(SYSTEMS.load(settings.run.system), "counter")
    if not (train.steps or train.epochs or train.budget or counts):
        train = replace(train, budget=DEFAULT_BUDGET)
    if isinstance(data, DataSettings) and not data.eval_tokens:
        share = min(1.0, train.budget / DEFAULT_BUDGET) if train.budget else 1.0
        data = replace(data, eval_tokens=max(2_000, int(MOST_EVAL_TOKENS * share)))
    return replace(settings, train=train, data=data)


def all_names(system: str) -> list[str]:
    """Every setting's flat name."""
    flat = [f.name for f in (*describe(RunSettings), *describe(SYSTEMS.load(system).Config))]
    return flat + [f"{table}.{f.name}" for table, kind in tables(system).items() for f in describe(kind)]


def check_bf16(device: str) -> None:
    """Refuse bf16 on a CPU that says it has it and dies of it: tried in another process, since it cannot be caught."""
    if device != "cpu":
        return
    trial = "import torch; x = torch.ones(1, 64, 64).bfloat16(); torch.nn.LSTM(64, 64).bfloat16()(x); x @ x"
    if subprocess.run([sys.executable, "-W", "ignore", "-c", trial], capture_output=True, check=False).returncode:
        raise InputError("this CPU does not compute bf16", mend="use --set train.precision=float32")


def check_device(name: str) -> str:
    """The device that a name stands for on this machine."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ValueError) as error:
        raise InputError(
            f"there is no device {name!r} here", mend="--device auto takes the fastest there is"
        ) from error
    return name


def data_files(sources: Sequence[str | Path]) -> tuple[str, ...]:
    """Sources as run.toml names them: paths made absolute, so that a run can be resumed from anywhere."""
    if any(str(source) == "" for source in sources):
        raise InputError("the name of the text is empty", mend="name a file, a folder, - or a built-in corpus")
    return tuple(
        str(s) if s == "-" or is_builtin(s) or s == DATES or not _there(Path(s)) else str(Path(s).absolute())
        for s in sources
    )


def _there(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have is left to the reader to refuse."""
    try:
        return path.exists()
    except OSError:
        return False
