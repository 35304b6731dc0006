"""Read tagged words, one per line with a blank line after each sentence: CoNLL columns and Universal Dependencies.

Tags that mark spans of words come in four schemes, and are all converted to BIO:

        IOB1    I-X begins and continues; B-X begins only right after another X
        BIO     B-X begins, I-X continues                      (IOB2)
        BIOES   B-X, I-X, E-X ends, S-X is a single word       (BMES with M for I)
        BILOU   B-X, I-X, L-X ends, U-X is a single word
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, pairwise
from pathlib import Path

from ensue.core.errors import InputError, unknown_name
from ensue.core.wording import counted
from ensue.data.labelled import ReadOptions, TaggedSentence
from ensue.data.lines import read_lines, source_name
from ensue.data.sources import is_gzip
from ensue.data.tables import SAMPLE_LINES, parse_columns

COLUMN_ROLES = ("word", "tag")
UNIVERSAL_COLUMNS = {"word": 2, "tag": 4}
"""Columns of the word and its part of speech in Universal Dependencies."""

END_LETTERS = frozenset("SEUL")
"""Letters of tags that end a span."""
CONTINUATION_LETTERS = frozenset("IMEL")
"""Letters of tags that continue a span."""
_MARKED = re.compile(r"([BIMESLU])-(.+)")
_BARE = frozenset("BIMESLUO")


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence as in the file."""

    words: list[str]
    tags: list[str]
    numbers: list[int]
    """The line of each word."""


def read_tagged(files: Sequence[str | Path], options: ReadOptions, notes: list[str]) -> list[TaggedSentence]:
    """Read tagged sentences; columns are given as ``word=1,tag=4``.

    By default the word is the first column and the tag the last; in Universal Dependencies the second and the fourth,
    the part of speech. Tags that mark spans are converted to BIO. Training needs at least two different tags. A
    sentence with an unreadable line is an error, or left out with ``skip_short``.
    """
    chosen = _chosen(options.columns)
    found: list[TaggedSentence] = []
    for file in files:
        name = source_name(file)
        broken: list[InputError] = []
        columns = _Columns(_is_universal(file), chosen, options.require_labels)
        sentences = list(_sentences(file, columns, name, broken if options.skip_short else None))
        if broken:
            notes.append(f"{name}: {counted(len(broken), 'sentence')} left out, the first because of {broken[0]}")
        if not sentences:
            raise InputError("there is no sentence in this file", where=name, hint="give a word and its tag a line")
        scheme, said = _scheme(sentences, name) if options.require_labels else ("", "tags, if any, are not looked at")
        words = sum(len(sentence.words) for sentence in sentences)
        notes.append(f"{name}: {counted(len(sentences), 'sentence')}, {counted(words, 'word')}; {said}")
        for sentence in sentences:
            tags = tuple(to_bio(sentence.tags) if scheme else sentence.tags) if options.require_labels else None
            where = f"{name}:{sentence.numbers[0]}"
            found.append(TaggedSentence(tuple(sentence.words), tags, where, tuple(sentence.numbers)))
    kinds = {tag for one in found for tag in one.tags or ()}
    if options.for_training and len(kinds) == 1:
        hint = "give examples with other tags, or choose their column with --columns word=…,tag=…"
        raise InputError(f"every word has the tag {kinds.pop()!r}", where=found[0].where, hint=hint)
    if options.for_training and len(found) == 1:
        what = f"there is one sentence of {counted(len(found[0].words), 'word')}, and nothing else to learn from"
        raise InputError(what, where=found[0].where, hint="put a blank line after each sentence")
    return found


def read_untagged(file: str | Path, columns: str = "", notes: list[str] | None = None) -> list[TaggedSentence]:
    """Read sentences to tag: one per line, split at white space, or one word per line with a blank line after each
    sentence. The tags of a tagged file are ignored."""
    width = 0 if columns else _columns(file)
    if columns or width > 1:
        return read_tagged(
            [file], ReadOptions(columns, require_labels=False, for_training=False), [] if notes is None else notes
        )
    name = source_name(file)
    found = (
        list(_bare(file, name))
        if width
        else [
            TaggedSentence(tuple(line.split()), None, f"{name}:{number}")
            for number, line in enumerate(read_lines(file), start=1)
            if line.strip()
        ]
    )
    if not found:
        raise InputError("there is no sentence in this file", where=name, hint="give one sentence a line")
    return found


