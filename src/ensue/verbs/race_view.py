"""``ensue look race``: a race as its folder tells it."""

from __future__ import annotations

from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.files import read_json
from ensue.look.labels import label_curve
from ensue.look.race import entrant_name, race_chart
from ensue.train.metrics import read_metrics
from ensue.verbs.race_metrics import Discipline, find_discipline
from ensue.verbs.race_plan import lane_folder
from ensue.verbs.view import View


def is_race(folder: str | PathLike[str]) -> bool:
    """Whether a folder holds a race."""
    return (Path(folder) / "race.json").is_file()


def race_view(folder: str | PathLike[str]) -> View:
    """Each one's way while it trained, and where it ended; of a race on shares of the labels what labels bring."""
    path = Path(folder)
    if not is_race(path):
        raise InputError("holds no race", where=str(path), hint="`ensue race … --out` makes one")
    race = read_json(path / "race.json")
    discipline = find_discipline(race.get("task", "lm"))
    if all(one[discipline.measure.key] is None for one in race["systems"]):
        raise InputError("has no result to draw yet", where=str(path), hint="`ensue race … --resume` goes on with it")
    draw = partial(_labels, race, discipline) if race.get("shares") else partial(_times, race, path, discipline)
    return View(draw, race)


def runs_of(folder: str | PathLike[str]) -> list[Path]:
    """The runs of a race, best first; of several seeds the first, of shares of the labels the largest."""
    path = Path(folder)
    race = read_json(path / "race.json")
    largest = max(race.get("shares") or [0])
    kept = [one for one in race["systems"] if not largest or one["labels"] == largest]
    found = (_folder(path, one, largest) for one in kept)
    return [run for run in found if run is not None and (run / "config.json").is_file()]


def _folder(path: Path, entrant: dict[str, Any], share: int = 0) -> Path | None:
    """Where one of a race is kept, the first of its seeds."""
    name = lane_folder(entrant["system"], entrant.get("start", ""), share)
    return next((run for run in (path / name, path / f"{name}-0") if run.is_dir()), None)


def _times(race: dict[str, Any], path: Path, discipline: Discipline) -> Any:
    """The measure against training time."""
    folders = {entrant_name(race, one): _folder(path, one) for one in race["systems"]}
    ways = {name: read_metrics(run) for name, run in folders.items() if run and (run / "metrics.jsonl").exists()}
    measure = discipline.measure
    return race_chart(race, ways, measure.key, measure.title, discipline.lower)


def _labels(race: dict[str, Any], discipline: Discipline) -> Any:
    """The measure against the number of labels, a line for each system and start."""
    key, points = discipline.measure.key, []
    for one in race["systems"]:
        if one[key] is None:
            continue
        point = {"system": one["system"], "start": one["start"], "labels": one["labels"], "value": one[key]}
        values = [seed[key] for seed in one["seeds"]]
        points.append(point | ({"low": min(values), "high": max(values)} if len(values) > 1 else {}))
    what = f"What labels bring: {discipline.name} on {', '.join(race['data'])}"
    return label_curve(points, discipline.measure.title, title=what)
