"""Resolve the sources of text that users name: files, folders, standard input, built-in corpora."""

from __future__ import annotations

import atexit
import difflib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ensue.core.errors import InputError
from ensue.core.schema import is_unicode
from ensue.data.corpora import BUILTIN
from ensue.data.dates import DATES
from ensue.data.listops import LISTOPS
from ensue.data.waves import WAVES

_NOT_TEXT = """
    .png .jpg .jpeg .gif .bmp .ico .webp .tif .tiff .svgz .pdf .ps .doc .docx .xls .xlsx .ppt .pptx .odt
    .zip .tar .tgz .bz2 .xz .zst .7z .rar .whl .jar .egg .so .dylib .dll .exe .o .a .lib .bin .dat .pyc .pyo
    .class .npy .npz .pt .pth .ckpt .safetensors .onnx .pkl .pickle .h5 .hdf5 .parquet .arrow .feather .db .sqlite
    .mp3 .mp4 .wav .flac .ogg .avi .mov .mkv .webm .ttf .otf .woff .woff2
"""
NON_TEXT_SUFFIXES = frozenset(_NOT_TEXT.split())
"""Suffixes of files without text, which are skipped in folders."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """The texts of a table, one document per line; labels are ignored."""

    file: str | Path
    columns: str = ""
    """The text column or field, as ``text=2``."""
    skip: bool = False
    """Leave out lines with too few columns."""

    def __str__(self) -> str:
        return str(self.file)


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of the concatenated text of some sources, from byte ``start`` to byte ``stop``.

    ``stop`` None means up to the end. Both lie between characters, as ``hold_out`` chooses them.
    """

    sources: tuple[str | Path | TableColumn, ...]
    start: int = 0
    stop: int | None = None

    def __str__(self) -> str:
        stop = "" if self.stop is None else self.stop
        return f"{' '.join(map(str, self.sources))}[{self.start}:{stop}]"


Source = str | Path | TableColumn | Slice
"""A file, a folder, "-" for standard input, the name of a built-in corpus, texts of a table, or a slice of these."""


def is_builtin(source: str | Path | TableColumn) -> bool:
    """Return whether this names a built-in corpus; ``./pydoc`` and any ``Path`` name a file."""
    return isinstance(source, str) and source in BUILTIN


def is_gzip(path: Path) -> bool:
    """Return whether the suffix is .gz."""
    return path.suffix.lower() == ".gz"


def plain_suffix(path: str | Path) -> str:
    """Return the suffix without .gz, in lower case.

    >>> plain_suffix("a.jsonl"), plain_suffix("a.JSONL.gz")
    ('.jsonl', '.jsonl')
    """
    path = Path(path)
    return (Path(path.stem) if is_gzip(path) else path).suffix.lower()


def is_jsonl(path: str | Path) -> bool:
    """Return whether the suffix is .jsonl, compressed or not."""
    return plain_suffix(path) == ".jsonl"


def source_files(
    source: str | Path, notes: list[str], hint: str = "give a file, a folder or -", corpora: Sequence[str] = ()
) -> Iterator[tuple[Path, str, bool]]:
    """Yield the files of a source: path, name for messages, and whether it was found in a folder.

    If there is none, the error suggests ``hint`` and the names of ``corpora``.
    """
    hint = f"{hint}, or the corpus {' or '.join(corpora)}" if corpora else hint
    if source == "-":
        yield _spool("-"), "standard input", False
        return
    path = Path(source)
    try:
        is_folder, is_file, exists = path.is_dir(), path.is_file(), path.exists() and str(source) != ""
    except (OSError, ValueError) as error:  # too long for a file name, or with a zero byte: perhaps a text
        raise InputError("this is not the name of a file", where=f"{str(source)[:40]!r}", hint=hint) from error
    if not exists:
        raise _missing_file(source, hint, corpora)
    if is_folder:
        for file in _folder_files(path, notes):
            yield file, str(file), True
    else:
        yield path if is_file else _spool(str(path)), str(path), False


def _folder_files(folder: Path, notes: list[str]) -> Iterator[Path]:
    """Yield the files below a folder in sorted order, without hidden ones and those that are not text."""
    for parent, folders, names in os.walk(folder):
        for name in [name for name in folders if name.startswith(".")]:
            notes.append(f"{Path(parent, name)}: skipped, a hidden folder")
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith("."):
                notes.append(f"{path}: skipped, a hidden file")
            elif path.suffix.lower() in NON_TEXT_SUFFIXES or ".tar." in name.lower():
                notes.append(f"{path}: skipped, not a text file")
            elif path.is_file():
                yield path


@cache
def _spool(name: str) -> Path:
    """Copy a pipe or terminal, which can be read only once, to a temporary file of this process."""
    folder = Path(tempfile.mkdtemp(prefix="ensue-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = folder / "input"
    with copy.open("wb") as target:
        if name == "-":
            shutil.copyfileobj(sys.stdin.buffer, target)
        else:
            with Path(name).open("rb") as pipe:
                shutil.copyfileobj(pipe, target)
    return copy


def _missing_file(source: str | Path, hint: str, corpora: Sequence[str]) -> InputError:
    """Return the error for a missing file, suggesting the most similar name, or else ``hint``."""
    path = Path(source)
    try:
        names = sorted(file.name for file in path.parent.iterdir() if file.exists())
    except OSError:
        return InputError("there is no such file", where=str(source), hint=f"nor a folder {path.parent}")
    builtin = list(corpora) if path.name == source else []
    for near in difflib.get_close_matches(path.name, [*builtin, *names], n=1, cutoff=0.6):
        meant = f"the corpus {near!r}" if near in builtin else str(path.parent / near)
        return InputError("there is no such file", where=str(source), hint=f"did you mean {meant}?")
    return InputError("there is no such file", where=str(source) or "''", hint=hint)


def as_source_list(sources: Sequence[Source] | Source) -> list[Source]:
    """Return one source or several as a list."""
    return [sources] if isinstance(sources, str | Path | TableColumn | Slice) else list(sources)


def absolute_sources(sources: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    """Return sources as run.toml names them: paths are absolute, so that a run can be resumed from any folder."""
    sources = [sources] if isinstance(sources, str | Path) else sources
    if any(str(source) == "" for source in sources):
        raise InputError("the name of the text is empty", hint="name a file, a folder, - or a built-in corpus")
    for source in sources:
        if not is_unicode(str(source)):
            raise InputError("the name is not UTF-8, so run.toml cannot hold it", where=str(source), hint="rename it")
    return tuple(
        str(s)
        if s in ("-", DATES, LISTOPS, WAVES) or is_builtin(s) or not _exists(Path(s))
        else str(Path(s).absolute())
        for s in sources
    )


def _exists(path: Path) -> bool:
    """Return whether there is such a file; False for names that no file can have."""
    try:
        return path.exists()
    except OSError:
        return False
