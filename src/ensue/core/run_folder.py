"""The format of a run folder.

config.json          the system, the model's settings, the version of this format
model.safetensors    the weights
tokenizer.json       the tokenizer
run.toml             every setting, resolved, with its meaning
metrics.jsonl        training metrics; events/ has the same for TensorBoard
README.md            the model card: data, scores, command
checkpoints/         checkpoints for exact resumption
teacher.safetensors  the teacher's outputs, for distilled runs
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, errors_in, read_errors
from ensue.core.files import disk_errors, read_json, write_json
from ensue.core.schema import Fields, Maybe, Number, Table, Text, Whole, check_schema

FORMAT = 1
LOCKS: Any = import_module("fcntl") if find_spec("fcntl") else None
"""File locks of Unix; on other systems a run folder is not locked."""
LAST_LINE = "# all settings end here"
"""The last line of run.toml: a file without it was cut short."""

FIGURES_SCHEMA = Fields(
    optional={
        "stopped": Text(),
        "unit": Text(),
        **dict.fromkeys(("steps", "parameters", "bytes"), Whole(0)),
        "tokens": Maybe(Whole(0)),
        "seconds": Number(),
        "valid": Table(),
    }
)
CONFIG_SCHEMA = Fields(
    {"format": Whole(0), "system": Text(), "model": Table()},
    optional={
        "ensue": Text(),
        "task": Text(),
        "direction": Text(("forward", "backward")),
        "figures": FIGURES_SCHEMA,
        "head": Table(),
        "features": Fields({"system": Text(), "model": Table(), "run": Text()}),
        "data": Table(),
    },
)
"""What every config.json holds; a task adds the fields of ``data`` and ``figures.valid`` that it reads."""
CONFIG_ERRORS = (
    KeyError,
    TypeError,
    ValueError,
    RuntimeError,
    ArithmeticError,
    IndexError,
    AttributeError,
    MemoryError,
)
"""Errors of a model built from wrong settings."""


class _File:
    """An attribute of a run folder: the path of one of its files."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: RunFolder, owner: type) -> Path:
        return folder.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run, and the reading and writing of its config.json."""

    path: Path

    config = _File("config.json")
    weights = _File("model.safetensors")
    tokenizer = _File("tokenizer.json")
    settings = _File("run.toml")
    card = _File("README.md")
    checkpoints = _File("checkpoints")
    teacher_outputs = _File("teacher.safetensors")

    def check_free(self, force: bool) -> None:
        """Raise InputError if the folder is not empty, unless it is a run and ``force`` is True."""
        if self.path.is_file():
            raise InputError("is a file, not a folder", where=str(self.path), hint="choose another --out")
        if not self.path.exists() or not any(self.path.iterdir()):
            return
        if not force:
            hint = "--resume continues it, --force replaces it, --out names another"
            raise InputError("is there already", where=str(self.path), hint=hint)
        if not self.is_run():
            hint = "choose another --out"
            raise InputError("is not a run, so --force will not delete it", where=str(self.path), hint=hint)

    def is_run(self) -> bool:
        """True if the folder is a run; only runs may be deleted."""
        try:
            if self.config.exists():
                config = json.loads(self.config.read_text(encoding="utf-8"))
                return isinstance(config, dict) and {"format", "system"} <= config.keys()
            return self.settings.exists() and LAST_LINE in self.settings.read_text(encoding="utf-8")
        except (OSError, ValueError, RecursionError):
            return self.settings.exists() and self.checkpoints.is_dir()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder while this process trains in it."""
        if LOCKS is None:
            yield
            return
        with (self.path / ".lock").open("w") as file:
            try:
                LOCKS.flock(file, LOCKS.LOCK_EX | LOCKS.LOCK_NB)
            except OSError as error:
                hint = "wait for it, or choose another --out"
                raise InputError("another process is training here", where=str(self.path), hint=hint) from error
            for part in (*self.path.glob(".*.part"), *self.checkpoints.glob(".*.part")):
                shutil.rmtree(part) if part.is_dir() else part.unlink()  # partial files of a killed process
            yield

    def make(self, force: bool) -> None:
        """Create an empty folder for a new run."""
        self.check_free(force)
        if self.path.exists() and self.is_run():
            with self.lock():
                pass
        with disk_errors(self.path):
            if self.path.exists():
                shutil.rmtree(self.path)
            self.path.mkdir(parents=True)

    def check_resumable(self) -> None:
        """Raise InputError unless there is a run with complete settings, of this version or an older one."""
        if self.config.exists():
            self.read_config()
        if not self.settings.exists():
            hint = "leave out --resume to start one"
            raise InputError("holds no run to resume", where=str(self.path), hint=hint)
        with read_errors(self.settings, "is damaged"):
            text = self.settings.read_text(encoding="utf-8", errors="replace")
        if LAST_LINE not in text:
            hint = "settings are missing, so the run cannot be resumed"
            raise InputError("is incomplete", where=str(self.settings), hint=hint)

    def write_config(self, system: str, config: Any, version: str, **more: Any) -> None:
        """Write config.json."""
        write_json(self.config, {"ensue": version, "format": FORMAT, "system": system, "model": asdict(config), **more})

    def config_errors(self) -> AbstractContextManager[None]:
        """Name config.json in errors; those of values that it lacks or that are wrong become InputError."""
        return errors_in(self.config, *CONFIG_ERRORS)

    def read_config(self) -> dict[str, Any]:
        """Read config.json; raise InputError if it is not ours or from a newer version."""
        if not self.path.exists():
            raise InputError("there is no such run", where=str(self.path), hint="`ensue fit` makes one")
        if not self.config.exists():
            unfinished = self.settings.exists()
            hint = "resume it with `ensue fit … --resume`" if unfinished else "name a folder that `ensue fit` made"
            raise InputError("is not a finished run (no config.json)", where=str(self.path), hint=hint)
        config: dict[str, Any] = read_json(self.config)
        kinds = {"format": int, "system": str, "model": dict}
        if not isinstance(config, dict) or not all(isinstance(config.get(n), kind) for n, kind in kinds.items()):
            hint = "`ensue convert` reads folders of other tools"
            raise InputError("was not made by ensue", where=str(self.config), hint=hint)
        check_schema(config, CONFIG_SCHEMA, str(self.config))
        if config["format"] > FORMAT:
            what = f"was made by a newer version of ensue ({config.get('ensue', '?')})"
            raise InputError(what, where=str(self.path), hint="upgrade ensue")
        return config
