"""The vectors of a word in its contexts, from any run that reads.

elmo           a layer at the word, [→h; ←h]; the last unless another is asked for
context2vec    c, what stands around the word; the word itself is not in it
bert, roberta  a layer at the word, the mean over its tokens
gpt, lstm …    the hidden state once the word is read: what follows is not in it
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

AT_ONCE = 64
"""Contexts that are read at once."""


@torch.inference_mode()
def context_vectors(body: Any, tokenizer: Tokenizer, contexts: Sequence[Context], layer: int = 0) -> np.ndarray:
    """A vector for each context's word, (N, D), float32; ``layer`` counts from 1, and 0 is the last."""
    if not 0 <= layer <= depth_of(body):
        raise InputError(f"there is no layer {layer}", hint=f"choose 1 to {depth_of(body)}")
    if isinstance(tokenizer, Vocabulary):
        return _own_vectors(body, tokenizer, contexts)
    marks, rows, places = special_tokens_of(tokenizer), [], []
    longest = body.config.context if isinstance(body, Encoder) else body.traits.context
    for context in contexts:
        ids, words = encode_words(tokenizer, context.words)
        if longest is not None and 1 < longest < len(ids) + 2:
            what = f"a sentence of {len(ids)} tokens, where {longest - 2} can be read"
            raise InputError(what, where=context.text[:60], hint="shorten it")
        rows.append(add_special_tokens(marks, ids))
        places.append(1 + np.flatnonzero(words == context.position))
    held = make_rows(rows, np.zeros(len(rows), dtype=np.int64))
    found = []
    for at in range(0, len(rows), AT_ONCE):
        batch = make_batch(held, np.arange(at, min(at + AT_ONCE, len(rows))))
        states = _states(body, batch.tokens, batch.lengths, layer)
        found += [_at(body, row, place) for row, place in zip(states, places[at:], strict=False)]
    return torch.stack(found).float().numpy() if found else np.zeros((0, 0), dtype=np.float32)


def _own_vectors(body: Any, tokenizer: Vocabulary, contexts: Sequence[Context]) -> np.ndarray:
    """The vector of each context's word from a table of words, (N, D)."""
    words = [context.words[context.position] for context in contexts]
    found = {word: tokenizer.encode(word) for word in words}
    for word, ids in found.items():
        if not len(ids):
            raise InputError(f"the word {word!r} has no vector", hint="ask for a word of the text it was learnt from")
    matrix: np.ndarray = body.embed.weight[torch.tensor([int(found[word][-1]) for word in words])].float().numpy()
    return matrix


def depth_of(body: Any) -> int:
    """How many layers there are to choose from."""
    if hasattr(body, "reader"):
        return int(body.reader().depth)
    return len(body.blocks) + 1 if isinstance(body, Encoder) else 1


def _states(body: Any, tokens: Tensor, lengths: Tensor, layer: int) -> Tensor:
    """What a model has at each token (B, T, D), in the layer that is asked for."""
    if hasattr(body, "reader"):
        layers = body.reader().layers_of(tokens, lengths)
    elif isinstance(body, ContextModel):
        layers = (body.gaps(tokens, lengths),)
    elif isinstance(body, Encoder):
        layers = body(tokens, None, lengths, layers=True).layers
    else:
        layers = (body(tokens, None, lengths, want=("hidden",)).hidden,)
    found: Tensor = layers[layer - 1]
    return found


def _at(body: Any, states: Tensor, places: np.ndarray) -> Tensor:
    """A word's vector of its tokens' states (T, D): their mean, or the last where a model has not read on yet."""
    if isinstance(body, Encoder):
        return states[places].mean(0)
    return states[int(places[-1])]
