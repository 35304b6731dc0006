"""The schema of a table of sentence pairs: which column is the source and which the target."""

from __future__ import annotations

import re

from ensue.data.dates import DATES
from ensue.data.tables import ColumnMap, ColumnRole, ParsedTable, TableSample, TableSchema

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


def describe_pairs(table: ParsedTable) -> str:
    """Describe how a table of pairs was read."""
    names = " and ".join(table.column_names[side] for side in SIDES)
    if table.kind == "JSONL":
        return f"JSONL, fields {names}"
    return f"{table.kind}, columns {names}, {'with a' if table.header else 'no'} header"
