"""Damaged GGUF files: is each one refused, or read as it was?

python -m benchmarks.reliability.gguf_files [--short]

Tiny files of every architecture, with blocks of all types. First one bit is changed in what a file is built of: magic,
version, counts, lengths, types, dimensions, offsets, keys and names of tensors. Such a file must be refused in one line
or give the same run, byte for byte. Then bytes anywhere are changed, inserted, removed or cut off, weights and values
included, for which GGUF has no digest: such a file must be refused in one line, or the run must load and generate.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import ensue
from benchmarks.record import record
from benchmarks.reliability.gguf_samples import gguf_files
from benchmarks.reliability.mutations import change_bytes
from benchmarks.reliability.row import Row
from ensue.core.errors import InvalidDistribution
from ensue.core.manifest import MANIFEST
from ensue.exchange.gguf.file import ARRAY, SCALARS, STRING
from ensue.verbs.convert import convert

Span = tuple[str, int, int]
"""What some bytes are, where they begin and end."""
SIZES = {"B": 1, "b": 1, "?": 1, "H": 2, "h": 2, "I": 4, "i": 4, "f": 4, "Q": 8, "q": 8, "d": 8}


class Walker:
    """Walks through the header of a good file and notes what its bytes are."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.spans = data, 0, list[Span]()

    def number(self, what: str, size: int) -> int:
        self.spans.append((what, self.at, self.at + size))
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def text(self, what: str) -> str:
        length = self.number("length", 8)
        self.spans.append((what, self.at, self.at + length))
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind: int) -> None:
        if kind == STRING:
            self.text("value")
        elif kind == ARRAY:
            inner, count = self.number("type", 4), self.number("count", 8)
            for _ in range(count):
                self.value(inner)
        else:
            self.number("value", SIZES[SCALARS[kind]])

    def walk(self) -> list[Span]:
        """Return the spans of the header."""
        self.number("magic", 4), self.number("version", 4)
        tensors, values = self.number("count", 8), self.number("count", 8)
        for _ in range(values):
            self.text("key")
            self.value(self.number("type", 4))
        for _ in range(tensors):
            self.text("name of a tensor")
            for _ in range(self.number("dimensions", 4)):
                self.number("dimension", 8)
            self.number("type of a tensor", 4), self.number("offset", 8)
        return self.spans


def flipped(data: bytes, chance: random.Random, spans: dict[str, list[Span]]) -> tuple[str, bytes]:
    """Change one bit of the header, of each kind of bytes as often."""
    what = chance.choice(sorted(spans))
    _, first, last = chance.choice(spans[what])
    at = chance.randrange(first, last)
    return what, data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def converted(path: Path, out: Path) -> str:
    """Make a run of a file: refused (in one line), the name of another error, or the digests of the run's files."""
    shutil.rmtree(out, ignore_errors=True)
    try:
        convert(path, out=out)
    except ensue.InputError as error:
        return "refused" if "\n" not in str(error) else "several lines"
    except Exception as error:  # a traceback for the user
        return type(error).__name__
    return (out / MANIFEST).read_text(encoding="utf-8")


def used(path: Path, out: Path) -> str:
    """Make a run of a file and generate with it; as ``converted``, or read."""
    found = converted(path, out)
    if not found.startswith("{"):
        return found
    try:
        ensue.load(out).generate("the", tokens=2)
    except (ensue.InputError, InvalidDistribution) as error:
        return "refused" if "\n" not in str(error) else "several lines"
    except Exception as error:
        return type(error).__name__
    return "read"


def damage_structure(files: dict[str, Path], cases: int, folder: Path) -> Row:
    """Change one bit of what files are built of."""
    results, kinds, problems = Counter[str](), Counter[str](), []
    for name, path in files.items():
        data, chance, spans = path.read_bytes(), random.Random(name), dict[str, list[Span]]()
        for span in Walker(data).walk():
            if span[0] != "value":
                spans.setdefault(span[0], []).append(span)
        whole = converted(path, folder / "whole")
        assert whole.startswith("{"), f"{name}: the undamaged file must be read ({whole})"
        for number in range(cases):
            what, harmed = flipped(data, chance, spans)
            path.write_bytes(harmed)
            found = converted(path, folder / "whole")
            result = "the same" if found == whole else "silent" if found.startswith("{") else found
            results[result] += 1
            kinds[what] += 1
            if result not in ("refused", "the same"):
                problems.append(f"{name}, {number}, {what}: {result}")
        path.write_bytes(data)
    print(*problems, sep="\n")
    total = ", ".join(f"{count} in {what}" for what, count in sorted(kinds.items()))
    what = f"{sum(results.values())} GGUF files of {len(files)} architectures with one changed bit ({total})"
    measured = f"{results['refused']} refused, {results['the same']} read as they were, {len(problems)} others"
    return Row(what, "each refused in one line, or the same run", measured, not problems)


def damage_anywhere(files: dict[str, Path], cases: int, folder: Path) -> Row:
    """Change bytes anywhere."""
    results, problems = Counter[str](), []
    for name, path in files.items():
        data, chance = path.read_bytes(), random.Random(f"{name} anywhere")
        for number in range(cases):
            path.write_bytes(change_bytes(data, chance))
            result = used(path, folder / "any")
            results[result] += 1
            if result not in ("refused", "read"):
                problems.append(f"{name}, {number}: {result}")
        path.write_bytes(data)
    print(*problems, sep="\n")
    what = f"{sum(results.values())} GGUF files with bytes changed, inserted, removed or cut off anywhere"
    measured = f"{results['refused']} refused, {results['read']} read and used, {len(problems)} others"
    return Row(what, "each refused in one line, or used", measured, not problems)


def measure(short: bool) -> list[Row]:
    """Damage files in both ways."""
    cases: Iterator[int] = iter((12, 8) if short else (120, 60))
    torch.set_num_threads(1)
    rows, ways = [], list[Callable[[dict[str, Path], int, Path], Row]]((damage_structure, damage_anywhere))
    with tempfile.TemporaryDirectory(prefix="ensue-gguf-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy warns where damaged weights overflow
        files = gguf_files(Path(name) / "files")
        for way in ways:
            rows.append(way(files, next(cases), Path(name)))
    return rows


def main() -> None:
    """Measure, print the rows and append them to the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    rows = measure(parser.parse_args().short)
    for row in rows:
        print(f"{'holds' if row.holds else 'FAILS'}  {row.what}\n       target: {row.target}; measured: {row.measured}")
    record("reliability", {"part": "gguf_files", "rows": [row._asdict() for row in rows]})


if __name__ == "__main__":
    main()
