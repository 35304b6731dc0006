"""Attention within short rows, as sentences are, with a gradient of its own.

    P = softmax(Q Kᵀ / √d),  Y = P V
    ∂V = Pᵀ ∂Y,  ∂P = ∂Y Vᵀ,  ∂S = P ∘ (∂P − Σ_s P ∘ ∂P) / √d,  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q

Torch's kernel never holds P, which pays where rows are long. Where they are short P is small, and keeping it saves
making it again; a head's matrices then never leave the cache. What was projected side by side is read where it lies,
and its gradient is written side by side.

Legend: B rows, T queries, S keys, H heads, d width of a head, D = H·d.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ensue.nn.kernels import differentiable, plain
from ensue.nn.threads import reachable, run

SHORT = 64
"""The most queries and the most keys: beyond, torch's kernel is as fast."""

Parts = tuple[Tensor, ...]
"""Queries, keys and values in their order, (B, T or S, …), as they were projected: (3D,), or (D, 2D), or (D, D, D)."""


def _shape(parts: Parts) -> tuple[int, int, int, int]:
    """B, T, S, D."""
    return len(parts[0]), parts[0].shape[1], parts[-1].shape[1], sum(part.shape[-1] for part in parts) // 3


def split(parts: Parts, heads: int) -> list[Tensor]:
    """Q, K, V, each (B, H, T or S, d)."""
    D = _shape(parts)[3]
    return [one.view(*one.shape[:2], heads, D // heads).transpose(1, 2) for one in _apart(parts, D)]


def _apart(parts: Parts, width: int) -> list[Tensor]:
    """Queries, keys and values, each (B, T or S, D)."""
    return [one for part in parts for one in part.chunk(part.shape[-1] // width, dim=-1)]


def fits(parts: Parts, heads: int) -> bool:
    """Whether rows are short enough and something is learnt, and everything else is as the loops need it."""
    return (
        torch.is_grad_enabled()
        and reachable(*parts)
        and plain(*parts)
        and all(part.shape[1] <= SHORT and part.stride(-1) == 1 for part in parts)
        and _whole_tiles(parts, heads)
    )


def _whole_tiles(parts: Parts, heads: int) -> bool:
    """Whether there is a tile of queries and one of keys at least, and a head is so many tiles wide."""
    from ensue.nn import loops  # numba takes a while to import

    return all(part.shape[1] >= loops.ROWS for part in parts) and _shape(parts)[3] // heads % loops.LANES == 0


def attend(parts: Parts, heads: int, sizes: Tensor | None = None, causal: bool = False) -> Tensor:
    """softmax(Q Kᵀ / √d) V, (B, T, D).

    Row b sees its first ``sizes[b]`` keys; with ``causal`` no token sees one after it.
    """
    B, _, S, _ = _shape(parts)
    sizes = torch.full((B,), S) if sizes is None else sizes.long().clamp(0, S).contiguous()  # a loop trusts them
    result: Tensor = _Short.apply(heads, sizes, causal, *parts)  # type: ignore[no-untyped-call]
    return result


def reference(parts: Parts, heads: int, sizes: Tensor, causal: bool) -> Tensor:
    """The equation, operation by operation; who sees nothing looks nowhere."""
    query, key, value = split(parts, heads)
    T, S = query.shape[2], key.shape[2]
    seen = (torch.arange(S) < sizes[:, None])[:, None, None].expand(-1, -1, T, -1)
    if causal:
        seen = seen & torch.ones(T, S, dtype=torch.bool).tril()
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1).masked_fill(~seen, 0.0)
    return (weights @ value).transpose(1, 2).flatten(2)


def _places(parts: Parts, width: int) -> list[Tensor | int]:
    """Where Q, K and V begin, and how far rows and tokens are apart."""
    found: list[Tensor | int] = []
    for one in _apart(parts, width):
        found += [one, *one.stride()[:2]]
    return found


class _Short(torch.autograd.Function):
    """Both ways a loop of our own."""

    @staticmethod
    def forward(ctx: Any, heads: int, sizes: Tensor, causal: bool, *parts: Tensor) -> Tensor:
        """Y."""
        from ensue.nn import loops

        B, T, S, D = _shape(parts)
        y, weights = parts[0].new_empty(B, T, D), parts[0].new_empty(B, heads, S, -(-T // loops.LANES) * loops.LANES)
        held = (*_places(parts, D), *_places((y,), D), weights)
        run(loops.attend, B * T, B, T, S, heads, D // heads, int(causal), sizes, *held)
        ctx.save_for_backward(sizes, weights, *parts)
        ctx.heads, ctx.causal = heads, causal
        return y

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """The gradient of each part."""
        from ensue.nn import loops

        sizes, weights, *parts = ctx.saved_tensors
        needed = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():  # the gradient of a gradient is asked for: let autograd see the operations

            def equation(*own: Tensor) -> Tensor:
                return reference(own, ctx.heads, sizes, ctx.causal)

            return None, None, None, *differentiable(equation, parts, needed, above)
        by_y, grads = above[0].contiguous(), tuple(part.new_empty(part.shape) for part in parts)
        B, T, S, D = _shape(grads)
        held = (*_places(tuple(parts), D), *_places((by_y,), D), *_places(grads, D), weights)
        run(loops.attend_backward, B * T, B, T, S, ctx.heads, D // ctx.heads, *held)
        return None, None, None, *(grad if need else None for grad, need in zip(grads, needed))
