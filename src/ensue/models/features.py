"""Features from a pre-trained model: a trained mixture of its layers.

    f_k = γ Σ_j s_j h_{k,j},   s = softmax(w)             (Peters et al., 2018, equation 1)

h_{k,j} is layer j of the reader at token k. The reader is frozen or fine-tuned; w and γ are always trained. The layers
of a frozen reader do not change, so they are cached.

Legend: B rows, T tokens, D width, J layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ensue.core.settings import check, check_below_one

CACHE_BYTES = 1 << 30
"""Maximum size of cached layers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureConfig:
    """Settings of features, under ``features.`` in run.toml."""

    run: str = ""
    """Run whose layers are used as features beside embeddings (elmo, a translation system …); empty means none."""
    tuned: bool = False
    """Whether that run's weights are fine-tuned; otherwise only the layer weights are trained."""
    layer: int = -1
    """Layer to use, from 0 (the embeddings); -1 means a trained mixture of all layers."""
    dropout: float = 0.3
    """Dropout probability of features."""

    def __post_init__(self) -> None:
        check(self, "layer", self.layer >= -1, "-1 or more")
        check_below_one(self, "dropout")


class Features(nn.Module):
    """f_k = γ Σ_j s_j h_{k,j}.

    The reader has ``depth`` (J), ``width`` (D) and ``layers_of(tokens, lengths)``, which returns J tensors (B, T, D),
    lowest first, of tokens (B, T) padded on the right.
    """

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
        self.memory = LayerCache()
        self.train(self.training)

    @property
    def shares(self) -> Tensor:
        """s (J,): the weight of each layer."""
        if self.config.layer < 0:
            return self.weights.softmax(0)
        return nn.functional.one_hot(torch.tensor(self.config.layer), len(self.weights)).to(self.weights)

    def train(self, mode: bool = True) -> Features:
        """Set the mode; a frozen reader stays in evaluation mode, without dropout."""
        super().train(mode)
        self.reader.train(mode and self.config.tuned)
        return self

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the mixture of layers (B, T, D) of tokens (B, T)."""
        layers = None if self.config.tuned else self.memory.recall(tokens, lengths)
        if layers is None:
            layers = self.layers_of(tokens, lengths)
        return self.scale * torch.einsum("j,jbtd->btd", self.shares.to(layers), layers)

    def layers_of(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the reader's layers, (J, B, T, D)."""
        held: Any = self.reader
        with torch.set_grad_enabled(self.config.tuned and torch.is_grad_enabled()):
            return torch.stack(held.layers_of(tokens, lengths))

    def remember(self, tokens: Tensor, lengths: Tensor) -> bool:
        """Cache the layers of rows; False if the cache is full."""
        return self.memory.keep(tokens, lengths, self.layers_of(tokens, lengths))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load weights and clear the cache."""
        self.memory.clear()
        super()._load_from_state_dict(*args, **kwargs)


class LayerCache:
    """Layers of rows read before; shared by copies of a model, whose frozen weights are equal."""

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.done = False
        """Whether all rows to be cached have been read."""
        self._rows: dict[bytes, Tensor] = {}
        self._bytes = 0

    def __deepcopy__(self, memo: Any) -> LayerCache:
        return self

    def __len__(self) -> int:
        return len(self._rows)

    def clear(self) -> None:
        """Remove all rows."""
        self._rows.clear()
        self._bytes, self.done = 0, False

    def keep(self, tokens: Tensor, lengths: Tensor, layers: Tensor) -> bool:
        """Cache each row's layers of (J, B, T, D); False if the cache is full."""
        for row, (key, length) in enumerate(zip(keys(tokens, lengths), lengths.tolist())):
            own = layers[:, row, :length]
            if self._bytes + own.nbytes > self.max_bytes:
                return False
            if key not in self._rows:
                self._rows[key] = own.clone()
                self._bytes += own.nbytes
        return True

    def recall(self, tokens: Tensor, lengths: Tensor | None) -> Tensor | None:
        """Return the layers (J, B, T, D) if all rows are cached, with zeros at padding; otherwise None."""
        if not self._rows:
            return None
        rows = [self._rows[key] for key in keys(tokens, lengths) if key in self._rows]
        if not rows or len(rows) < len(tokens):
            return None
        result = rows[0].new_zeros(rows[0].shape[0], *tokens.shape, rows[0].shape[-1])
        for number, row in enumerate(rows):
            result[:, number, : row.shape[1]] = row
        return result


def keys(tokens: Tensor, lengths: Tensor | None) -> list[bytes]:
    """Return each row's tokens without padding, as bytes."""
    ends = [tokens.shape[1]] * len(tokens) if lengths is None else lengths.tolist()
    return [row[:end].tobytes() for row, end in zip(tokens.cpu().numpy(), ends)]
