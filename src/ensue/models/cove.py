"""CoVe: words in context, from the encoder of a translation model (McCann et al., 2017).

    c_k = h_k of encoder(x_1 … x_S)         trained to translate, then frozen
    x̃_k = [E x_k; γ c_k]                    the word's own embedding beside it
    h_k = [→h_k; ←h_k]                      a bidirectional LSTM over both
    p(y_k | x) = softmax(W h_k)             tag; the other tasks pool h first: see ensue.models.labelled

To translate a word is to know its meaning in its sentence, so the encoder's states tell a word's uses apart. The
encoder is that of any seq2seq or transformer run, with its source tokenizer; a word has the state of its first token.

    ensue fit seq2seq train.en train.de --out runs/en-de
    ensue fit tag train.conll --from runs/en-de --out runs/tags

The paper has a biattentive classifier on top and GloVe's E; here heads and embeddings are those of every labeller.

Legend: B rows, T tokens, S source tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from ensue.models.recurrent import LSTMLanguageModel


class CoVe(LSTMLanguageModel):
    """The cells and the embedding of an LSTM over [E x_k; γ c_k]; see ensue.models.bidirectional_encoder."""

    task = "classify"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {"dropout": 0.3}}
    expect: ClassVar[dict[str, str]] = {}


class SourceReader(nn.Module):
    """c_k: a translation model's encoder as a reader of ensue.models.features, with one layer.

    A row to be labelled begins with a special token that no source has in training. It is left out and its features are
    zeros, so that every word has the state that it has when its sentence is translated.
    """

    depth = 1

    def __init__(
        self, parts: dict[str, nn.Module], encode: Callable[[Any, Tensor, Tensor | None], Tensor], width: int
    ) -> None:
        """``encode(parts, tokens, lengths)`` returns states (B, T, D); ``parts`` are modules by name."""
        super().__init__()
        self.source, self.encode, self.width = nn.ModuleDict(parts), encode, width

    def layers_of(self, tokens: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return c (B, T, D) of tokens (B, T), the first of each row a special token."""
        if tokens.shape[1] < 2:
            return (next(self.source.parameters()).new_zeros(*tokens.shape, self.width),)
        h = self.encode(self.source, tokens[:, 1:], None if lengths is None else (lengths - 1).clamp(min=1))
        return (F.pad(h, (0, 0, 1, 0)),)