def _chosen(columns: str) -> dict[str, int]:
    """Parse the columns of word and tag, counted from 1."""
    places = {}
    for role, value in parse_columns(columns, "word=1,tag=4").items():
        if role not in COLUMN_ROLES:
            raise unknown_name("column", role, COLUMN_ROLES)
        if not value.isdecimal() or int(value) < 1:
            raise InputError(f"the column {value!r} of {role} is not a number", hint="count columns from 1")
        places[role] = int(value)
    return places


def _is_universal(file: str | Path) -> bool:
    """Return whether the suffix is that of Universal Dependencies."""
    path = Path(file)
    return (Path(path.stem) if is_gzip(path) else path).suffix.lower() == ".conllu"


def _bare(file: str | Path, name: str) -> Iterator[TaggedSentence]:
    """Yield sentences from a file with one word per line."""
    numbered = enumerate(read_lines(file), start=1)
    for full, group in groupby(numbered, lambda line: bool(line[1].strip()) and not _is_mark(line[1])):
        if full:
            numbers, words = zip(*group)
            yield TaggedSentence(tuple(word.strip() for word in words), None, f"{name}:{numbers[0]}", numbers)


def _columns(file: str | Path) -> int:
    """Return the number of columns if the first lines are words in columns (equal widths, blank lines between
    sentences), else 0."""
    if _is_universal(file):
        return max(UNIVERSAL_COLUMNS.values())
    full = [[] if _is_mark(line) else line.split() for line in islice(read_lines(file), SAMPLE_LINES)]
    widths = {len(cells) for cells in full if cells}
    ends = sum(bool(cells) and not after for cells, after in pairwise([*full, []]))
    return widths.pop() if len(widths) == 1 and 1 < ends <= sum(map(bool, full)) / 2 else 0


# Lines.


def _is_mark(line: str) -> bool:
    """Return whether a line marks the start of a document."""
    return line.startswith("-DOCSTART-")


def _sentences(
    file: str | Path, columns: _Columns, name: str, broken: list[InputError] | None = None
) -> Iterator[_Sentence]:
    """Yield the sentences of a file, without document markers.

    An unreadable line is an error; with a list ``broken`` its sentence is left out instead.
    """
    sentence = _Sentence([], [], [])
    whole = True
    for number, line in enumerate(read_lines(file), start=1):
        if not line.strip() or _is_mark(line):
            if sentence.words and whole:
                yield sentence
            sentence, whole = _Sentence([], [], []), True
            continue
        try:
            cells = columns.cells(line, f"{name}:{number}")
        except InputError as error:
            if broken is None:
                raise
            if whole:
                broken.append(error)
            whole = False
            continue
        if cells is not None:
            sentence.words.append(cells[0])
            sentence.tags.append(cells[1])
            sentence.numbers.append(number)
    if sentence.words and whole:
        yield sentence


@dataclass(slots=True)
class _Columns:
    """The columns of word and tag in a file; the first line sets the number of columns."""

    universal: bool
    chosen: dict[str, int]
    wanted: bool = True
    """Raise an error for words without a tag."""
    width: int = 0
    places: dict[str, int] = field(default_factory=dict)

    def cells(self, line: str, where: str) -> tuple[str, str] | None:
        """Return the word and the tag of a line; None for a line without a word."""
        if self.universal and line.startswith("#"):
            return None
        cells = line.split("\t") if self.universal or "\t" in line else line.split()
        if not self.places:
            self.width, self.places = len(cells), _places(len(cells), self.chosen, self.universal, where)
        if len(cells) != self.width:
            what = f"{counted(len(cells), 'column')} where the first line has {self.width}"
            hint = "give every word the same columns, and a blank line after each sentence"
            raise InputError(what, where=where, hint=hint)
        if self.universal and not cells[0].isdecimal():
            return None  # 1-2 is written as one word and stands again as two, 1.1 is not in the text
        word, tag = cells[self.places["word"] - 1].strip(), cells[self.places["tag"] - 1].strip()
        if not word or (self.wanted and (not tag or (self.universal and tag == "_"))):
            what = f"the {'tag' if word else 'word'} is missing"
            raise InputError(what, where=where, hint="give every word a tag")
        return word, tag


