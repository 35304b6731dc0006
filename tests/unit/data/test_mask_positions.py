"""Whole words and spans: units are masked as a whole, in the share that was asked for, and never across texts."""

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.data.mask_positions import LONGEST_SPAN, choose_words, span_sizes
from ensue.data.masking import DocumentTokens, MaskedBatches, MaskingOptions
from ensue.data.tokenizers.encoder_fitting import byte_encoder_tokenizer, fit_encoder_tokenizer
from ensue.data.tokenizers.special_tokens import SpecialTokens

MARKS = SpecialTokens(start=2, separator=3, end=3, double_separator=False, mask=4, pad=0)
UNKNOWN, FIRST, V = 1, 10, 60
CONTINUES = np.arange(V) % 3 == 0
"""A third of the tokens continue the word before them."""


def batches(unit, pairs="none", seed=0, rows=16, length=64, **options):
    chance = np.random.default_rng(1)
    tokens = chance.integers(FIRST, V, size=20_000).astype(np.int32)
    tokens[chance.random(len(tokens)) < 0.03] = UNKNOWN
    tokens[::20] = FIRST + 1  # a sentence begins with a word
    ends = np.arange(0, len(tokens) + 1, 20)
    text = DocumentTokens(tokens, ends, np.arange(0, len(ends), 10))
    how = MaskingOptions(unit=unit, **options)
    return MaskedBatches(
        text,
        MARKS,
        V,
        rows=rows,
        length=length,
        pairs=pairs,
        masking=how,
        continues=CONTINUES,
        unknown=UNKNOWN,
        seed=seed,
    )


def unmasked(batch):
    """The tokens before masking, and which of them were masked."""
    tokens, masked = batch.tokens.clone(), torch.zeros_like(batch.tokens, dtype=torch.bool)
    row, place = batch.is_masked.nonzero()[:, 0], batch.positions[batch.is_masked]
    tokens[row, place], masked[row, place] = batch.targets, True
    return tokens.numpy(), masked.numpy()


@pytest.mark.parametrize("pairs", ["none", "swapped"])
@pytest.mark.parametrize("unit", ["words", "spans"])
@pytest.mark.parametrize("dynamic", [True, False])
def test_a_word_is_masked_as_a_whole_or_not_at_all(unit, pairs, dynamic):
    made = batches(unit, pairs, dynamic=dynamic)
    shares = []
    for step in range(4):
        tokens, masked = unmasked(made.batch(step))
        special = tokens < FIRST
        assert not masked[special].any()
        shares.append(masked.sum() / (~special).sum())
        inside = CONTINUES[tokens[:, 1:]] & ~special[:, 1:] & ~special[:, :-1]
        assert inside.sum() > 100 and not (inside & (masked[:, 1:] != masked[:, :-1])).any()
    assert abs(np.mean(shares) - 0.15) < 0.03


def test_units_are_taken_in_the_order_of_keys_and_never_exceed_the_share():
    begins = np.array([[True, False, True, True, False, False, True, True]])
    maskable = np.array([[True] * 7 + [False]])
    keys = np.array([[0.5, 0.0, 0.3, 0.1, 0.0, 0.0, 0.4, 0.0]])
    found = choose_words(maskable, begins, np.array([5]), keys)
    assert found.positions[found.is_masked].tolist() == [2, 3, 4, 5, 6]
    assert found.unit[found.is_masked].tolist() == [0, 1, 1, 1, 4]
    found = choose_words(maskable, begins, np.array([2]), keys)  # at least one word, even if it is longer
    assert found.positions[found.is_masked].tolist() == [3, 4, 5]
    nothing = choose_words(np.zeros((1, 8), dtype=bool), begins, np.array([2]), keys)
    assert not nothing.is_masked.any() and nothing.positions.shape == (1, 1)


def test_a_span_is_words_in_a_row_and_ends_at_what_cannot_be_masked():
    begins = np.ones((1, 8), dtype=bool)
    maskable = np.array([[True, True, True, False, True, True, True, True]])
    keys = np.array([[0.9, 0.1, 0.8, 0.0, 0.7, 0.6, 0.5, 0.2]])
    sizes = np.full((1, 8), 4)
    found = choose_words(maskable, begins, np.array([4]), keys, sizes)
    assert found.positions[found.is_masked].tolist() == [1, 2, 6, 7]
    assert found.unit[found.is_masked].tolist() == [0, 0, 2, 3]


def test_spans_are_geometric_and_as_long_as_in_the_paper():
    sizes = span_sizes(np.random.default_rng(0).random(200_000))
    assert sizes.min() == 1 and sizes.max() == LONGEST_SPAN
    share = np.bincount(sizes, minlength=11)[1:] / len(sizes)
    expected = 0.2 * 0.8 ** np.arange(10)
    np.testing.assert_allclose(share, expected / expected.sum(), atol=0.004)
    assert abs(sizes.mean() - 3.8) < 0.02


def test_a_span_is_corrupted_in_one_way():
    made = batches("spans", mask=0.5, random=0.5)
    batch = made.batch(0)
    masked = batch.tokens.gather(1, batch.positions) == MARKS.mask
    runs = [
        (row[now], row[now + 1])
        for row, places, inside in zip(masked, batch.positions, batch.is_masked, strict=True)
        for now in range(int(inside.sum()) - 1)
        if places[now + 1] == places[now] + 1
    ]
    same = np.mean([bool(one == other) for one, other in runs])
    assert len(runs) > 50 and same > 0.85  # neighbours are of one span, or of two that touch


def test_masks_are_a_function_of_seed_and_step():
    for unit in ("words", "spans"):
        one, other = batches(unit), batches(unit)
        one.batch(5)
        for name in ("tokens", "positions", "targets", "noise"):
            assert torch.equal(getattr(one.batch(3), name), getattr(other.batch(3), name))
        assert not torch.equal(one.batch(3).tokens, batches(unit, seed=1).batch(3).tokens)


def test_a_part_of_a_batch_has_the_random_numbers_of_its_rows():
    batch = batches("tokens").batch(0)
    parts = [batch.select(slice(start, start + 8)) for start in (0, 8)]
    assert torch.equal(torch.cat([part.noise for part in parts]), batch.noise)
    assert len(batch.noise) == len(batch.targets) and 0 <= float(batch.noise.min()) < float(batch.noise.max()) < 1


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_tokenizers_know_which_tokens_continue_a_word(kind):
    texts = ["unhappiness unhappily undoing doing happiness", "the happy dog undoes the doing of dogs"] * 20
    tokenizer = fit_encoder_tokenizer(kind, texts, 60 if kind == "wordpiece" else 300, 1, True)
    continues = tokenizer.continuations()
    ids = tokenizer.encode("the happiness of dogdogs")
    begins = ~continues[ids]
    begins[0] = True
    assert continues.shape == (tokenizer.size,) and begins.sum() == 4 < len(ids)


def test_tokens_that_do_not_show_where_words_begin_are_refused_in_one_line():
    tokenizer = byte_encoder_tokenizer(False)
    continues = tokenizer.continuations()
    ids = tokenizer.encode("a bc d")
    assert (~continues[ids])[1:].sum() == 2  # the spaces
    fitted = fit_encoder_tokenizer("bpe", ["abcab"] * 9, 300, 1, True)
    fitted._inner = type("Named", (), {"id_to_token": staticmethod(lambda token: f"t{token}")})()
    with pytest.raises(InputError, match="does not show where words begin") as error:
        fitted.continuations()
    assert "\n" not in str(error.value)
