"""The block formats of GGUF tensors: how the numbers of a block are stored.

    F32, F16, BF16     a number each
    Q8_0               32 numbers: w = d q                      q ∈ {−128 … 127}
    Q4_0, Q4_1         32 numbers: w = d (q − 8),  w = d q + m  q ∈ {0 … 15}, two in a byte
    Q4_K               256 numbers in 8 groups g: w = d s_g q − d' m_g   s_g, m_g of 6 bits, q ∈ {0 … 15}
    Q6_K               256 numbers in 16 groups g: w = d s_g (q − 32)    s_g of 8 bits, q ∈ {0 … 63}

Every one of them is a number of groups with a scale, and perhaps an offset, for each: w = scale · code + offset.
``split`` gives these three, and ``decode`` computes w.

Legend: R rows, N blocks in a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

K_GROUP = 32
"""Numbers in a group of Q4_K."""


class Groups(NamedTuple):
    """Codes in groups that share a scale: w = scales · codes + offsets."""

    codes: np.ndarray
    """(R, G, group) int8 or uint8."""
    scales: np.ndarray
    """(R, G) float32."""
    offsets: np.ndarray | None
    """(R, G) float32; None means 0."""
    bits: int
    """4 if all codes are between 0 and 15, else 8."""

    def decoded(self) -> np.ndarray:
        """W in float32, (R, G · group)."""
        values: np.ndarray = self.codes.astype(np.float32) * self.scales[..., None]
        if self.offsets is not None:
            values += self.offsets[..., None]
        return values.reshape(len(values), -1)


Split = Callable[[np.ndarray], Groups]


@dataclass(frozen=True)
class BlockFormat:
    """How a tensor is stored."""

    name: str
    number: int
    """Its number in a file."""
    values: int
    """Numbers in a block."""
    bytes: int
    """Bytes of a block."""
    split: Split | None = None
    """The groups of blocks (R, N, bytes); None for plain numbers."""

    def decode(self, blocks: np.ndarray) -> np.ndarray:
        """Return the numbers of blocks (R, N, bytes) in float32, (R, N · values)."""
        if self.split is not None:
            return self.split(blocks).decoded()
        return _plain(self.name, np.ascontiguousarray(blocks).reshape(len(blocks), -1))


def _plain(name: str, data: np.ndarray) -> np.ndarray:
    """Numbers without a scale."""
    if name == "BF16":  # the upper half of a float32
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return data.view("<f4" if name == "F32" else "<f2").astype(np.float32)


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 at byte ``at`` of each block, in float32."""
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")[..., 0].astype(np.float32)


def _nibbles(data: np.ndarray) -> np.ndarray:
    """(…, n) bytes → (…, 2n): all lower halves, then all upper ones."""
    return np.concatenate([data & 15, data >> 4], axis=-1)


def _q8_0(blocks: np.ndarray) -> Groups:
    return Groups(np.ascontiguousarray(blocks[..., 2:]).view(np.int8), _half(blocks, 0), None, 8)


def _q4_0(blocks: np.ndarray) -> Groups:
    d = _half(blocks, 0)
    return Groups(_nibbles(blocks[..., 2:]), d, -8.0 * d, 4)


def _q4_1(blocks: np.ndarray) -> Groups:
    return Groups(_nibbles(blocks[..., 4:]), _half(blocks, 0), _half(blocks, 2), 4)


def _q4_k(blocks: np.ndarray) -> Groups:
    """Bytes: d, d', 12 of scales and offsets, 128 of codes.

    The first 8 of the 12 bytes hold in their lower 6 bits s_1 … s_4 and m_1 … m_4; the last 4 hold the lower 4 bits of
    s_5 … s_8 and, above them, of m_5 … m_8, whose upper 2 bits are the upper bits of the first 8 bytes.
    """
    rows, count = blocks.shape[:2]
    low, mid, high = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    s = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=-1)
    m = np.concatenate([mid & 63, (high >> 4) | (mid >> 6) << 4], axis=-1)
    codes = _nibbles(blocks[..., 16:].reshape(rows, count, 4, K_GROUP))  # 64 numbers in 32 bytes
    scales = _half(blocks, 0)[..., None] * s
    offsets = -_half(blocks, 2)[..., None] * m
    return Groups(codes.reshape(rows, -1, K_GROUP), scales.reshape(rows, -1), offsets.reshape(rows, -1), 4)


def _q6_k(blocks: np.ndarray) -> Groups:
    """Bytes: 128 of lower 4 bits, 64 of upper 2 bits, 16 scales (signed), d; each half of the numbers on its own."""
    rows, count = blocks.shape[:2]
    low = blocks[..., :128].reshape(rows, count, 2, 64)
    high = blocks[..., 128:192].reshape(rows, count, 2, 32)
    upper = np.concatenate([(high >> shift) & 3 for shift in (0, 2, 4, 6)], axis=-1)  # (…, 2, 128)
    codes = (_nibbles(low) | upper << 4).astype(np.int8) - 32
    scales = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8) * _half(blocks, 208)[..., None]
    return Groups(codes.reshape(rows, -1, 16), scales.reshape(rows, -1).astype(np.float32), None, 8)


FORMATS: dict[int, BlockFormat] = {
    one.number: one
    for one in (
        BlockFormat("F32", 0, 1, 4),
        BlockFormat("F16", 1, 1, 2),
        BlockFormat("Q4_0", 2, 32, 18, _q4_0),
        BlockFormat("Q4_1", 3, 32, 20, _q4_1),
        BlockFormat("Q8_0", 8, 32, 34, _q8_0),
        BlockFormat("Q4_K", 12, 256, 144, _q4_k),
        BlockFormat("Q6_K", 14, 256, 210, _q6_k),
        BlockFormat("BF16", 30, 1, 2),
    )
}
"""Formats by their number in a file."""
