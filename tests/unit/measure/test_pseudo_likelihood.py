"""Pseudo-log-likelihoods of an encoder."""

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.data.tokenizers.char import ByteTokenizer
from ensue.data.tokenizers.encoder_fitting import fit_encoder_tokenizer
from ensue.data.tokenizers.special_tokens import add_special_tokens
from ensue.measure.pseudo_likelihood import pair_log_probs, shared_positions, word_log_probs
from ensue.models.bert import BERT, BERTConfig

TEXTS = ["he saw the old man there", "she saw the young man there", "they were here and there", "he she they old young"]


@pytest.fixture(scope="module")
def tokenizer():
    return fit_encoder_tokenizer("wordpiece", TEXTS * 3, 200, 1, True)


@pytest.fixture(scope="module")
def encoder(tokenizer):
    torch.manual_seed(1)
    return BERT(BERTConfig(vocabulary=tokenizer.size, hidden=16, layers=1, heads=2, inner=32, context=16)).eval()


def test_shared_tokens_are_found_in_both_rows():
    assert shared_positions([1, 2, 3, 4], [1, 9, 9, 3, 4]) == ([0, 2, 3], [0, 3, 4])


def test_the_sum_is_over_shared_tokens_each_masked_alone(encoder, tokenizer):
    pairs = [("he saw the old man", "he saw the young man"), ("they were here", "they were there")]
    more, less = pair_log_probs(encoder, tokenizer, pairs)
    special = tokenizer.special_tokens
    ids = [tokenizer.encode(text).tolist() for text in pairs[0]]
    for side, value in ((0, more[0]), (1, less[0])):
        expected = 0.0
        for position in shared_positions(*ids)[side]:
            row = torch.from_numpy(add_special_tokens(special, ids[side])[0].astype(np.int64))[None]
            target = int(row[0, position + 1])
            row[0, position + 1] = special.mask
            with torch.no_grad():
                hidden = encoder.encode(row, None, None, torch.tensor([[position + 1]])).hidden[:, 1]
                expected += float(encoder.head(hidden).log_softmax(-1)[0, target])
        assert value == pytest.approx(expected, abs=1e-4)


def test_a_pair_alone_and_among_others_scores_the_same(encoder, tokenizer):
    pair, longer = ("he saw", "she saw"), ("the old man was here and there", "the young man was here and there")
    alone = pair_log_probs(encoder, tokenizer, [pair])
    among = pair_log_probs(encoder, tokenizer, [longer, pair])
    assert among[0][1] == pytest.approx(alone[0][0], abs=1e-5)


def test_words_in_a_gap(encoder, tokenizer):
    log_p = word_log_probs(encoder, tokenizer, [("the old man saw", "there"), ("he saw", "")], ["he", "she", "they"])
    assert log_p.shape == (2, 3) and (log_p < 0).all()


def test_what_cannot_be_scored_is_refused(encoder, tokenizer):
    with pytest.raises(InputError, match="tokenizer has no mask"):
        pair_log_probs(encoder, ByteTokenizer(), [("a", "b")])
    with pytest.raises(InputError, match="'hyacinth' is not one of this encoder's tokens"):
        word_log_probs(encoder, tokenizer, [("a", "b")], ["hyacinth"])
    with pytest.raises(InputError, match="reads at most 16"):
        pair_log_probs(encoder, tokenizer, [("he saw " * 10, "she saw " * 10)])
