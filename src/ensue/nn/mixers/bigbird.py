"""BigBird: attention to near, global and random blocks (Zaheer et al., 2020).

    A(t) = {s : block(s) ∈ near(i) ∪ {0 … g − 1} ∪ random_h(i)},        i = block(t) = ⌊t / L⌋

near(i) are the w blocks around block i, in both directions, or block i and the w − 1 before it, where the attention is
causal (then s ≤ t too). The first g blocks are global: all positions see them, and in both directions they see all.
random_h(i) are r other blocks, of which each head h has its own. One is drawn from each of r equal parts of the
candidates: the blocks before near(i), or, in both directions, all blocks of the model's context. The draw is a function
of the model's seed, h and i alone, so it is the same for a text of any length.

Time and memory are O(n), for (w + g + r) L keys of a query. With w L ≥ n it is full attention.

Legend: n tokens, L positions of a block, w blocks of the window, g global and r random blocks, H heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.kernels.attention import attend_cached
from ensue.kernels.pattern_attention import Common, Drawn, Part
from ensue.nn.mixers.mixer import MixerConfig, block_size
from ensue.nn.mixers.pattern import Blocks, PatternAttention


class BigBird(PatternAttention):
    """Softmax attention to near, global and random blocks."""

    lengths = ("block",)
    paper = "Zaheer et al., 2020"
    complexity = "O(n)"
    decoding = "O(1)"

    def __init__(
        self,
        config: MixerConfig,
        *,
        block: int = 0,
        window: int = 3,
        global_: int = 2,
        random: int = 3,
        base: float = 0.0,
    ) -> None:
        """``block`` 0 means a sixteenth of the context, from 8 to 64."""
        super().__init__(config, base=base)
        if window < 1 or min(block, global_, random) < 0:
            sizes = f"block = {block}, window = {window}, global = {global_}, random = {random}"
            raise InputError(f"attention = bigbird: {sizes}; window must be 1 or more, the others 0 or more")
        block = block or block_size(config.context)
        self.block, self.window, self.globals, self.random = block, window, global_, random
        self.after = 0 if self.causal else (window - 1) // 2
        self.before = window - 1 - self.after
        self.context_blocks = -(-config.context // block)
        self.by_head = random > 0
        with torch.device("cpu"):  # also for a model that is built without storage
            self.register_buffer("seed", torch.randint(1 << 24, (1,)).float())  # a float: checkpoints can be averaged

    @classmethod
    def check_sizes(cls, name: str, context: int, options: Mapping[str, Any]) -> None:
        super().check_sizes(name, context, options)
        block = options.get("block") or block_size(context)
        if block < 0:
            return  # refused by the constructor, which knows what is allowed
        blocks = -(-context // block)
        for key in ("window", "global"):
            if options.get(key, 0) > blocks:
                what = f"{key} = {options[key]} blocks of {block} are larger than the context, {context}"
                raise InputError(f"attention = {name}: {what}", hint=f"use at most {blocks}, or a larger context")

    def random_blocks(self, blocks: Tensor) -> Tensor:
        """The random blocks of the blocks of queries (N,) in all heads, (H, N, r); −1 stands for none."""
        i, g, r = blocks[None, :, None], self.globals, self.random
        early = (i - self.before - g).clamp(min=0)  # candidates before the window
        near = torch.maximum(i + self.after + 1, torch.full_like(i, g))  # the first one after it
        late = torch.zeros_like(i) if self.causal else (self.context_blocks - near).clamp(min=0)
        part = torch.arange(r + 1, device=blocks.device) * (early + late) // r  # borders of r parts, (1, N, r + 1)
        start, size = part[..., :-1], part.diff(dim=-1)
        head = torch.arange(self.heads, device=blocks.device)[:, None, None]
        chance = scrambled(self.get_buffer("seed").long(), head, i, torch.arange(r, device=blocks.device))
        drawn = start + chance % size.clamp(min=1)
        drawn = torch.where(drawn < early, drawn + g, drawn - early + near)
        return drawn.masked_fill(size == 0, -1)

    def sees(self, query: Tensor, key: Tensor, head: int = 0) -> Tensor:
        i, j = query[..., None] // self.block, key // self.block
        seen = ((i - j <= self.before) & (j - i <= self.after)) | (j < self.globals)
        if self.random:
            number, inverse = torch.unique(query // self.block, return_inverse=True)
            drawn = self.random_blocks(number)[head][inverse]  # (…, T, r)
            for one in drawn.unbind(-1):
                seen = seen | (one[..., None] == j)
        return seen & (key <= query[..., None]) if self.causal else seen | (i < self.globals)

    def parts(self, blocks: Blocks) -> list[Part]:
        L, first, n = self.block, blocks.first, blocks.numbers
        offsets = torch.arange(L, device=n.device)
        future = offsets > offsets[:, None] if self.causal else None
        near = range(-self.before, self.after + 1)
        found: list[Part] = [blocks.near(distance, None if distance else future) for distance in near]
        shared = min(self.globals, blocks.keys)
        if shared:
            i, j = n[:, None, None, None], torch.arange(shared, device=n.device)
            hidden = (j >= i - self.before) & (self.causal | (j <= i + self.after))  # near ones, and later ones
            missing = blocks.missing(torch.arange(shared * L, device=n.device))
            absent = hidden.repeat_interleave(L, -1)
            found.append(Common(first=first, blocks=shared, count=L, within=missing, absent=absent))
        if self.random:
            table = self.random_blocks(n).transpose(0, 1).repeat(1, blocks.rows, 1)  # (N, R, r)
            places = (table[..., None] * L + offsets).flatten(2)[:, :, None]  # (N, R, 1, r·L)
            absent, missing = (places < 0) | (places >= blocks.keys * L), blocks.missing(places)
            absent = absent if missing is None else absent | missing
            found.append(Drawn(first=first, table=table.clamp(0, blocks.keys - 1), absent=absent))
        return found

    def columns(self, position: Tensor, size: int) -> Tensor:
        number, i = position // self.block, position[:, None, None] // self.block  # (X, 1, 1)
        near = i - torch.arange(self.before + 1, device=i.device)
        shared = torch.arange(self.globals, device=i.device).expand(len(i), 1, -1)
        found = [near, shared.masked_fill(shared >= i - self.before, -1)]
        if self.random:
            found = [one.expand(-1, self.heads, -1) for one in found] + [self.random_blocks(number).transpose(0, 1)]
        blocks = torch.cat(found, -1)[..., None]
        columns = blocks * self.block + torch.arange(self.block, device=i.device)
        columns = columns.masked_fill((blocks < 0) | (columns > position[:, None, None, None]), -1)
        return columns.flatten(2)

    def _blocks(self, query: Tensor, keys: Tensor, values: Tensor, start: int, lengths: Tensor | None = None) -> Tensor:
        """The same, where global positions see all."""
        first = 0 if self.causal else min(self.globals * self.block, query.shape[2])
        if not first:
            return super()._blocks(query, keys, values, start, lengths)
        y = super()._blocks(query[:, :, first:], keys, values, first, lengths)
        steps = torch.arange(keys.shape[2], device=keys.device)
        mask = bias = None
        if lengths is not None:  # an empty row must see something
            mask = (steps < lengths.clamp(min=1)[:, None])[:, None, None]
        if self.score_bias is not None:
            bias = self.score_bias(steps[None, :first], steps[None])
        dropout = self.dropout if self.training else 0.0
        return torch.cat([attend_cached(query[:, :, :first], keys, values, mask, bias, dropout), y], 1)


def scrambled(*numbers: Tensor) -> Tensor:
    """A pseudorandom number below 2³² for each combination of numbers, which broadcast."""
    found = torch.zeros_like(numbers[0])
    for one in numbers:
        found = (found + one * 0x9E3779B1) & 0xFFFFFFFF
        for shift, factor in ((16, 0x7FEB352D), (15, 0x2C1B3C6D)):
            found = ((found ^ (found >> shift)) * factor) & 0xFFFFFFFF
    return found ^ (found >> 16)
