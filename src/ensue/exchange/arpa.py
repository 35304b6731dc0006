r"""The ARPA format of n-gram models: text, base-10 logarithms, read by KenLM, SRILM and many more.

    \data\
    ngram 1=4
    ngram 2=5

    \1-grams:
    -0.52<tab>the<tab>-0.30         log10 p, the words, log10 of the back-off weight
    …
    \end\

The end token is written ``<s>`` where it begins an n-gram and ``</s>`` where it ends one. Words are split at
white space, so white space and control characters inside a token are written as ``\u`` and four hexadecimal
digits.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.core.errors import InputError
from ensue.core.files import atomic_file
from ensue.core.schema import is_unicode
from ensue.exchange.arpa_lines import level_lines, word_bytes
from ensue.models.ngram import NGram, NGramConfig
from ensue.models.ngram_config import LOOKUP_KINDS, MAX_ORDER
from ensue.models.ngram_counting import with_level
from ensue.models.ngram_lookup import BACKOFF, Trie, descend
from ensue.models.ngram_tables import BLOCK

LN_10 = math.log(10)
MAX_LINE_CHARS = 1 << 20
"""Maximum length of a line."""
FIRST_ROWS = 1 << 12
"""Rows of a section at first: its size grows with the lines that are there, whatever the header says."""
MAX_LOG = 1e6
"""The largest logarithm that is read and written."""
LOG_ZERO = -99.0
"""Stands for log10 0."""
SENTENCE_START, SENTENCE_END = "<s>", "</s>"
UNSAFE_CHARS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]|\\(?=u[0-9a-f]{4})")
ESCAPE_SEQUENCE = re.compile(r"\\u([0-9a-f]{4})")


def escape(token: str) -> str:
    r"""Write a token as one ARPA word; ``unescape`` reverses it.

    >>> escape("new line\n"), unescape(escape("new line\n"))
    ('new\\u0020line\\u000a', 'new line\n')
    """
    if token in (SENTENCE_START, SENTENCE_END):
        return f"\\u003c{token[1:]}"
    return UNSAFE_CHARS.sub(lambda match: f"\\u{ord(match.group()):04x}", token)


def unescape(word: str) -> str:
    """Return the token that ``escape`` wrote as this word."""
    return ESCAPE_SEQUENCE.sub(lambda match: chr(int(match.group(1), 16)), word)


def write_arpa(model: NGram, tokens: Sequence[str], path: Path | str) -> None:
    """Write a model with the names of its tokens; a path that ends in ``.gz`` is compressed."""
    path = Path(path)
    config = model.config
    if LOOKUP_KINDS[config.mode] != BACKOFF:
        what = f"mode {config.mode!r} has no back-off weights, and ARPA has nothing else"
        raise InputError(what, where=str(path), hint="use mode kneser-ney or backoff")
    words = [escape(token) for token in tokens]
    if len(words) != config.vocabulary:
        raise InputError(f"{len(words)} names were given for {config.vocabulary} tokens", where=str(path))
    if not all(_writable(table) for table in (model.probability, model.backoff)):
        what = f"has log probabilities that are not numbers from -{MAX_LOG:g} to {MAX_LOG:g}"
        raise InputError(what, where="the model", hint="its weights may be damaged")
    named = [word for number, word in enumerate(words) if number != config.end]
    if "" in named or len(set(named)) < len(named):
        raise InputError("two tokens have the same name, or one has none", where=str(path))
    with atomic_file(path) as part, gzip.open(part, "wb", 6) if path.suffix == ".gz" else part.open("wb") as file:
        _write(model, words, cast(IO[bytes], file))


def _writable(values: torch.Tensor) -> bool:
    """Return whether all values are finite and can be written with nine digits."""
    parts = (values[start : start + BLOCK] for start in range(0, len(values), BLOCK))
    return all(bool((part.abs() <= MAX_LOG).all()) for part in parts)


def _write(model: NGram, words: list[str], file: IO[bytes]) -> None:
    end, order = model.config.end, model.config.order
    counts = model.counts
    counts[0] += 1 if end >= 0 else 2
    weight = float(model.backoff[end]) / LN_10 if end >= 0 and order > 1 else 0.0
    head = ["\\data\\\n", *(f"ngram {level}={count}\n" for level, count in enumerate(counts, 1))]
    head.append(f"\n\\1-grams:\n{LOG_ZERO:g}\t{SENTENCE_START}\t{weight:.9g}\n")
    if end < 0:
        head.append(f"{LOG_ZERO:g}\t{SENTENCE_END}\t0\n")
    file.write("".join(head).encode())
    openings, closings = (
        word_bytes([token if number == end else word for number, word in enumerate(words)])
        for token in (SENTENCE_START, SENTENCE_END)
    )
    for level in range(1, order + 1):
        if level > 1:
            file.write(f"\n\\{level}-grams:\n".encode())
        for lines in level_lines(model, level, openings, closings):
            file.write(lines)
    file.write(b"\n\\end\\\n")


@dataclass(slots=True)
class NGramSection:
    """N-grams of one order: word ids (N, k), log p and log back-off weight in nats, and line numbers."""

    grams: NDArray[np.int64]
    probability: NDArray[np.float64]
    backoff: NDArray[np.float64]
    lines: NDArray[np.int64]


class _Missing(Exception):
    """The suffix of an n-gram is not listed, as in pruned models."""


def read_arpa(path: Path | str) -> tuple[NGram, list[str]]:
    """Read a model and the names of its tokens.

    A pruned model may omit suffixes of its n-grams; they are added, with the probability that backing off gives.
    """
    path = Path(path)
    with _opened(path) as file:
        lines = _Lines(path, file)
        counts = _header(lines)
        names, ids, first = _unigrams(lines, counts[0])
        sections = [first, *(_section(lines, order, count, ids) for order, count in enumerate(counts[1:], 2))]
        lines.expect("\\end\\")
    end = ids.get(SENTENCE_END, -1)
    config = NGramConfig(vocabulary=len(names), order=len(counts), end=end)
    try:
        return _model(config, sections, path), names
    except _Missing:
        return _model(config, _with_missing(sections), path), names


class _Lines:
    """The non-empty lines of a file, with line numbers for errors."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self.path, self.file, self.number = path, file, 0

    def next(self) -> str:
        for line in iter(partial(self.file.readline, MAX_LINE_CHARS), ""):
            self.number += 1
            if len(line) == MAX_LINE_CHARS:
                raise self.error(f"a line of {MAX_LINE_CHARS:,} characters or more")
            text = line.rstrip("\r\n")
            if text.strip(" \t"):
                return text
        raise self.error("the file ends too early")

    def error(self, what: str, number: int | None = None) -> InputError:
        return InputError(what, where=f"{self.path}, line {number or self.number}", hint="the file may be damaged")

    def expect(self, text: str) -> None:
        line = self.next()
        if line.strip() != text:
            raise self.error(f"expected {text}, not {line[:40]!r}")

    def entry(self, order: int) -> tuple[float, list[str], float]:
        """Read log p, the words, and the log back-off weight (0 if it is left out), in nats."""
        text = self.next()
        fields = text.replace("\t", " ").split(" ")
        if not order + 1 <= len(fields) <= order + 2 or "" in fields:
            fields = [field for field in fields if field]
        if text.startswith("\\") and len(fields) == 1:
            raise self.error(f"there are fewer {order}-grams than the header says")
        if not order + 1 <= len(fields) <= order + 2:
            raise self.error(f"expected {order + 1} or {order + 2} fields, not {text[:40]!r}")
        try:
            log, weight = float(fields[0]), float(fields[order + 1]) if len(fields) > order + 1 else 0.0
        except ValueError:
            raise self.error(f"expected a number, not {text[:40]!r}") from None
        if not log <= 0:
            raise self.error(f"{fields[0]} is not the logarithm of a probability")
        if not weight <= MAX_LOG:
            raise self.error(f"{fields[-1]} is not the logarithm of a back-off weight")
        return max(log, LOG_ZERO) * LN_10, fields[1 : order + 1], max(weight, LOG_ZERO) * LN_10


