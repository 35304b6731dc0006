"""The marks around texts: one before, one between two, one after.

BERT (Devlin et al. 2019): [CLS] A [SEP] B [SEP], with segment 0 up to the first [SEP] and 1 from there on.
RoBERTa (Liu et al. 2019): <s> A </s> </s> B </s>, all of segment 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ensue.core.errors import InputError
from ensue.data.tokenizers.protocol import Ids, Tokenizer


@dataclass(frozen=True, slots=True)
class Marks:
    """The tokens that stand around texts and for no text."""

    first: int
    """Before the first text: [CLS] or <s>."""
    between: int
    """Between two texts."""
    last: int
    """After the last text: [SEP] or </s>."""
    double: bool
    """Whether two marks stand between a pair, and segments are not told apart, as RoBERTa has it."""
    mask: int | None
    """What stands for a hidden token; None where the tokenizer has no such mark."""
    pad: int
    """What fills a row up after its end."""
    bare: bool = False
    """Whether texts stand without marks around them, as GPT-2's classifiers read them."""

    @property
    def before(self) -> int:
        """How many stand before the first text."""
        return 0 if self.bare else 1

    @property
    def amid(self) -> int:
        """How many stand between two texts."""
        return 0 if self.bare else 1 + self.double

    def around(self, texts: int) -> int:
        """How many stand around one text or two.

        >>> Marks(first=1, between=2, last=2, double=True, mask=4, pad=0).around(2)
        4
        """
        return 2 * self.before + (self.amid if texts > 1 else 0)


def marks_of(tokenizer: Tokenizer) -> Marks:
    """A tokenizer's marks; one with an end mark alone, as language models have, puts it in all three places.

    >>> from ensue.data.tokenizers.char import ByteTokenizer
    >>> marks_of(ByteTokenizer())
    Marks(first=256, between=256, last=256, double=False, mask=None, pad=0, bare=False)
    """
    own = getattr(tokenizer, "marks", None)
    if isinstance(own, Marks):
        return own
    end = tokenizer.end
    return Marks(first=end, between=end, last=end, double=False, mask=None, pad=0)


def has_frame(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer's own file puts marks around texts; GPT-2's does not."""
    if isinstance(getattr(tokenizer, "marks", None), Marks):
        return True
    described = tokenizer.state().get("post_processor") or {}
    kinds = {part.get("type") for part in (described, *described.get("processors", ()))}
    return "TemplateProcessing" in kinds


def framed(
    marks: Marks, ids_a: Ids, ids_b: Ids | None = None, longest: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """One text or two with their marks, and the segment (0 or 1) of each token; both (T,), int32.

    Where that is more than ``longest`` tokens, the longer text loses tokens from its end until it is not.

    >>> marks = Marks(first=1, between=2, last=2, double=False, mask=4, pad=0)
    >>> ids, segments = framed(marks, [7, 8, 9], [5], longest=6)
    >>> ids.tolist(), segments.tolist()
    ([1, 7, 8, 2, 5, 2], [0, 0, 0, 0, 1, 1])
    """
    a, first, last = _row(ids_a), _row([marks.first] * marks.before), _row([marks.last] * marks.before)
    if ids_b is None:
        (room,) = _rooms((len(a),), longest, marks.around(1))
        ids = np.concatenate([first, a[:room], last])
        return ids, np.zeros_like(ids)
    b = _row(ids_b)
    room, room_b = _rooms((len(a), len(b)), longest, marks.around(2))
    head = np.concatenate([first, a[:room], _row([marks.between] * marks.amid)])
    ids = np.concatenate([head, b[:room_b], last])
    segments = np.zeros_like(ids)
    segments[len(head) :] = 0 if marks.double else 1
    return ids, segments


def _row(ids: Ids) -> np.ndarray:
    return np.asarray(ids if isinstance(ids, np.ndarray) else list(ids), dtype=np.int32)


def _rooms(lengths: tuple[int, ...], longest: int | None, marks: int) -> tuple[int, ...]:
    """How many tokens each text keeps, when the longer one loses its last until they fit.

    Of two that come to the same length, the one that was longer keeps the odd token, and the second one if
    neither was: so it is in the ``tokenizers`` library.
    """
    room = sum(lengths) if longest is None else longest - marks
    if room < 0:
        raise InputError(f"{longest} tokens leave no room beside {marks} marks", hint=f"choose more than {marks}")
    if sum(lengths) <= room:
        return lengths
    if len(lengths) == 1:
        return (room,)
    short = min(*lengths, room // 2)
    return (room - short, short) if lengths[0] > lengths[1] else (short, room - short)
