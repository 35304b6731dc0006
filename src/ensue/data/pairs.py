"""Read sentence pairs: two parallel files, one file with columns, JSONL, or the corpus ``dates``.

Lines end at LF or CR LF only: a form feed or a Unicode line separator inside a sentence does not misalign the sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ensue.core.errors import InputError, unknown_name
from ensue.core.wording import counted, line_numbers
from ensue.data.dates import DATES, date_pairs, describe
from ensue.data.lines import is_folder, read_lines, source_name
from ensue.data.sources import is_builtin, is_jsonl
from ensue.data.tables import ColumnMap, ColumnRole, ParsedTable, TableSample, TableSchema, read_table

PairRow = tuple[int, str, str]
"""Line number, source and target."""
SIDES = ("source", "target")
_WORDS = """
    source src target tgt trg input output original translation translated text sentence sentences line phrase
    lang language reference ref hypothesis
    ar be bg bn ca cs cy da de el en eo es et eu fa fi fr ga gl he hi hr hu hy id is it ja ka kk ko lt lv mk ms nb
    nl nn no pl pt ro ru sk sl sq sr sv sw ta te th tr uk ur uz vi zh
    ara bul cat ces cze dan deu ger ell gre eng est fas per fin fra fre gle heb hin hrv hun ind isl ita jpn kor lat
    lav lit nld dut nob nor pol por ron rum rus slk slv spa sqi srp swe tur ukr urd vie zho chi
    arabic bulgarian catalan chinese croatian czech danish dutch english estonian finnish french german greek hebrew
    hindi hungarian icelandic indonesian irish italian japanese korean latin latvian lithuanian norwegian persian
    polish portuguese romanian russian serbian slovak slovenian spanish swedish turkish ukrainian urdu vietnamese
"""
_NAMES = frozenset(_WORDS.split())
"""Words that occur in headers: column contents, and languages by code or English name."""


def infer_sides(sample: TableSample, known: ColumnMap) -> ColumnMap:
    """Return the first two columns; for JSONL the remaining text fields, if their number matches."""
    if not isinstance(sample.rows[0], dict):
        return dict(zip(SIDES, (0, 1)))
    left = [name for name, value in sample.rows[0].items() if isinstance(value, str) and name not in known.values()]
    missing = [side for side in SIDES if side not in known]
    return dict(zip(missing, left)) if len(left) == len(missing) else {}


def is_header(first: list[str], columns: ColumnMap, rest: TableSample) -> bool:
    """Return whether the first line consists of words that occur in headers.

    >>> [is_header(names, {"source": 0, "target": 1}, None) for names in (["en", "de"], ["source_text", "lang2"])]
    [True, True]
    >>> is_header(["no", "nein"], {"source": 0, "target": 1}, None)
    False
    """
    chosen = [first[key].strip().lower() for key in columns.values() if isinstance(key, int) and 0 <= key < len(first)]
    words = [re.sub(r"\d+$", "", name) for name in chosen]
    return len(set(chosen)) == 2 and all(set(re.split(r"[ _.:-]", word)) <= _NAMES for word in words)


PAIR_SCHEMA = TableSchema(
    tuple(ColumnRole(side, (side,)) for side in SIDES),
    "pair",
    infer_sides,
    is_header=is_header,
    one_column_hint="give the file of the other language too, or one with a tab between the two sides",
    nested_field="translation",
    corpora=(DATES,),
)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Source and target sentences."""

    source: list[str]
    target: list[str]
    numbers: list[int]
    """The line of each pair, counted from 1."""
    description: str
    """How the input was read, in a few words."""
    tasks: list[int] = field(default_factory=list)
    """The task of each pair, counted from 0; empty: all are of one."""

    def __len__(self) -> int:
        return len(self.source)

    def select(self, indices: Iterable[int]) -> Pairs:
        """Return some of the pairs."""
        chosen = list(indices)
        source, target = ([side[index] for index in chosen] for side in (self.source, self.target))
        tasks = [self.tasks[index] for index in chosen] if self.tasks else []
        return Pairs(source, target, [self.numbers[index] for index in chosen], self.description, tasks)


def join_tasks(parts: Sequence[Pairs]) -> Pairs:
    """Return the pairs of several tasks, one after the other."""
    if len(parts) == 1:
        return parts[0]
    joined = Pairs([], [], [], f"{len(parts)} tasks ({'; '.join(part.description for part in parts)})")
    for number, part in enumerate(parts):
        joined.source.extend(part.source)
        joined.target.extend(part.target)
        joined.numbers.extend(part.numbers)
        joined.tasks.extend([number] * len(part))
    return joined


