"""The block formats of GGUF tensors: how the numbers of a block are stored.

    F32, F16, BF16     a number each
    Q8_0               32 numbers: w = d q                      q ∈ {−128 … 127}
    Q4_0, Q4_1         32 numbers: w = d (q − 8),  w = d q + m  q ∈ {0 … 15}, two in a byte
    Q5_0, Q5_1         32 numbers: w = d (q − 16), w = d q + m  q ∈ {0 … 31}, the fifth bits apart
    IQ4_NL             32 numbers: w = d t_q                    t of 16 values between −127 and 113
    Q2_K               256 numbers in 16 groups g: w = d s_g q − d' m_g  s_g, m_g of 4 bits, q ∈ {0 … 3}
    Q3_K               256 numbers in 16 groups g: w = d s_g (q − 4)     s_g of 6 bits, q ∈ {0 … 7}
    Q4_K, Q5_K         256 numbers in 8 groups g: w = d s_g q − d' m_g   s_g, m_g of 6 bits, q ∈ {0 … 15}, {0 … 31}
    Q6_K               256 numbers in 16 groups g: w = d s_g (q − 32)    s_g of 8 bits, q ∈ {0 … 63}
    IQ4_XS             256 numbers in 8 groups g: w = d s_g t_q          s_g of 6 bits

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
"""Numbers in a group of Q4_K, Q5_K and IQ4_XS; those of Q2_K, Q3_K and Q6_K have half as many."""
IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
"""What the codes of IQ4_NL and IQ4_XS stand for."""


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


def _fifth_bits(data: np.ndarray) -> np.ndarray:
    """(…, 4) bytes → (…, 32): bit i of them, times 16."""
    return np.unpackbits(data, axis=-1, bitorder="little") << 4


def _q5_0(blocks: np.ndarray) -> Groups:
    codes = _nibbles(blocks[..., 6:]) | _fifth_bits(blocks[..., 2:6])
    return Groups(codes.view(np.int8) - np.int8(16), _half(blocks, 0), None, 8)


def _q5_1(blocks: np.ndarray) -> Groups:
    codes = _nibbles(blocks[..., 8:]) | _fifth_bits(blocks[..., 4:8])
    return Groups(codes.view(np.int8), _half(blocks, 0), _half(blocks, 2), 8)


def _iq4_nl(blocks: np.ndarray) -> Groups:
    return Groups(IQ4_VALUES[_nibbles(blocks[..., 2:])], _half(blocks, 0), None, 8)


def _pairs(data: np.ndarray) -> np.ndarray:
    """(…, 64) bytes with 4 numbers of 2 bits each → (…, 256): for each 32 bytes their lowest bits, then the next."""
    data = data.reshape(*data.shape[:-1], 2, 1, 32)
    return ((data >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3).reshape(*data.shape[:-3], 256)


def _k_groups(codes: np.ndarray, scales: np.ndarray, offsets: np.ndarray | None, bits: int) -> Groups:
    """Groups of codes (R, N, …), and scales and offsets (R, N, groups in a block)."""
    rows = len(codes)
    scales = np.ascontiguousarray(scales, np.float32).reshape(rows, -1)
    shifts = None if offsets is None else np.ascontiguousarray(offsets, np.float32).reshape(rows, -1)
    return Groups(codes.reshape(rows, scales.shape[1], -1), scales, shifts, bits)


def _q2_k(blocks: np.ndarray) -> Groups:
    """Bytes: 16 of s_g (lower half) and m_g (upper half), 64 of codes, d, d'."""
    scales = _half(blocks, 80)[..., None] * (blocks[..., :16] & 15)
    offsets = -_half(blocks, 82)[..., None] * (blocks[..., :16] >> 4)
    return _k_groups(_pairs(blocks[..., 16:80]), scales, offsets, 4)


