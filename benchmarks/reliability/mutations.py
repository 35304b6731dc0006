"""Damage to files: one JSON value replaced, one field of a line, one byte, the end cut off, a file missing or a folder.

A mutation is a pure function of a file and a random generator, so a case can be repeated by its seed.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DEPTH = 1000
MARKS = {"@deep list@": "[" * DEPTH + "]" * DEPTH, "@deep object@": '{"a":' * DEPTH + "1" + "}" * DEPTH}
MARKS |= {"@digits@": "9" * 5000}
"""Values that Python cannot write as JSON: a mark is written, and then replaced in the text."""
CANARY = "@canary@"
"""Stands for the path of a file that nobody named; see ``targets.Workshop``."""
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 7, 10**9, 10**30, -(10**30), 0.5, 1e308, float("nan"), float("inf")),
    *("", "\ud800", "\0", "x" * 100_000, "../..", CANARY, [], {}, [[]], [None], {"": None}, [1, "a", None]),
    *MARKS,
)
ODD_FIELDS = (
    *("", "-1", "0", "nan", "inf", "-inf", "1e400", "1e308", "9" * 30, "9" * 5000, "\\ud800", "\0", "\ud800"),
    *("x" * 10_000, '"', "\\", "'", "\t", "\n", "\r", "=", "{", "[[", "<s>", "</s>", "</x>"),
    *("2024-13-45", "0001-01-01", "99999-01-01", CANARY, "\u2028", "٣", "½", "true", "null"),
)
ODD_TOML = (
    *('""', "0", "-1", "1e308", "nan", "9" * 30, "true", "[]", "{}", '"x"', "[" * 500 + "]" * 500, "1979-05-27"),
    *(f'"{CANARY}"', '"\\ud800"', '"\\u0000"', "[[]]", "9" * 5000),
)


def json_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside a value; long lists by their first, middle and last items."""
    yield path
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return
    if len(items) > 12:
        items = [*items[:6], *items[len(items) // 2 : len(items) // 2 + 2], *items[-4:]]
    for key, inner in items:
        yield from json_paths(inner, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of a value with another value at a path."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def removed(value: Any, path: tuple[Any, ...]) -> Any:
    """Return a copy of a value without what is at a path."""
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = removed(value[path[0]], path[1:])
    return copy


def json_text(value: Any) -> str:
    """Write a value as JSON, marks replaced by what they stand for."""
    text = json.dumps(value)
    for mark, content in MARKS.items():
        text = text.replace(json.dumps(mark), content)
    return text


def change_json(text: str, chance: random.Random) -> str:
    """Replace or remove one value of a JSON text."""
    value = json.loads(text)
    path = chance.choice(list(json_paths(value)))
    if path and chance.random() < 0.1:
        return json_text(removed(value, path))
    old, new = value, chance.choice(ODD_VALUES)
    for key in path:
        old = old[key]
    if isinstance(old, int | float) and not isinstance(old, bool) and chance.random() < 0.3:
        new = chance.choice((old + 1, old - 1, old * 2, -old, old * 1000, float(old), str(old)))
    return json_text(replaced(value, path, new))


def change_line(text: str, chance: random.Random) -> str:
    """Replace one field of one line, or remove, repeat or join lines."""
    lines = text.split("\n")
    number = chance.randrange(len(lines))
    how = chance.random()
    if how < 0.1:
        del lines[number]
    elif how < 0.2:
        lines.insert(number, lines[chance.randrange(len(lines))])
    elif how < 0.25:
        lines[number] *= 50
    elif lines[number].startswith("{") and how < 0.8:
        lines[number] = change_json(lines[number], chance)
    else:
        fields = re.split(r"([\t, =]+)", lines[number])
        at = chance.randrange(len(fields))
        if chance.random() < 0.5:
            fields[at] = chance.choice(ODD_FIELDS)
        else:
            fields[at] += chance.choice(ODD_FIELDS)
        lines[number] = "".join(fields)
    return "\n".join(lines)


def change_toml(text: str, chance: random.Random) -> str:
    """Replace the value of one setting, or remove or repeat a line."""
    lines = text.split("\n")
    number = chance.choice([n for n, line in enumerate(lines) if line and not line.startswith("#")] or [0])
    how = chance.random()
    if how < 0.1:
        del lines[number]
    elif how < 0.15:
        lines.insert(number, lines[number])
    else:
        lines[number] = f"{lines[number].partition(' = ')[0]} = {chance.choice(ODD_TOML)}"
    return "\n".join(lines)


def change_bytes(data: bytes, chance: random.Random) -> bytes:
    """Flip, insert or remove some bytes, or cut off the end."""
    if not data:
        return b"\xff"
    at = chance.randrange(len(data) if chance.random() < 0.5 else min(len(data), 2000))
    how = chance.random()
    if how < 0.5:
        return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
    if how < 0.7:
        return data[:at]
    if how < 0.85:
        return data[:at] + bytes(chance.choices(range(256), k=chance.choice((1, 2, 8)))) + data[at:]
    return data[:at] + data[at + chance.choice((1, 4, 100)) :]


def change_safetensors(data: bytes, chance: random.Random) -> bytes:
    """Change one value of the header, or set four bytes of the tensors to extreme ones."""
    size = int.from_bytes(data[:8], "little")
    header, body = data[8 : 8 + size], data[8 + size :]
    if chance.random() < 0.5 and len(body) >= 8:
        at = 4 * chance.randrange(len(body) // 4)
        new = chance.choice((b"\0\0\xc0\x7f", b"\0\0\x80\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xff\xff\xff\xff"))
        return data[: 8 + size] + body[:at] + new + body[at + 4 :]
    text = change_json(header.decode(), chance).encode()
    return len(text).to_bytes(8, "little") + text + body


TEXT_CHANGES: dict[str, Callable[[str, random.Random], str]] = {
    ".json": change_json,
    ".toml": change_toml,
}
"""How text is changed, by its suffix; other text by ``change_line``."""


def changed(data: bytes, suffix: str, chance: random.Random) -> bytes:
    """Change a file's contents, by its format or as bytes."""
    if suffix == ".gz":
        if chance.random() < 0.5:
            return change_bytes(data, chance)
        return gzip.compress(changed(gzip.decompress(data), "", chance), 1)
    if suffix == ".safetensors" and chance.random() < 0.7:
        return change_safetensors(data, chance)
    if suffix in (".safetensors", ".bin", ".gguf") or chance.random() < 0.2:
        return change_bytes(data, chance)
    text = TEXT_CHANGES.get(suffix, change_line)(data.decode(), chance)
    return text.encode("utf-8", "surrogatepass")


def damage(file: Path, chance: random.Random, canary: Path) -> str:
    """Damage a file in place, and say how."""
    how = chance.random()
    if how < 0.01:
        file.unlink()
        return "missing"
    if how < 0.02:
        file.unlink()
        file.mkdir()
        return "a folder"
    if how < 0.03:
        file.write_bytes(b"")
        return "empty"
    data = changed(file.read_bytes(), file.suffix, chance)
    file.write_bytes(data.replace(CANARY.encode(), str(canary).encode()))
    return "changed"


def restore(file: Path, data: bytes) -> None:
    """Put back what a file held."""
    if file.is_dir():
        shutil.rmtree(file)
    file.write_bytes(data)