def _header(lines: _Lines) -> list[int]:
    while lines.next().strip() != "\\data\\":
        pass
    counts: list[int] = []
    while True:
        text = lines.next().strip()
        match = re.fullmatch(r"ngram ([0-9]{1,9})\s*=\s*([0-9]{1,18})", text)
        if match is None:
            break
        if int(match[1]) != len(counts) + 1:
            raise lines.error(f"expected the count of order {len(counts) + 1}, not {text!r}")
        counts.append(int(match[2]))
    if text != "\\1-grams:" or not counts:
        raise lines.error(f"expected \\1-grams:, not {text[:40]!r}")
    if len(counts) > MAX_ORDER:
        raise lines.error(f"order {len(counts)} is too high: at most {MAX_ORDER}")
    return counts


def _unigrams(lines: _Lines, count: int) -> tuple[list[str], dict[str, int], NGramSection]:
    """Read token names, ids of ARPA words (``<s>`` and ``</s>`` share one) and entries; ``<s>`` provides the weight."""
    entries: dict[str, tuple[float, float, int]] = {}
    for _ in range(count):
        log, (word,), weight = lines.entry(1)
        if word in entries:
            raise lines.error(f"{word!r} is listed twice")
        entries[word] = (log, weight, lines.number)
    opening = entries.pop(SENTENCE_START, None)
    if SENTENCE_END in entries and entries[SENTENCE_END][0] <= LOG_ZERO * LN_10:
        del entries[SENTENCE_END]
    elif opening is not None and SENTENCE_END not in entries:
        raise lines.error(f"{SENTENCE_START} is listed but {SENTENCE_END} is not")
    if not entries:
        raise lines.error("no words are listed")
    ids = {word: number for number, word in enumerate(entries)}
    names = [word if word == SENTENCE_END else unescape(word) for word in entries]
    seen: set[str] = set()
    for name, (_, _, number) in zip(names, entries.values()):
        if not is_unicode(name):
            raise lines.error("a word holds half of a surrogate pair, which is no character", number)
        if name in seen:
            raise lines.error(f"{name!r} is listed twice, once with escapes", number)
        seen |= {name} - {SENTENCE_END}  # the end token, and perhaps a word of the same spelling
    values = np.array(list(entries.values()))
    section = NGramSection(np.arange(len(ids))[:, None], values[:, 0], values[:, 1], values[:, 2].astype(np.int64))
    if SENTENCE_END in ids:
        section.backoff[ids[SENTENCE_END]] = opening[1] if opening is not None else 0.0
        ids[SENTENCE_START] = ids[SENTENCE_END]
    return names, ids, section


