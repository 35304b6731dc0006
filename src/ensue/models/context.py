"""What models of words in context share: they learn from sentences, each read from both of its ends.

→h_{k−1}, ←h_{k+1}        what stands before a place and after it, neither of which has read the word that is there
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ensue.models.model import Model
from ensue.nn.stacks import reverse
from ensue.nn.state import State

UNKNOWN = 0
"""What stands for every word beyond the vocabulary."""


class ContextModel(Model):
    """A model of the task ``contexts``: its loss is of whole rows, and it knows how often words occur.

    A subclass has ``context_loss(tokens, lengths)``, a scalar; ``predicted``, how many words that is a mean over;
    ``side_losses``, named losses of every word that is predicted; ``gaps``, what its output layer sees of each place;
    and ``learn_counts``.
    """

    task = "contexts"

    def learn_counts(self, counts: Tensor) -> None:
        """Take up how often each word (V,) occurs in the training text."""

    def context_loss(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """What training makes small, of rows (B, T)."""
        raise TypeError(f"{type(self).__name__} does not say what it learns")

    def predicted(self, lengths: Tensor) -> Tensor:
        """How many words of rows (B,) the loss is a mean over: all but the marks at both ends."""
        return (lengths - 2).clamp(min=0).sum()

    def side_losses(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """−log P of every word that is predicted, (N,), by what it is predicted from."""
        raise TypeError(f"{type(self).__name__} does not say what it predicts")

    def gaps(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What the output layer sees of each place (B, T, D), which knows nothing of the word that stands there."""
        raise TypeError(f"{type(self).__name__} does not say what it makes of a gap")

    def log_prob(
        self, tokens: Tensor, targets: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """log P(targets_k | all words but w_k), in nats (B, T); padded places hold 0."""
        values = -self.cross_entropy(self.gaps(tokens, lengths).flatten(0, 1), targets.flatten()).view_as(targets)
        if lengths is not None:
            values = values * (torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None])
        return values, self.start(len(tokens))

    def start(self, rows: int) -> State:
        """Zeros in both directions."""
        raise TypeError(f"{type(self).__name__} does not say how it starts")


def neighbours(onward: Tensor, turned: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """→h_{k−1} and ←h_{k+1} (B, T, D), zeros before the first place and after the last.

    ``onward`` is in the order of the text, ``turned`` in that in which it was read, from each row's end.
    """
    before = nn.functional.pad(onward, (0, 0, 1, 0))[:, :-1]
    return before, reverse(nn.functional.pad(turned, (0, 0, 1, 0))[:, :-1], lengths)


def known(tokens: Tensor, vocabulary: int) -> Tensor:
    """Tokens with the unknown one in place of those beyond a vocabulary, where a tokenizer numbers such words too."""
    return torch.where(tokens < vocabulary, tokens, UNKNOWN)
