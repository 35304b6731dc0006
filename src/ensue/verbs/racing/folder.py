"""The folder of a race: its results, the runs in it, and what may be deleted with it."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.files import disk_errors, read_json
from ensue.core.run_files import PARTIAL, SOURCE_TOKENIZER, TOKENIZER, delete_files, is_empty, strangers
from ensue.core.run_folder import RunFolder
from ensue.look.race import RaceRecord, entrant_name
from ensue.models.table import FORECASTERS, SYSTEMS
from ensue.tasks.table import race_task
from ensue.train.metrics import read_metrics
from ensue.verbs.racing.plan import candidate_folder

RESULTS = "race.json"
FILES = (RESULTS, "race.md", "race.html", "race.png", "race.svg", TOKENIZER, SOURCE_TOKENIZER)
"""The files of a race; it also has a folder for each run (see ``candidate_folder``)."""
RUN_SUFFIX = re.compile(r"(-pretrained)?(-\d+){0,2}")
"""What follows the system in the name of a run: its start, its number of labels, its seed."""


def check_deletable(folder: Path) -> None:
    """Raise InputError unless a folder is a race and has no other files than those of the race and its runs."""
    where, hint = str(folder), "choose another --out"
    if not is_race(folder) or not _is_own(read_json(folder / RESULTS)):
        raise InputError("is not a race, so --force will not delete it", where=where, hint=hint)
    if others := _strangers(folder):
        name = others[0].relative_to(folder)
        what = f"{name} is not a file of a race, so --force will not delete this folder"
        raise InputError(what, where=where, hint=f"move {name} away, or {hint}")


def _is_own(race: Any) -> bool:
    """Return whether race.json is ensue's."""
    kinds = {"systems": list, "hash": str, "seeds": int}
    return isinstance(race, dict) and all(isinstance(race.get(name), kind) for name, kind in kinds.items())


def _strangers(folder: Path) -> list[Path]:
    """Return what is in a race folder, or in a run of it, but is not of the race."""
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and is_run_name(path.name) and (RunFolder(path).is_run() or is_empty(path)):
            found += strangers(path)
        elif path.is_dir() or (path.name not in FILES and not PARTIAL.fullmatch(path.name)):
            found.append(path)
    return found


def is_run_name(name: str) -> bool:
    """Return whether a race can have a run of this name.

    >>> is_run_name("bert-pretrained-100"), is_run_name("seasonal-0"), is_run_name("mine")
    (True, True, False)
    """
    systems = {*SYSTEMS, *FORECASTERS}
    return any(name.startswith(system) and RUN_SUFFIX.fullmatch(name[len(system) :]) for system in systems)


def delete_race(folder: Path) -> None:
    """Delete the files and runs of a race, race.json last; the folder stays."""
    check_deletable(folder)
    for path in (path for path in folder.iterdir() if path.is_dir()):
        with RunFolder(path).lock():  # nobody trains in it
            pass
    with disk_errors(folder):
        for path in sorted(folder.iterdir(), key=lambda path: path.name == RESULTS):
            if path.is_dir() and not path.is_symlink():
                delete_files(path)
                path.rmdir()
            else:
                path.unlink()


def is_race(folder: str | PathLike[str]) -> bool:
    """True if a folder holds a race."""
    return (Path(folder) / RESULTS).is_file()


def open_race(folder: str | PathLike[str]) -> RaceRecord:
    """The results of a race and the metrics of its entrants."""
    path = Path(folder)
    if not is_race(path):
        raise InputError("holds no race", where=str(path), hint="`ensue race … --out` makes one")
    race = read_json(path / RESULTS)
    _, rules = race_task(race.get("task", "lm"))
    measure = rules.measure
    if all(entrant[measure.key] is None for entrant in race["systems"]):
        raise InputError("has no result to draw yet", where=str(path), hint="`ensue race … --resume` continues it")
    folders = {entrant_name(race, entrant): _folder(path, entrant) for entrant in race["systems"]}
    metrics = {name: read_metrics(run) for name, run in folders.items() if run and (run / "metrics.jsonl").exists()}
    return RaceRecord(race, metrics, rules.name, measure.key, measure.title, rules.lower)


def runs_of(folder: str | PathLike[str]) -> list[Path]:
    """The folders of a race's runs, best first; of several seeds the first, of label shares the largest."""
    path = Path(folder)
    race = read_json(path / RESULTS)
    largest = max(race.get("shares") or [0])
    entrants = [entrant for entrant in race["systems"] if not largest or entrant["labels"] == largest]
    runs = (_folder(path, entrant, largest) for entrant in entrants)
    return [run for run in runs if run is not None and (run / "config.json").is_file()]


def _folder(path: Path, entrant: dict[str, Any], share: int = 0) -> Path | None:
    """The folder of an entrant, of its first seed if there are several."""
    name = candidate_folder(entrant["system"], entrant.get("start", ""), share)
    return next((run for run in (path / name, path / f"{name}-0") if run.is_dir()), None)
