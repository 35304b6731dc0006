"""Masked rows: all text is used, pairs are labelled correctly, and the right tokens are masked."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.data.mask_positions import choose_positions
from ensue.data.masking import (
    SPANS,
    DocumentTokens,
    MaskedBatches,
    MaskingOptions,
    ordered_pairs,
    sentence_pairs,
    split_long_sentences,
    text_spans,
)
from ensue.data.tokenizers.special_tokens import SpecialTokens

BERT = SpecialTokens(start=2, separator=3, end=3, double_separator=False, mask=4, pad=0)
ROBERTA = SpecialTokens(start=0, separator=2, end=2, double_separator=True, mask=5, pad=1)
UNKNOWN, FIRST, VOCABULARY = 1, 10, 60


def documents(count, sentences, lengths, seed=0):
    """DocumentTokens of random tokens; ``sentences`` and ``lengths`` are ranges."""
    chance = np.random.default_rng(seed)
    ends, starts = [0], [0]
    for _ in range(count):
        ends += (ends[-1] + np.cumsum(chance.integers(*lengths, size=chance.integers(*sentences)))).tolist()
        starts.append(len(ends) - 1)
    tokens = chance.integers(FIRST, VOCABULARY, size=ends[-1]).astype(np.int32)
    return DocumentTokens(tokens, np.array(ends), np.array(starts))


LONG = documents(40, (20, 40), (8, 40))


def rows_of(text=LONG, marks=BERT, pairs="random", seed=0, rows=16, length=64, **hiding):
    return MaskedBatches(
        text,
        marks,
        VOCABULARY,
        rows=rows,
        length=length,
        pairs=pairs,
        masking=MaskingOptions(**hiding),
        unknown=UNKNOWN,
        seed=seed,
    )


def restored(batch):
    """A batch's tokens before anything was hidden."""
    tokens = batch.tokens.clone()
    row, place = batch.is_masked.nonzero()[:, 0], batch.positions[batch.is_masked]
    tokens[row, place] = batch.targets
    return tokens


def document_of(text, place):
    """The document that a token of the text is of."""
    return int(np.searchsorted(text.sentences[text.documents], place, side="right")) - 1


