"""Features: what the layers of a model that has learnt to read say of each token, mixed by weights that a task learns.

    f_k = γ Σ_j s_j h_{k,j},   s = softmax(w)             (Peters et al., 2018, equation 1)

h_{k,j} is layer j of the reader at token k. The reader stays as it is (frozen), or learns with the task (tuned); w and
γ always learn. Nothing that is frozen changes, so layers of rows that come again can be remembered.

Legend: B rows, T tokens, D width, J layers.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ensue.core.settings import check, check_below_one

ROOM = 1 << 30
"""Bytes that remembered layers may take."""


class Layered(Protocol):
    """What features are made of: a module that reads tokens and gives its layers, lowest first."""

    @property
    def depth(self) -> int:
        """J, how many layers there are."""

    @property
    def width(self) -> int:
        """D, of every layer."""

    def layers_of(self, tokens: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, ...]:
        """J tensors (B, T, D) of tokens (B, T); rows longer than their ``lengths`` are padded on the right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureConfig:
    """Settings of features, under ``features.`` in run.toml."""

    run: str = ""
    """A run whose layers are read beside the embeddings (elmo, a translation system …); empty means none."""
    tuned: bool = False
    """Whether that run's weights learn too; else they stay as they are, and only the mixture of layers is learnt."""
    layer: int = -1
    """Which layer is read, counted from 0, what reads tokens; -1 means all, mixed by learned weights."""
    dropout: float = 0.3
    """The share of the features that training switches off at random."""

    def __post_init__(self) -> None:
        check(self, "layer", self.layer >= -1, "-1 or more")
        check_below_one(self, "dropout")


class Features(nn.Module):
    """f_k = γ Σ_j s_j h_{k,j}."""

    def __init__(self, reader: nn.Module, config: FeatureConfig) -> None:
        super().__init__()
        held: Any = reader
        check(config, "layer", config.layer < held.depth, f"at most {held.depth - 1}")
        self.config = config
        self.width: int = held.width
        self.reader = reader
        reader.requires_grad_(config.tuned)
        self.weights = nn.Parameter(torch.zeros(held.depth))  # w
        self.scale = nn.Parameter(torch.ones(()))  # γ
        self.memory = Memory()
        self.train(self.training)

    @property
    def shares(self) -> Tensor:
        """s (J,): how much of each layer there is."""
        if self.config.layer < 0:
            return self.weights.softmax(0)
        return nn.functional.one_hot(torch.tensor(self.config.layer), len(self.weights)).to(self.weights)

    def train(self, mode: bool = True) -> Features:
        """What is frozen never trains, so nothing in it falls out at random."""
        super().train(mode)
        self.reader.train(mode and self.config.tuned)
        return self

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The mixed layers (B, T, D) of tokens (B, T)."""
        layers = None if self.config.tuned else self.memory.recall(tokens, lengths)
        if layers is None:
            layers = self.layers_of(tokens, lengths)
        return self.scale * torch.einsum("j,jbtd->btd", self.shares.to(layers), layers)

    def layers_of(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The reader's layers, (J, B, T, D)."""
        held: Any = self.reader
        still: AbstractContextManager[Any] = nullcontext() if self.config.tuned else torch.no_grad()
        with still:
            return torch.stack(held.layers_of(tokens, lengths))

    def remember(self, tokens: Tensor, lengths: Tensor) -> bool:
        """Read rows now and keep their layers, where there is room; answer whether there was."""
        return self.memory.keep(tokens, lengths, self.layers_of(tokens, lengths))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Other weights give other layers."""
        self.memory.clear()
        super()._load_from_state_dict(*args, **kwargs)


class Memory:
    """Layers of rows that were read before. Copies of a model share it: what is frozen is the same in all of them."""

    def __init__(self, room: int = ROOM) -> None:
        self.room = room
        self.done = False
        """Whether all that is to be held was read into it."""
        self._rows: dict[bytes, Tensor] = {}
        self._taken = 0

    def __deepcopy__(self, memo: Any) -> Memory:
        return self

    def __len__(self) -> int:
        return len(self._rows)

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()
        self._taken, self.done = 0, False

    def keep(self, tokens: Tensor, lengths: Tensor, layers: Tensor) -> bool:
        """Hold each row's part of layers (J, B, T, D); a row that is there already stays as it is."""
        for place, (key, length) in enumerate(zip(keys(tokens, lengths), lengths.tolist())):
            own = layers[:, place, :length]
            if self._taken + own.nbytes > self.room:
                return False
            if key not in self._rows:
                self._rows[key] = own.clone()
                self._taken += own.nbytes
        return True

    def recall(self, tokens: Tensor, lengths: Tensor | None) -> Tensor | None:
        """The layers (J, B, T, D) of rows of which all are held, zeros where they are padded; else None."""
        if not self._rows:
            return None
        held = [self._rows.get(key) for key in keys(tokens, lengths)]
        rows = [one for one in held if one is not None]
        if not rows or len(rows) < len(held):
            return None
        whole = rows[0].new_zeros(rows[0].shape[0], *tokens.shape, rows[0].shape[-1])
        for place, one in enumerate(rows):
            whole[:, place, : one.shape[1]] = one
        return whole


def keys(tokens: Tensor, lengths: Tensor | None) -> list[bytes]:
    """Each row's real tokens as what a dictionary can hold."""
    ends = [tokens.shape[1]] * len(tokens) if lengths is None else lengths.tolist()
    return [row[:end].tobytes() for row, end in zip(tokens.cpu().numpy(), ends)]
