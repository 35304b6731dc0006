"""Split text into documents of sentences, for next-sentence prediction.

blank lines     end a document, as in BERT's pre-training data
= Title =       starts a document in WikiText, where blank lines have no meaning; headings are dropped
a JSON object, a built-in document
                is one document, with or without blank lines
none of these   blocks of lines stand for documents, with a note
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, TypeVar

from ensue.core.errors import InputError
from ensue.core.events import Report, report_notes
from ensue.core.wording import counted
from ensue.data.corpora import BUILTIN
from ensue.data.reading import read_pieces
from ensue.data.sources import Source, is_jsonl
from ensue.data.text_pieces import Piece

Item = TypeVar("Item")
BLOCK_LINES = 30
"""Lines of a document if no boundaries are marked."""
MAX_UNSPLIT_SENTENCES = 1000
"""A file with at most this many sentences and no boundaries is one document, if there are other files."""
MAX_WRAPPED_CHARS = 100
"""Longer lines are paragraphs or sentences, not parts of a wrapped paragraph."""

_HEADING = re.compile(r"\s*(=(?: ?=)*) [^=].* \1\s*")
_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?:\s+(?:[.!?…]+|''|[”’)\]])(?=\s|$))*(?:\s+|$)|[。！？]+[」』”]?\s*")
_ENDED = re.compile(r"[.!?:][\"'”’)\]]*$")
_ALONE = re.compile(r"\s[.!?]+(?:\s|$)")
_OPENING = "\"'“‘«„([`"
_ABBREVIATION = re.compile(r"(?:\b[A-Z]|\b(?:Mr|Mrs|Ms|Dr|St))\.\s+$")


@dataclass(slots=True)
class _File:
    """The contents of one file, record or built-in document."""

    blocks: list[list[str]] = field(default_factory=list)
    """The sentences of each block between blank lines."""
    titles: list[int] = field(default_factory=list)
    """Indices of the blocks after a top-level heading."""


def read_documents(
    sources: Sequence[Source] | Source, field: str | None = None, notes: list[str] | None = None
) -> list[list[str]]:
    """Read documents, each a list of sentences.

    >>> read_documents(["hello"])
    [['hello']]
    """
    notes = [] if notes is None else notes
    files = [(origin, _find_blocks(lines)) for origin, lines in _read_files(read_pieces(sources, field, notes))]
    split = [_split_documents(origin, file, len(files) == 1, notes) for origin, file in files]
    documents = [document for documents in split for document in documents if document]
    single = sum(len(document) == 1 for document in documents)
    if len(documents) > 1 and 2 * single > len(documents):
        what = f"{single:,} of {counted(len(documents), 'document')} have one sentence and no next one to predict"
        notes.append(f"{what}; a blank line ends a document")
    return documents


def read_sentences(
    sources: Sequence[Source] | Source, field: str | None = None, notes: list[str] | None = None
) -> list[str]:
    """Read sentences, regardless of documents.

    >>> read_sentences(["hello"])
    ['hello']
    """
    files = _read_files(read_pieces(sources, field, [] if notes is None else notes))
    return [sentence for _, lines in files for block in _find_blocks(lines).blocks for sentence in block]


def _split_documents(origin: str, file: _File, only: bool, notes: list[str]) -> Iterator[list[str]]:
    """Yield the documents of one file; ``only`` is True if there are no other files."""
    if file.titles:
        for start, stop in pairwise([0, *file.titles, len(file.blocks)]):
            yield list(chain.from_iterable(file.blocks[start:stop]))
    elif _is_record(origin):
        yield list(chain.from_iterable(file.blocks))
    elif len(file.blocks) > 1:
        yield from file.blocks
    else:
        yield from _cut_into_blocks(list(chain.from_iterable(file.blocks)), origin, only, notes)


def _is_record(origin: str) -> bool:
    """Return whether a piece comes from JSONL or a built-in corpus, which mark the ends of documents."""
    file, _, line = origin.rpartition(":")
    record = line.isdecimal() and (is_jsonl(file) or file == "standard input")
    return record or origin.partition(":")[0] in BUILTIN


def _read_files(pieces: Iterator[Piece]) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield each file, record or built-in document with its lines; consume the lines before the next one."""
    for piece in pieces:
        yield piece.origin, _read_lines(piece, pieces)


