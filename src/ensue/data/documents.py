"""A text as documents of sentences, as next-sentence prediction needs it.

blank lines     end a document, as in the texts that BERT was made for
= Title =       begins one in texts of WikiText, where blank lines then mean nothing; headings are left out
a JSON object, a built-in document
                is a document, whatever blank lines it has
none of these   blocks of lines stand for documents, which is said
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ensue.core.wording import counted
from ensue.data.corpora import BUILTIN
from ensue.data.reading import read_pieces
from ensue.data.sources import Source, is_jsonl
from ensue.data.text_pieces import Piece

BLOCK_LINES = 30
"""So many lines stand for a document where nothing says where one ends."""
MAX_UNSPLIT_SENTENCES = 1000
"""A file of at most so many sentences beside others is a document, if nothing parts it."""
MAX_WRAPPED_CHARS = 100
"""Lines of at most so many characters may be parts of a paragraph; longer ones are paragraphs or sentences."""

_HEADING = re.compile(r"\s*(=(?: ?=)*) [^=].* \1\s*")
_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?:\s+(?:[.!?…]+|''|[”’)\]])(?=\s|$))*(?:\s+|$)|[。！？]+[」』”]?\s*")
_ENDED = re.compile(r"[.!?:][\"'”’)\]]*$")
_ALONE = re.compile(r"\s[.!?]+(?:\s|$)")
_OPENING = "\"'“‘«„([`"
_SHORTENED = re.compile(r"(?:\b[A-Z]|\b(?:Mr|Mrs|Ms|Dr|St))\.\s+$")


@dataclass(slots=True)
class _File:
    """What one file, record or built-in document has, as it is read."""

    blocks: list[list[str]] = field(default_factory=list)
    """The sentences of each stretch between blank lines."""
    titles: list[int] = field(default_factory=list)
    """Before which blocks a heading of the highest rank stands."""


def read_documents(
    sources: Sequence[Source] | Source, field: str | None = None, notes: list[str] | None = None
) -> list[list[str]]:
    """The documents of some sources, each a list of its sentences.

    >>> read_documents(["hello"])
    [['hello']]
    """
    notes = [] if notes is None else notes
    files = [(origin, _gathered(lines)) for origin, lines in _files(read_pieces(sources, field, notes))]
    documents: list[list[str]] = []
    for origin, file in files:
        documents += _documents(origin, file, len(files) == 1, notes)
    documents = [document for document in documents if document]
    _note_short(documents, notes)
    return documents


def read_sentences(
    sources: Sequence[Source] | Source, field: str | None = None, notes: list[str] | None = None
) -> list[str]:
    """The sentences of some sources, where it does not matter of which document they are.

    >>> read_sentences(["hello"])
    ['hello']
    """
    files = _files(read_pieces(sources, field, [] if notes is None else notes))
    return [sentence for _, lines in files for sentence in _joined(_gathered(lines).blocks)]


def _documents(origin: str, file: _File, only: bool, notes: list[str]) -> Iterator[list[str]]:
    """The documents of one file; ``only`` says that there are no others."""
    if file.titles:
        edges = [0, *file.titles, len(file.blocks)]
        for start, stop in pairwise(edges):
            yield _joined(file.blocks[start:stop])
    elif _is_record(origin):
        yield _joined(file.blocks)
    elif len(file.blocks) > 1:
        yield from file.blocks
    else:
        yield from _in_blocks(_joined(file.blocks), origin, only, notes)


def _joined(blocks: list[list[str]]) -> list[str]:
    """The sentences of some blocks as one document."""
    return [sentence for block in blocks for sentence in block]


def _is_record(origin: str) -> bool:
    """Whether a piece of text comes from JSONL or from a built-in corpus, which say where documents end."""
    file, _, line = origin.rpartition(":")
    record = line.isdecimal() and (is_jsonl(Path(file)) or file == "standard input")
    return record or origin.partition(":")[0] in BUILTIN


def _files(read: Iterator[Piece]) -> Iterator[tuple[str, Iterator[str]]]:
    """Each file, record or built-in document with its lines; the lines are to be taken before the next is asked for."""
    for piece in read:
        yield piece.origin, _lines(piece, read)


def _lines(piece: Piece, read: Iterator[Piece]) -> Iterator[str]:
    """The lines of a document that begins with a piece, which may end inside a line."""
    rest = ""
    while True:
        *lines, rest = (rest + piece.text).split("\n")
        yield from lines
        if piece.ends:
            break
        piece = next(read)
    yield rest


def _gathered(lines: Iterator[str]) -> _File:
    """Sentences in blocks between blank lines, and where headings stand."""
    file = _File()
    block: list[str] = []
    for line in lines:
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
    if block:
        file.blocks.append(sentences_of(block))
    return file


def _in_blocks(sentences: list[str], origin: str, only: bool, notes: list[str]) -> Iterator[list[str]]:
    """A file that nothing parts: a short one among others is a document, any other is cut into blocks."""
    if not only and len(sentences) <= MAX_UNSPLIT_SENTENCES:
        yield sentences
        return
    if len(sentences) > BLOCK_LINES:
        notes.append(
            f"{origin}: nothing says where documents end (no blank line, no heading), so that blocks of "
            f"{BLOCK_LINES} sentences stand for documents; put a blank line after each document"
        )
    for at in range(0, len(sentences), BLOCK_LINES):
        yield sentences[at : at + BLOCK_LINES]


def _note_short(documents: list[list[str]], notes: list[str]) -> None:
    """Say so if documents hardly have neighbouring sentences."""
    single = sum(len(document) == 1 for document in documents)
    if len(documents) > 1 and 2 * single > len(documents):
        notes.append(
            f"{single:,} of {counted(len(documents), 'document')} have one sentence, which no next sentence can be "
            f"learned from; a blank line ends a document"
        )


# Sentences.


def sentences_of(lines: list[str]) -> list[str]:
    """The sentences of neighbouring lines, which are sentences, paragraphs, or parts of one wrapped paragraph."""
    if _is_wrapped(lines):
        lines = [" ".join(lines)]
    return [sentence for line in lines for sentence in split_sentences(line)]


def _is_wrapped(lines: list[str]) -> bool:
    """Whether lines are parts of a paragraph: none is long, and most are broken off where no sentence ends."""
    broken = [len(line) >= MAX_WRAPPED_CHARS // 2 and not _ENDED.search(line) for line in lines[:-1]]
    return bool(broken) and max(map(len, lines)) <= MAX_WRAPPED_CHARS and 2 * sum(broken) > len(broken)


def split_sentences(text: str) -> list[str]:
    """Sentences end at . ! or ? before a space and a capital, a quotation mark or a bracket.

    A capital with a point is taken for a shortened name, and so are Mr. Mrs. Ms. Dr. and St. In text whose points
    stand alone, as corpora have it that are split into words already, these end sentences and no others do.

    >>> split_sentences('He left. "Why?" J. S. Bach asked. It was ca. 1750, then he wrote 1.5 pages.')
    ['He left.', '"Why?"', 'J. S. Bach asked.', 'It was ca. 1750, then he wrote 1.5 pages.']
    >>> split_sentences("Gov. Daniel left . <unk> stayed .")
    ['Gov. Daniel left .', '<unk> stayed .']
    """
    found, start = [], 0
    apart = _ALONE.search(text) is not None
    for end in _END.finditer(text):
        if end.start() >= start and _ends_here(text, end, apart):
            stop = end.end()
            if text.startswith('"', stop) and text.count('"', start, stop) % 2:  # it closes what was opened
                stop += 1
            found.append(text[start:stop].strip())
            start = stop
    return [sentence for sentence in (*found, text[start:].strip()) if sentence]


def _ends_here(text: str, end: re.Match[str], apart: bool) -> bool:
    """Whether a point or another mark ends a sentence."""
    if end[0][0] in "。！？":
        return True
    if apart:
        return end.start() > 0 and text[end.start() - 1].isspace()
    after = text[end.end() : end.end() + 1]
    shortened = _SHORTENED.search(text, max(0, end.start() - 4), end.end())
    return (after.isupper() or (after != "" and after in _OPENING)) and not shortened