def read_pairs(
    sources: Sequence[str | Path], columns: Mapping[str, str] | None = None, notes: list[str] | None = None
) -> Pairs:
    """Read the pairs of two parallel files, of one file with both languages, or of the corpus ``dates``.

    ``columns`` gives the columns or fields of source and target, by number (from 1) or by name. Pairs with an empty
    side are left out and noted.

    >>> read_pairs(["dates"]).description
    'the built-in corpus dates (dates in 40 languages to ISO 8601), 30,000 pairs'
    """
    notes = [] if notes is None else notes
    sources = [sources] if isinstance(sources, str | Path) else list(sources)
    _check_sources(sources, columns)
    name = " and ".join(map(source_name, sources))
    if sources == [DATES]:
        return builtin_pairs("train")
    if len(sources) == 2:
        description, rows = _read_parallel(sources[0], sources[1])
    else:
        table = read_table(sources[0], PAIR_SCHEMA, columns or {}, notes)
        description = _describe_table(table)
        rows = ((number, row["source"], row["target"]) for number, row in table.rows)
    return complete_pairs(rows, description, name, notes)


def _describe_table(table: ParsedTable) -> str:
    names = " and ".join(table.column_names[side] for side in SIDES)
    if table.kind == "JSONL":
        return f"JSONL, fields {names}"
    return f"{table.kind}, columns {names}, {'with a' if table.header else 'no'} header"


def builtin_pairs(part: str) -> Pairs:
    """Return the part ``train`` or ``valid`` of the corpus ``dates``."""
    source, target = map(list, zip(*date_pairs(part)))
    description = f"the built-in corpus dates ({describe()}), {len(source):,} pairs"
    return Pairs(source, target, list(range(1, len(source) + 1)), description)


def _check_sources(sources: list[str | Path], columns: Mapping[str, str] | None) -> None:
    """Raise errors that need no reading."""
    if len(sources) not in (1, 2):
        hint = "give two parallel files, or one with both languages"
        raise InputError(f"sentence pairs do not come from {len(sources)} files", hint=hint)
    for source in sources:
        is_dates = source == DATES and isinstance(source, str)
        if (is_dates and len(sources) == 2) or (is_builtin(source) and not is_dates):
            what = "must be given alone" if is_dates else "has no translations"
            raise InputError(f"the corpus {what}", where=str(source), hint="give files, or the corpus dates alone")
        if source != "-" and is_folder(source):
            raise InputError("is a folder", where=str(source), hint="give the two files in it")
    if columns and (len(sources) == 2 or sources == [DATES]):
        raise InputError("columns are chosen in one file that has both languages", hint="leave the columns out")
    for side in columns or {}:
        if side not in SIDES:
            raise unknown_name("side of a pair", side, SIDES)


def complete_pairs(rows: Iterable[PairRow], description: str, name: str, notes: list[str]) -> Pairs:
    """Return the pairs with both sides; note the others, and newlines inside a field."""
    pairs, empty, broken = Pairs([], [], [], description), [], []
    for number, source, target in rows:
        if not (source.strip() and target.strip()):
            empty.append(number)
            continue
        if "\n" in source or "\n" in target:
            broken.append(number)
        pairs.source.append(source.replace("\r\n", " ").replace("\n", " "))
        pairs.target.append(target.replace("\r\n", " ").replace("\n", " "))
        pairs.numbers.append(number)
    if not len(pairs):
        raise InputError("there is no pair with both sides", where=name, hint="give sentences and translations")
    if empty:
        notes.append(f"{name}: left out {counted(len(empty), 'pair')} with an empty side ({line_numbers(empty)})")
    if broken:
        notes.append(f"{name}: newlines inside {counted(len(broken), 'pair')} became spaces ({line_numbers(broken)})")
    return pairs


def _read_parallel(source: str | Path, target: str | Path) -> tuple[str, Iterator[PairRow]]:
    for path in (source, target):
        if is_jsonl(path):
            hint = "give it alone, with both languages in it"
            raise InputError("a JSONL file is not one side of parallel files", where=str(path), hint=hint)
    left, right = list(read_lines(source)), list(read_lines(target))
    if len(left) != len(right):
        what = f"the files are not parallel: {len(left):,} lines and {len(right):,} lines"
        raise InputError(what, where=f"{source} and {target}", hint="give files whose lines belong together")
    numbers = range(1, len(left) + 1)
    return f"two parallel files, {counted(len(left), 'line')} each", zip(numbers, left, right)
