"""The base class of models of words in context, which read a sentence from both ends.

→h_{k−1}, ←h_{k+1}        the states before and after position k, neither of which has read word k
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ensue.models.model import StatelessModel, answer
from ensue.nn.protocol import Output, Traits, Wants
from ensue.nn.stacks import BidirectionalState, Stack, reverse
from ensue.nn.state import State

UNKNOWN = 0
"""The token of words outside the vocabulary."""


class ContextModel(StatelessModel):
    """Base class of models of the task ``contexts``.

    A subclass implements ``context_loss``, ``word_losses``, ``context_vectors`` and ``set_word_counts``.
    """

    task = "contexts"

    @property
    def traits(self) -> Traits:
        """Bidirectional: it needs the whole text."""
        return Traits(causal=False, steps=False)

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read tokens (B, T); the outputs at position k are for word k, given all others."""
        return answer(self.head, self.context_vectors(tokens, lengths), self.start(len(tokens)), lengths, want)

    def set_word_counts(self, counts: Tensor) -> None:
        """Set what depends on the number of times each word (V,) occurs in the training text."""

    def context_loss(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the training loss of rows (B, T), a mean over words."""
        raise TypeError(f"{type(self).__name__} does not implement context_loss")

    def target_count(self, lengths: Tensor) -> Tensor:
        """Return the number of words that the loss is a mean over: all but the end tokens on both sides."""
        return (lengths - 2).clamp(min=0).sum()

    def word_losses(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Return −log P of every predicted word (N,), by what it is predicted from."""
        raise TypeError(f"{type(self).__name__} does not implement word_losses")

    def context_vectors(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the output layer's input at each position (B, T, D), which does not depend on the word there."""
        raise TypeError(f"{type(self).__name__} does not implement context_vectors")

    def log_prob(
        self, tokens: Tensor, targets: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Return log P(targets_k | all words but w_k), in nats (B, T); padding is 0."""
        hidden = self.context_vectors(tokens, lengths)
        values = -self.cross_entropy(hidden.flatten(0, 1), targets.flatten()).view_as(targets)
        if lengths is not None:
            values = values * (torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None])
        return values, self.start(len(tokens))


def neighbour_states(forward: Tensor, backward: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return →h_{k−1} and ←h_{k+1} (B, T, D), with zeros before the first position and after the last.

    ``forward`` is in the order of the text, ``backward`` in the order in which it was read, from each row's end.
    """
    before, after = (nn.functional.pad(h, (0, 0, 1, 0))[:, :-1] for h in (forward, backward))
    return before, reverse(after, lengths)


def read_both_sides(
    forward: Stack, backward: Stack, e: Tensor, lengths: Tensor | None
) -> tuple[Tensor, BidirectionalState]:
    """Return [→h_{k−1}; ←h_{k+1}] (B, T, 2 N) of embeddings (B, T, E), and the final states of both directions."""
    right, last, _ = forward(e, None, lengths)
    left, first, _ = backward(reverse(e, lengths), None, lengths)
    return torch.cat(neighbour_states(right, left, lengths), dim=-1), BidirectionalState(last, first)


def replace_unknown(tokens: Tensor, vocabulary: int) -> Tensor:
    """Replace tokens beyond a vocabulary by the unknown one; some tokenizers number such words too."""
    return torch.where(tokens < vocabulary, tokens, UNKNOWN)
