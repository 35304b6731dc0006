"""The folder of a race: its results, the runs in it, and what may be deleted with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from ensue.core.errors import InputError, errors_in
from ensue.core.files import disk_errors, read_json
from ensue.core.run_files import PARTIAL, SOURCE_TOKENIZER, TOKENIZER, delete_files, is_empty, strangers
from ensue.core.run_folder import RunFolder
from ensue.core.schema import Either, Fields, Items, Maybe, Number, Table, Text, Whole, check_schema, shown
from ensue.look.race import RaceRecord, entrant_name
from ensue.models.table import FORECASTERS, SYSTEMS
from ensue.tasks.table import race_task
from ensue.train.metrics import read_metrics
from ensue.verbs.racing.plan import candidate_folder

RESULTS = "race.json"
FILES = (RESULTS, "race.md", "race.html", "race.png", "race.svg", TOKENIZER, SOURCE_TOKENIZER)
"""The files of a race; it also has a folder for each run (see ``candidate_folder``)."""
RUN_SUFFIX = re.compile(r"(\+[\w.=-]+?)?(-pretrained)?(-\d+){0,2}")
"""What follows the system in the name of a run: its attention, its start, its number of labels, its seed."""


class RaceKind(NamedTuple):
    """A kind of race, as a folder shows it."""

    results: str
    """The file that every such folder has."""
    files: tuple[str, ...]
    """All files."""
    fields: Mapping[str, type]
    """What the results hold, among others."""
    is_run_name: Callable[[str], bool]
    """Whether such a race can have a run of this name."""


def check_deletable(folder: Path, kind: RaceKind | None = None) -> None:
    """Raise InputError unless a folder is a race and has no other files than those of the race and its runs."""
    where, hint, kind = str(folder), "choose another --out", kind or RACE
    if not (folder / kind.results).is_file() or not _is_own(read_json(folder / kind.results), kind):
        raise InputError("is not a race, so --force will not delete it", where=where, hint=hint)
    if others := _strangers(folder, kind):
        name = others[0].relative_to(folder)
        what = f"{name} is not a file of a race, so --force will not delete this folder"
        raise InputError(what, where=where, hint=f"move {name} away, or {hint}")


def _is_own(race: Any, kind: RaceKind) -> bool:
    """Return whether the results of a race are ensue's."""
    return isinstance(race, dict) and all(isinstance(race.get(name), form) for name, form in kind.fields.items())


def _strangers(folder: Path, kind: RaceKind) -> list[Path]:
    """Return what is in a race folder, or in a run of it, but is not of the race."""
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and kind.is_run_name(path.name) and (RunFolder(path).is_run() or is_empty(path)):
            found += strangers(path)
        elif path.is_dir() or (path.name not in kind.files and not PARTIAL.fullmatch(path.name)):
            found.append(path)
    return found


def is_run_name(name: str) -> bool:
    """Return whether a race can have a run of this name.

    >>> is_run_name("bert-pretrained-100"), is_run_name("gpt+local.span=64-0"), is_run_name("mine")
    (True, True, False)
    """
    systems = {*SYSTEMS, *FORECASTERS}
    return any(name.startswith(system) and RUN_SUFFIX.fullmatch(name[len(system) :]) for system in systems)


RACE = RaceKind(RESULTS, FILES, {"systems": list, "hash": str, "seeds": int}, is_run_name)


def delete_race(folder: Path, kind: RaceKind = RACE) -> None:
    """Delete the files and runs of a race, its results last; the folder stays."""
    check_deletable(folder, kind)
    for path in (path for path in folder.iterdir() if path.is_dir()):
        with RunFolder(path).lock():  # nobody trains in it
            pass
    with disk_errors(folder):
        for path in sorted(folder.iterdir(), key=lambda path: path.name == kind.results):
            if path.is_dir() and not path.is_symlink():
                delete_files(path)
                path.rmdir()
            else:
                path.unlink()


def is_race(folder: str | PathLike[str]) -> bool:
    """True if a folder holds a race."""
    return (Path(folder) / RESULTS).is_file()