def _section(lines: _Lines, order: int, count: int, ids: dict[str, int]) -> NGramSection:
    lines.expect(f"\\{order}-grams:")
    section = _empty_section(min(count, FIRST_ROWS), order)
    for row in range(count):
        if row == len(section.lines):
            section = NGramSection(*(np.concatenate([part, np.empty_like(part)]) for part in _columns(section)))
        section.probability[row], words, section.backoff[row] = lines.entry(order)
        section.lines[row] = lines.number
        try:
            section.grams[row] = [ids[word] for word in words]
        except KeyError as error:
            raise lines.error(f"{error.args[0]!r} is not among the 1-grams") from None
        if SENTENCE_START in words[1:] or SENTENCE_END in words[:-1]:
            raise lines.error(f"{SENTENCE_START} can only begin an n-gram and {SENTENCE_END} only end one")
    return NGramSection(*(part[:count] for part in _columns(section)))


def _empty_section(rows: int, order: int) -> NGramSection:
    return NGramSection(np.empty((rows, order), np.int64), np.empty(rows), np.empty(rows), np.empty(rows, np.int64))


def _columns(section: NGramSection) -> tuple[NDArray[Any], ...]:
    return section.grams, section.probability, section.backoff, section.lines


def _model(config: NGramConfig, sections: list[NGramSection], path: Path) -> NGram:
    size = config.vocabulary
    starts, index = np.array([0, size]), np.int32
    nothing = np.full(size, -1, index)
    trie = Trie(np.arange(size, dtype=index), np.array([size], index), nothing, starts, np.zeros(size, index))
    logs, weights = [sections[0].probability], [sections[0].backoff]
    for order, section in enumerate(sections[1:], 2):
        contexts = descend(trie.words, trie.offsets, section.grams[:, :-1])
        if (contexts < 0).any():
            line = section.lines[int(np.argmax(contexts < 0))]
            raise InputError(f"the context of this {order}-gram is not listed", where=f"{path}, line {line}")
        if order > 2 and (descend(trie.words, trie.offsets, section.grams[:, 1:]) < 0).any():
            raise _Missing
        keys = contexts * size + section.grams[:, -1]
        by_key = np.argsort(keys, kind="stable")
        keys = keys[by_key]
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twice):
            line = section.lines[by_key[twice[0] + 1]]
            raise InputError(f"this {order}-gram is listed twice", where=f"{path}, line {line}")
        trie = with_level(trie, keys, np.zeros(len(keys), index))
        logs.append(section.probability[by_key])
        weights.append(section.backoff[by_key])
        _back_off(trie, logs, weights, contexts[by_key])
    tables = {
        **{name: getattr(trie, name) for name in ("words", "offsets", "suffix", "starts")},
        "probability": np.concatenate(logs).astype(np.float32),
        "backoff": np.concatenate([np.zeros(0), *weights[:-1]]).astype(np.float32),
        "scale": np.zeros(1, np.float32),
    }
    return NGram(config).adopt({name: torch.from_numpy(table) for name, table in tables.items()})


