"""Words as the language-modelling literature counts them: what stands between white space, and line ends.

What the tokens do not say, a text's original bytes need: which unknown word it was, and what the white space
looked like. Both are priced by models fitted on the training text, and regular text costs next to nothing.
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
from ensue.data.spelling import Spellings
from ensue.data.tokenizers.protocol import Ids, as_list, encode_utf8

if TYPE_CHECKING:
    from ensue.data.tokenizers.word_table import WordScan, WordTable

END, UNKNOWN_WORD = "</s>", "<unk>"
MIN_COMPILED_CHARS = 1 << 16
"""Characters from which a text is worth compiled loops; a prompt need not wait until these are loaded."""
_GAP = re.compile(r"\s+")

GAP_KINDS = ("before", "between", "after", "blank")
"""White space before a line's first word, between words, after the last word, and on a line without words."""


class _Table(dict[str, int]):
    """Word → token, and the unknown token for the rest."""

    unknown: int | None = None

    def __missing__(self, word: str) -> int:
        if self.unknown is None:
            hint = "fit a tokenizer to text that has it"
            raise InputError(f"the word {word!r} is not in the vocabulary, which has no {UNKNOWN_WORD}", hint=hint)
        return self.unknown


class WordTokenizer:
    """A token a word; a newline is the end mark.

    >>> fit_words([("the cat sat\\nthe dog", True, True)]).encode("the bird\\n").tolist()
    [2, 1, 0]
    """

    kind = "word"
    lines = True

    def __init__(
        self,
        names: Iterable[str],
        end: int,
        unknown: int | None,
        spellings: Spellings,
        gaps: Mapping[str, Spellings],
    ) -> None:
        """``names``: every token's; ``end`` and ``unknown`` say which are the marks."""
        self.names = list(names)
        self.end = end
        self.unknown = unknown
        self.spellings = spellings
        self.gaps = dict(gaps)
        self.size = len(self.names)

    @cached_property
    def _table(self) -> Any:
        marks = (self.end, self.unknown)
        table = _Table({name: token for token, name in enumerate(self.names) if token not in marks})
        table.unknown = self.unknown
        return table

    @cached_property
    def _words(self) -> WordTable:
        """For long texts; the marks stand in it as what no text has: empty words."""
        from ensue.data.tokenizers.word_table import WordTable

        marks = (self.end, self.unknown)
        return WordTable("" if token in marks else name for token, name in enumerate(self.names))

    def _scanned(self, text: str) -> WordScan:
        return self._words.scan(encode_utf8(text), self.end)

    def encode(self, text: str) -> np.ndarray:
        """The words and line ends of the text."""
        return self._encode_long(text) if len(text) >= MIN_COMPILED_CHARS else self._encode_plainly(text)

    def _encode_long(self, text: str) -> np.ndarray:
        from ensue.data.tokenizers.word_scanning import UNKNOWN_WORD as NONE

        found = self._scanned(text)
        if found.lost:
            unknown = self.unknown
            found.ids[found.ids == NONE] = self._table[next(iter(found.lost))] if unknown is None else unknown
        return found.ids

    def _encode_plainly(self, text: str) -> np.ndarray:
        encode_utf8(text)
        ids: list[int] = []
        for number, line in enumerate(text.split("\n")):
            ids.extend([self.end] if number else [])
            ids.extend(map(self._table.__getitem__, line.split()))
        return np.array(ids, dtype=np.int32)

    def decode(self, ids: Ids) -> str:
        """The words, with single spaces between them and newlines for end marks."""
        lines: list[list[str]] = [[]]
        for token in as_list(ids):
            if token == self.end:
                lines.append([])
            else:
                lines[-1].append(self.names[token])
        return "\n".join(map(" ".join, lines))

    def name(self, token: int) -> str:
        """The word."""
        return self.names[token]

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """The spelling of unknown words and of white space."""
        if len(text) >= MIN_COMPILED_CHARS:
            found = self._scanned(text)
            lost, gaps = found.lost, _kinds_of(found.gaps, found.head, found.tail, found.words > 0, opens, closes)
        else:
            words = Counter(text.split())
            lost = Counter({word: count for word, count in words.items() if word not in self._table})
            gaps = count_gaps(text, opens, closes)
        return self.lost_bits(lost) + self.gap_bits(gaps), lost.total()

    def lost_bits(self, lost: Mapping[str, int]) -> float:
        """What it costs to spell words out."""
        return sum(count * self.spellings.bits(word) for word, count in lost.items())

    def gap_bits(self, found: Mapping[str, Mapping[str, int]]) -> float:
        """What white space costs, by its kinds."""
        return sum(count * self.gaps[kind].bits(gap) for kind, gaps in found.items() for gap, count in gaps.items())

    def state(self) -> dict[str, Any]:
        """The words in order, and how the rest is spelt."""
        gaps = {kind: spellings.state() for kind, spellings in self.gaps.items()}
        marks = {"end": self.end, "unknown": self.unknown}
        return {
            "kind": self.kind,
            **marks,
            "names": self.names,
            "spellings": self.spellings.state(),
            "gaps": gaps,
        }

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> WordTokenizer:
        """The tokenizer that gave this ``state``."""
        gaps = {kind: Spellings.restore(gap) for kind, gap in state["gaps"].items()}
        marks = (state["end"], state["unknown"])
        return cls(state["names"], *marks, Spellings.restore(state["spellings"]), gaps)


