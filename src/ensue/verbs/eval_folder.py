"""The folder of an evaluation: eval.json, one JSONL file of records for each task and number of shots, and the chart.

Results are written as they are finished, answers of an unfinished task as they are given (``SavedAnswers``). The same
command on the same folder continues; other tasks and shots are added; other settings for a result that is there are
refused.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.files import atomic_file, disk_errors, finite, read_json, write_json
from ensue.core.run_files import LOCK
from ensue.core.run_folder import folder_lock
from ensue.core.wording import counted
from ensue.look.eval_chart import eval_chart
from ensue.look.saving import save_chart
from ensue.verbs.eval_answers import ENDING, SavedAnswers, check_settings

RESULTS = "eval.json"
CHARTS = ("eval.html", "eval.svg")
IDENTITY = ("run", "task", "shots")


class EvalFolder:
    """Results on disk; without a path they are only held."""

    def __init__(self, path: Path | None, *, force: bool = False, resume: bool = False) -> None:
        self.path, self.results, self.runs = path, list[dict[str, Any]](), dict[str, Any]()
        self._replaces = force
        """True until ``made`` has deleted the answers that are there."""
        if resume and force:
            raise InputError("--resume continues an evaluation and --force replaces it", hint="leave one out")
        if path is None:
            if resume:
                raise InputError("--resume needs the folder of the evaluation", hint="add --out FOLDER")
            return
        if path.exists() and not path.is_dir():
            raise InputError("is a file, not a folder", where=str(path), hint="choose another --out")
        file = path / RESULTS
        if resume and not file.exists():
            raise InputError("there is no evaluation to continue", where=str(path), hint="leave out --resume")
        if file.exists() and not force:
            self._read(file)
        elif path.exists() and any(one.name != LOCK for one in path.iterdir()) and not file.exists():
            raise InputError("holds other files", where=str(path), hint="choose another --out")

    def _read(self, file: Path) -> None:
        held = read_json(file)
        results = held.get("results") if isinstance(held, Mapping) else None
        if not isinstance(results, list) or not all(_is_result(one) for one in results):
            raise InputError("is damaged: not an evaluation", where=str(file), hint="--force replaces it")
        self.results = results
        self.runs = {one["run"]: one for one in held.get("runs", []) if isinstance(one, Mapping) and "run" in one}

    @contextmanager
    def made(self, facts: Mapping[str, Any]) -> Iterator[None]:
        """Make and lock the folder, for a block: a path that cannot be one is refused before anything is asked."""
        if self.path is None:
            yield
            return
        with ExitStack() as stack:
            with disk_errors(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(folder_lock(self.path, "evaluating"))
                for file in self.path.glob(f"*{ENDING}") if self._replaces else ():
                    file.unlink()
            if not self._replaces and (self.path / RESULTS).exists():
                self._read(self.path / RESULTS)  # another process may have added results since
            self._replaces = False
            self.write(facts, chart=False)
            yield

    def check_names(self, work: Sequence[tuple[str, str, int, Mapping[str, Any]]]) -> None:
        """Raise InputError if two results, each a run, a task, shots and settings, would be the same file or entry."""
        if self.path is None:
            return
        models = {run: settings["digest"] for run, _, _, settings in work}
        for held in self.results:
            if models.get(held["run"], held["settings"].get("digest")) != held["settings"].get("digest"):
                what = f"holds results of another model that is named {held['run']}"
                raise InputError(what, where=str(self.path), hint="choose another --out")
        owners: dict[str, str] = dict.fromkeys(map(_folded, (RESULTS, LOCK, *CHARTS)), "the evaluation itself")
        for held in self.results:
            owners[_folded(str(held.get("records", "")))] = _title(*(held[key] for key in IDENTITY))
        kept = {tuple(held[key] for key in IDENTITY) for held in self.results}
        several = self._several({run for run, *_ in work})
        for run, task, shots, _ in work:
            if (run, task, shots) not in kept:
                kept.add((run, task, shots))
                names = [_records_name(run, task, shots, several), _answers_name(run, task, shots)]
                self._own(owners, names, _title(run, task, shots))

    def _own(self, owners: dict[str, str], names: Sequence[str], title: str) -> None:
        """Let files belong to a result; raise InputError if one is another's, or a folder of another's."""
        for name in map(_folded, names):
            taken = (other for other in owners if other == name or _inside(other, name) or _inside(name, other))
            if (other := next(taken, None)) is not None:
                what = f"{owners[other]} and {title} would have the same name there"
                raise InputError(what, where=str(self.path), hint="rename one, or use another --out for it")
        owners |= dict.fromkeys(map(_folded, names), title)

    def _several(self, runs: set[str]) -> bool:
        """Whether results are of several runs, with those that are there."""
        return len(runs | {one["run"] for one in self.results}) > 1

    def answers(self, run: str, task: str, shots: int, settings: Mapping[str, Any]) -> SavedAnswers:
        """The answers of a task so far; raise InputError if they are damaged, or made with other settings."""
        if self.path is None or self._replaces:
            return SavedAnswers()
        path = self.path / _answers_name(run, task, shots)
        return SavedAnswers(path, {**dict(zip(IDENTITY, (run, task, shots))), **settings})

    def find(self, run: str, task: str, shots: int, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result that is there; raise InputError if it was made with other settings."""
        found = next((one for one in self.results if [one[key] for key in IDENTITY] == [run, task, shots]), None)
        if found is None or self.path is None:
            return None
        check_settings(found["settings"], finite(dict(settings)), f"holds {task} with {shots} shots", self.path)
        return found

    def add(self, result: dict[str, Any], records: Sequence[Mapping[str, Any]], several: bool) -> None:
        """Add a result; its records go to TASK-SHOTS.jsonl, with several runs in a folder for each."""
        result = dict(result)
        if self.path is not None:
            several = several or self._several({result["run"]})
            result["records"] = _records_name(result["run"], result["task"], result["shots"], several)
            with atomic_file(self.path / result["records"]) as temporary:
                lines = (json.dumps(finite(dict(one)), ensure_ascii=False) + "\n" for one in records)
                temporary.write_text("".join(lines), encoding="utf-8")
        self.results.append(result)

    def write(self, facts: Mapping[str, Any], *, chart: bool) -> None:
        """Write eval.json and, on request, the chart of all results."""
        if self.path is None:
            return
        self.runs |= {one["run"]: one for one in facts["runs"]}
        write_json(self.path / RESULTS, finite({**facts, "runs": list(self.runs.values()), "results": self.results}))
        if chart and self.results:
            drawn = eval_chart(self.results)
            for name in CHARTS:
                save_chart(drawn, self.path / name)


