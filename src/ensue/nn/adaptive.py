"""Adaptive embedding and softmax: frequent tokens get wide vectors, rare ones narrow.

After Grave et al. (2017), for the softmax, and Baevski and Auli (2019), for the embedding.

The vocabulary is cut into bands c = 0 … C at the ``cutoffs``; tokens should be numbered from the most frequent to the
rarest. Band c has vectors of width d_c = D / f^c, f the ``factor``, and a projection P_c (D × d_c).

    e(w) = P_c E_c[w]                                               w in band c                    (adaptive input)
    P(w) = softmax([W_0; K] P_0ᵀ h + [b_0; k])_w                    w in band 0
    P(w) = P(band c) · softmax(W_c P_cᵀ h + b_c)_w                  w in band c ≥ 1                (adaptive softmax)

P(band c) is the softmax of band 0's layer at its c-th extra row, in K. So a frequent token costs one small softmax, and
only targets in band c cost that of band c. Tied, W_c is E_c, and P_c is shared for c ≥ 1. With a factor of 1 all widths
are D, and there are no projections.

Legend: M targets, D width, V vocabulary, V_c tokens of band c, d_c their width, C bands after the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.core.settings import Need, check, check_positive
from ensue.kernels.cross_entropy import full_precision


@dataclass(frozen=True, kw_only=True)
class AdaptiveSettings:
    """Settings of models whose embedding and output layer can be adaptive."""

    needs: ClassVar[dict[str, Need]] = {"adaptive_factor": ("adaptive", ())}
    adaptive: tuple[int, ...] = ()
    """Cutoffs of an adaptive embedding and softmax, as in 2000,10000: the first 2,000 tokens are as wide as the model,
    those up to the next cutoff narrower by adaptive_factor, and so on. For large vocabularies in order of frequency,
    as that of tokenizer.kind=word; empty means none.
    """
    adaptive_factor: int = 4
    """By how much the vectors of each band of an adaptive embedding are narrower than those of the one before."""

    def check_adaptive(self, width: int) -> None:
        """Check these settings, for a model of this width."""
        increasing = all(low < high for low, high in pairwise((0, *self.adaptive)))
        check(self, "adaptive", increasing, "increasing numbers above 0")
        check_positive(self, "adaptive_factor")
        narrowest = width // self.adaptive_factor ** len(self.adaptive)
        check(
            self, "adaptive_factor", narrowest > 0, f"small enough that {len(self.adaptive) + 1} bands of {width} fit"
        )


class Banded(nn.Module):
    """What embedding and output layer share: a table (V_c, d_c) and a projection (D, d_c) for each band."""

    def __init__(self, vocabulary: int, width: int, cutoffs: Sequence[int], factor: int) -> None:
        super().__init__()
        if cutoffs[-1] >= vocabulary:
            what = f"setting adaptive = {','.join(map(str, cutoffs))} cuts a vocabulary of {vocabulary:,} tokens"
            raise InputError(what, hint="choose smaller cutoffs, or a larger vocabulary")
        self.ends = (0, *cutoffs, vocabulary)
        self.widths = tuple(width // factor**c for c in range(len(cutoffs) + 1))
        projected = () if factor == 1 else self.widths
        self.projections = nn.ParameterList(torch.empty(width, d).normal_(std=d**-0.5) for d in projected)  # P_c

    @property
    def bands(self) -> list[tuple[int, int]]:
        """The first token of each band, and the one after its last."""
        return list(pairwise(self.ends))


class AdaptiveEmbedding(Banded):
    """e(w) = P_c E_c[w]."""

    def __init__(self, vocabulary: int, width: int, cutoffs: Sequence[int], factor: int) -> None:
        super().__init__(vocabulary, width, cutoffs, factor)
        sizes = [stop - start for start, stop in self.bands]
        self.tables = nn.ModuleList(nn.Embedding(*shape) for shape in zip(sizes, self.widths, strict=True))  # E_c

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (…) → (…, D)."""
        flat, parts, order = tokens.flatten(), [], []
        for c, (start, stop) in enumerate(self.bands):
            index = ((flat >= start) & (flat < stop)).nonzero()[:, 0]
            e = self.tables[c](flat[index] - start)  # (N, d_c)
            parts.append(F.linear(e, self.projections[c]) if self.projections else e)
            order.append(index)
        e = torch.cat(parts)
        return torch.empty_like(e).index_copy(0, torch.cat(order), e).view(*tokens.shape, e.shape[-1])


