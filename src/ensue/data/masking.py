"""Texts with tokens hidden, for an encoder to fill in; pairs of texts, for it to tell whether one follows the other.

    [CLS] A [SEP] B [SEP]          B goes on where A ends, or is from another document (half of the rows)
    <s> A </s>                     one stretch of text, over the ends of documents (RoBERTa)

Of a row's own tokens a share is chosen; of these most become the mask, some a random token, some stay as they are
(80, 10 and 10 %), so that the encoder cannot know which tokens to trust. Rows are filled to the brim: nearly nothing is
padded. Which stretches make a row, and what is hidden in it, is a pure function of (seed, step).

Legend: B rows, T tokens, K hidden places of a row.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.data.length_grouping import padded
from ensue.data.tokenizers.special_tokens import Marks


@dataclass(frozen=True)
class Documents:
    """Documents of sentences of tokens, one after the other."""

    tokens: np.ndarray
    """(tokens,), int32."""
    sentences: np.ndarray
    """(sentences + 1,): where each begins, and the end of the last."""
    documents: np.ndarray
    """(documents + 1,): with which sentence each begins."""
    bytes: int = 0
    """Of the sentences as text."""

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self.documents) - 1


@dataclass(frozen=True, slots=True)
class MaskedBatch:
    """B rows with tokens hidden, padded on the right."""

    tokens: Tensor
    """(B, T): what the encoder reads."""
    segments: Tensor
    """(B, T)."""
    lengths: Tensor
    """(B,)."""
    places: Tensor
    """(B, K): where something is hidden; rows that hide fewer repeat place 0."""
    hidden: Tensor
    """(B, K), bool: which of these places are meant."""
    targets: Tensor
    """(M,): what stands at the places that are meant, row after row."""
    other: Tensor | None = None
    """(B,): 1 where the second text is from elsewhere, 0 where it follows; None where there is one text."""
    fresh: bool = True
    """Rows always start anew."""

    @property
    def size(self) -> int:
        """How many tokens there are, padding not counted."""
        return int(self.lengths.sum())

    def __len__(self) -> int:
        """B."""
        return len(self.tokens)

    def some(self, rows: slice) -> MaskedBatch:
        """Some of the rows, with what is hidden in them."""
        before, inside = int(self.hidden[: rows.start].sum()), int(self.hidden[rows].sum())
        return MaskedBatch(
            tokens=self.tokens[rows],
            segments=self.segments[rows],
            lengths=self.lengths[rows],
            places=self.places[rows],
            hidden=self.hidden[rows],
            targets=self.targets[before : before + inside],
            other=None if self.other is None else self.other[rows],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Hiding:
    """How tokens are hidden."""

    share: float = 0.15
    """Of a row's own tokens."""
    mask: float = 0.8
    """Of these, the share that becomes the mask."""
    random: float = 0.1
    """Of these, the share that becomes a random token; the rest stays."""
    anew: bool = True
    """Whether other places are hidden each time a row is read; else the same in every epoch."""


Stretch = tuple[int, int, int, int]
"""Where A begins and ends in the tokens, and where B does."""


