"""Sparse attention: each position sees about √n others, such that any is two layers away (Child et al., 2019).

    strided   A(t) = {s : |t − s| < L} ∪ {s : (t − s) mod L = 0}
    fixed     A(t) = {s : ⌊t / L⌋ = ⌊s / L⌋} ∪ {s : s mod L ≥ L − c}

and s ≤ t where the attention is causal. Strided, a position sees the last L positions and every L-th before them, which
suits data with a period, such as the rows of an image; fixed, it sees its own block of L positions and the last c
positions of all others, which sum up their blocks and suit text. All heads see the union, in one softmax (the paper's
merged heads). With L = √n, time is O(n √n). With L ≥ n it is full attention.

Legend: n tokens, L the stride, c summary positions of a block.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.kernels.pattern_attention import Common, Part, Residue
from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.mixers.pattern import Blocks, PatternAttention

KINDS = ("strided", "fixed")


class SparseAttention(PatternAttention):
    """Strided or fixed sparse attention. A stride of 0 is √context, rounded up."""

    lengths = ("stride",)
    paper = "Child et al., 2019"
    complexity = "O(n √n)"
    decoding = "O(√n)"

    def __init__(
        self, config: MixerConfig, *, kind: str = "strided", stride: int = 0, c: int = 8, base: float = 0.0
    ) -> None:
        super().__init__(config, base=base)
        if kind not in KINDS:
            raise InputError(f"attention = sparse: kind = {kind} must be one of {', '.join(KINDS)}")
        if stride < 0:
            raise InputError(f"attention = sparse: stride = {stride} must be 0 or more")
        self.block = stride or max(1, math.isqrt(max(config.context, 1) - 1) + 1)
        if c < 1:
            raise InputError(f"attention = sparse: c = {c} must be 1 or more")
        self.kind, self.c = kind, min(c, self.block)

    def sees(self, query: Tensor, key: Tensor, head: int = 0) -> Tensor:
        L, query = self.block, query[..., None]
        if self.kind == "strided":
            seen = ((query - key).abs() < L) | ((query - key) % L == 0)
        else:
            seen = (query // L == key // L) | (key % L >= L - self.c)
        return seen & (key <= query) if self.causal else seen

    def parts(self, blocks: Blocks) -> list[Part]:
        L, causal = self.block, self.causal
        n, others = blocks.numbers[:, None, None, None], torch.arange(blocks.keys, device=blocks.device)
        far = others >= n if causal else others == n  # blocks that are not seen from afar
        offsets = torch.arange(L, device=blocks.device)
        if self.kind == "strided":
            missing = blocks.missing(others * L + offsets[:, None])
            residue = Residue(first=blocks.first, blocks=blocks.keys, earlier=causal, within=missing, absent=far)
            return [*blocks.band(L - 1, 0 if causal else L - 1), residue]
        own = blocks.near(0, offsets > offsets[:, None] if causal else None)
        missing = blocks.missing((others[:, None] * L + offsets[L - self.c :]).flatten())
        absent = far.repeat_interleave(self.c, -1)
        ends = Common(
            first=blocks.first, blocks=blocks.keys, count=self.c, earlier=causal, within=missing, absent=absent
        )
        return [own, ends]

    def columns(self, position: Tensor, size: int) -> Tensor:
        L, t = self.block, position[:, None]
        if self.kind == "strided":
            near = t - torch.arange(L, device=t.device)
            far = t - L * torch.arange(1, -(-size // L) + 1, device=t.device)
        else:
            near = t // L * L + torch.arange(L, device=t.device)
            near = near.masked_fill(near > t, -1)
            blocks = torch.arange(-(-size // L), device=t.device)[:, None]
            far = (blocks * L + torch.arange(L - self.c, L, device=t.device)).flatten()
            far = far.where(far // L < t // L, -1)
        return torch.cat([near, far], -1)[:, None].clamp(min=-1)
