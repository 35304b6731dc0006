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
from itertools import chain, groupby, islice, pairwise
from pathlib import Path

from ensue.core.errors import InputError, unknown_name
from ensue.core.wording import counted
from ensue.data.labelled import ReadOptions, TaggedSentence
from ensue.data.lines import located_lines, read_lines, source_name
from ensue.data.sources import plain_suffix
from ensue.data.tables import MAX_DIGITS, SAMPLE_LINES, parse_columns

COLUMN_ROLES = ("word", "tag")
UNIVERSAL_COLUMNS = {"word": 2, "tag": 4}
"""Columns of the word and its part of speech in Universal Dependencies."""

END_LETTERS, CONTINUATION_LETTERS = frozenset("SEUL"), frozenset("IMEL")
"""Letters of tags that end, and that continue, a span."""
_SPAN_TAG = re.compile(r"([BIMESLU])-(.+)")
_LETTERS = frozenset("BIMESLUO")


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
    chosen = _parse_columns(options.columns)
    tagged: list[TaggedSentence] = []
    for file in files:
        name = source_name(file)
        broken: list[InputError] = []
        columns = _Columns(_is_universal(file), chosen, options.require_labels)
        sentences = list(_read_sentences(file, columns, broken if options.skip_short else None))
        if broken:
            notes.append(f"{name}: {counted(len(broken), 'sentence')} left out, the first because of {broken[0]}")
        if not sentences:
            raise InputError("there is no sentence in this file", where=name, hint="give a word and its tag a line")
        scheme, description = "", "tags, if any, are not looked at"
        if options.require_labels:
            scheme, description = _find_scheme(sentences, name)
        words = sum(len(sentence.words) for sentence in sentences)
        notes.append(f"{name}: {counted(len(sentences), 'sentence')}, {counted(words, 'word')}; {description}")
        for sentence in sentences:
            tags = tuple(to_bio(sentence.tags) if scheme else sentence.tags) if options.require_labels else None
            where = f"{name}:{sentence.numbers[0]}"
            tagged.append(TaggedSentence(tuple(sentence.words), tags, where, tuple(sentence.numbers)))
    different = {tag for sentence in tagged for tag in sentence.tags or ()}
    if options.for_training and len(different) == 1:
        hint = "give examples with other tags, or choose their column with --columns word=…,tag=…"
        raise InputError(f"every word has the tag {different.pop()!r}", where=tagged[0].where, hint=hint)
    if options.for_training and len(tagged) == 1:
        what = f"there is one sentence of {counted(len(tagged[0].words), 'word')}, and nothing else to learn from"
        raise InputError(what, where=tagged[0].where, hint="put a blank line after each sentence")
    return tagged


def read_untagged(file: str | Path, columns: str = "", notes: list[str] | None = None) -> list[TaggedSentence]:
    """Read sentences to tag: one per line, split at white space, or one word per line with a blank line after each
    sentence. The tags of a tagged file are ignored."""
    width = 0 if columns else _count_columns(file)
    if columns or width > 1:
        options = ReadOptions(columns, require_labels=False, for_training=False)
        return read_tagged([file], options, [] if notes is None else notes)
    name = source_name(file)
    if width:  # one word per line
        groups = groupby(enumerate(read_lines(file), start=1), lambda line: _is_word_line(line[1]))
        lines = [list(zip(*group)) for is_word, group in groups if is_word]
        split = [(tuple(map(str.strip, words)), numbers) for numbers, words in lines]
        sentences = [TaggedSentence(words, None, f"{name}:{numbers[0]}", numbers) for words, numbers in split]
    else:
        full = ((where, line.split()) for where, line in located_lines(file) if line.strip())
        sentences = [TaggedSentence(tuple(words), None, where) for where, words in full]
    if not sentences:
        raise InputError("there is no sentence in this file", where=name, hint="give one sentence a line")
    return sentences


def _parse_columns(columns: str) -> dict[str, int]:
    """Parse the columns of word and tag, counted from 1."""
    chosen = {}
    for role, value in parse_columns(columns, "word=1,tag=4").items():
        if role not in COLUMN_ROLES:
            raise unknown_name("column", role, COLUMN_ROLES)
        if not value.isdecimal() or len(value) > MAX_DIGITS or int(value) < 1:
            raise InputError(f"the column {value!r} of {role} is not a number", hint="count columns from 1")
        chosen[role] = int(value)
    return chosen


def _is_universal(file: str | Path) -> bool:
    """Return whether the suffix is that of Universal Dependencies."""
    return plain_suffix(file) == ".conllu"


def _count_columns(file: str | Path) -> int:
    """Return the number of columns if there is a word per line and a blank line after each sentence, else 0."""
    if _is_universal(file):
        return max(UNIVERSAL_COLUMNS.values())
    cells = [line.split() if _is_word_line(line) else [] for line in islice(read_lines(file), SAMPLE_LINES)]
    widths = {len(row) for row in cells if row}
    ends = sum(bool(row) and not after for row, after in pairwise([*cells, []]))
    return widths.pop() if len(widths) == 1 and 1 < ends <= sum(map(bool, cells)) / 2 else 0


# Lines.


def _is_word_line(line: str) -> bool:
    """Return whether a line has a word: it is neither blank nor the start of a document."""
    return bool(line.strip()) and not line.startswith("-DOCSTART-")


