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
from ensue.data.lines import is_folder, read_lines, source_name
from ensue.data.pair_tables import PAIRS, SIDES, understood
from ensue.data.sources import is_builtin, is_jsonl
from ensue.data.tables import read_table

Row = tuple[int, str, str]
"""A line's number, its source and its target."""


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
    name = " and ".join(map(source_name, sources))
    if sources == [DATES]:
        return built_in_pairs("train")
    if len(sources) == 2:
        taken_for, rows = _parallel(sources[0], sources[1])
    else:
        table = read_table(sources[0], PAIRS, columns or {}, notes)
        taken_for = understood(table)
        rows = ((number, row["source"], row["target"]) for number, row in table.rows)
    return _full(rows, taken_for, name, notes)


def built_in_pairs(part: str) -> Pairs:
    """The corpus ``dates``, its part ``train`` or ``valid``."""
    source, target = map(list, zip(*date_pairs(part)))
    understood = f"the built-in corpus dates ({describe()}), {len(source):,} pairs"
    return Pairs(source, target, list(range(1, len(source) + 1)), understood)


def _check(sources: list[str | Path], columns: Mapping[str, str] | None) -> None:
    """What can be said before anything is read."""
    if len(sources) not in (1, 2):
        hint = "give two parallel files, or one with both languages"
        raise InputError(f"sentence pairs do not come from {len(sources)} files", hint=hint)
    for source in sources:
        corpus = source == DATES and isinstance(source, str)
        if (corpus and len(sources) == 2) or (is_builtin(source) and not corpus):
            what = "is to be given alone" if corpus else "has no translations"
            raise InputError(f"the corpus {what}", where=str(source), hint="give files, or the corpus dates alone")
        if source != "-" and is_folder(source):
            raise InputError("is a folder", where=str(source), hint="give the two files in it")
    if columns and (len(sources) == 2 or sources == [DATES]):
        raise InputError("columns are chosen in one file that has both languages", hint="leave the columns out")
    for side in columns or {}:
        if side not in SIDES:
            raise unknown_name("side of a pair", side, SIDES)


def _full(rows: Iterable[Row], taken_for: str, name: str, notes: list[str]) -> Pairs:
    """The pairs that have both sides, with a note on the others and on newlines inside a field."""
    pairs, empty, broken = Pairs([], [], [], taken_for), [], []
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
        raise InputError("there is no pair with both sides", where=name, hint="give sentences and translations")
    if empty:
        notes.append(f"{name}: left out {counted(len(empty), 'pair')} with an empty side ({line_numbers(empty)})")
    if broken:
        notes.append(f"{name}: newlines inside {counted(len(broken), 'pair')} became spaces ({line_numbers(broken)})")
    return pairs


def _unbroken(text: str) -> str:
    """A field of several lines as one: line ends would be taken for the end of the sentence."""
    return text.replace("\r\n", " ").replace("\n", " ") if "\n" in text else text


def _parallel(source: str | Path, target: str | Path) -> tuple[str, Iterator[Row]]:
    """Two files, line by line."""
    for path in (source, target):
        if is_jsonl(Path(path)):
            hint = "give it alone, with both languages in it"
            raise InputError("a JSONL file is not one side of parallel files", where=str(path), hint=hint)
    left, right = list(read_lines(source)), list(read_lines(target))
    if len(left) != len(right):
        what = f"the files are not parallel: {len(left):,} lines and {len(right):,} lines"
        raise InputError(what, where=f"{source} and {target}", hint="give files whose lines belong together")
    numbers = range(1, len(left) + 1)
    return f"two parallel files, {counted(len(left), 'line')} each", zip(numbers, left, right)
