"""The vectors of a word in its contexts, from any model that reads text.

elmo           a layer at the word, [→h; ←h]; the last by default
context2vec    c, a vector of the context without the word
bert, albert … a layer at the word, the mean over its tokens
gpt, lstm …    the hidden state after the word: only the words before it and itself
word2vec       the word's own vector, the same in every context
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.data.labelled_rows import make_batch, make_rows
from ensue.data.senses import Context
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.spans import encode_words
from ensue.data.tokenizers.special_tokens import add_special_tokens, special_tokens_of
from ensue.data.tokenizers.vocabulary import Vocabulary
from ensue.models.context import ContextModel
from ensue.models.encoder import Encoder

BATCH_SIZE = 64


@torch.inference_mode()
def context_vectors(body: Any, tokenizer: Tokenizer, contexts: Sequence[Context], layer: int = 0) -> np.ndarray:
    """The vector of each context's word, (N, D), float32; ``layer`` counts from 1, and 0 is the last."""
    if not 0 <= layer <= layer_count(body):
        raise InputError(f"there is no layer {layer}", hint=f"choose 1 to {layer_count(body)}")
    if isinstance(tokenizer, Vocabulary):
        return _static_vectors(body, tokenizer, contexts)
    special, rows, positions = special_tokens_of(tokenizer), [], []
    longest = body.config.context if isinstance(body, Encoder) else body.traits.context
    for context in contexts:
        ids, words = encode_words(tokenizer, context.words)
        if longest is not None and 1 < longest < len(ids) + 2:
            what = f"a sentence of {len(ids)} tokens, where {longest - 2} can be read"
            raise InputError(what, where=context.text[:60], hint="shorten it")
        rows.append(add_special_tokens(special, ids))
        positions.append(1 + np.flatnonzero(words == context.position))
    labelled_rows = make_rows(rows, np.zeros(len(rows), dtype=np.int64))
    vectors = []
    for start in range(0, len(rows), BATCH_SIZE):
        batch = make_batch(labelled_rows, np.arange(start, min(start + BATCH_SIZE, len(rows))))
        states = _states(body, batch.tokens, batch.lengths, layer)
        vectors += [_word_vector(body, row, word) for row, word in zip(states, positions[start:], strict=False)]
    return torch.stack(vectors).float().numpy() if vectors else np.zeros((0, 0), dtype=np.float32)


def _static_vectors(body: Any, tokenizer: Vocabulary, contexts: Sequence[Context]) -> np.ndarray:
    """The word vector of each context's word, the same in every context, (N, D)."""
    words = [context.words[context.position] for context in contexts]
    ids = {word: tokenizer.encode(word) for word in words}
    for word, tokens in ids.items():
        if not len(tokens):
            raise InputError(f"the word {word!r} has no vector", hint="choose a word of the training text")
    matrix: np.ndarray = body.embed.weight[torch.tensor([int(ids[word][-1]) for word in words])].float().numpy()
    return matrix


def layer_count(body: Any) -> int:
    """The number of layers that ``context_vectors`` can use."""
    if hasattr(body, "reader"):
        return int(body.reader().depth)
    return body.config.layers + 1 if isinstance(body, Encoder) else 1


def _states(body: Any, tokens: Tensor, lengths: Tensor, layer: int) -> Tensor:
    """The states of a layer at each token, (B, T, D)."""
    if hasattr(body, "reader"):
        layers = body.reader().layers_of(tokens, lengths)
    elif isinstance(body, ContextModel):
        layers = (body.context_vectors(tokens, lengths),)
    elif isinstance(body, Encoder):
        layers = body(tokens, None, lengths, layers=True).layers
    else:
        layers = (body(tokens, None, lengths, want=("hidden",)).hidden,)
    states: Tensor = layers[layer - 1]
    return states


def _word_vector(body: Any, states: Tensor, positions: np.ndarray) -> Tensor:
    """The vector of a word from the states (T, D) at its tokens: their mean in an encoder, otherwise the last."""
    return states[positions].mean(0) if isinstance(body, Encoder) else states[int(positions[-1])]