def _read_sentences(file: str | Path, columns: _Columns, broken: list[InputError] | None) -> Iterator[_Sentence]:
    """Yield the sentences of a file; the error of an unreadable line is raised, or added to ``broken``."""
    sentence, whole = _Sentence([], [], []), True
    for number, (where, line) in enumerate(chain(located_lines(file), [("", "")]), start=1):
        if not _is_word_line(line):
            if sentence.words and whole:
                yield sentence
            sentence, whole = _Sentence([], [], []), True
            continue
        try:
            cells = columns.cells(line, where)
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


@dataclass(slots=True)
class _Columns:
    """The columns of word and tag in a file; the first line sets the number of columns."""

    universal: bool
    chosen: dict[str, int]
    require_tags: bool
    width: int = 0
    columns: dict[str, int] = field(default_factory=dict)

    def cells(self, line: str, where: str) -> tuple[str, str] | None:
        """Return the word and the tag of a line; None for a line without a word."""
        if self.universal and line.startswith("#"):
            return None
        cells = line.split("\t") if self.universal or "\t" in line else line.split()
        if not self.columns:
            self.width, self.columns = len(cells), self._assign(len(cells), where)
        if len(cells) != self.width:
            what = f"{counted(len(cells), 'column')} where the first line has {self.width}"
            hint = "give every word the same columns, and a blank line after each sentence"
            raise InputError(what, where=where, hint=hint)
        if self.universal and not cells[0].isdecimal():
            return None  # 1-2 is written as one word and repeated as two, 1.1 is not in the text
        word, tag = (cells[self.columns[role] - 1].strip() for role in COLUMN_ROLES)
        if not word or (self.require_tags and (not tag or (self.universal and tag == "_"))):
            what = f"the {'tag' if word else 'word'} is missing"
            raise InputError(what, where=where, hint="give every word a tag")
        return word, tag

    def _assign(self, width: int, where: str) -> dict[str, int]:
        """Return the columns of word and tag, counted from 1."""
        columns = {"word": 1, "tag": width} | (UNIVERSAL_COLUMNS if self.universal else {}) | self.chosen
        if max(columns.values()) > width:
            what = f"{counted(width, 'column')} where {max(columns.values())} are needed"
            raise InputError(what, where=where, hint="choose others with --columns word=…,tag=…")
        if columns["word"] == columns["tag"]:
            hint = "give a word and its tag a line, or choose others with --columns word=…,tag=…"
            raise InputError(f"word and tag are both the column {columns['tag']}", where=where, hint=hint)
        return columns


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
    converted = []
    open_kind: str | None = None
    for tag in tags:
        letter, kind = split_tag(tag)
        if letter == "O":
            open_kind = None
            converted.append("O")
            continue
        continues = letter in CONTINUATION_LETTERS and open_kind == kind
        converted.append(("I" if continues else "B") + tag[1:])
        open_kind = None if letter in END_LETTERS else kind
    return converted


def _find_scheme(sentences: Sequence[_Sentence], name: str) -> tuple[str, str]:
    """Return the scheme of a file's tags, empty if they mark no spans, and a description."""
    tags = {tag for sentence in sentences for tag in sentence.tags}
    bare = tags <= _LETTERS and "O" in tags and bool(tags & {"B", "I"})
    spans = {tag for tag in tags if _SPAN_TAG.fullmatch(tag)}
    others = set() if bare else tags - spans - {"O"}
    if others and not any(tag.startswith(("B-", "I-")) for tag in spans):
        return "", f"{len(tags)} tags {_list_some(tags)}"
    letters = {tag[0] for tag in tags} - {"O"} if bare else {tag[0] for tag in spans}
    if others or (letters & set("LU") and letters & set("ESM")):
        wrong = others or {tag for tag in tags if tag[0] in "LU"}
        lines = (pair for sentence in sentences for pair in zip(sentence.tags, sentence.numbers))
        tag, number = next((tag, number) for tag, number in lines if tag in wrong)
        hint = "give all tags as B-X, I-X and O, or as plain words"
        raise InputError(f"tags in no known scheme: {tag!r}", where=f"{name}:{number}", hint=hint)
    if not letters:
        return "", "1 tag O"
    kinds = {split_tag(tag)[1] for tag in tags} - {""}
    listed = f": {counted(len(kinds), 'kind')} {_list_some(kinds)}" if kinds else ""
    if letters & set("ESMLU"):
        scheme = "BILOU" if letters & set("LU") else "BMES" if "M" in letters else "BIOES"
        return scheme, f"tags in {scheme}, read as BIO{listed}"
    inside, begun = _count_beginnings(sentences)
    if not inside:
        return "BIO", f"tags in BIO{listed}"
    if not begun:
        return "IOB1", f"tags in IOB1, read as BIO{listed}"
    first = f"{counted(len(inside), 'tag')} I- without a span before, read as B- (first: {name}:{inside[0]})"
    return "BIO", f"tags in BIO{listed}; {first}"


def _count_beginnings(sentences: Sequence[_Sentence]) -> tuple[list[int], int]:
    """Return the lines where a span begins with I-, as in IOB1, and the number of spans that begin with B-."""
    inside: list[int] = []
    begun = 0
    for sentence in sentences:
        before: tuple[str, str] = ("O", "")
        for tag, number in zip(sentence.tags, sentence.numbers):
            letter, kind = split_tag(tag)
            starts = before[0] == "O" or before[1] != kind
            if letter == "I" and starts:
                inside.append(number)
            begun += letter == "B" and starts
            before = letter, kind
    return inside, begun


def _list_some(names: Iterable[str]) -> str:
    """List up to twelve names in order."""
    ordered = sorted(names)
    return ", ".join(ordered[:12]) + (", …" if len(ordered) > 12 else "")
