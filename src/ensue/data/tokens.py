"""Tokenize text once, on all cores, into a flat file that is memory-mapped afterwards."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from ensue.core.errors import InputError, Paused
from ensue.core.events import Report, silent
from ensue.core.torchrun import available_cores
from ensue.data import text_pieces
from ensue.data.cache import cache_folder, writable
from ensue.data.encoding import EncodedTexts, bundle_parts, encode_parts, token_dtype
from ensue.data.reading import TextMeasure, changed_while_read, measure_text, read_pieces
from ensue.data.sources import Source
from ensue.data.text_pieces import Part, Piece, as_parts, cut_text
from ensue.data.token_files import READ_BYTES, TokenCounts, TokenFile, open_token_file
from ensue.data.tokenizers.protocol import Tokenizer, first_token
from ensue.data.workers import Workers, can_share

FORMAT = 2
"""Version of the file format; increased when the same text and tokenizer give another file."""
TRIAL_SECONDS = 0.5
"""Seconds of work after which one process extrapolates its total time."""
MIN_SHARED_SECONDS = 3.0
"""Remaining seconds from which worker processes pay off: they take most of a second to start."""
_COUNTS = ("bytes", "words", "documents", "surcharge", "unknown")


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A text as tokens, with the counts needed for bits per byte and per word."""

    tokens: np.ndarray = field(repr=False)
    """The end token, then each document followed by one end token; read-only, usually a memory map."""
    bytes: int
    """Size of the original text in UTF-8."""
    words: int
    """Words between white space, plus line ends, as in the Penn Treebank literature."""
    documents: int
    surcharge: float
    """Bits of the text that its tokens do not encode."""
    unknown: int
    """Number of unknown tokens."""
    hash: str
    """Hash of the text, the tokenizer and the format."""

    def __len__(self) -> int:
        return len(self.tokens)


def tokenize(
    sources: Sequence[Source] | Source,
    tokenizer: Tokenizer,
    *,
    field: str | None = None,
    cache: str | Path | None = None,
    workers: int | None = None,
    report: Report = silent,
    notes: list[str] | None = None,
) -> TokenizedText:
    """Return the tokens of some sources, from the cache if the same text was tokenized before.

    ``workers``: number of processes; None for one per core if there is enough work. The tokens do not depend on it.
    After an interruption the next call resumes at the last finished mebibyte. ``notes`` collects what is skipped and
    why.
    """
    content, size = measure_text(sources, field, notes)
    name = hashlib.sha256(f"{FORMAT} {content} {fingerprint(tokenizer)}".encode()).hexdigest()
    folder = cache_folder() if cache is None else Path(cache)
    file, card = folder / f"{name[:32]}.tokens", folder / f"{name[:32]}.json"
    if (cached := _load_cached(file, card, name)) is not None:
        return cached
    if not writable(folder):
        hint = "set ENSUE_CACHE to a folder of yours"
        raise InputError("token files may not be written here", where=str(folder), hint=hint)

    def waiting() -> None:
        report("note", {"text": "another process is tokenising the same text; this one waits for it"})

    with open_token_file(file, token_dtype(tokenizer), first_token(tokenizer), waiting) as target:
        if (cached := _load_cached(file, card, name)) is not None:
            target.drop()
            return cached
        if _write_tokens(target, lambda: read_pieces(sources, field), tokenizer, size, workers, report) != content:
            target.drop()  # these tokens would be those of another text
            raise changed_while_read(sources)
        target.finish(card, {"hash": name})
    written = _load_cached(file, card, name)
    assert written is not None
    return written