MAX_NAME = 100
"""Maximum length of a system's name, which is part of the name of a folder."""
_AMOUNT = Maybe(Number())
_ENTRANT = Fields(
    {"system": Text()},
    optional={
        "start": Text(),
        "attention": Text(),
        **dict.fromkeys(("seconds", "bytes", "parameters", "tokens"), _AMOUNT),
        "labels": Whole(0),
        "seeds": Items(Table(_AMOUNT)),
    },
)
RACE_SCHEMA = Fields(
    {"systems": Items(_ENTRANT), "data": Items(Text()), "match": Text(), "budget": Maybe(Either((Text(), Number())))},
    optional={
        "task": Text(),
        "shares": Maybe(Items(Whole(1))),
        "attention": Items(Text()),
        "from": Maybe(Fields(optional={"run": Text()})),
        "settings": Table(),
        **dict.fromkeys(("valid_tokens", "valid_bytes", "threads"), Whole(1)),
        "valid_surcharge_bits": Number(),
    },
)
"""What race.json must be."""
TEXT_SCHEMA = Fields({"valid_tokens": Whole(1), "valid_bytes": Whole(1), "valid_surcharge_bits": Number()})
"""What race.json of language models holds, for their bits per byte during training."""


def read_race(folder: Path) -> dict[str, Any]:
    """The contents of race.json."""
    file = folder / "race.json"
    race: dict[str, Any] = read_json(file)
    check_schema(race, RACE_SCHEMA, str(file))
    for name, entrant in ((entrant["system"], entrant) for entrant in race["systems"]):
        folder_name = f"{name}{entrant.get('start', '')}"
        if Path(folder_name).name != folder_name or len(folder_name) > MAX_NAME or "\0" in folder_name:
            raise InputError(f"{shown(name)} is not the name of a system", where=str(file))
        for key in ("start", "labels", "seeds") if race.get("shares") else ("start",) if race.get("from") else ():
            if key not in entrant:
                raise InputError(f"{name} has no {key}", where=str(file), hint="the file may be damaged")
    return race


def open_race(folder: str | PathLike[str]) -> RaceRecord:
    """The results of a race and the metrics of its entrants."""
    path = Path(folder)
    if not is_race(path):
        raise InputError("holds no race", where=str(path), hint="`ensue race … --out` makes one")
    race = read_race(path)
    with errors_in(path / "race.json"):
        _, rules = race_task(race.get("task", "lm"))
    measure = rules.measure
    seeds = Items(Fields({measure.key: Number()}))
    costs = {} if race.get("shares") else {"seconds": _AMOUNT, "bytes": _AMOUNT}
    shape = Fields({measure.key: Maybe(Number()), **costs}, optional={"seeds": seeds} if race.get("shares") else {})
    check_schema(race["systems"], Items(shape), str(path / "race.json"), "systems")
    if "task" not in race:
        check_schema(race, TEXT_SCHEMA, str(path / "race.json"))
    if all(entrant[measure.key] is None for entrant in race["systems"]):
        raise InputError("has no result to draw yet", where=str(path), hint="`ensue race … --resume` continues it")
    entrants = race["systems"]
    if "task" not in race:  # a pre-trained language model has other tokens, in which its loss during training is
        entrants = [entrant for entrant in entrants if not entrant.get("start")]
    folders = {entrant_name(race, entrant): _folder(path, entrant) for entrant in entrants}
    metrics = {name: read_metrics(run) for name, run in folders.items() if run and (run / "metrics.jsonl").exists()}
    return RaceRecord(race, metrics, rules.name, measure.key, measure.title, rules.lower)


def runs_of(folder: str | PathLike[str]) -> list[Path]:
    """The folders of a race's runs, best first; of several seeds the first, of label shares the largest."""
    path = Path(folder)
    race = read_race(path)
    largest = max(race.get("shares") or [0])
    entrants = [entrant for entrant in race["systems"] if not largest or entrant["labels"] == largest]
    runs = (_folder(path, entrant, largest) for entrant in entrants)
    return [run for run in runs if run is not None and (run / "config.json").is_file()]


def _folder(path: Path, entrant: dict[str, Any], share: int = 0) -> Path | None:
    """The folder of an entrant, of its first seed if there are several."""
    name = candidate_folder(entrant["system"], entrant.get("start", ""), share, entrant.get("attention", ""))
    return next((run for run in (path / name, path / f"{name}-0") if run.is_dir()), None)
