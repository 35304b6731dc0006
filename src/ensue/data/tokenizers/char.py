"""Byte and character tokenizers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ensue.core.schema import Fields, Shape, Text
from ensue.data.spelling import SPELLINGS_SCHEMA, Spellings
from ensue.data.tokenizers.protocol import END, Ids, as_list, encode_utf8, printable, printable_bytes


class ByteTokenizer:
    """One token per byte; lossless.

    >>> ByteTokenizer().encode("hé").tolist()
    [104, 195, 169]
    """

    kind = "byte"
    size = 257
    end = 256
    unknown = None
    lines = False

    def encode(self, text: str) -> np.ndarray:
        """Return the bytes of the text in UTF-8."""
        return np.frombuffer(encode_utf8(text), dtype=np.uint8).astype(np.int32)

    def decode(self, ids: Ids) -> str:
        """Return the text; bytes that are not UTF-8 become �."""
        return bytes(token for token in as_list(ids) if token < self.end).decode("utf-8", "replace")

    def name(self, token: int) -> str:
        """Return the byte in printable form."""
        if token >= self.end:  # a model may have more tokens than its tokenizer
            return END if token == self.end else f"<{token}>"
        return printable_bytes(bytes([token]))

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """Return 0: nothing is lost."""
        return 0.0, 0

    def state(self) -> dict[str, Any]:
        """Return the kind, which is the whole state."""
        return {"kind": self.kind}


class CharTokenizer:
    """One token per character, most frequent first; characters not seen in training are unknown.

    >>> fit_chars(["hello"]).encode("hole").tolist()
    [4, 5, 2, 3]
    """

    kind = "char"
    end = 0
    unknown = 1
    lines = False
    schema: Shape = Fields({"letters": Text(), "spellings": SPELLINGS_SCHEMA})
    """What ``restore`` reads."""

    def __init__(self, letters: str, spellings: Spellings) -> None:
        self.letters = letters
        self.spellings = spellings
        self.size = len(letters) + 2
        self._names = [END, "<unk>", *map(printable, letters)]
        self._text = ["", "�", *letters]

    @cached_property
    def _table(self) -> np.ndarray:
        """Character code → token."""
        table = np.full(0x110000, self.unknown, dtype=np.int32)
        table[[ord(letter) for letter in self.letters]] = np.arange(2, self.size, dtype=np.int32)
        return table

    def encode(self, text: str) -> np.ndarray:
        """Return a token for each character."""
        encode_utf8(text)
        result: np.ndarray = self._table[np.frombuffer(text.encode("utf-32-le"), dtype="<u4")]
        return result

    def decode(self, ids: Ids) -> str:
        """Return the text; unknown characters become �."""
        return "".join(self._text[token if token < self.size else self.unknown] for token in as_list(ids))

    def name(self, token: int) -> str:
        """Return the character in printable form; a model may have more tokens than its tokenizer."""
        return self._names[token] if token < self.size else f"<{token}>"

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """Return the cost of spelling unknown characters."""
        bits, count = 0.0, 0
        for letter in sorted(set(text).difference(self.letters)):
            seen = text.count(letter)
            bits, count = bits + seen * self.spellings.bits(letter), count + seen
        return bits, count

    def state(self) -> dict[str, Any]:
        """Return the characters in order, and the spelling model of others."""
        return {"kind": self.kind, "letters": self.letters, "spellings": self.spellings.state()}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> CharTokenizer:
        """Return the tokenizer with this ``state``."""
        return cls(state["letters"], Spellings.restore(state["spellings"]))


def fit_chars(texts: Iterable[str], vocabulary: int | None = None, min_count: int = 1) -> CharTokenizer:
    """Fit a tokenizer: characters by frequency, then by code; ``vocabulary`` includes the two special tokens."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    order = sorted(counts, key=lambda letter: (-counts[letter], letter))
    kept = [letter for letter in order if counts[letter] >= min_count]
    kept = kept if vocabulary is None else kept[: max(0, vocabulary - 2)]
    rest = {letter: counts[letter] for letter in set(order).difference(kept)}
    return CharTokenizer("".join(kept), Spellings.of_words(rest, dict.fromkeys(kept, 1), ""))
