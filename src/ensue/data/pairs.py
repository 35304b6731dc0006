"""Sentence pairs from what people type: two parallel files, one file with columns, JSONL, or ``dates``.

A line ends at a newline (with or without a carriage return before it) and nowhere else, as in all text here: a
form feed or a Unicode line separator inside a sentence never shifts one side against the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ensue.core.errors import InputError, unknown_name
from ensue.core.wording import counted, line_numbers
from ensue.data.dates import DATES, date_pairs, describe
from ensue.data.pair_tables import SIDES, Row, read_columns, read_records
from ensue.data.reading import pieces
from ensue.data.sources import is_builtin, is_jsonl


@dataclass(frozen=True, slots=True)
class Pairs:
    """Sentences and their translations."""

    source: list[str]
    target: list[str]
    numbers: list[int]
    """The line each pair came from, counted from 1."""
    understood: str
    """What the input was taken for, in a few words."""

    def __len__(self) -> int:
        return len(self.source)

    def chosen(self, places: Iterable[int]) -> Pairs:
        """Some of the pairs."""
        at = list(places)
        source, target = ([side[place] for place in at] for side in (self.source, self.target))
        return Pairs(source, target, [self.numbers[place] for place in at], self.understood)


def read_pairs(
    sources: Sequence[str | Path], columns: Mapping[str, str] | None = None, notes: list[str] | None = None
) -> Pairs:
    """The sentence pairs of two parallel files, of one file with both languages, or of the corpus ``dates``.

    ``columns`` says which column or field is the source and which the target, by number (from 1) or by name.
    Pairs with an empty side are left out; ``notes`` collects how many and where.

    >>> read_pairs(["dates"]).understood
    'the built-in corpus dates (dates in 40 languages to ISO 8601), 30,000 pairs'
    """
    notes = [] if notes is None else notes
    sources = [sources] if isinstance(sources, str | Path) else list(sources)
    _check(sources, columns)
    name = " and ".join("standard input" if source == "-" else str(source) for source in sources)
    if sources == [DATES]:
        return built_in_pairs("train")
    if len(sources) == 2:
        understood, rows = _parallel(sources[0], sources[1], notes)
    else:
        understood, rows = _one_file(sources[0], name, dict(columns or {}), notes)
    return _full(rows, understood, name, notes)


def built_in_pairs(part: str) -> Pairs:
    """The corpus ``dates``, its part ``train`` or ``valid``."""
    source, target = map(list, zip(*date_pairs(part)))
    understood = f"the built-in corpus dates ({describe()}), {len(source):,} pairs"
    return Pairs(source, target, list(range(1, len(source) + 1)), understood)


def _check(sources: list[str | Path], columns: Mapping[str, str] | None) -> None:
    """What can be said before anything is read."""
    if len(sources) not in (1, 2):
        mend = "give two parallel files, or one with both languages"
        raise InputError(f"sentence pairs do not come from {len(sources)} files", mend=mend)
    for source in sources:
        corpus = source == DATES and isinstance(source, str)
        if (corpus and len(sources) == 2) or (is_builtin(source) and not corpus):
            what = "is to be given alone" if corpus else "has no translations"
            raise InputError(f"the corpus {what}", where=str(source), mend="give files, or the corpus dates alone")
        if source != "-" and _is_folder(Path(source)):
            raise InputError("is a folder", where=str(source), mend="give the two files in it")
    if columns and (len(sources) == 2 or sources == [DATES]):
        raise InputError("columns are chosen in one file that has both languages", mend="leave the columns out")
    for side in columns or {}:
        if side not in SIDES:
            raise unknown_name("side of a pair", side, SIDES)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # too long for a name, which is said where the file is read
        return False


def _full(rows: Iterable[Row], understood: str, name: str, notes: list[str]) -> Pairs:
    """The pairs that have both sides, with a note on the others and on newlines inside a field."""
    pairs, empty, broken = Pairs([], [], [], understood), [], []
    for number, source, target in rows:
        if not (source.strip() and target.strip()):
            empty.append(number)
            continue
        if "\n" in source or "\n" in target:
            broken.append(number)
        pairs.source.append(_unbroken(source))
        pairs.target.append(_unbroken(target))
        pairs.numbers.append(number)
    if not len(pairs):
        raise InputError("there is no pair with both sides", where=name, mend="give sentences and translations")
    if empty:
        notes.append(f"{name}: left out {counted(len(empty), 'pair')} with an empty side ({line_numbers(empty)})")
    if broken:
        notes.append(f"{name}: newlines inside {counted(len(broken), 'pair')} became spaces ({line_numbers(broken)})")
    return pairs


def _unbroken(text: str) -> str:
    """A field of several lines as one: line ends would be taken for the end of the sentence."""
    return text.replace("\r\n", " ").replace("\n", " ") if "\n" in text else text


def _lines(source: str | Path, notes: list[str]) -> list[str]:
    """The lines of a text."""
    # A path, so that a file with the name of a built-in corpus is read as the file it is.
    text = "".join(piece.text for piece in pieces([source if source == "-" else Path(source)], notes=notes))
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _parallel(source: str | Path, target: str | Path, notes: list[str]) -> tuple[str, Iterator[Row]]:
    """Two files, line by line."""
    for path in (source, target):
        if is_jsonl(Path(path)):
            mend = "give it alone, with both languages in it"
            raise InputError("a JSONL file is not one side of parallel files", where=str(path), mend=mend)
    left, right = _lines(source, notes), _lines(target, notes)
    if len(left) != len(right):
        what = f"the files are not parallel: {len(left):,} lines and {len(right):,} lines"
        raise InputError(what, where=f"{source} and {target}", mend="give files whose lines belong together")
    numbers = range(1, len(left) + 1)
    return f"two parallel files, {counted(len(left), 'line')} each", zip(numbers, left, right)


def _one_file(source: str | Path, name: str, columns: dict[str, str], notes: list[str]) -> tuple[str, Iterator[Row]]:
    """One file with both languages."""
    if source != "-" and is_jsonl(Path(source)):
        return read_records(Path(source), name, columns, notes)
    return read_columns(_lines(source, notes), name, columns)