def _read_lines(piece: Piece, pieces: Iterator[Piece]) -> Iterator[str]:
    """Yield the lines of a document from its first piece on; pieces may end inside a line."""
    rest = ""
    while True:
        *lines, rest = (rest + piece.text).split("\n")
        yield from lines
        if piece.ends:
            break
        piece = next(pieces)
    yield rest


def _find_blocks(lines: Iterator[str]) -> _File:
    """Collect blocks of sentences between blank lines, and the positions of headings."""
    file = _File()
    block: list[str] = []
    for line in chain(lines, [""]):
        text = line.strip()
        heading = _HEADING.fullmatch(line)
        if text and not heading:
            block.append(text)
            continue
        if block:
            file.blocks.append(sentences_of(block))
            block = []
        if heading and heading[1] == "=":
            file.titles.append(len(file.blocks))
    return file


def _cut_into_blocks(sentences: list[str], origin: str, only: bool, notes: list[str]) -> Iterator[list[str]]:
    """Yield the documents of a file without boundaries: one if it is short and not the only file, else blocks."""
    if not only and len(sentences) <= MAX_UNSPLIT_SENTENCES:
        yield sentences
        return
    if len(sentences) > BLOCK_LINES:
        blocks = f"so blocks of {BLOCK_LINES} sentences stand for documents; put a blank line after each document"
        notes.append(f"{origin}: no document boundaries (blank lines or headings), {blocks}")
    for at in range(0, len(sentences), BLOCK_LINES):
        yield sentences[at : at + BLOCK_LINES]


# Sentences.


def sentences_of(lines: list[str]) -> list[str]:
    """Return the sentences of adjacent lines: sentences, paragraphs, or parts of one wrapped paragraph.

    A wrapped paragraph has no long line, and most lines end inside a sentence.
    """
    broken = [len(line) >= MAX_WRAPPED_CHARS // 2 and not _ENDED.search(line) for line in lines[:-1]]
    if broken and max(map(len, lines)) <= MAX_WRAPPED_CHARS and 2 * sum(broken) > len(broken):
        lines = [" ".join(lines)]
    return [sentence for line in lines for sentence in split_sentences(line)]


def split_sentences(text: str) -> list[str]:
    """Split text into sentences at . ! or ? before a space and a capital, a quotation mark or a bracket.

    Initials and Mr. Mrs. Ms. Dr. St. do not end a sentence. In tokenised text, where periods stand alone, only these
    end sentences.

    >>> split_sentences('He left. "Why?" J. S. Bach asked. It was ca. 1750, then he wrote 1.5 pages.')
    ['He left.', '"Why?"', 'J. S. Bach asked.', 'It was ca. 1750, then he wrote 1.5 pages.']
    >>> split_sentences("Gov. Daniel left . <unk> stayed .")
    ['Gov. Daniel left .', '<unk> stayed .']
    """
    sentences, start = [], 0
    tokenised = _ALONE.search(text) is not None
    for end in _END.finditer(text):
        if end.start() >= start and _ends_sentence(text, end, tokenised):
            stop = end.end()
            if text.startswith('"', stop) and text.count('"', start, stop) % 2:  # a closing quotation mark
                stop += 1
            sentences.append(text[start:stop].strip())
            start = stop
    return [sentence for sentence in (*sentences, text[start:].strip()) if sentence]


def _ends_sentence(text: str, end: re.Match[str], tokenised: bool) -> bool:
    if end[0][0] in "。！？":
        return True
    if tokenised:
        return end.start() > 0 and text[end.start() - 1].isspace()
    after = text[end.end() : end.end() + 1]
    abbreviation = _ABBREVIATION.search(text, max(0, end.start() - 4), end.end())
    return (after.isupper() or (after != "" and after in _OPENING)) and not abbreviation


def read_train_and_valid(
    read: Callable[[Sequence[Source], str | None, list[str]], list[Item]], data: Any, report: Report
) -> tuple[list[Item], list[Item]]:
    """Read training and validation text with ``read``, as the settings ``data`` name them; report the notes."""
    report("phase", {"name": "reading the text"})
    notes: list[str] = []
    train, valid = (read(files, data.field or None, notes) if files else [] for files in (data.files, data.valid))
    report_notes(notes, "and {} more notes", report)
    if not train:
        where = ", ".join(map(str, data.files))
        raise InputError("there is no sentence to learn from", where=where, hint="give some text")
    return train, valid