def _write_tokens(
    target: TokenFile,
    read: Callable[[], Iterator[Piece]],
    tokenizer: Tokenizer,
    size: int,
    workers: int | None,
    report: Report,
) -> str:
    """Write the tokens of a text that are not in the file yet, and return the hash of the text that was read.

    ``size`` is the text's size in bytes.
    """
    measure = TextMeasure()
    text, done = as_parts(measure.watch(read())), target.counts.bytes
    if sum(len(part[0].encode()) for part in islice(text, target.counts.parts)) != done:
        target.restart()  # the same text is stored differently now, and comes in other pieces
        measure = TextMeasure()
        text, done = as_parts(measure.watch(read())), 0
    if done:
        report("note", {"text": f"{_megabytes(done)} of {_megabytes(size)} were tokenised before"})
    started = time.perf_counter()
    try:
        for bundle in _encode(bundle_parts(text, text_pieces.PIECE_BYTES // 2), tokenizer, size - done, workers):
            target.add(bundle)
            at = target.counts.bytes
            speed = (at - done) / (time.perf_counter() - started)
            progress = {"done": at, "total": size, "counts": "bytes", "per_second": speed}
            report("progress", {**progress, "left": (size - at) / max(speed, 1)})
    except KeyboardInterrupt:
        raise Paused(f"{_megabytes(target.counts.bytes)} of {_megabytes(size)} are tokenised") from None
    return measure.hash


def _encode(
    bundles: Iterator[list[Part]], tokenizer: Tokenizer, size: int, workers: int | None
) -> Iterator[EncodedTexts]:
    """Encode bundles in order: in this process, and in workers once that is known to take long."""
    wanted = available_cores() if workers is None else workers
    spent = done = 0.0
    for bundle in bundles:
        started = time.perf_counter()
        encoded = encode_parts(tokenizer, bundle)
        spent, done = spent + time.perf_counter() - started, done + encoded.bytes
        yield encoded
        long = workers is not None or (spent > TRIAL_SECONDS and spent * (size / max(done, 1) - 1) > MIN_SHARED_SECONDS)
        if wanted > 1 and long:
            if can_share(tokenizer):
                with Workers(tokenizer, wanted) as others:
                    yield from others.encode(bundles)
            wanted = 1  # this process does the rest


def _megabytes(count: int) -> str:
    """
    >>> _megabytes(1_234_567_890)
    '1,234.6 MB'
    """
    return f"{count / 1e6:,.1f} MB"


def tokenize_text(text: str, tokenizer: Tokenizer) -> TokenizedText:
    """Return the tokens of one document in memory.

    >>> from ensue.data.tokenizers.char import ByteTokenizer
    >>> tokenize_text("hi", ByteTokenizer()).tokens.tolist()
    [256, 104, 105, 256]
    """
    tokens, counts = [np.array([first_token(tokenizer)], token_dtype(tokenizer))], TokenCounts()
    for bundle in bundle_parts(as_parts(cut_text(text)), text_pieces.PIECE_BYTES // 2):
        encoded = encode_parts(tokenizer, bundle)
        tokens.append(encoded.tokens)
        counts = counts.plus(encoded)
    joined = np.concatenate(tokens)
    joined.setflags(write=False)
    digest = hashlib.sha256(f"{FORMAT} {fingerprint(tokenizer)} {text}".encode()).hexdigest()
    return TokenizedText(joined, hash=digest, **{name: getattr(counts, name) for name in _COUNTS})


def fingerprint(tokenizer: Tokenizer) -> str:
    """Return the SHA-256 of a tokenizer's state."""
    return hashlib.sha256(json.dumps(tokenizer.state(), sort_keys=True).encode()).hexdigest()


def _load_cached(file: Path, card: Path, name: str) -> TokenizedText | None:
    """Return cached tokens, or None if there are none or they are damaged."""
    try:
        facts = json.loads(card.read_text(encoding="utf-8"))
        if facts["hash"] != name or file.stat().st_size != facts["count"] * np.dtype(facts["dtype"]).itemsize:
            return None
        if _checksum(file) != facts["sum"]:
            return None
        tokens = np.memmap(file, dtype=facts["dtype"], mode="r")
        return TokenizedText(tokens, hash=name, **{name: facts[name] for name in _COUNTS})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _checksum(path: Path) -> int:
    """Return the checksum of a file, read in blocks: mapped pages would count as this process's memory."""
    result = 0
    with path.open("rb", buffering=0) as file:
        while data := file.read(READ_BYTES):
            result = zlib.crc32(data, result)
    return result
