"""What a model promises and what it answers: the contract every system is tested against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ensue.nn.state import State

Want = Literal["logits", "last", "hidden", "attention", "end"]
"""What ``forward`` should compute: logits everywhere, or at each row's last token only; hidden states; attention. After
"end" nothing follows: a model may leave out the state."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """What a model promises; the contract suite tests what is declared."""

    causal: bool = True
    """No output depends on a later input."""
    steps: bool = True
    """It can be run in chunks, its state carried on: whole = in chunks = token by token."""
    padded: bool = True
    """It takes rows of different lengths, padded on the right."""
    blind: bool = True
    """Where it is not causal: an output at a place does not depend on the token that stands there."""
    context: int | None = None
    """How many tokens back an output can see; None where nothing is forgotten by construction."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a model answers. A field is None unless it was asked for with ``want``.

    logits     (B, T, V), or (B, 1, V) at each row's last token when "last" was wanted
    hidden     (B, T, D), what the output layer sees
    attention  a tensor (B, H, T, S) for every layer that attends; rows sum to one
    state      what to give to the next call; None perhaps where there is none
    """

    logits: Tensor | None = None
    hidden: Tensor | None = None
    attention: tuple[Tensor, ...] | None = None
    state: State | None = None
