"""The format of a run folder.

config.json          the system, the model's settings, the version of this format; written last
manifest.json        the SHA-256 of the files that the run needs
model.safetensors    the weights
tokenizer.json       the tokenizer
run.toml             every setting, resolved, with its meaning
metrics.jsonl        training metrics; events/ has the same for TensorBoard
README.md            the model card: data, scores, command
checkpoints/         checkpoints for exact resumption
base/                the run whose weights have adapters here: model.safetensors then holds the adapters alone
teacher.safetensors  the teacher's outputs, for distilled runs
"""

from __future__ import annotations

import errno
import hashlib
import json
import shlex
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ensue.core import run_files
from ensue.core.errors import InputError, errors_in, read_errors
from ensue.core.files import disk_errors, json_text, read_json, write_text
from ensue.core.manifest import MANIFEST, damaged_files, digests_of, forget, read_manifest, write_manifest
from ensue.core.notes import note_once
from ensue.core.schema import Fields, Items, Maybe, Number, Table, Text, Whole, check_schema
from ensue.core.verification import verification_enabled

FORMAT = 1
LOCKS: Any = import_module("fcntl") if find_spec("fcntl") else None
"""File locks of Unix; on other systems a run folder is not locked."""
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a file system without locks, on which a folder is not locked either."""
KEYS = {"format": int, "system": str, "model": dict}
"""Keys that every config.json has, and their types."""
OWN_KEYS = {**KEYS, "ensue": str}
"""Keys of a config.json that ensue itself wrote."""
WRITTEN_ANEW = (run_files.CONFIG, run_files.WEIGHTS)
"""Files that a resumed run does not read, but writes."""
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
        "untrained": Items(Text()),
        "chat": Fields({"begin": Text(), "end": Text(), "stop": Items(Text())}),
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


@contextmanager
def folder_lock(path: Path, doing: str) -> Iterator[None]:
    """Lock a folder inside a block; raise InputError if another process has locked it, which is ``doing`` something."""
    if LOCKS is None:
        yield
        return
    with (path / run_files.LOCK).open("w") as file:
        try:
            LOCKS.flock(file, LOCKS.LOCK_EX | LOCKS.LOCK_NB)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                hint = "wait for it, or choose another --out"
                raise InputError(f"another process is {doing} here", where=str(path), hint=hint) from error
        yield


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run, and the reading and writing of its config.json."""

    path: Path

    config = _File(run_files.CONFIG)
    manifest = _File(MANIFEST)
    chat = _File(run_files.CHAT)
    weights = _File(run_files.WEIGHTS)
    tokenizer = _File(run_files.TOKENIZER)
    source_tokenizer = _File(run_files.SOURCE_TOKENIZER)
    settings = _File(run_files.SETTINGS)
    card = _File(run_files.CARD)
    checkpoints = _File(run_files.CHECKPOINTS)
    teacher_outputs = _File(run_files.TEACHER_OUTPUTS)

    @property
    def base(self) -> RunFolder | None:
        """The run whose weights have adapters here; None if the run has weights of its own."""
        path = self.path / run_files.BASE
        return RunFolder(path) if path.is_dir() else None

    @property
    def quoted(self) -> str:
        """The path for a command line."""
        return shlex.quote(str(self.path))

    def check_free(self, force: bool, resumable: bool = False) -> None:
        """Raise InputError if the folder is not empty, unless it is a run and ``force`` is True.

        ``resumable`` says that the command has --resume.
        """
        if self.path.is_file():
            raise InputError("is a file, not a folder", where=str(self.path), hint="choose another --out")
        if not self.path.exists() or run_files.is_empty(self.path):
            return
        if not force:
            hint = "--resume continues it, " * resumable + "--force replaces it, --out names another"
            raise InputError("is there already", where=str(self.path), hint=hint)
        self.check_deletable()

    def check_deletable(self) -> None:
        """Raise InputError unless the folder is a run and has no other files than a run's own."""
        hint = "choose another --out"
        if not self.is_run():
            raise InputError("is not a run, so --force will not delete it", where=str(self.path), hint=hint)
        if others := run_files.strangers(self.path):
            name = others[0].relative_to(self.path)
            what = f"{name} is not a file of a run, so --force will not delete this folder"
            raise InputError(what, where=str(self.path), hint=f"move {name} away, or {hint}")

    def is_run(self) -> bool:
        """True if the folder is a run, finished or not."""
        try:
            if self.config.exists():
                config = json.loads(self.config.read_text(encoding="utf-8"))
                return isinstance(config, dict) and all(isinstance(config.get(n), kind) for n, kind in OWN_KEYS.items())
            return self.settings.exists() and LAST_LINE in self.settings.read_text(encoding="utf-8")
        except (OSError, ValueError, RecursionError):
            return self.settings.exists() and self.checkpoints.is_dir()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder while this process trains in it."""
        with folder_lock(self.path, "training"):
            parts = (*self.path.glob(".*.part"), *self.checkpoints.glob(".*.part")) if LOCKS is not None else ()
            for part in parts:
                if run_files.PARTIAL.fullmatch(part.name):  # of a killed process
                    shutil.rmtree(part) if part.is_dir() and not part.is_symlink() else part.unlink()
            yield

    def make(self, force: bool) -> None:
        """Create an empty folder for a new run; the lock file of an earlier one stays."""
        self.check_free(force, resumable=True)
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                with self.lock():
                    self.check_free(force, resumable=True)  # another process may have written a run since
                    run_files.delete_files(self.path, keep=run_files.LOCK)

    def check_resumable(self) -> None:
        """Raise InputError unless there is a run with complete settings, of this version or an older one."""
        damaged = self.damage()
        for name in damaged:
            if name not in WRITTEN_ANEW:
                hint = f"{self.repair(name)}, or use --no-verify"
                raise InputError(damaged[name], where=str(self.path / name), hint=hint)
        if self.config.exists() and run_files.CONFIG not in damaged:
            self.read_config()
        if not self.settings.exists():
            hint = "leave out --resume to start one"
            raise InputError("holds no run to resume", where=str(self.path), hint=hint)
        with read_errors(self.settings, "is damaged"):
            text = self.settings.read_text(encoding="utf-8", errors="replace")
        if LAST_LINE not in text:
            hint = "settings are missing, so the run cannot be resumed"
            raise InputError("is incomplete", where=str(self.settings), hint=hint)

    def write_settings(self, text: str) -> None:
        """Write run.toml; until the run is finished, the manifest of an earlier part of it lists it no more."""
        forget(self.path, run_files.SETTINGS)
        write_text(self.settings, text)

    def write_config(self, system: str, config: Any, version: str, **more: Any) -> None:
        """Write manifest.json and config.json, which makes the run complete; all its other files exist already.

        config.json is the last file: without it the run is not finished, and a manifest of another config.json than
        the one that is there shows that writing was interrupted.
        """
        text = json_text({"ensue": version, "format": FORMAT, "system": system, "model": asdict(config), **more})
        self.write_manifest(config_digest=hashlib.sha256(text.encode()).hexdigest())
        write_text(self.config, text)

    def write_manifest(self, config_digest: str = "") -> None:
        """Write manifest.json for the files as they are; config.json may not have been written yet."""
        names = [name for name in run_files.NEEDED if (self.path / name).is_file()]
        digests = digests_of(self.path, names)
        write_manifest(self.path, digests | ({run_files.CONFIG: config_digest} if config_digest else {}))

    def damage(self, *names: str) -> dict[str, str]:
        """Return what is wrong with each file, or each of ``names``, that is not as manifest.json says.

        The result is empty if there is no manifest, or if verification is turned off.
        """
        if not verification_enabled() or not self.manifest.exists():
            return {}
        with self.manifest_errors():
            manifest = read_manifest(self.path, (run_files.CONFIG, run_files.WEIGHTS))
        listed = {name: digest for name, digest in manifest.items() if not names or name in names}
        return dict(damaged_files(self.path, listed, remember=True))

    @contextmanager
    def manifest_errors(self) -> Iterator[None]:
        """Add to errors of a damaged manifest how to go on."""
        try:
            yield
        except InputError as error:
            hint = f"`ensue check {self.quoted} --files --write` writes it anew, or use --no-verify"
            raise InputError(str(error), hint=hint) from error

    def verify(self, *names: str) -> None:
        """Raise InputError if a file, or one of ``names``, is damaged; a run of an older version gets a note."""
        for name, what in self.damage(*names).items():
            raise InputError(what, where=str(self.path / name), hint=f"{self.repair(name)}, or use --no-verify")
        if self.base is not None and not names:
            self.base.verify()
        if verification_enabled() and not self.manifest.exists():
            command = f"`ensue check {self.quoted} --files --write`"
            note_once(f"{self.path} has no {MANIFEST}, so damage to its files would not be noticed; {command} adds one")

    def repair(self, name: str) -> str:
        """Return a hint how to restore a damaged file."""
        if name in WRITTEN_ANEW and self.settings.exists() and self.manifest.exists():
            return f"`ensue fit {self.quoted} --resume` writes it again"
        return "restore it from a copy"

    def config_errors(self) -> AbstractContextManager[None]:
        """Name config.json in errors; those of values that it lacks or that are wrong become InputError."""
        return errors_in(self.config, *CONFIG_ERRORS)

    def read_config(self) -> dict[str, Any]:
        """Read config.json; raise InputError if it is not ours or from a newer version."""
        if not self.path.exists():
            hint = "`ensue fit` trains one, `ensue get` fetches one"
            raise InputError("there is no such run", where=str(self.path), hint=hint)
        if self.path.is_file():
            hint = "`ensue convert` makes a run of other tools' files"
            raise InputError("is a file, not the folder of a run", where=str(self.path), hint=hint)
        if not self.config.exists():
            unfinished = self.settings.exists()
            hint = "resume it with `ensue fit … --resume`" if unfinished else "name a folder that `ensue fit` made"
            raise InputError("is not a finished run (no config.json)", where=str(self.path), hint=hint)
        try:
            config: dict[str, Any] = read_json(self.config)
        except InputError as error:
            raise InputError(str(error), hint=self.repair(run_files.CONFIG)) from error
        if not isinstance(config, dict) or not all(isinstance(config.get(n), kind) for n, kind in KEYS.items()):
            hint = "`ensue convert` reads folders of other tools"
            raise InputError("was not made by ensue", where=str(self.config), hint=hint)
        check_schema(config, CONFIG_SCHEMA, str(self.config))
        if config["format"] > FORMAT:
            what = f"was made by a newer version of ensue ({config.get('ensue', '?')})"
            raise InputError(what, where=str(self.path), hint="upgrade ensue")
        return config
