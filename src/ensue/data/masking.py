"""Masked language modelling batches, of pairs of texts or of single ones.

    random      [CLS] A [SEP] B [SEP]     B continues A, or comes from another document (half of the rows; BERT)
    swapped     [CLS] A [SEP] B [SEP]     B continues A, or A continues B (half of the rows; ALBERT)
    none        <s> A </s>                one span of text, across document boundaries (RoBERTa)

A share of a row's tokens is selected, one by one or as whole words or spans (``ensue.data.mask_positions``); most of
these become the mask token, some a random token, some stay unchanged (80, 10 and 10 %), so that the encoder cannot tell
which tokens to trust. Rows are filled completely, so there is almost no padding. The spans of a row and its masked
tokens are a pure function of (seed, step).

Legend: B rows, T tokens, K masked positions of a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from ensue.core.errors import InputError
from ensue.data.batches import EpochPlan, PaddedBatch, as_tensors, select_rows
from ensue.data.length_grouping import pad_rows
from ensue.data.mask_positions import Positions, choose_positions, choose_words, span_sizes
from ensue.data.tokenizers.special_tokens import SpecialTokens

MAX_UNBALANCED = 16
"""Number of random next sentences at document ends that later rows may still have to balance."""
_START, _SEPARATOR, _END, _PAD = -1, -2, -3, -4
"""Stand for special tokens among the positions of a text."""


@dataclass(frozen=True)
class DocumentTokens:
    """Documents of sentences of tokens, concatenated."""

    tokens: np.ndarray
    """(tokens,), int32."""
    sentences: np.ndarray
    """(sentences + 1,): the token at which each sentence begins, and the end of the last."""
    documents: np.ndarray
    """(documents + 1,): the sentence at which each document begins, and the end of the last."""
    bytes: int = 0
    """Size of the sentences as text."""

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.documents) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedBatch(PaddedBatch):
    """B rows with masked tokens; ``targets`` (M,) are the original tokens at the masked positions, row by row."""

    segments: Tensor
    """(B, T)."""
    positions: Tensor
    """(B, K): masked positions; rows with fewer repeat position 0."""
    is_masked: Tensor
    """(B, K), bool: which of these positions are masked."""
    noise: Tensor
    """(M,): a random number in [0, 1) for each masked position, for objectives that draw tokens."""
    not_next: Tensor | None = None
    """(B,): 0 if the second text follows the first, else 1; None if rows have one text."""

    def select(self, rows: slice) -> MaskedBatch:
        """Return some of the rows, with their masked positions."""
        before, inside = int(self.is_masked[: rows.start].sum()), int(self.is_masked[rows].sum())
        here = slice(before, before + inside)
        return replace(select_rows(self, rows), targets=self.targets[here], noise=self.noise[here])


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskingOptions:
    """How tokens are masked."""

    share: float = 0.15
    """Fraction of a row's tokens that is selected."""
    mask: float = 0.8
    """Fraction of the selected tokens that becomes the mask token."""
    random: float = 0.1
    """Fraction of the selected tokens that becomes a random token; the rest is unchanged."""
    dynamic: bool = True
    """True to mask other positions each time a row is read; False for the same positions in every epoch."""
    unit: str = "tokens"
    """What is selected at once: tokens, words or spans."""