def word_tokenizer(names: Sequence[str]) -> WordTokenizer:
    """A tokenizer for a vocabulary that came without its text, the two marks anywhere in it.

    Nothing is known of the white space: it is taken to be regular, a thousand times seen.

    >>> word_tokenizer(["<unk>", "a", "</s>"]).encode("a b\\n").tolist()
    [1, 0, 2]
    """
    if END not in names:
        raise InputError(f"a vocabulary of words needs the end mark {END}")
    unknown = names.index(UNKNOWN_WORD) if UNKNOWN_WORD in names else None
    spare = {name: 1 for name in names if name not in (END, UNKNOWN_WORD)}
    regular = {kind: Spellings.of_gaps({" " if kind == "between" else "": 1000}) for kind in GAP_KINDS}
    spellings = Spellings.of_words({UNKNOWN_WORD: 1}, spare, UNKNOWN_WORD)
    return WordTokenizer(names, names.index(END), unknown, spellings, regular)


def count_gaps(text: str, opens: bool, closes: bool) -> dict[str, Counter[str]]:
    """How often each kind of white space stands in a text.

    A document that does not end in a newline is given an end mark all the same; that there was none is told
    by a "\\n" after its last gap, where no gap can have one.
    """
    body = text.strip()
    head = text[: len(text) - len(text.lstrip())] if body else ""
    tail = text[len(text.rstrip()) :] if body else text
    return _kinds_of(Counter(_GAP.findall(body)), head, tail, bool(body), opens, closes)


def _kinds_of(
    runs: Mapping[str, int], head: str, tail: str, words: bool, opens: bool, closes: bool
) -> dict[str, Counter[str]]:
    """Runs of white space between words, before the first and after the last, as gaps of lines."""
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
    """The gaps in the white space before the first word."""
    if not words:
        return
    *lines, last = head.split("\n")
    for number, line in enumerate(lines):
        yield ("blank" if opens or number else "after"), line
    yield ("before" if opens or lines else "between"), last


def _tail_gaps(tail: str, opens: bool, closes: bool, words: bool) -> Iterator[tuple[str, str]]:
    """The gaps in the white space after the last word, or in a text that is nothing else."""
    *lines, last = tail.split("\n")
    inside = words or not opens  # whether there is a word on the first of these lines
    for number, line in enumerate(lines):
        yield ("after" if inside and not number else "blank"), line
    if closes and (last or not lines):
        yield ("after" if inside and not lines else "blank"), last + "\n"
    elif last and not lines:
        yield ("between" if inside else "before"), last


def fit_words(
    parts: Iterable[tuple[str, bool, bool]], vocabulary: int | None = None, min_count: int | None = None
) -> WordTokenizer:
    """The words of some texts by frequency, then by alphabet; ``vocabulary`` counts the two marks as well.

    ``parts`` are texts with what ``surcharge`` wants to know of them: whether they open and close.

    Without a ``min_count``, words seen once are unknown, so that a model learns what unknown words are like;
    but in a text that has ``<unk>`` already, or of under 10,000 words, every word is kept.
    """
    from ensue.data.tokenizers.word_table import WordTable, count_words_parallel, words_by_frequency

    table = WordTable()
    gaps: dict[str, Counter[str]] = {kind: Counter() for kind in GAP_KINDS}
    texts = ((encode_utf8(text), (opens, closes)) for text, opens, closes in parts)
    for (opens, closes), found in count_words_parallel(texts, table):
        kinds = _kinds_of(found.gaps, found.head, found.tail, found.words > 0, opens, closes)
        for kind, times in kinds.items():
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
