"""Word tokenizer, as in the language-modelling literature: words between white space, and line ends.

Two things are not encoded by the tokens: the spelling of unknown words, and the exact white space. Both are charged by
models fitted on the training text; regular text costs almost nothing. A gap is a run of white space.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ensue.core.errors import InputError
from ensue.core.schema import Fields, Items, Maybe, Shape, Text, Whole
from ensue.data.spelling import SPELLINGS_SCHEMA, Spellings
from ensue.data.tokenizers.protocol import Ids, encode_utf8, join_words

if TYPE_CHECKING:
    from ensue.data.tokenizers.word_table import WordScan, WordTable

END, UNKNOWN_WORD = "</s>", "<unk>"
MIN_COMPILED_CHARS = 1 << 16
"""Length from which compiled loops pay off; a prompt need not wait for them to load."""
_GAP = re.compile(r"\s+")

GAP_KINDS = ("before", "between", "after", "blank")
"""White space before a line's first word, between words, after the last word, and on a blank line."""


class _WordIds(dict[str, int]):
    """Word → token, with the unknown token as default."""

    unknown: int | None = None

    def __missing__(self, word: str) -> int:
        if self.unknown is None:
            hint = "fit a tokenizer to text that has it"
            raise InputError(f"the word {word!r} is not in the vocabulary, which has no {UNKNOWN_WORD}", hint=hint)
        return self.unknown


class WordTokenizer:
    """One token per word; a newline is the end token.

    >>> fit_words([("the cat sat\\nthe dog", True, True)]).encode("the bird\\n").tolist()
    [2, 1, 0]
    """

    kind = "word"
    lines = True
    schema: Shape = Fields(
        {
            "names": Items(Text(), least=1),
            "end": Whole(0),
            "unknown": Maybe(Whole(0)),
            "spellings": SPELLINGS_SCHEMA,
            "gaps": Fields(dict.fromkeys(GAP_KINDS, SPELLINGS_SCHEMA)),
        }
    )
    """What ``restore`` reads."""

    def __init__(
        self, names: Iterable[str], end: int, unknown: int | None, spellings: Spellings, gaps: Mapping[str, Spellings]
    ) -> None:
        """``names``: the names of all tokens; ``end`` and ``unknown`` are ids."""
        self.names, self.gaps = list(names), dict(gaps)
        self.end, self.unknown, self.spellings = end, unknown, spellings
        self.size = len(self.names)

    @cached_property
    def _table(self) -> Any:
        special = (self.end, self.unknown)
        table = _WordIds({name: token for token, name in enumerate(self.names) if token not in special})
        table.unknown = self.unknown
        return table

    @cached_property
    def _words(self) -> WordTable:
        """The hash table for long texts; special tokens are empty words in it, which no text contains."""
        from ensue.data.tokenizers.word_table import WordTable

        special = (self.end, self.unknown)
        return WordTable("" if token in special else name for token, name in enumerate(self.names))

    def _scan(self, text: str) -> WordScan:
        return self._words.scan(encode_utf8(text), self.end)

    def encode(self, text: str) -> np.ndarray:
        """Return the words and line ends of the text."""
        return self._encode_long(text) if len(text) >= MIN_COMPILED_CHARS else self._encode_short(text)

    def _encode_long(self, text: str) -> np.ndarray:
        from ensue.data.tokenizers.word_scanning import UNKNOWN_WORD as NO_WORD

        scan = self._scan(text)
        if scan.unknown:
            token = self._table[next(iter(scan.unknown))] if self.unknown is None else self.unknown
            scan.ids[scan.ids == NO_WORD] = token
        return scan.ids

    def _encode_short(self, text: str) -> np.ndarray:
        encode_utf8(text)
        ids: list[int] = []
        for number, line in enumerate(text.split("\n")):
            ids.extend([self.end] if number else [])
            ids.extend(map(self._table.__getitem__, line.split()))
        return np.array(ids, dtype=np.int32)

    def decode(self, ids: Ids) -> str:
        """Return the words, with single spaces between them and newlines for end tokens."""
        return join_words(ids, self.end, self.name)

    def name(self, token: int) -> str:
        """Return the word; a model may have more tokens than its tokenizer."""
        return self.names[token] if token < self.size else f"<{token}>"

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """Return the cost of spelling unknown words and white space, and the number of unknown words."""
        if len(text) >= MIN_COMPILED_CHARS:
            scan = self._scan(text)
            unknown, gaps = scan.unknown, _scan_gaps(scan, opens, closes)
        else:
            words = Counter(text.split())
            unknown = Counter({word: count for word, count in words.items() if word not in self._table})
            gaps = count_gaps(text, opens, closes)
        return self.word_bits(unknown) + self.gap_bits(gaps), unknown.total()

    def word_bits(self, words: Mapping[str, int]) -> float:
        """Return the cost of spelling words."""
        return sum(count * self.spellings.bits(word) for word, count in words.items())

    def gap_bits(self, by_kind: Mapping[str, Mapping[str, int]]) -> float:
        """Return the cost of white space, by kind of gap."""
        return sum(count * self.gaps[kind].bits(gap) for kind, gaps in by_kind.items() for gap, count in gaps.items())

    def state(self) -> dict[str, Any]:
        """Return the words in order, and the spelling models."""
        gaps = {kind: spellings.state() for kind, spellings in self.gaps.items()}
        special = {"end": self.end, "unknown": self.unknown}
        return {"kind": self.kind, **special, "names": self.names, "spellings": self.spellings.state(), "gaps": gaps}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> WordTokenizer:
        """Return the tokenizer with this ``state``."""
        for name in ("end", "unknown"):
            if state[name] is not None and state[name] >= len(state["names"]):
                raise InputError(f"{name} = {state[name]} is not one of the {len(state['names'])} tokens")
        gaps = {kind: Spellings.restore(gap) for kind, gap in state["gaps"].items()}
        spellings = Spellings.restore(state["spellings"])
        return cls(state["names"], state["end"], state["unknown"], spellings, gaps)


