"""Sentence vectors: in the order of the texts, independent of the batch, of unit length."""

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.data.tokenizers.encoder_fitting import fit_encoder_tokenizer
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts
from ensue.data.tokenizers.special_tokens import add_special_tokens, special_tokens_of
from ensue.models.bert import BERT, BERTConfig
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.models.window import WindowConfig, WindowLanguageModel
from ensue.runs import sentence_vectors as module
from ensue.runs.sentence_vectors import sentence_vectors

TEXTS = ["a cat", "the big dog ran to the house", "", "milk", "snow is cold and white and deep " * 9, "a cat"]


def made(name):
    torch.manual_seed(0)
    if name == "bert":
        tokenizer = fit_encoder_tokenizer("wordpiece", TEXTS, 200, min_count=1)
        sizes = {"layers": 2, "heads": 2, "hidden": 16, "context": 20}
        return BERT(BERTConfig(vocabulary=tokenizer.size, **sizes)).body.train(), tokenizer
    tokenizer = fit_tokenizer_to_parts("char", [(text, True, True) for text in TEXTS])
    if name == "gpt":
        config = GPTConfig(vocabulary=tokenizer.size, layers=2, heads=2, hidden=16, context=20)
        return GPTLanguageModel(config), tokenizer
    return LSTMLanguageModel(LSTMConfig(vocabulary=tokenizer.size, hidden=16)), tokenizer


@pytest.mark.parametrize("name", ["bert", "gpt", "lstm"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "max"])
def test_the_vector_of_a_text_does_not_depend_on_its_batch(name, pooling, monkeypatch):
    body, tokenizer = made(name)
    found = sentence_vectors(body, tokenizer, TEXTS, pooling=pooling)
    assert found.shape == (6, 16) and found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(found[0], found[5], atol=1e-6)
    for place, text in enumerate(TEXTS):
        np.testing.assert_allclose(
            sentence_vectors(body, tokenizer, [text], pooling=pooling)[0], found[place], atol=1e-5
        )
    monkeypatch.setattr(module, "BATCH_TOKENS", 24)
    np.testing.assert_allclose(sentence_vectors(body, tokenizer, TEXTS, pooling=pooling), found, atol=1e-5)
    order = [3, 0, 4, 1, 5, 2]
    moved = sentence_vectors(body, tokenizer, [TEXTS[place] for place in order], pooling=pooling)
    np.testing.assert_allclose(moved, found[order], atol=1e-5)


def test_a_vector_is_that_computed_by_hand():
    body, tokenizer = made("bert")
    ids, _ = add_special_tokens(special_tokens_of(tokenizer), tokenizer.encode(TEXTS[1]))
    hidden = body.eval()(torch.from_numpy(ids.astype(np.int64))[None]).hidden[0]
    mean = sentence_vectors(body, tokenizer, [TEXTS[1]], normalise=False)[0]
    np.testing.assert_allclose(mean, hidden.mean(0).detach().numpy(), atol=1e-5)
    cls = sentence_vectors(body, tokenizer, [TEXTS[1]], normalise=False, pooling="cls")[0]
    np.testing.assert_allclose(cls, hidden[0].detach().numpy(), atol=1e-5)


def test_a_text_longer_than_the_context_is_cut():
    body, tokenizer = made("bert")
    whole, less = (sentence_vectors(body, tokenizer, [text])[0] for text in (TEXTS[4], TEXTS[4] + "more and more"))
    np.testing.assert_allclose(whole, less, atol=1e-6)
    short = sentence_vectors(body, tokenizer, [TEXTS[4]], longest=6)[0]
    assert not np.allclose(short, whole, atol=1e-3)


def test_a_window_model_reads_texts_longer_than_its_context():
    tokenizer = fit_tokenizer_to_parts("char", [(text, True, True) for text in TEXTS])
    body = WindowLanguageModel(WindowConfig(vocabulary=tokenizer.size, context=4, hidden=16))
    one, other = sentence_vectors(body, tokenizer, ["a cat and a dog", "a cat and a house"])
    assert np.abs(one - other).max() > 1e-4


def test_a_note_counts_the_texts_that_were_cut():
    told = []
    body, tokenizer = made("bert")
    sentence_vectors(body, tokenizer, TEXTS, report=lambda kind, facts: told.append((kind, facts)))
    assert ("note", {"text": "1 of 6 texts are longer than 20 tokens and were cut"}) in told


def test_no_texts_give_no_vectors_and_an_unknown_pooling_is_refused():
    body, tokenizer = made("bert")
    assert sentence_vectors(body, tokenizer, []).shape == (0, 16)
    with pytest.raises(InputError, match="no pooling 'sum'"):
        sentence_vectors(body, tokenizer, ["a"], pooling="sum")