class AdaptiveSoftmax(Banded):
    """log P(w) = log softmax(first band)_w, or log P(band c) + log softmax(band c)_w.

    ``tied`` is the embedding whose tables, and whose projections of all bands but the first, it shares.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        cutoffs: Sequence[int],
        factor: int,
        tied: AdaptiveEmbedding | None = None,
    ) -> None:
        super().__init__(vocabulary, width, cutoffs, factor)
        self.in_features, self.out_features = width, vocabulary
        sizes = [stop - start for start, stop in self.bands]
        self.layers = nn.ModuleList(nn.Linear(d, size) for d, size in zip(self.widths, sizes, strict=True))  # W_c, b_c
        self.choice = nn.Linear(self.widths[0], len(cutoffs))  # K, k
        if tied is not None:
            for layer, table in zip(self.layers, tied.tables, strict=True):
                layer.weight = table.weight
            for c in range(1, len(self.projections)):
                self.projections[c] = tied.projections[c]

    def forward(self, hidden: Tensor) -> Tensor:
        """log P of every token, (…, D) → (…, V)."""
        first = self._first(hidden)
        size = self.ends[1]
        later = (first[..., size + c - 1, None] + self._band(c, hidden) for c in range(1, len(self.widths)))
        return torch.cat([first[..., :size], *later], dim=-1)

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """−log P of targets (M,), given hidden states (M, D): a band's softmax is computed for its targets only."""
        first, parts, order = self._first(hidden), [], []
        for c, (start, stop) in enumerate(self.bands):
            index = ((targets >= start) & (targets < stop)).nonzero()[:, 0]
            inside = (targets[index] - start)[:, None]
            if c == 0:
                log_prob = first[index].gather(1, inside)
            else:
                log_prob = first[index, self.ends[1] + c - 1, None] + self._band(c, hidden[index]).gather(1, inside)
            parts.append(-log_prob[:, 0])
            order.append(index)
        found = torch.cat(parts)
        return torch.empty_like(found).index_copy(0, torch.cat(order), found)

    def _first(self, hidden: Tensor) -> Tensor:
        """log P of the first band's tokens and of every other band, (…, D) → (…, V_0 + C)."""
        h = self._projected(0, hidden)
        return full_precision(torch.cat([self.layers[0](h), self.choice(h)], dim=-1)).log_softmax(-1)

    def _band(self, c: int, hidden: Tensor) -> Tensor:
        """log P of a band's tokens given the band, (…, D) → (…, V_c)."""
        return full_precision(self.layers[c](self._projected(c, hidden))).log_softmax(-1)

    def _projected(self, c: int, hidden: Tensor) -> Tensor:
        """P_cᵀ h, (…, D) → (…, d_c)."""
        return hidden @ self.projections[c] if self.projections else hidden


def build_embedding(settings: AdaptiveSettings, vocabulary: int, width: int) -> nn.Embedding | AdaptiveEmbedding:
    """The embedding of a model."""
    if settings.adaptive:
        return AdaptiveEmbedding(vocabulary, width, settings.adaptive, settings.adaptive_factor)
    return nn.Embedding(vocabulary, width)


def build_head(embed: nn.Embedding | AdaptiveEmbedding, settings: Any, *, bias: bool) -> nn.Linear | AdaptiveSoftmax:
    """The output layer beside an embedding, ``tied`` to it or not; ``bias`` is that of one that is not adaptive."""
    vocabulary, width = settings.vocabulary, settings.hidden
    if isinstance(embed, AdaptiveEmbedding):
        shape = vocabulary, width, settings.adaptive, settings.adaptive_factor
        return AdaptiveSoftmax(*shape, tied=embed if settings.tied else None)
    head = nn.Linear(width, vocabulary, bias=bias)
    if settings.tied:
        head.weight = embed.weight
    return head


PROJECTIONS = ("embed.projections", "head.projections")
"""Names of weights that are drawn here, and not with a model's other matrices."""
