"""Special tokens around texts: at the start, between two texts, and at the end.

BERT (Devlin et al. 2019): [CLS] A [SEP] B [SEP], with segment 0 up to the first [SEP] and segment 1 after it.
RoBERTa (Liu et al. 2019): <s> A </s> </s> B </s>, all of segment 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ensue.core.errors import InputError
from ensue.data.tokenizers.protocol import Ids, Tokenizer


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids of a tokenizer's special tokens."""

    start: int
    """Before the first text: [CLS] or <s>."""
    separator: int
    """Between two texts."""
    end: int
    """After the last text: [SEP] or </s>."""
    double_separator: bool
    """True for two separators and a single segment, as in RoBERTa."""
    mask: int | None
    """The mask token; None if the tokenizer has none."""
    pad: int
    """The padding token."""
    omitted: bool = False
    """True if texts have no special tokens around them, as for GPT-2 classifiers."""

    @property
    def n_start(self) -> int:
        """Number of tokens before the first text."""
        return 0 if self.omitted else 1

    @property
    def n_between(self) -> int:
        """Number of tokens between two texts."""
        return 0 if self.omitted else 1 + self.double_separator

    def count(self, texts: int) -> int:
        """Return the number of special tokens around one text or two.

        >>> SpecialTokens(start=1, separator=2, end=2, double_separator=True, mask=4, pad=0).count(2)
        4
        """
        return 2 * self.n_start + (self.n_between if texts > 1 else 0)


def special_tokens_of(tokenizer: Tokenizer) -> SpecialTokens:
    """Return a tokenizer's special tokens; one with an end token only uses it at all three positions.

    >>> from ensue.data.tokenizers.char import ByteTokenizer
    >>> special_tokens_of(ByteTokenizer()).separator
    256
    """
    special = getattr(tokenizer, "special_tokens", None)
    if isinstance(special, SpecialTokens):
        return special
    end = tokenizer.end
    return SpecialTokens(start=end, separator=end, end=end, double_separator=False, mask=None, pad=0)


def adds_special_tokens(tokenizer: Tokenizer) -> bool:
    """Return whether the tokenizer's own file adds special tokens around texts; GPT-2's does not."""
    if isinstance(getattr(tokenizer, "special_tokens", None), SpecialTokens):
        return True
    described = tokenizer.state().get("post_processor") or {}
    kinds = {part.get("type") for part in (described, *described.get("processors", ()))}
    return "TemplateProcessing" in kinds


def add_special_tokens(
    special: SpecialTokens, ids_a: Ids, ids_b: Ids | None = None, longest: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return one text or two with special tokens, and the segment (0 or 1) of each token; both (T,), int32.

    If there are more than ``longest`` tokens, the longer text is truncated until they fit.

    >>> bert = SpecialTokens(start=1, separator=2, end=2, double_separator=False, mask=4, pad=0)
    >>> ids, segments = add_special_tokens(bert, [7, 8, 9], [5], longest=6)
    >>> ids.tolist(), segments.tolist()
    ([1, 7, 8, 2, 5, 2], [0, 0, 0, 0, 1, 1])
    """
    a, start, end = _array(ids_a), _array([special.start] * special.n_start), _array([special.end] * special.n_start)
    if ids_b is None:
        (length,) = _truncated_lengths((len(a),), longest, special.count(1))
        ids = np.concatenate([start, a[:length], end])
        return ids, np.zeros_like(ids)
    b = _array(ids_b)
    length_a, length_b = _truncated_lengths((len(a), len(b)), longest, special.count(2))
    head = np.concatenate([start, a[:length_a], _array([special.separator] * special.n_between)])
    ids = np.concatenate([head, b[:length_b], end])
    segments = np.zeros_like(ids)
    segments[len(head) :] = 0 if special.double_separator else 1
    return ids, segments


def _array(ids: Ids) -> np.ndarray:
    return np.asarray(ids if isinstance(ids, np.ndarray) else list(ids), dtype=np.int32)


def _truncated_lengths(lengths: tuple[int, ...], longest: int | None, specials: int) -> tuple[int, ...]:
    """Return how many tokens each text keeps when the longer one is truncated until both fit.

    If both end up equally long, the one that was longer keeps the odd token, or the second one if neither was, as in
    the ``tokenizers`` library.
    """
    capacity = sum(lengths) if longest is None else longest - specials
    if capacity < 0:
        what = f"{longest} tokens leave no room beside {specials} special tokens"
        raise InputError(what, hint=f"choose more than {specials}")
    if sum(lengths) <= capacity:
        return lengths
    if len(lengths) == 1:
        return (capacity,)
    short = min(*lengths, capacity // 2)
    return (capacity - short, short) if lengths[0] > lengths[1] else (short, capacity - short)
