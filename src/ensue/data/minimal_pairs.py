"""Read minimal pairs: two texts that differ in one thing, one of them right.

    x.jsonl         one object a line: sentence_good and sentence_bad (BLiMP: Warstadt et al., 2020), or good and bad
    x.gold, x.text  subject–verb agreement (Linzen et al., 2016; Gulordova et al., 2018): a sentence a line in .text; in
                    .gold the place of its verb, the right form, the wrong one, and how many attractors stand between
                    or where the subject stands. Only what stands before the verb is read
    x.tsv           the right text, the wrong one, and if there is a third column what kind of pair it is

Each may end in .gz. A folder is all of these in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ensue.core.errors import InputError
from ensue.data.text_files import decode_utf8, open_bytes, skip_bom

FORMAT_HINT = "give a .jsonl, .gold (with its .text beside it) or .tsv file of pairs"
LONG_GOLD_COLUMNS = 11
"""Columns of a .gold file that includes the position of the subject."""


@dataclass(frozen=True)
class MinimalPair:
    """Two texts and their groups."""

    good: str
    bad: str
    groups: Mapping[str, str | int] = field(default_factory=dict)
    """For example the number of attractors."""


def read_minimal_pairs(source: str | Path) -> list[MinimalPair]:
    """Read all pairs of a file or a folder."""
    path = Path(source)
    if not path.exists():
        raise InputError("there is no such file", where=str(source), hint=FORMAT_HINT)
    if not path.is_dir():
        return list(_read(path))
    files = [file for file in sorted(path.iterdir()) if _kind(file) in READERS and _kind(file) != ".text"]
    pairs = [pair for file in files for pair in _read(file)]
    if not pairs:
        raise InputError("there are no pairs in this folder", where=str(source), hint=FORMAT_HINT)
    return pairs


def _kind(path: Path) -> str:
    """Return the suffix without .gz, which selects the reader."""
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()


def _read(path: Path) -> Iterator[MinimalPair]:
    kind = _kind(path)
    if kind not in READERS:
        raise InputError("is no file of pairs", where=str(path), hint=FORMAT_HINT)
    count = 0
    for pair in READERS[kind](path):
        count += 1
        yield pair
    if not count:
        raise InputError("there is no pair in this file", where=str(path), hint=FORMAT_HINT)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the location and text of each line, including empty ones."""
    with open_bytes(path, str(path)) as file:
        skip_bom(file, str(path))
        for number, line in enumerate(file, start=1):
            yield f"{path}:{number}", decode_utf8(line, str(path), number).rstrip("\r\n")


def _objects(path: Path) -> Iterator[MinimalPair]:
    """Read pairs from JSON objects."""
    for where, line in _lines(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise InputError("not JSON", where=where, hint="give one JSON object a line") from error
        if not isinstance(record, dict):
            raise InputError("not a JSON object", where=where)
        texts = [record.get(f"sentence_{side}", record.get(side)) for side in ("good", "bad")]
        if not all(isinstance(text, str) and text for text in texts):
            raise InputError("there are no two texts", where=where, hint="name them sentence_good and sentence_bad")
        named = {
            "phenomenon": record.get("linguistics_term"),
            "paradigm": record.get("UID"),
            "kind": record.get("kind"),
        }
        yield MinimalPair(str(texts[0]), str(texts[1]), {name: str(value) for name, value in named.items() if value})


def _columns(path: Path) -> Iterator[MinimalPair]:
    """Read pairs from columns."""
    for where, line in _lines(path):
        if not line.strip():
            continue
        good, bad, kind, *_ = [*(cell.strip() for cell in line.split("\t")), "", ""]
        if not (good and bad):
            raise InputError("not two texts with a tab between", where=where)
        yield MinimalPair(good, bad, {"kind": kind} if kind else {})


def _agreement(path: Path) -> Iterator[MinimalPair]:
    """Read sentence prefixes up to a verb, with its right and its wrong form."""
    gold, text = (path.with_name(_renamed(path.name, ending)) for ending in ("gold", "text"))
    for file in (gold, text):
        if not file.exists():
            raise InputError(f"{file.name} is not there", where=str(path), hint="the two files belong together")
    sentences, answers = list(_lines(text)), list(_lines(gold))
    if len(sentences) != len(answers):
        what = f"{len(sentences):,} sentences, but {len(answers):,} lines in {gold.name}"
        raise InputError(what, where=str(text), hint="the two files belong together line by line")
    for (_, sentence), (where, answer) in zip(sentences, answers):
        yield _before_verb(sentence.split(), answer.split("\t"), where)


def _renamed(name: str, ending: str) -> str:
    """Return the name of the companion file.

    >>> _renamed("x.gold.gz", "text"), _renamed("gold.text", "gold")
    ('x.text.gz', 'gold.gold')
    """
    stem, packed = (name.removesuffix(".gz"), ".gz") if name.endswith(".gz") else (name, "")
    return f"{stem.rpartition('.')[0]}.{ending}{packed}"


def _before_verb(words: list[str], cells: list[str], where: str) -> MinimalPair:
    """Return the words before a verb, with its two forms."""
    try:
        if len(cells) >= LONG_GOLD_COLUMNS:
            place, right, wrong, subject = int(cells[3]), cells[6], cells[7], int(cells[9])
            kind = "original" if cells[2] == "0" else "words replaced"
            groups: dict[str, str | int] = {"distance": place - subject, "kind": kind}
        else:
            place, right, wrong = int(cells[0]), cells[1], cells[2]
            groups = {"attractors": int(cells[3])} if len(cells) > 3 else {}
    except (ValueError, IndexError) as error:
        hint = "columns are: place of the verb, right form, wrong form, attractors"
        raise InputError("not the columns of a .gold file", where=where, hint=hint) from error
    if not 0 < place < len(words):
        raise InputError(f"there is no word {place} in a sentence of {len(words)}", where=where)
    before = " ".join(words[:place])
    return MinimalPair(f"{before} {right}", f"{before} {wrong}", groups)


READERS: dict[str, Callable[[Path], Iterator[MinimalPair]]] = {
    ".jsonl": _objects,
    ".gold": _agreement,
    ".text": _agreement,
    ".tsv": _columns,
}