class MaskedRows:
    """Batches of ``rows`` rows of ``length`` tokens."""

    def __init__(
        self,
        documents: Documents,
        marks: Marks,
        vocabulary: int,
        *,
        rows: int,
        length: int,
        pairs: bool,
        hiding: Hiding,
        unknown: int | None = None,
        seed: int = 0,
    ) -> None:
        if marks.mask is None:
            raise InputError("this tokenizer has no mask", hint="use --tokenizer wordpiece, bpe or unigram")
        if len(documents.tokens) < 2:
            raise InputError("the text has no tokens to hide")
        if length < 8:
            raise InputError(f"rows of {length} tokens are too short", hint="use at least 8")
        if pairs and len(documents) < 2:
            hint = "separate documents by blank lines, or leave the next sentence out: next_sentence=false"
            raise InputError("the text is one document, so no sentence can be from another one", hint=hint)
        self._documents, self._marks, self._vocabulary = documents, marks, vocabulary
        self._length, self._pairs, self._hiding, self._seed = length, pairs, hiding, seed
        marked = (marks.first, marks.between, marks.last, marks.pad, marks.mask, unknown)
        self._never = np.array([token for token in marked if token is not None])
        self._usual = np.setdiff1d(np.arange(vocabulary), self._never)
        self._plan: tuple[int, np.ndarray, np.ndarray] = (-1, np.zeros((0, 4), dtype=np.int64), np.zeros(0))
        self._ends: list[int] = []
        self.rows = rows
        stretches, other = self._stretches(0)
        if not len(stretches) or (pairs and other.all()):
            hint = "end documents by blank lines, not sentences, or leave the next sentence out: next_sentence=false"
            raise InputError("no document has a sentence that follows another", hint=hint)
        self.steps_per_epoch = self._steps(0)
        real = (stretches[:, 1] - stretches[:, 0] + stretches[:, 3] - stretches[:, 2]).sum()
        self.padding = 1 - float(real / len(stretches) + self._marked) / length
        """The share of places that are padded, in the first epoch."""

    @property
    def _marked(self) -> int:
        """How many marks a row has."""
        return 3 + self._marks.double if self._pairs else 2

    def _steps(self, epoch: int) -> int:
        return -(-len(self._stretches(epoch)[0]) // self.rows)

    def _stretches(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The stretches of every row of an epoch and whether B is from elsewhere; remembered for the epoch at hand."""
        if self._plan[0] != epoch:
            chance = np.random.default_rng([self._seed % 2**64, epoch])
            room = self._length - self._marked
            found = (
                pairs_of(self._documents, room, chance) if self._pairs else stretches_of(self._documents, room, chance)
            )
            order = chance.permutation(len(found[0]))
            self._plan = epoch, found[0][order], found[1][order]
        return self._plan[1], self._plan[2]

    def batch(self, step: int) -> MaskedBatch:
        """The batch of a step, counted from 0 over all epochs."""
        while not self._ends or self._ends[-1] <= step:
            self._ends.append(self._steps(len(self._ends)) + (self._ends[-1] if self._ends else 0))
        epoch = int(np.searchsorted(self._ends, step, side="right"))
        place = step - (self._ends[epoch - 1] if epoch else 0)
        stretches, other = self._stretches(epoch)
        part = slice(place * self.rows, (place + 1) * self.rows)
        return self._made(stretches[part], other[part], step)

    def _made(self, stretches: np.ndarray, other: np.ndarray, step: int) -> MaskedBatch:
        """Put marks around the stretches and hide some of their tokens."""
        rows = [self._framed(*stretch) for stretch in stretches.tolist()]
        lengths = np.array([len(where) for where, _ in rows])
        at = np.concatenate([[0], np.cumsum(lengths)])[:-1]
        where, _ = padded(np.concatenate([where for where, _ in rows]), at, lengths, -4)
        segments, _ = padded(np.concatenate([parts for _, parts in rows]), at, lengths)
        marks = self._marks
        special = np.array([marks.pad, marks.last, marks.between, marks.first])  # of where = -4 … -1
        tokens = np.where(where < 0, special[where.clip(max=-1) + 4], self._documents.tokens[where.clip(min=0)])
        tokens = tokens.astype(np.int64)
        chance = np.random.default_rng([self._seed % 2**64, 1 << 32, step])
        own = (where >= 0) & ~np.isin(tokens, self._never)
        share, anew = self._hiding.share, self._hiding.anew
        keys = chance.random(tokens.shape) if anew else self._steady(where, 0)
        counts = np.rint(share * own.sum(1)) if anew else (own & (keys < share)).sum(1)
        places, hidden = chosen_places(own, counts, keys)
        targets = np.take_along_axis(tokens, places, 1)
        chances = chance.random(targets.shape) if anew else np.take_along_axis(self._steady(where, 1), places, 1)
        others = chance.random(targets.shape) if anew else np.take_along_axis(self._steady(where, 2), places, 1)
        spoilt = self._spoilt(targets, chances, others)
        row = np.broadcast_to(np.arange(len(tokens))[:, None], places.shape)
        tokens[row[hidden], places[hidden]] = spoilt[hidden]
        arrays = (tokens, segments, lengths, places, hidden, targets[hidden])
        block = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
        follows = torch.from_numpy(other.astype(np.int64)) if self._pairs else None
        return MaskedBatch(block[0], block[1], block[2], block[3], block[4], block[5], follows)

    def _framed(self, a: int, b: int, c: int, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the tokens of [CLS] A [SEP] B [SEP] are in the text (marks: -1 first, -2 between, -3 last), and their
        segments."""
        if not self._pairs:
            return np.concatenate([[-1], np.arange(a, b), [-3]]), np.zeros(b - a + 2, dtype=np.int64)
        double = self._marks.double
        second = [[-2] * double, np.arange(c, d), [-3]]
        where = np.concatenate([[-1], np.arange(a, b), [-2], *second]).astype(np.int64)
        return where, np.repeat([0, 0 if double else 1], [b - a + 2, len(where) - (b - a + 2)])

    def _steady(self, where: np.ndarray, kind: int) -> np.ndarray:
        """Chances of one kind that depend on where a token stands in the text, not on when it is read."""
        mixed = where.astype(np.uint64) + np.uint64((self._seed % 2**30) << 32 | kind << 62)
        mixed = (mixed ^ mixed >> np.uint64(29)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(31)
        mixed = mixed * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(11)
        chances: np.ndarray = mixed / 2.0**53
        return chances

    def _spoilt(self, targets: np.ndarray, chances: np.ndarray, others: np.ndarray) -> np.ndarray:
        """What the encoder reads at hidden places; both chances (B, K) are from 0 to 1."""
        hiding = self._hiding
        random = self._usual[(others * len(self._usual)).astype(np.int64)]
        kept = np.where(chances < hiding.mask + hiding.random, random, targets)
        assert self._marks.mask is not None
        return np.where(chances < hiding.mask, self._marks.mask, kept)


def chosen_places(own: np.ndarray, counts: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each row's own places (B, T) so many (B,), at least one, those with the smallest keys; in order.

    Answers places (B, K) and which of them are meant (B, K): rows that hide fewer repeat place 0.
    """
    counts = np.where(own.any(1), np.maximum(1, counts), 0).astype(np.int64)
    most = max(1, int(counts.max()))
    order = np.argsort(np.where(own, keys, 2.0), axis=1, kind="stable")[:, :most]
    hidden = np.arange(order.shape[1]) < counts[:, None]
    far = np.sort(np.where(hidden, order, own.shape[1]), axis=1)
    return np.where(hidden, far, 0), hidden


def pairs_of(documents: Documents, room: int, chance: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Stretches for pairs, B from elsewhere in half of them; together they fill the ``room`` of a row.

    A begins with a sentence and ends with one. B goes on there, or begins with a random sentence of another document.
    A document's text is used up once: what a B from elsewhere left unread is where the next row begins. Nothing follows
    a last sentence, so its B is from elsewhere, and a later row's B follows for that; where there are too few of those,
    it is left out.
    """
    sentences, starts = documents.sentences, documents.documents
    stretches: list[Stretch] = []
    other: list[int] = []
    owed = 0  # rows of last sentences that no row has made up for
    for number in range(len(documents)):
        ends, at = in_halves(sentences[starts[number] : starts[number + 1] + 1], room), 0
        stop = int(ends[-1])
        while at < len(ends) - 1:
            begin, final = int(ends[at]), at == len(ends) - 2
            if final and owed == MOST_OWED:
                break
            elsewhere = final or (not owed and bool(chance.random() < 0.5))
            owed += 1 if final else -1 if owed else 0
            last = int(np.searchsorted(ends, begin + room, side="right")) - 1  # the last end within reach
            cut = int(chance.integers(at + 1, max(last, at + 2)))
            middle = int(ends[cut])
            if elsewhere:
                c, d = _elsewhere(documents, number, begin + room - middle, chance)
                at = cut
            else:
                c, d = middle, min(begin + room, stop)
                at = max(cut, int(np.searchsorted(ends, d, side="right")) - 1)
            stretches.append((begin, middle, c, d))
            other.append(int(elsewhere))
    return np.array(stretches, dtype=np.int64).reshape(-1, 4), np.array(other, dtype=np.int64)


MOST_OWED = 16
"""So many rows of last sentences, whose B is from elsewhere, may wait for rows whose B follows."""


def in_halves(ends: np.ndarray, room: int) -> np.ndarray:
    """Where sentences end, with more ends inside those that are longer than half a row: so that two always fit.

    >>> in_halves(np.array([0, 3, 12]), 8).tolist()
    [0, 3, 7, 11, 12]
    """
    more = [np.arange(begin, end, room // 2) for begin, end in itertools.pairwise(ends)]
    return np.concatenate([*more, ends[-1:]])


def _elsewhere(documents: Documents, number: int, left: int, chance: np.random.Generator) -> tuple[int, int]:
    """A stretch from a random sentence of another document."""
    there = int(chance.integers(len(documents) - 1))
    there += there >= number
    first, last = int(documents.documents[there]), int(documents.documents[there + 1])
    begin = int(documents.sentences[int(chance.integers(first, last))])
    return begin, min(begin + left, int(documents.sentences[last]))


def stretches_of(documents: Documents, room: int, chance: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Stretches of ``room`` tokens one after the other, from a random place of the first row on."""
    size = len(documents.tokens)
    begin = np.arange(-int(chance.integers(room)), size, room)
    ends = np.minimum(begin + room, size)
    begin = np.maximum(begin, 0)
    kept = ends - begin >= 8
    kept |= not kept.any()
    zero = np.zeros(int(kept.sum()), dtype=np.int64)
    return np.stack([begin[kept], ends[kept], zero, zero], 1), zero
