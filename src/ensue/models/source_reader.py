"""The encoder of a model that translates, as features of one that labels (CoVe, McCann et al., 2017).

    f_k = h_k of encoder(x_1 … x_S)         the states that the decoder looks at

A row to be labelled begins with a mark, which no source has in training: it is left out, and its features are zeros. So
every word has exactly the state that it has when the sentence is translated.

Legend: B rows, T tokens, D width.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class SourceReader(nn.Module):
    """One layer: the encoder's states."""

    depth = 1

    def __init__(self, source: nn.Module, width: int) -> None:
        """``source(tokens, lengths)`` gives states (B, T, D)."""
        super().__init__()
        self.source, self.width = source, width

    def layers_of(self, tokens: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, ...]:
        """(B, T, D) of tokens (B, T), of which the first of each row is a mark."""
        if tokens.shape[1] < 2:  # marks alone
            return (next(self.source.parameters()).new_zeros(*tokens.shape, self.width),)
        h = self.source(tokens[:, 1:], None if lengths is None else (lengths - 1).clamp(min=1))
        return (F.pad(h, (0, 0, 1, 0)),)