def _places(width: int, chosen: dict[str, int], universal: bool, where: str) -> dict[str, int]:
    """Return the columns of word and tag, counted from 1."""
    places = {"word": 1, "tag": width} | (UNIVERSAL_COLUMNS if universal else {}) | chosen
    if max(places.values()) > width:
        what = f"{counted(width, 'column')} where {max(places.values())} are needed"
        raise InputError(what, where=where, hint="choose others with --columns word=…,tag=…")
    if places["word"] == places["tag"]:
        hint = "give a word and its tag a line, or choose others with --columns word=…,tag=…"
        raise InputError(f"word and tag are both the column {places['tag']}", where=where, hint=hint)
    return places


# Schemes.


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into its letter and its kind; O has no kind.

    >>> split_tag("B-PER"), split_tag("I-new-york"), split_tag("O"), split_tag("B")
    (('B', 'PER'), ('I', 'new-york'), ('O', ''), ('B', ''))
    """
    letter, _, kind = tag.partition("-")
    return letter, kind


def to_bio(tags: Iterable[str]) -> list[str]:
    """Convert tags of any scheme to BIO; a continuation without a span before it begins one.

    >>> to_bio(["I-PER", "I-PER", "B-PER", "O", "S-LOC", "B-ORG", "E-ORG"])
    ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'B-ORG', 'I-ORG']
    """
    found = []
    going: str | None = None
    for tag in tags:
        letter, kind = split_tag(tag)
        if letter == "O":
            going = None
            found.append("O")
            continue
        goes_on = letter in CONTINUATION_LETTERS and going == kind
        found.append(("I" if goes_on else "B") + tag[1:])
        going = None if letter in END_LETTERS else kind
    return found


def _scheme(sentences: Sequence[_Sentence], name: str) -> tuple[str, str]:
    """Return the scheme of a file's tags, empty if they mark no spans, and a description."""
    tags = {tag for sentence in sentences for tag in sentence.tags}
    bare = tags <= _BARE and "O" in tags and bool(tags & {"B", "I"})
    marked = {tag for tag in tags if _MARKED.fullmatch(tag)}
    others = set() if bare else tags - marked - {"O"}
    if others and not any(tag.startswith(("B-", "I-")) for tag in marked):
        return "", f"{len(tags)} tags {_few(tags)}"
    letters = {tag[0] for tag in tags} - {"O"} if bare else {tag[0] for tag in marked}
    if others or (letters & set("LU") and letters & set("ESM")):
        raise _no_scheme(sentences, others or {tag for tag in tags if tag[0] in "LU"}, name)
    if not letters:
        return "", "1 tag O"
    kinds = {split_tag(tag)[1] for tag in tags} - {""}
    said = f": {counted(len(kinds), 'kind')} {_few(kinds)}" if kinds else ""
    if letters & set("ESMLU"):
        scheme = "BILOU" if letters & set("LU") else "BMES" if "M" in letters else "BIOES"
        return scheme, f"tags in {scheme}, read as BIO{said}"
    return _with_inside(sentences, said, name)


def _with_inside(sentences: Sequence[_Sentence], said: str, name: str) -> tuple[str, str]:
    """Tell IOB1 from BIO by how most spans begin; a file with both is read as BIO."""
    inside: list[int] = []
    begun = 0
    for sentence in sentences:
        before: tuple[str, str] = ("O", "")
        for tag, number in zip(sentence.tags, sentence.numbers):
            letter, kind = split_tag(tag)
            alone = before[0] == "O" or before[1] != kind
            if letter == "I" and alone:
                inside.append(number)
            begun += letter == "B" and alone
            before = letter, kind
    if not inside:
        return "BIO", f"tags in BIO{said}"
    if not begun:
        return "IOB1", f"tags in IOB1, read as BIO{said}"
    which = (
        f"{counted(len(inside), 'tag')} I- with nothing before to go on with, read as B- (first: {name}:{inside[0]})"
    )
    return "BIO", f"tags in BIO{said}; {which}"


def _no_scheme(sentences: Sequence[_Sentence], others: set[str], name: str) -> InputError:
    """Return the error for mixed schemes, with the first tag that does not fit."""
    for sentence in sentences:
        for tag, number in zip(sentence.tags, sentence.numbers):
            if tag in others:
                hint = "give all tags as B-X, I-X and O, or as plain words"
                return InputError(f"tags in no known scheme: {tag!r}", where=f"{name}:{number}", hint=hint)
    raise AssertionError("a tag that was read is in no sentence")


def _few(names: Iterable[str]) -> str:
    """List up to twelve names in order.

    >>> _few(["b", "a"])
    'a, b'
    """
    ordered = sorted(names)
    return ", ".join(ordered[:12]) + (", …" if len(ordered) > 12 else "")