def file_name(text: str) -> str:
    """Return a name as part of a file name.

    >>> file_name("runs/my run")
    'runs-my-run'
    """
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in text).strip(".-") or "task"


def _records_name(run: str, task: str, shots: int, several: bool) -> str:
    """The file of a result's records."""
    return f"{file_name(run)}/" * several + f"{file_name(task)}-{shots}.jsonl"


def _answers_name(run: str, task: str, shots: int) -> str:
    """The file of the answers of an unfinished result."""
    return f"{file_name(run)}-{file_name(task)}-{shots}{ENDING}"


def _folded(name: str) -> str:
    """A name as systems compare it that do not tell capital letters apart."""
    return unicodedata.normalize("NFC", name).casefold()


def _inside(name: str, folder: str) -> bool:
    return name.startswith(f"{folder}/")


def _title(run: str, task: str, shots: int) -> str:
    return f"{task} of {run} ({counted(shots, 'shot')})"


def _is_result(one: Any) -> bool:
    """Whether all is there that tables and charts show."""
    needed = (*IDENTITY, "kind", "measure", "settings", "figures", "examples", "examples_per_second")
    if not isinstance(one, dict) or not all(key in one for key in needed):
        return False
    figures, settings = one["figures"], one["settings"]
    measured = figures.get(one["measure"]) if isinstance(figures, dict) else None
    return isinstance(settings, dict) and isinstance(measured, dict) and {"value", "error"} <= measured.keys()
