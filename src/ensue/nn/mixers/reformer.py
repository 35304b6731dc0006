"""Reformer: attention among tokens that a locality-sensitive hash puts into one bucket (Kitaev et al., 2020).

    q = x W_Q,    k = q / ‖q‖,    v = x W_V
    h_r(q) = argmax [q R_r; −q R_r],       R_r of N(0, 1), (d, buckets / 2)        a hash for each of several rounds
    y_i = Σ_j a_ij v_j W_O,                a_ij = softmax_j(q_i · k_j / √d + log N_ij − 10⁵ [i = j])

N_ij counts the rounds in which i sees j: both are in one bucket and, of the tokens sorted by bucket and then by
position, in one chunk or in two that are next to each other. Vectors with a small angle between them are likely to be
in one bucket, and each round more finds more of those. A token sees itself only if it sees nothing else, since its own
score would be the largest. As in the authors' code, a key that several rounds find counts as often.

Causal: the paper's chunks depend on how many later tokens are in a bucket, so here a token sees the last ``chunk``
tokens of its bucket instead, itself included. Rotary positions are applied before the hash. The rotations R belong to
the model and are saved with it. Above 64 buckets a bucket is a pair of two hashes, as in the authors' code.

Legend: B rows, T tokens, H heads, R rounds, d head width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.kernels.bucket_attention import Near
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.buckets import BucketAttention
from ensue.nn.mixers.mixer import MixerConfig, block_size

LARGEST_HASH = 64
"""More buckets than this are pairs of two hashes."""


class Reformer(BucketAttention):
    """Softmax attention to tokens with the same hash."""

    lengths = ("chunk",)
    paper = "Kitaev et al., 2020"
    complexity = "O(n · rounds · chunk)"
    decoding = "O(rounds · chunk), and n comparisons"

    def __init__(
        self, config: MixerConfig, *, rounds: int = 4, buckets: int = 0, chunk: int = 0, after: int = 0
    ) -> None:
        """``chunk`` 0 means a sixteenth of the context, from 8 to 64, and ``buckets`` 0 context / chunk.

        In both directions ``after`` = 1 lets a chunk see the next one too.
        """
        super().__init__(config)
        chunk = chunk or block_size(config.context)
        buckets = buckets or 2 * max(1, math.ceil(config.context / (2 * max(1, chunk))))
        if rounds < 1 or chunk < 1 or buckets < 1 or (buckets % 2 and buckets > 1):
            what = f"rounds = {rounds} and chunk = {chunk} must be 1 or more, buckets = {buckets} must be 1 or even"
            raise InputError(f"attention = reformer: {what}")
        if after not in (0, 1) or (after and config.causal):
            raise InputError(f"attention = reformer: after = {after} must be 0, or 1 in both directions")
        self.share(config)
        self.rounds, self.near = rounds, Near(chunk, config.causal, after)
        self.factors = hash_factors(buckets)
        with torch.device("cpu"):  # also for a model that is built without storage
            draw = torch.randn(self.heads, rounds, self.head_width, sum(self.factors) // 2)
            self.register_buffer("rotations", draw)

    def keys_of(self, query: Tensor) -> Tensor:
        """q / ‖q‖."""
        return F.normalize(query, dim=-1)

    @torch.no_grad()
    def buckets_of(self, query: Tensor, layout: Layout = PADDED) -> Tensor:
        """h_r(q), (B, H, R, T)."""
        rotations = self.get_buffer("rotations").to(query.dtype)
        bucket = torch.zeros(1, dtype=torch.long, device=query.device).expand(
            *query.shape[:2], self.rounds, query.shape[2]
        )
        start, size = 0, 1
        for factor in self.factors:
            if factor == 1:
                continue
            rotated = query[:, :, None] @ rotations[..., start : start + factor // 2]  # (B, H, R, T, factor / 2)
            bucket = bucket + size * torch.cat([rotated, -rotated], -1).argmax(-1)
            start, size = start + factor // 2, size * factor
        return bucket


def hash_factors(buckets: int) -> tuple[int, ...]:
    """How many buckets each hash has: one hash, or above 64 buckets two, whose pairs are at least as many.

    >>> hash_factors(1), hash_factors(64), hash_factors(256)
    ((1,), (64,), (16, 16))
    """
    if buckets <= LARGEST_HASH:
        return (buckets,)
    first = 2 * math.ceil(math.sqrt(buckets) / 2)
    return first, 2 * math.ceil(buckets / first / 2)
