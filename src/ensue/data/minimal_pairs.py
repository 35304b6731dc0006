"""Read minimal pairs: two texts that differ in one thing, one of them right.

    x.jsonl         one object a line: sentence_good and sentence_bad (BLiMP: Warstadt et al., 2020), or good and bad
    x.gold, x.text  subject–verb agreement (Linzen et al., 2016; Gulordova et al., 2018): a sentence a line in .text; in
                    .gold the position of its verb, the right form, the wrong one, and the number of attractors between
                    subject and verb, or the position of the subject. Only the words before the verb are read
    x.tsv           the right text, the wrong one, and in an optional third column the kind of the pair

Each may end in .gz. A folder means all of these files in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ensue.core.errors import InputError
from ensue.data.lines import located_lines, parse_object
from ensue.data.sources import plain_suffix

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
        return _read_file(path)
    files = [file for file in sorted(path.iterdir()) if plain_suffix(file) in (".jsonl", ".gold", ".tsv")]
    if not files:
        raise InputError("there are no pairs in this folder", where=str(source), hint=FORMAT_HINT)
    return [pair for file in files for pair in _read_file(file)]


def _read_file(path: Path) -> list[MinimalPair]:
    if plain_suffix(path) not in READERS:
        raise InputError("is not a file of pairs", where=str(path), hint=FORMAT_HINT)
    pairs = list(READERS[plain_suffix(path)](path))
    if not pairs:
        raise InputError("there is no pair in this file", where=str(path), hint=FORMAT_HINT)
    return pairs


def _read_objects(path: Path) -> Iterator[MinimalPair]:
    for where, line in located_lines(path):
        if not line.strip():
            continue
        record = parse_object(line, where, '"sentence_good": "…", "sentence_bad": "…"')
        texts = [record.get(f"sentence_{side}", record.get(side)) for side in ("good", "bad")]
        if not all(isinstance(text, str) and text for text in texts):
            raise InputError("there are no two texts", where=where, hint="name them sentence_good and sentence_bad")
        fields = {"phenomenon": "linguistics_term", "paradigm": "UID", "kind": "kind"}
        groups = {name: str(record[key]) for name, key in fields.items() if record.get(key)}
        yield MinimalPair(str(texts[0]), str(texts[1]), groups)


def _read_columns(path: Path) -> Iterator[MinimalPair]:
    for where, line in located_lines(path):
        if not line.strip():
            continue
        good, bad, kind, *_ = [*(cell.strip() for cell in line.split("\t")), "", ""]
        if not (good and bad):
            raise InputError("not two texts with a tab between", where=where)
        yield MinimalPair(good, bad, {"kind": kind} if kind else {})


def _read_agreement(path: Path) -> Iterator[MinimalPair]:
    """Read sentence prefixes up to a verb, with its right and its wrong form."""
    gold, text = (path.with_name(_companion(path.name, ending)) for ending in ("gold", "text"))
    for file in (gold, text):
        if not file.exists():
            raise InputError(f"{file.name} is missing", where=str(path), hint="the two files belong together")
    sentences, answers = list(located_lines(text)), list(located_lines(gold))
    if len(sentences) != len(answers):
        what = f"{len(sentences):,} sentences, but {len(answers):,} lines in {gold.name}"
        raise InputError(what, where=str(text), hint="the two files belong together line by line")
    for (_, sentence), (where, answer) in zip(sentences, answers):
        yield _agreement_pair(sentence.split(), answer.split("\t"), where)


def _companion(name: str, ending: str) -> str:
    """Return the name of the other file.

    >>> _companion("x.gold.gz", "text"), _companion("gold.text", "gold")
    ('x.text.gz', 'gold.gold')
    """
    stem, packed = (name.removesuffix(".gz"), ".gz") if name.endswith(".gz") else (name, "")
    return f"{stem.rpartition('.')[0]}.{ending}{packed}"


def _agreement_pair(words: list[str], cells: list[str], where: str) -> MinimalPair:
    try:
        if len(cells) >= LONG_GOLD_COLUMNS:
            verb, right, wrong, subject = int(cells[3]), cells[6], cells[7], int(cells[9])
            kind = "original" if cells[2] == "0" else "words replaced"
            groups: dict[str, str | int] = {"distance": verb - subject, "kind": kind}
        else:
            verb, right, wrong = int(cells[0]), cells[1], cells[2]
            groups = {"attractors": int(cells[3])} if len(cells) > 3 else {}
    except (ValueError, IndexError) as error:
        hint = "columns are: position of the verb, right form, wrong form, attractors"
        raise InputError("not the columns of a .gold file", where=where, hint=hint) from error
    if not 0 < verb < len(words):
        raise InputError(f"there is no word {verb} in a sentence of {len(words)}", where=where)
    before = " ".join(words[:verb])
    return MinimalPair(f"{before} {right}", f"{before} {wrong}", groups)


READERS: dict[str, Callable[[Path], Iterator[MinimalPair]]] = {
    ".jsonl": _read_objects,
    ".gold": _read_agreement,
    ".text": _read_agreement,
    ".tsv": _read_columns,
}
