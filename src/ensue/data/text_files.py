"""Open and decode text files: gzip, byte order mark, UTF-8, with errors that name the file and line."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.data.sources import is_gzip

BOM = b"\xef\xbb\xbf"
BUFFER_BYTES = 1 << 20


@contextmanager
def open_bytes(path: Path, name: str) -> Iterator[io.BufferedReader]:
    """Open a file for reading bytes, decompressed if its name ends in .gz; ``name`` is used in errors."""
    try:
        with path.open("rb", buffering=0) as raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if is_gzip(path) else raw
            yield io.BufferedReader(stream, BUFFER_BYTES)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        hint = "compress it again, or rename it if it is plain text"
        raise InputError("the gzip file is damaged or cut short", where=name, hint=hint) from error
    except PermissionError as error:
        raise InputError("permission denied", where=name, hint="change its permissions") from error
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=name) from error


def skip_bom(file: io.BufferedReader, name: str) -> None:
    """Skip the UTF-8 byte order mark; raise an error for an empty file or UTF-16."""
    start = file.peek(len(BOM))[: len(BOM) + 1]
    if not start.removeprefix(BOM):
        raise InputError("the file is empty", where=name, hint="give a file with text in it")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("is UTF-16", where=name, hint="convert it: iconv -f UTF-16 -t UTF-8")
    if start.startswith(BOM):
        file.read(len(BOM))


def decode_utf8(data: bytes, name: str, line: int) -> str:
    """Decode UTF-8; ``line`` is the number of the first line, for the error."""
    if (zero := data.find(b"\0")) >= 0:
        where = f"{name}:{line + data.count(10, 0, zero)}"
        raise InputError("binary data (a zero byte)", where=where, hint="give a text file in UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"{name}:{line + data.count(10, 0, error.start)}"
        hint = "convert the file to UTF-8, for example with iconv -f LATIN1 -t UTF-8"
        raise InputError(f"not UTF-8 (byte 0x{data[error.start]:02x})", where=where, hint=hint) from error