def _back_off(trie: Trie, logs: list[NDArray[Any]], weights: list[NDArray[Any]], contexts: NDArray[np.int64]) -> None:
    """Compute the probability of n-grams added by ``_with_missing`` (NaN) by backing off: log b(c) P(w|c')."""
    missing = np.isnan(logs[-1])
    if missing.any():
        below, here = int(trie.starts[-3]), int(trie.starts[-2])
        shorter = trie.suffix[here:][missing] - below
        logs[-1][missing] = weights[-2][contexts[missing] - below] + logs[-2][shorter]


def _with_missing(sections: list[NGramSection]) -> list[NGramSection]:
    """Add missing prefixes and suffixes of n-grams to the lower orders, with NaN as probability."""
    result = list(sections)
    for order in range(len(sections) - 1, 1, -1):
        longer, here = result[order].grams, result[order - 1]
        wanted = np.concatenate([longer[:, 1:], longer[:, :-1]])
        missing = np.array(sorted(set(map(tuple, wanted.tolist())) - set(map(tuple, here.grams.tolist()))))
        if len(missing):
            result[order - 1] = NGramSection(
                np.concatenate([here.grams, missing.astype(np.int64)]),
                np.append(here.probability, np.full(len(missing), np.nan)),
                np.append(here.backoff, np.zeros(len(missing))),
                np.append(here.lines, np.zeros(len(missing), np.int64)),
            )
    return result


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """Open a file, compressed or not; a missing or damaged one becomes an InputError."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as raw:
            yield io.TextIOWrapper(cast(IO[bytes], raw), encoding="utf-8-sig", newline="\n")
    except FileNotFoundError:
        raise InputError("is missing", where=str(path)) from None
    except IsADirectoryError:
        raise InputError("is a folder, not a file", where=str(path)) from None
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"is damaged: {error}", where=str(path)) from error
