"""Which files hold pairs of texts: parallel files, tables, and mixtures of tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path, PurePath

from ensue.core.errors import InputError
from ensue.data.dates import DATES
from ensue.data.lines import read_lines
from ensue.data.sources import is_jsonl

PACKED = (".gz", ".bz2", ".xz")
TABLES = (".tsv", ".csv")
PLAIN = ("", ".txt", ".md", ".text", ".rst")
"""Suffixes of plain text."""


def _suffixes(file: str | Path) -> tuple[str, str]:
    """The name without its last suffix, and that suffix in small letters, both without that of a packed file."""
    path = PurePath(str(file))
    if path.suffix.lower() in PACKED:
        path = path.with_suffix("")
    return str(path.with_suffix("")), path.suffix.lower()


def is_table(file: str | Path) -> bool:
    """True for a table of pairs or of labelled examples, by its name; of a JSONL file by its first record."""
    if file == "-":
        return False
    if not is_jsonl(file):
        return _suffixes(file)[1] in TABLES
    try:
        record = json.loads(next(islice(read_lines(file), 1), "null"))
    except (OSError, ValueError, InputError):
        return False  # reading it says what is wrong
    return isinstance(record, dict) and ("text" not in record or bool({"label", "target"} & {*record}))


def are_parallel(files: Sequence[str | Path]) -> bool:
    """True for two files of one name in different languages.

    >>> are_parallel(["train.en", "train.de.gz"]), are_parallel(["one.txt", "two.txt"])
    (True, False)
    """
    if len(files) != 2:
        return False
    (left, one), (right, two) = map(_suffixes, files)
    return left == right and one != two and one not in PLAIN and two not in PLAIN


def hold_pairs(files: Sequence[str | Path]) -> bool:
    """True if files are pairs of texts, by their names.

    >>> hold_pairs(["pairs.tsv"]), hold_pairs(["corpus.txt"]), hold_pairs(["dates"])
    (True, False, True)
    """
    return bool(files) and (all(map(is_table, files)) or are_parallel(files) or list(files) == [DATES])


def split_tasks(files: Sequence[str | Path]) -> list[list[str | Path]]:
    """The files of each task: a table is one, and so are two parallel files."""
    if len(files) > 1 and all(map(is_table, files)):
        return [[file] for file in files]
    return [list(files)]