def word_tokenizer(names: Sequence[str]) -> WordTokenizer:
    """Build a tokenizer from a vocabulary without its text; it contains the two special tokens at any position.

    White space is assumed to be regular.

    >>> word_tokenizer(["<unk>", "a", "</s>"]).encode("a b\\n").tolist()
    [1, 0, 2]
    """
    if END not in names:
        raise InputError(f"a vocabulary of words needs the end token {END}")
    unknown = names.index(UNKNOWN_WORD) if UNKNOWN_WORD in names else None
    spare = {name: 1 for name in names if name not in (END, UNKNOWN_WORD)}
    regular = {kind: Spellings.of_gaps({" " if kind == "between" else "": 1000}) for kind in GAP_KINDS}
    spellings = Spellings.of_words({UNKNOWN_WORD: 1}, spare, UNKNOWN_WORD)
    return WordTokenizer(names, names.index(END), unknown, spellings, regular)


def count_gaps(text: str, opens: bool, closes: bool) -> dict[str, Counter[str]]:
    """Count each kind of white space in a text.

    A document without a final newline gets an end token all the same; a "\\n" after its last gap, where no gap can have
    one, records this.
    """
    body = text.strip()
    head = text[: len(text) - len(text.lstrip())] if body else ""
    tail = text[len(text.rstrip()) :] if body else text
    return _classify_gaps(Counter(_GAP.findall(body)), head, tail, bool(body), opens, closes)


def _scan_gaps(scan: WordScan, opens: bool, closes: bool) -> dict[str, Counter[str]]:
    return _classify_gaps(scan.gaps, scan.head, scan.tail, scan.words > 0, opens, closes)


def _classify_gaps(
    runs: Mapping[str, int], head: str, tail: str, words: bool, opens: bool, closes: bool
) -> dict[str, Counter[str]]:
    """Classify runs of white space between words, before the first and after the last, by kind of gap."""
    gaps: dict[str, Counter[str]] = {kind: Counter() for kind in GAP_KINDS}
    if not (words or tail):
        return gaps
    for run, count in runs.items():
        first, *rest = run.split("\n")
        gaps["after" if rest else "between"][first] += count
        for blank in rest[:-1]:
            gaps["blank"][blank] += count
        if rest:
            gaps["before"][rest[-1]] += count
    for kind, gap in (*_head_gaps(head, opens, words), *_tail_gaps(tail, opens, closes, words)):
        gaps[kind][gap] += 1
    return gaps


def _head_gaps(head: str, opens: bool, words: bool) -> Iterator[tuple[str, str]]:
    """Yield the gaps before the first word."""
    if not words:
        return
    *lines, last = head.split("\n")
    for number, line in enumerate(lines):
        yield ("blank" if opens or number else "after"), line
    yield ("before" if opens or lines else "between"), last


def _tail_gaps(tail: str, opens: bool, closes: bool, words: bool) -> Iterator[tuple[str, str]]:
    """Yield the gaps after the last word, or of a text without words."""
    *lines, last = tail.split("\n")
    inside = words or not opens  # True if the first of these lines contains a word
    for number, line in enumerate(lines):
        yield ("after" if inside and not number else "blank"), line
    if closes and (last or not lines):
        yield ("after" if inside and not lines else "blank"), last + "\n"
    elif last and not lines:
        yield ("between" if inside else "before"), last


def fit_words(
    parts: Iterable[tuple[str, bool, bool]], vocabulary: int | None = None, min_count: int | None = None
) -> WordTokenizer:
    """Fit a tokenizer: words by frequency, then alphabetically; ``vocabulary`` includes the two special tokens.

    ``parts`` are texts with whether each starts a line and ends its document.

    Without a ``min_count``, words that occur once are unknown, so that a model learns about unknown words; but all
    words are kept if the text contains ``<unk>`` or has fewer than 10,000 words.
    """
    from ensue.data.tokenizers.word_table import WordTable, count_words_parallel, words_by_frequency

    table = WordTable()
    gaps: dict[str, Counter[str]] = {kind: Counter() for kind in GAP_KINDS}
    texts = ((encode_utf8(text), (opens, closes)) for text, opens, closes in parts)
    for (opens, closes), scan in count_words_parallel(texts, table):
        for kind, times in _scan_gaps(scan, opens, closes).items():
            gaps[kind].update(times)
    words, counts = words_by_frequency(table)
    if min_count is None:
        min_count = 1 if sum(counts) < 10_000 or UNKNOWN_WORD in words else 2
    seen = dict(zip(words, counts, strict=True))
    literal = {UNKNOWN_WORD: seen.pop(UNKNOWN_WORD)} if UNKNOWN_WORD in seen else {}
    frequent = sum(count >= min_count for count in seen.values())
    most = frequent if vocabulary is None else min(frequent, max(0, vocabulary - 2))
    kept = list(islice(seen, most))
    rest = dict(islice(seen.items(), most, None))
    spellings = Spellings.of_words({**rest, **literal}, dict.fromkeys(kept, 1), UNKNOWN_WORD)
    fitted = {kind: Spellings.of_gaps(times) for kind, times in gaps.items()}
    return WordTokenizer([END, UNKNOWN_WORD, *kept], 0, 1, spellings, fitted)
