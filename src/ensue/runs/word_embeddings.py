"""The embeddings of any model as word vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ensue.core.errors import InputError
from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.word import WordTokenizer
from ensue.data.word_vectors import WordVectors
from ensue.models.backbones import body_of

LETTERS = ("byte", "char")
"""Tokenizers whose tokens are not words."""
SPACE, PART = "␣", "##"
"""The prefix of a token that starts a word, and of one that continues a word."""


def token_words(tokenizer: Tokenizer) -> list[str | None]:
    """The word that each token is; None for special tokens and parts of words."""
    names: list[str] = [tokenizer.name(token) for token in range(tokenizer.size)]
    if tokenizer.kind == "words":
        return list(names)
    if isinstance(tokenizer, WordTokenizer):
        special = (tokenizer.end, tokenizer.unknown)
        return [None if token in special else name for token, name in enumerate(names)]
    if tokenizer.kind in LETTERS:
        return [None] * len(names)
    if isinstance(tokenizer, EncoderTokenizer) and not tokenizer.spaced:
        return [None if name.startswith((PART, "[", "<")) else name for name in names]
    return [name[1:] if name.startswith(SPACE) and len(name) > 1 else None for name in names]


def embedding_of(model: Any, name: str = "embed") -> nn.Embedding | None:
    """A model's token embedding: ``embed``, or ``embed_source`` for the source."""
    layer = getattr(body_of(model), name, None)
    return layer if isinstance(layer, nn.Embedding) else None


def embedding_vectors(model: Any, tokenizer: Tokenizer, where: str, system: str) -> WordVectors:
    """The embeddings of those tokens that are words."""
    embedding = embedding_of(model)
    if embedding is None:
        raise InputError(f"{system} has no word vectors", where=where, hint="use a run of word2vec, lstm, bert …")
    tokens: dict[str, int] = {}
    for token, word in enumerate(token_words(tokenizer)):
        if word is not None:
            tokens.setdefault(word, token)
    if not tokens:
        what = f"its tokens ({tokenizer.kind}) are not words, so it has no word vectors"
        raise InputError(what, where=where, hint="train it with --tokenizer word")
    matrix = embedding.weight.detach()[torch.tensor(list(tokens.values()))].float().numpy()
    return WordVectors(list(tokens), matrix, where)