TEXTS = {
    "long": LONG,
    "short": documents(300, (2, 5), (8, 30)),
    "some of one sentence": documents(300, (1, 3), (5, 30)),
    "sentences longer than a row": documents(20, (1, 4), (300, 400)),
    "tiny": documents(200, (2, 4), (1, 4)),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("room", [61, 125])
def test_an_epoch_of_pairs_reads_nearly_all_text(name, room):
    text = TEXTS[name]
    for seed in range(3):
        stretches, other = sentence_pairs(text, room, np.random.default_rng(seed))
        read = np.zeros(len(text.tokens), dtype=bool)
        for a, b, _, _ in stretches.tolist():
            read[a:b] = True
        for (_, _, c, d), elsewhere in zip(stretches.tolist(), other):
            read[c:d] |= not elsewhere
        assert read.mean() > 0.97
        assert 0.4 < other.mean() < 0.6


@pytest.mark.parametrize("name", TEXTS)
def test_a_second_text_follows_or_comes_from_another_document(name):
    text = TEXTS[name]
    begins = set(text.sentences[:-1].tolist())
    stretches, other = sentence_pairs(text, 61, np.random.default_rng(1))
    for (a, b, c, d), elsewhere in zip(stretches.tolist(), other.tolist()):
        assert a < b and c < d and (b - a) + (d - c) <= 61
        assert document_of(text, a) == document_of(text, b - 1)
        assert document_of(text, c) == document_of(text, d - 1)
        if elsewhere:
            assert document_of(text, c) != document_of(text, a) and c in begins
        else:
            assert c == b and document_of(text, c) == document_of(text, a)


@pytest.mark.parametrize("room", [61, 125])
@pytest.mark.parametrize("name", TEXTS)
def test_ordered_pairs_are_whole_consecutive_sentences_of_a_document_that_is_read_whole(name, room):
    text = TEXTS[name]
    spans, swapped = ordered_pairs(text, room, np.random.default_rng(1))
    first, second = np.where(swapped[:, None], spans[:, [2, 3, 0, 1]], spans).reshape(-1, 2, 2).transpose(1, 0, 2)
    assert (first[:, 1] == second[:, 0]).all() and (first[:, 0] < first[:, 1]).all()
    assert (second[:, 0] < second[:, 1]).all() and (second[:, 1] - first[:, 0] <= room).all()
    assert np.isin(spans, split_long_sentences(text.sentences, room)).all()
    assert 0.4 < swapped.mean() < 0.6
    read = np.zeros(len(text.tokens), dtype=int)
    for (a, _), (_, d) in zip(first.tolist(), second.tolist()):
        assert document_of(text, a) == document_of(text, d - 1)
        read[a:d] += 1
    for number in range(len(text)):
        begin, end = text.documents[number : number + 2]
        if end - begin > 1:
            assert read[text.sentences[begin] : text.sentences[end]].all()
        elif text.sentences[end] - text.sentences[begin] <= room // 2:
            assert not read[text.sentences[begin] : text.sentences[end]].any()
    assert read.mean() < 1.25  # few sentences are read twice


def test_swapped_rows_hold_the_later_text_first():
    rows = rows_of(pairs="swapped")
    joined, found = " ".join(map(str, LONG.tokens.tolist())), []
    for step in range(4):
        batch = rows.batch(step)
        for tokens, segments, length, swapped in zip(restored(batch), batch.segments, batch.lengths, batch.not_next):
            row = tokens[:length].tolist()
            cut = row.index(BERT.separator)
            assert segments[:length].tolist() == [0] * (cut + 1) + [1] * (len(row) - cut - 1)
            a, b = (" ".join(map(str, part)) for part in (row[1:cut], row[cut + 1 : -1]))
            assert (f"{b} {a}" if swapped else f"{a} {b}") in joined
            found.append(int(swapped))
    assert 0.3 < np.mean(found) < 0.7


def test_one_document_is_enough_for_ordered_pairs():
    rows = rows_of(documents(1, (2, 3), (4, 5)), pairs="swapped")
    assert {int(rows.batch(step).not_next) for step in range(20)} == {0, 1}
    with pytest.raises(InputError, match="no document has a sentence that follows another"):
        rows_of(documents(50, (1, 2), (5, 20)), pairs="swapped")


def test_rows_of_long_documents_are_full():
    rows = rows_of()
    assert rows_of(pairs="swapped").padding < 0.3
    assert rows.padding < 0.06 and rows_of(pairs="none").padding < 0.02
    found = [rows.batch(step) for step in range(rows.steps_per_epoch)]
    assert found[0].tokens.shape == (16, 64)
    real = sum(batch.size for batch in found) / sum(64 * len(batch.lengths) for batch in found)
    assert rows.padding == pytest.approx(1 - real)


def test_pairs_have_their_special_tokens():
    """[CLS] A [SEP] B [SEP], A and B as the text has them."""
    rows = rows_of()
    joined = " ".join(map(str, LONG.tokens.tolist()))
    other = []
    for step in range(4):
        batch = rows.batch(step)
        for tokens, segments, length, elsewhere in zip(restored(batch), batch.segments, batch.lengths, batch.not_next):
            row, kinds = tokens[:length].tolist(), segments[:length].tolist()
            assert row[0] == BERT.start and row[-1] == BERT.end and row.count(BERT.separator) == 2
            cut = row.index(BERT.separator)
            assert kinds == [0] * (cut + 1) + [1] * (len(row) - cut - 1)
            assert tokens[length:].eq(BERT.pad).all()
            a, b = (" ".join(map(str, part)) for part in (row[1:cut], row[cut + 1 : -1]))
            assert a in joined and b in joined
            if min(cut - 1, len(row) - cut - 2) > 3:  # else chance may make a stretch twice
                assert (f"{a} {b}" in joined) == (not elsewhere)
            other.append(int(elsewhere))
    assert 0.3 < np.mean(other) < 0.7


def test_rows_have_one_text_as_in_roberta():
    rows = rows_of(marks=ROBERTA, pairs="none")
    found = []
    for step in range(rows.steps_per_epoch):
        batch = rows.batch(step)
        assert batch.not_next is None and not batch.segments.any()
        for tokens, length in zip(restored(batch), batch.lengths):
            row = tokens[:length].tolist()
            assert row[0] == ROBERTA.start and row[-1] == ROBERTA.end
            found += row[1:-1]
    assert 0 <= len(LONG.tokens) - len(found) < 16  # each token once, but for a short end or beginning


def test_pairs_can_have_two_separators():
    batch = rows_of(marks=ROBERTA).batch(0)
    assert not batch.segments.any()
    for tokens, length in zip(restored(batch), batch.lengths):
        row = tokens[:length].tolist()
        cut = row.index(ROBERTA.separator)
        assert row[cut : cut + 2] == [ROBERTA.separator] * 2 and row.count(ROBERTA.separator) == 3


@pytest.mark.parametrize("dynamic", [True, False])
def test_the_right_share_of_tokens_is_masked_replaced_and_kept(dynamic):
    rows = rows_of(dynamic=dynamic)
    own = masked = same = count = 0
    for step in range(rows.steps_per_epoch):
        batch = rows.batch(step)
        row, place = batch.is_masked.nonzero()[:, 0], batch.positions[batch.is_masked]
        assert len({(int(r), int(p)) for r, p in zip(row, place)}) == len(place) == len(batch.targets)
        assert (batch.targets >= FIRST).all()
        shown = batch.tokens[row, place]
        assert (shown >= BERT.mask).all()  # no other mark stands there
        masked += int((shown == BERT.mask).sum())
        same += int((shown == batch.targets).sum())
        own += batch.size - 3 * len(batch.lengths)
        count += len(place)
    assert count / own == pytest.approx(0.15, abs=0.01)
    assert masked / count == pytest.approx(0.8, abs=0.02)
    assert same / count == pytest.approx(0.1, abs=0.02)


def test_special_and_unknown_tokens_are_never_masked():
    tokens = LONG.tokens.copy()
    tokens[::2] = UNKNOWN
    tokens[1::8] = BERT.mask  # a text that says [MASK]
    rows = rows_of(replace(LONG, tokens=tokens), mask=1.0, random=0.0)
    for step in range(5):
        batch = rows.batch(step)
        assert not torch.isin(batch.targets, torch.tensor([UNKNOWN, *range(5)])).any()


def test_a_row_without_maskable_tokens_masks_nothing():
    tokens = LONG.tokens.copy()
    tokens[: len(tokens) // 2] = UNKNOWN
    rows = rows_of(replace(LONG, tokens=tokens), rows=4, pairs="none")
    found = [rows.batch(step) for step in range(rows.steps_per_epoch)]
    assert any((~batch.is_masked.any(1)).any() for batch in found)
    assert all((batch.positions[~batch.is_masked] == 0).all() for batch in found)


def hidden_in_text(rows, text, epochs):
    """Of each epoch, which tokens of a text without repetitions were hidden, and what stood in their place."""
    found = []
    step = 0
    for _ in range(epochs):
        here, read = {}, 0
        while read < len(text.tokens) - 16:
            batch = rows.batch(step)
            shown = batch.tokens.gather(1, batch.positions)[batch.is_masked]
            here |= dict(zip(batch.targets.tolist(), shown.tolist()))
            read += batch.size - 2 * len(batch.lengths)
            step += 1
        found.append(here)
    return found


@pytest.mark.parametrize(("dynamic", "least", "most"), [(False, 0.9, 1.0), (True, 0.0, 0.3)])
def test_static_masking_masks_the_same_tokens_in_every_epoch(dynamic, least, most):
    text = documents(20, (5, 9), (5, 20), seed=3)
    text = replace(text, tokens=np.arange(FIRST, FIRST + len(text.tokens), dtype=np.int32))
    size = FIRST + len(text.tokens)
    rows = MaskedBatches(
        text, BERT, size, rows=8, length=32, pairs="none", masking=MaskingOptions(dynamic=dynamic), seed=2
    )
    one, two, three = hidden_in_text(rows, text, 3)
    for other in (two, three):
        both = one.keys() & other.keys()
        assert least <= len(both) / len(one.keys() | other.keys()) <= most
        if not dynamic:
            assert all(one[token] == other[token] for token in both)


@pytest.mark.parametrize("pairs", SPANS)
@pytest.mark.parametrize("dynamic", [True, False])
def test_a_batch_is_a_function_of_seed_and_step_alone(pairs, dynamic):
    def tokens(rows, steps):
        return [rows.batch(step).tokens.tolist() for step in steps]

    steps = (rows_of(pairs=pairs).steps_per_epoch + 2, 0, 5)
    found = tokens(rows_of(pairs=pairs, dynamic=dynamic), steps)
    assert tokens(rows_of(pairs=pairs, dynamic=dynamic), steps) == found
    assert tokens(rows_of(pairs=pairs, dynamic=dynamic), steps[::-1]) == found[::-1]
    assert tokens(rows_of(pairs=pairs, dynamic=dynamic, seed=1), steps) != found


@pytest.mark.parametrize("size", [2, 5, 7, 9, 13, 20])
def test_a_tiny_text_is_read_in_every_epoch(size):
    text = DocumentTokens(np.arange(FIRST, FIRST + size, dtype=np.int32), np.array([0, size]), np.array([0, 1]))
    for length in (8, 10, 64):
        rows = rows_of(text, pairs="none", length=length)
        assert all(len(rows.batch(step).targets) for step in range(6))
        for seed in range(8):
            assert len(text_spans(text, length - 2, np.random.default_rng(seed))[0])


def test_texts_without_next_sentences_are_errors():
    one = documents(1, (9, 10), (5, 9))
    with pytest.raises(InputError, match="the text is one document"):
        rows_of(one)
    assert rows_of(one, pairs="none").batch(0).size
    with pytest.raises(InputError, match="no document has a sentence that follows another"):
        rows_of(documents(50, (1, 2), (5, 20)))
    with pytest.raises(InputError, match="no tokens to mask"):
        rows_of(DocumentTokens(np.zeros(0, np.int32), np.array([0]), np.array([0])))
    with pytest.raises(InputError, match="too short"):
        rows_of(length=7)
    with pytest.raises(InputError, match="no mask"):
        rows_of(marks=replace(BERT, mask=None))


def test_two_documents_are_enough_for_pairs():
    rows = rows_of(documents(2, (4, 5), (6, 9)), rows=4)
    assert all(rows.batch(step).size for step in range(20))


def test_long_sentences_are_cut_into_halves_of_a_row():
    ends = split_long_sentences(np.array([5, 8, 30, 31]), 10)
    assert ends.tolist() == [5, 8, 13, 18, 23, 28, 30, 31]


def test_chosen_positions_are_those_with_the_smallest_keys_in_order():
    own = np.array([[False, True, True, True], [False, False, False, True], [False] * 4])
    keys = np.array([[0.0, 0.9, 0.1, 0.5], [0.0] * 4, [0.0] * 4])
    places, hidden, _ = choose_positions(own, np.array([2, 0, 0]), keys)
    assert places.tolist() == [[2, 3], [3, 0], [0, 0]]
    assert hidden.tolist() == [[True, True], [True, False], [False, False]]
