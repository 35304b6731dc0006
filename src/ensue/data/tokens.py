"""Text as numbers: tokenised once into a flat file that is memory-mapped from then on."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from ensue.core.errors import InputError
from ensue.core.files import whole_file, write_json
from ensue.data.cache import cache_folder, writable
from ensue.data.reading import cut_text, measure_text, parts, pieces
from ensue.data.sources import Source
from ensue.data.tokenizers.protocol import Tokenizer

FORMAT = 1
"""Raised when the same text and tokenizer would give another file."""

Progress = Callable[[int, int], None]
"""Called with how many bytes of text are done, and of how many."""


@dataclass(frozen=True, slots=True)
class TokenText:
    """A text as tokens, with all that is needed to say what a byte or a word of it costs."""

    tokens: np.ndarray = field(repr=False)
    """The end mark, then each document followed by one end mark; read-only, usually a memory map."""
    bytes: int
    """Of the original text in UTF-8."""
    words: int
    """What stands between white space, plus line ends, as the Penn Treebank literature counts."""
    documents: int
    surcharge: float
    """Bits that the text costs beyond its tokens, because these do not say all of it."""
    unknown: int
    """How many of the tokens are unknown."""
    hash: str
    """Of the text, the tokenizer and the format."""

    def __len__(self) -> int:
        return len(self.tokens)


def tokenise(
    sources: Sequence[Source] | Source,
    tokenizer: Tokenizer,
    *,
    field: str | None = None,
    cache: str | Path | None = None,
    progress: Progress | None = None,
    notes: list[str] | None = None,
) -> TokenText:
    """The tokens of some sources, from the cache if the same text was tokenised before in the same way.

    ``notes`` collects what was left out of the sources and why.
    """
    content, size = measure_text(sources, field, notes)
    name = hashlib.sha256(f"{FORMAT} {content} {fingerprint(tokenizer)}".encode()).hexdigest()
    folder = cache_folder() if cache is None else Path(cache)
    file, card = folder / f"{name[:32]}.tokens", folder / f"{name[:32]}.json"
    found = _cached(file, card, name)
    if found is not None:
        return found
    if not writable(folder):
        mend = "set ENSUE_CACHE to a folder of yours"
        raise InputError("token files may not be written here", where=str(folder), mend=mend)
    with whole_file(file) as temporary, temporary.open("wb") as target:
        tally = _Tally(tokenizer, target)
        for text, opens, closes in parts(pieces(sources, field)):
            tally.add(text, opens, closes)
            if progress is not None:
                progress(tally.bytes, size)
    write_json(card, {"hash": name, **tally.card()})
    made = _cached(file, card, name)
    assert made is not None
    return made


def token_text(text: str, tokenizer: Tokenizer) -> TokenText:
    """The tokens of one document that is already in memory.

    >>> from ensue.data.tokenizers.letters import ByteTokenizer
    >>> token_text("hi", ByteTokenizer()).tokens.tolist()
    [256, 104, 105, 256]
    """
    tally = _Tally(tokenizer, None)
    for part in parts(cut_text(text)):
        tally.add(*part)
    tokens = np.concatenate(tally.kept)
    tokens.setflags(write=False)
    digest = hashlib.sha256(f"{FORMAT} {fingerprint(tokenizer)} {text}".encode()).hexdigest()
    return TokenText(tokens, tally.bytes, tally.words, tally.documents, tally.surcharge, tally.unknown, digest)


def fingerprint(tokenizer: Tokenizer) -> str:
    """The SHA-256 of all that a tokenizer does."""
    return hashlib.sha256(json.dumps(tokenizer.state(), sort_keys=True).encode()).hexdigest()


class _Tally:
    """Writes the tokens of one piece after the other and counts as it goes."""

    def __init__(self, tokenizer: Tokenizer, target: IO[bytes] | None) -> None:
        self.tokenizer = tokenizer
        self.dtype = np.dtype("<u2" if tokenizer.size <= 1 << 16 else "<u4")
        self.kept: list[np.ndarray] = []
        self.bytes = self.words = self.documents = self.unknown = self.count = self.sum = 0
        self.surcharge = 0.0
        self._target = target
        self._word_open = False
        self._write([tokenizer.end])

    def add(self, text: str, opens: bool, closes: bool) -> None:
        """The next piece of a document."""
        self._write(self.tokenizer.encode(text))
        bits, unknown = self.tokenizer.surcharge(text, opens, closes)
        self.surcharge, self.unknown = self.surcharge + bits, self.unknown + unknown
        self.bytes += len(text.encode())
        self.words += len(text.split()) + text.count("\n")
        if self._word_open and text and not text[0].isspace():
            self.words -= 1  # a word that was cut in two
        self._word_open = bool(text) and not text[-1].isspace() and not closes
        if closes:
            finished = text.endswith("\n")
            self.documents += 1
            self.words += not finished
            if not (finished and self.tokenizer.lines):
                self._write([self.tokenizer.end])

    def _write(self, ids: np.ndarray | Iterable[int]) -> None:
        tokens = np.asarray(ids).astype(self.dtype)
        self.count += len(tokens)
        if self._target is None:
            self.kept.append(tokens)
        else:
            data = tokens.tobytes()
            self.sum = zlib.crc32(data, self.sum)
            self._target.write(data)

    def card(self) -> dict[str, Any]:
        """What stands beside the token file."""
        names = ("count", "sum", "bytes", "words", "documents", "surcharge", "unknown")
        return {"dtype": self.dtype.str, **{name: getattr(self, name) for name in names}}


def _cached(file: Path, card: Path, name: str) -> TokenText | None:
    """The tokens of an earlier run, or None if there are none or they are damaged."""
    try:
        facts = json.loads(card.read_text(encoding="utf-8"))
        if facts["hash"] != name or file.stat().st_size != facts["count"] * np.dtype(facts["dtype"]).itemsize:
            return None
        tokens = np.memmap(file, dtype=facts["dtype"], mode="r")
        if _sum(tokens) != facts["sum"]:
            return None
        names = ("bytes", "words", "documents", "surcharge", "unknown", "hash")
        return TokenText(tokens, *(facts[name] for name in names))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sum(tokens: np.ndarray) -> int:
    """The checksum of tokens, a block at a time."""
    result = 0
    for at in range(0, len(tokens), 1 << 22):
        result = zlib.crc32(tokens[at : at + (1 << 22)].data, result)
    return result