class MaskedBatches:
    """Batches of ``rows`` rows of ``length`` tokens; ``pairs`` is a name in ``SPANS``.

    ``continues`` (V,) says which tokens continue a word; it is needed where whole words or spans are masked.
    """

    def __init__(
        self,
        documents: DocumentTokens,
        special: SpecialTokens,
        vocabulary: int,
        *,
        rows: int,
        length: int,
        pairs: str,
        masking: MaskingOptions,
        continues: np.ndarray | None = None,
        unknown: int | None = None,
        seed: int = 0,
    ) -> None:
        if special.mask is None:
            raise InputError("this tokenizer has no mask token", hint="use --tokenizer wordpiece, bpe, unigram or byte")
        if len(documents.tokens) < 2:
            raise InputError("the text has no tokens to mask")
        if length < 8:
            raise InputError(f"rows of {length} tokens are too short", hint="use at least 8")
        if pairs == "random" and len(documents) < 2:
            hint = "separate documents by blank lines, or use next_sentence=false or not_next=swapped"
            raise InputError("the text is one document, so no sentence can be from another one", hint=hint)
        self._documents, self._special, self._mask = documents, special, special.mask
        self._length, self._masking, self._seed = length, masking, seed
        self._begins = None if continues is None else self._word_starts(continues)
        self._pairs, self._spans = pairs != "none", SPANS[pairs]
        self._row_specials = special.count(2 if self._pairs else 1)
        excluded = (special.start, special.separator, special.end, special.pad, special.mask, unknown)
        self._excluded = np.array([token for token in excluded if token is not None])
        self._replacements = np.setdiff1d(np.arange(vocabulary), self._excluded)
        self.rows = rows
        self._plan = EpochPlan(self._arrange, seed)
        first = self._plan.epoch(0)
        if not first or (pairs == "random" and all(not_next.all() for _, not_next in first)):
            hint = "end documents by blank lines, not sentences, or leave the next sentence out: next_sentence=false"
            raise InputError("no document has a sentence that follows another", hint=hint)
        self.steps_per_epoch = len(first)
        spans = np.concatenate([spans for spans, _ in first])
        real = (spans[:, 1] - spans[:, 0] + spans[:, 3] - spans[:, 2]).sum()
        self.padding = 1 - float(real / len(spans) + self._row_specials) / length
        """Fraction of padding in the first epoch."""

    def _arrange(self, generator: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the batches of an epoch: the spans of each row, and whether B does not follow A."""
        spans, not_next = self._spans(self._documents, self._length - self._row_specials, generator)
        order = generator.permutation(len(spans))
        batches = [order[start : start + self.rows] for start in range(0, len(order), self.rows)]
        return [(spans[rows], not_next[rows]) for rows in batches]

    def batch(self, step: int) -> MaskedBatch:
        """Return the batch of a step, counted from 0 over all epochs: spans with special tokens, some tokens masked."""
        spans, not_next = self._plan.item(step)
        rows = [self._row_sources(*span) for span in spans.tolist()]
        lengths = np.array([len(sources) for sources, _ in rows])
        starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
        sources, _ = pad_rows(np.concatenate([sources for sources, _ in rows]), starts, lengths, _PAD)
        segments, _ = pad_rows(np.concatenate([parts for _, parts in rows]), starts, lengths)
        special = self._special
        special_ids = np.array([special.pad, special.end, special.separator, special.start])  # sources -4 … -1
        words = self._documents.tokens[sources.clip(min=0)]
        tokens = np.where(sources < 0, special_ids[sources.clip(max=-1) + 4], words).astype(np.int64)
        generator = np.random.default_rng([self._seed % 2**64, 1 << 32, step])
        maskable = (sources >= 0) & ~np.isin(tokens, self._excluded)
        share, dynamic = self._masking.share, self._masking.dynamic
        keys = generator.random(tokens.shape) if dynamic else self._position_noise(sources, 0)
        counts = np.rint(share * maskable.sum(1)) if dynamic else (maskable & (keys < share)).sum(1)
        positions, is_masked, unit = self._chosen(sources, maskable, counts, keys, generator)
        targets = np.take_along_axis(tokens, positions, 1)
        if dynamic:
            draws = [generator.random(targets.shape) for _ in range(2)]
        else:
            draws = [np.take_along_axis(self._position_noise(sources, kind), positions, 1) for kind in (1, 2)]
        if self._masking.unit == "spans" and unit is not None:  # a span is masked, or replaced, or kept as a whole
            draws[0] = np.take_along_axis(draws[0], unit, 1)
        row = np.broadcast_to(np.arange(len(tokens))[:, None], positions.shape)
        tokens[row[is_masked], positions[is_masked]] = self._corrupt(targets, *draws)[is_masked]
        arrays = {"tokens": tokens, "segments": segments, "lengths": lengths, "positions": positions}
        arrays |= {"not_next": not_next.astype(np.int64)} if self._pairs else {}
        noise = generator.random(targets.shape)[is_masked]
        return MaskedBatch(**as_tensors(**arrays, is_masked=is_masked, targets=targets[is_masked], noise=noise))

    def _word_starts(self, continues: np.ndarray) -> np.ndarray:
        """Return which tokens of the documents begin a word: those that continue none, and each first of a sentence."""
        begins: np.ndarray = ~continues[self._documents.tokens]
        begins[self._documents.sentences[:-1]] = True
        return begins

    def _chosen(
        self,
        sources: np.ndarray,
        maskable: np.ndarray,
        counts: np.ndarray,
        keys: np.ndarray,
        generator: np.random.Generator,
    ) -> Positions:
        """Choose masked positions of rows, of the tokens at ``sources`` (B, T)."""
        if self._begins is None or self._masking.unit == "tokens":
            return choose_positions(maskable, counts, keys)
        begins = np.where(sources < 0, True, self._begins[sources.clip(min=0)])
        begins[:, 1:] |= ~maskable[:, :-1]  # what follows an unknown token, or the start of a row
        sizes = None
        if self._masking.unit == "spans":
            draws = generator.random(keys.shape) if self._masking.dynamic else self._position_noise(sources, 3)
            sizes = span_sizes(draws)
        return choose_words(maskable, begins, counts, keys, sizes)

    def _row_sources(self, a: int, b: int, c: int, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the source position of each token of a row, negative for special tokens, and its segments."""
        if not self._pairs:
            return np.concatenate([[_START], np.arange(a, b), [_END]]), np.zeros(b - a + 2, dtype=np.int64)
        double = self._special.double_separator
        second = [[_SEPARATOR] * double, np.arange(c, d), [_END]]
        sources = np.concatenate([[_START], np.arange(a, b), [_SEPARATOR], *second]).astype(np.int64)
        return sources, np.repeat([0, 0 if double else 1], [b - a + 2, len(sources) - (b - a + 2)])

    def _position_noise(self, sources: np.ndarray, kind: int) -> np.ndarray:
        """Return uniform random numbers that depend on a token's position in the text only (static masking)."""
        mixed = sources.astype(np.uint64) + np.uint64((self._seed % 2**30) << 32 | kind << 62)
        mixed = (mixed ^ mixed >> np.uint64(29)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(31)
        mixed = mixed * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(11)
        noise: np.ndarray = mixed / 2.0**53
        return noise

    def _corrupt(self, targets: np.ndarray, draws: np.ndarray, token_draws: np.ndarray) -> np.ndarray:
        """Return the encoder input at masked positions; both draws (B, K) are uniform in [0, 1)."""
        masking = self._masking
        random = self._replacements[(token_draws * len(self._replacements)).astype(np.int64)]
        kept = np.where(draws < masking.mask + masking.random, random, targets)
        return np.where(draws < masking.mask, self._mask, kept)


def sentence_pairs(
    documents: DocumentTokens, capacity: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return spans for pairs, B random in half of them; A and B together fill the ``capacity`` of a row.

    A consists of whole sentences. B continues there, or begins with a random sentence of another document. A document's
    text is used once: the next row begins with what a random B left unread. Nothing follows a last sentence, so its B
    is random, and a later row's B follows to balance that; with too few of those, the last sentence is left out.
    """
    sentences, starts = documents.sentences, documents.documents
    spans: list[tuple[int, int, int, int]] = []  # start and end of A and of B, in tokens
    not_next: list[int] = []
    unbalanced = 0  # rows of last sentences that no row has balanced yet
    for number in range(len(documents)):
        ends, at = split_long_sentences(sentences[starts[number] : starts[number + 1] + 1], capacity), 0
        stop = int(ends[-1])
        while at < len(ends) - 1:
            begin, final = int(ends[at]), at == len(ends) - 2
            if final and unbalanced == MAX_UNBALANCED:
                break
            random = final or (not unbalanced and bool(generator.random() < 0.5))
            unbalanced += 1 if final else -1 if unbalanced else 0
            last = int(np.searchsorted(ends, begin + capacity, side="right")) - 1  # the last sentence end that fits
            cut = int(generator.integers(at + 1, max(last, at + 2)))
            middle = int(ends[cut])
            if random:
                c, d = _random_span(documents, number, begin + capacity - middle, generator)
                at = cut
            else:
                c, d = middle, min(begin + capacity, stop)
                at = max(cut, int(np.searchsorted(ends, d, side="right")) - 1)
            spans.append((begin, middle, c, d))
            not_next.append(int(random))
    return np.array(spans, dtype=np.int64).reshape(-1, 4), np.array(not_next, dtype=np.int64)


def ordered_pairs(
    documents: DocumentTokens, capacity: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return spans for consecutive texts of one document, swapped in half of them.

    Both texts are whole sentences: a text that breaks off would show which was the second. The next row begins where
    one ends, or a sentence earlier if only one is left. A document of one sentence, which nothing follows, is left out.
    """
    sentences, starts = documents.sentences, documents.documents
    spans: list[tuple[int, int, int, int]] = []  # start and end of A and of B, in tokens
    swapped: list[int] = []
    for number in range(len(documents)):
        ends, at = split_long_sentences(sentences[starts[number] : starts[number + 1] + 1], capacity), 0
        while at < len(ends) - 2:
            last = int(np.searchsorted(ends, ends[at] + capacity, side="right")) - 1  # the last sentence end that fits
            cut = int(generator.integers(at + 1, last))
            begin, middle, end = (int(ends[where]) for where in (at, cut, last))
            swap = bool(generator.random() < 0.5)
            spans.append((middle, end, begin, middle) if swap else (begin, middle, middle, end))
            swapped.append(int(swap))
            at = last - (last == len(ends) - 2)
    return np.array(spans, dtype=np.int64).reshape(-1, 4), np.array(swapped, dtype=np.int64)


def split_long_sentences(ends: np.ndarray, capacity: int) -> np.ndarray:
    """Split sentences longer than half a row, so that two always fit.

    >>> split_long_sentences(np.array([0, 3, 12]), 8).tolist()
    [0, 3, 7, 11, 12]
    """
    pieces = [np.arange(begin, end, capacity // 2) for begin, end in itertools.pairwise(ends)]
    return np.concatenate([*pieces, ends[-1:]])


def _random_span(documents: DocumentTokens, number: int, size: int, generator: np.random.Generator) -> tuple[int, int]:
    """Return a span that starts at a random sentence of a document other than ``number``."""
    other = int(generator.integers(len(documents) - 1))
    other += other >= number
    first, last = int(documents.documents[other]), int(documents.documents[other + 1])
    begin = int(documents.sentences[int(generator.integers(first, last))])
    return begin, min(begin + size, int(documents.sentences[last]))


def text_spans(
    documents: DocumentTokens, capacity: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return consecutive spans of ``capacity`` tokens, from a random offset."""
    size = len(documents.tokens)
    begin = np.arange(-int(generator.integers(capacity)), size, capacity)
    ends = np.minimum(begin + capacity, size)
    begin = np.maximum(begin, 0)
    kept = ends - begin >= 8
    kept |= not kept.any()
    zero = np.zeros(int(kept.sum()), dtype=np.int64)
    return np.stack([begin[kept], ends[kept], zero, zero], 1), zero


Spans = Callable[[DocumentTokens, int, np.random.Generator], tuple[np.ndarray, np.ndarray]]
SPANS: dict[str, Spans] = {"random": sentence_pairs, "swapped": ordered_pairs, "none": text_spans}
"""How the rows of an epoch are chosen: start and end of A and of B (N, 4), and whether B does not follow A (N,)."""
