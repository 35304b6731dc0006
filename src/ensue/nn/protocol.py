"""What a model promises and what it returns: the contract that every system is tested against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ensue.nn.state import State

Want = Literal["logits", "last", "hidden", "attention", "end"]
"""What ``forward`` computes: logits at every position, or at each row's last token only; hidden states; attention. With
"end" no call follows, so a model may leave out the state."""
Wants = Sequence[Want]
"""Everything that ``forward`` should compute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """What a model promises; the contract suite tests what is declared."""

    causal: bool = True
    """No output depends on a later input."""
    steps: bool = True
    """It can run in chunks with a state between them: whole = in chunks = token by token."""
    padded: bool = True
    """It takes rows of different lengths, padded on the right."""
    blind: bool = True
    """If it is not causal: the output at a position does not depend on the token at that position."""
    context: int | None = None
    """How many tokens back an output can see; None means no limit."""


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a forward pass. A field is None unless ``want`` names it.

    logits     (B, T, V), or (B, 1, V) at each row's last token when "last" was wanted
    hidden     (B, T, D), the input of the output layer
    attention  a tensor (B, H, T, S) for every layer that attends; rows sum to one
    state      the input of the next call; None if the model has none
    """

    logits: Tensor | None = None
    hidden: Tensor | None = None
    attention: tuple[Tensor, ...] | None = None
    state: State | None = None