def _q3_k(blocks: np.ndarray) -> Groups:
    """Bytes: 32 of third bits, 64 of lower 2 bits, 12 of scales, d.

    The third bit of number 32 j + i is bit j of byte i. Of the 12 bytes, 8 hold the lower 4 bits of the scales (lower
    halves first), and 4 their upper 2 bits.
    """
    low, high = _nibbles(blocks[..., 96:104]), blocks[..., 104:108]
    upper = np.concatenate([(high >> shift) & 3 for shift in (0, 2, 4, 6)], axis=-1)
    s = (low | upper << 4).astype(np.int8) - np.int8(32)
    third = (blocks[..., None, :32] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    codes = _pairs(blocks[..., 32:96]) | third.reshape(*blocks.shape[:-1], 256) << 2
    return _k_groups(codes.view(np.int8) - np.int8(4), _half(blocks, 108)[..., None] * s, None, 8)


def _k_shares(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scales and offsets of Q4_K and Q5_K, (R, N, 8): d s_g and −d' m_g, in the first 16 bytes.

    The first 8 of 12 bytes after d and d' hold in their lower 6 bits s_1 … s_4 and m_1 … m_4; the last 4 hold the lower
    4 bits of s_5 … s_8 and, above them, of m_5 … m_8, whose upper 2 bits are the upper bits of the first 8 bytes.
    """
    low, mid, high = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    s = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=-1)
    m = np.concatenate([mid & 63, (high >> 4) | (mid >> 6) << 4], axis=-1)
    return _half(blocks, 0)[..., None] * s, -_half(blocks, 2)[..., None] * m


def _k_nibbles(data: np.ndarray) -> np.ndarray:
    """(…, 128) bytes → (…, 256): for each 32 bytes their lower halves, then the upper ones."""
    return _nibbles(data.reshape(*data.shape[:-1], 4, K_GROUP)).reshape(*data.shape[:-1], 256)


def _q4_k(blocks: np.ndarray) -> Groups:
    """Bytes: d, d', 12 of scales and offsets, 128 of codes."""
    return _k_groups(_k_nibbles(blocks[..., 16:]), *_k_shares(blocks), 4)


def _q5_k(blocks: np.ndarray) -> Groups:
    """Bytes: d, d', 12 of scales and offsets, 32 of fifth bits (of 32 j + i: bit j of byte i), 128 of lower bits."""
    fifth = (blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    codes = _k_nibbles(blocks[..., 48:]) | fifth.reshape(*blocks.shape[:-1], 256) << 4
    return _k_groups(codes.view(np.int8), *_k_shares(blocks), 8)


def _iq4_xs(blocks: np.ndarray) -> Groups:
    """Bytes: d, 2 of upper 2 bits of scales, 4 of lower 4 bits (two in a byte), 128 of codes, in 8 groups."""
    upper = np.ascontiguousarray(blocks[..., 2:4]).view("<u2") >> (2 * np.arange(8, dtype=np.uint16)) & 3
    lower = np.stack([blocks[..., 4:8] & 15, blocks[..., 4:8] >> 4], axis=-1).reshape(*blocks.shape[:-1], 8)
    s = (lower | upper.astype(np.uint8) << 4).astype(np.int8) - np.int8(32)
    codes = IQ4_VALUES[_nibbles(blocks[..., 8:].reshape(*blocks.shape[:-1], 8, 16))]
    return _k_groups(codes, _half(blocks, 0)[..., None] * s, None, 8)


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
        BlockFormat("Q5_0", 6, 32, 22, _q5_0),
        BlockFormat("Q5_1", 7, 32, 24, _q5_1),
        BlockFormat("Q8_0", 8, 32, 34, _q8_0),
        BlockFormat("Q2_K", 10, 256, 84, _q2_k),
        BlockFormat("Q3_K", 11, 256, 110, _q3_k),
        BlockFormat("Q4_K", 12, 256, 144, _q4_k),
        BlockFormat("Q5_K", 13, 256, 176, _q5_k),
        BlockFormat("Q6_K", 14, 256, 210, _q6_k),
        BlockFormat("IQ4_NL", 20, 32, 18, _iq4_nl),
        BlockFormat("IQ4_XS", 23, 256, 136, _iq4_xs),
        BlockFormat("BF16", 30, 1, 2),
    )
}
"""Formats by their number in a file."""
FOUR_BITS = ("Q4_0", "Q4_1", "Q2_K", "Q4_K")
"""Formats whose codes have at most 4 bits and whose scales are ours; codes of the others have 8 bits."""
