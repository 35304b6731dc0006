"""Embeddings as word vectors, read and initialised."""

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.data.tokenizers.encoder_fitting import fit_encoder_tokenizer
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts
from ensue.data.tokenizers.vocabulary import Vocabulary
from ensue.data.word_vectors import WordVectors
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.runs.init_from import copy_vectors
from ensue.runs.word_embeddings import embedding_vectors, token_words

TEXT = [("the cat sat on the mat\nthe dog sat\n" * 20, True, True)]


def test_tokens_that_are_words_are_told_from_parts_of_words():
    words = fit_tokenizer_to_parts("word", TEXT)
    assert token_words(words) == [None, None, "the", "sat", "cat", "dog", "mat", "on"]
    assert token_words(Vocabulary(["a", "b"])) == ["a", "b"]
    assert set(token_words(fit_tokenizer_to_parts("char", TEXT))) == {None}
    parts = token_words(fit_tokenizer_to_parts("bpe", TEXT, vocabulary=300))
    assert "cat" in parts and not any(word.startswith("␣") for word in parts if word)
    marked = fit_encoder_tokenizer("wordpiece", [TEXT[0][0]], 60)
    pieces = token_words(marked)
    assert {"the", "cat"} <= set(pieces) and not any(word.startswith(("##", "[")) for word in pieces if word)
    assert any(marked.name(token).startswith("##") for token in range(marked.size))


def test_r11_words_without_a_vector_keep_their_random_values():
    """The deck's loop over the vocabulary raises KeyError at the first of them."""
    table = torch.nn.Embedding(5, 3)
    before = table.weight.detach().clone()
    vectors = WordVectors(["cat", "dog", "owl"], np.arange(9, dtype=np.float32).reshape(3, 3))
    assert copy_vectors(table, [None, "Cat", "mat", "dog", "sat"], vectors) == 2
    assert table.weight[1].tolist() == [0, 1, 2] and table.weight[3].tolist() == [3, 4, 5]
    assert torch.equal(table.weight[[0, 2, 4]], before[[0, 2, 4]])


def test_the_embeddings_of_any_model_are_word_vectors():
    tokenizer = fit_tokenizer_to_parts("word", TEXT)
    model = LSTMLanguageModel(LSTMConfig(vocabulary=tokenizer.size, hidden=6))
    vectors = embedding_vectors(model, tokenizer, "runs/lstm", "lstm")
    assert vectors.words == ["the", "sat", "cat", "dog", "mat", "on"]
    assert np.array_equal(vectors.matrix[2], model.embed.weight[4].detach().numpy())
    with pytest.raises(InputError, match="are not words"):
        embedding_vectors(model, fit_tokenizer_to_parts("char", TEXT), "runs/lstm", "lstm")
    with pytest.raises(InputError, match="ngram has no word vectors"):
        embedding_vectors(torch.nn.Linear(2, 2), tokenizer, "runs/ngram", "ngram")
