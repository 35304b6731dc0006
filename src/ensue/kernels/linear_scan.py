"""The scan of linear attention: a matrix that every token updates and every query reads.

    S_t = g_t S_{t-1} + k_t v_tᵀ,     y_t = S_tᵀ q_t                         recurrent: O(T d e)
    Y = ((Q Kᵀ) ∘ D) V,               D_ts = g_{s+1} ⋯ g_t for s ≤ t         parallel: O(T²)

The chunked form is parallel inside chunks of C tokens and recurrent between them, so it takes O(T C) memory and large
matrix multiplications. With G_t = g_1 ⋯ g_t from the start of a chunk and S the state before it:

    Y = (Q ∘ G) S + ((Q Kᵀ) ∘ D) V,        S′ = G_C S + (K ∘ (G_C / G))ᵀ V
    ∂Q = (∂Y Sᵀ) ∘ G + ((∂Y Vᵀ) ∘ D) K
    ∂K = ((∂Y Vᵀ) ∘ D)ᵀ Q + (V ∂S′ᵀ) ∘ (G_C / G)
    ∂V = ((Q Kᵀ) ∘ D)ᵀ ∂Y + (K ∘ (G_C / G)) ∂S′,       ∂S = G_C ∂S′ + (Q ∘ G)ᵀ ∂Y

A decay g_t enters as log g_t ≤ 0: one number for each head and token, or one for each of its d channels, which then
scales a row of S. Without decays it is 1. Since y_t depends on a_t = Σ_{s≤t} log g_s through G_t / G_s alone,
∂a_t = q_t ∘ ∂q_t − k_t ∘ ∂k_t, and at the end S_T ∘ ∂S_T is added. With decays of channels D is no matrix, so queries
are multiplied by G_t and keys by 1 / G_s, both relative to the middle of the chunk: a log-decay below ``LEAST`` counts
as ``LEAST``, or the second factor could overflow.

Legend: B rows, H heads, T tokens, N chunks of C tokens, d width of queries and keys, e width of values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.kernel import Fast, Kernel

CHUNK = 64
"""C, the tokens of a chunk."""
LEAST = -2.0
"""The least log-decay of a channel: C / 2 of them are exp(64), and float32 ends at exp(88)."""


def _reference(
    query: Tensor, key: Tensor, value: Tensor, state: Tensor, log_decay: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The chunked form in plain operations."""
    T = query.shape[2]
    if not T:
        return value.new_zeros(value.shape), state
    query, key, value = (_chunks(x) for x in (query, key, value))
    fall = _fall(log_decay)
    before, after = _states(key, value, state, fall)
    y = (_weights(query, key, fall) @ value) + _read(query, fall) @ before
    return y.flatten(2, 3)[:, :, :T], after


def _chunks(x: Tensor) -> Tensor:
    """(B, H, T, d) → (B, H, N, C, d), zeros at the end. Padding has no key, and its decay is 1."""
    size = min(CHUNK, max(1, x.shape[2]))
    x = F.pad(x, (0, 0, 0, -x.shape[2] % size))
    return x.view(*x.shape[:2], -1, size, x.shape[3])


def _fall(log_decay: Tensor | None) -> Tensor | None:
    """log G of each chunk, (B, H, N, C, 1 or d)."""
    if log_decay is None:
        return None
    return _chunks(log_decay if log_decay.shape[-1] == 1 else log_decay.clamp(min=LEAST)).cumsum(-2)


def _read(query: Tensor, fall: Tensor | None) -> Tensor:
    """Q ∘ G."""
    return query if fall is None else query * fall.exp()


def _write(key: Tensor, fall: Tensor | None) -> Tensor:
    """K ∘ (G_C / G)."""
    return key if fall is None else key * (fall[..., -1:, :] - fall).exp()


def _middle(fall: Tensor) -> tuple[Tensor, Tensor]:
    """G / G_m and G_m / G, m the middle of a chunk."""
    apart = fall - fall[..., fall.shape[-2] // 2, None, :]
    return apart.exp(), (-apart).exp()


def _decays(fall: Tensor) -> Tensor:
    """D of each chunk, (B, H, N, C, C), for one decay of each token."""
    apart = fall - fall.transpose(-2, -1)
    later = torch.ones(apart.shape[-2:], dtype=torch.bool, device=fall.device).triu(1)
    return apart.masked_fill(later, float("-inf")).exp()


def _weights(query: Tensor, key: Tensor, fall: Tensor | None) -> Tensor:
    """(Q Kᵀ) ∘ D of each chunk, (B, H, N, C, C)."""
    if fall is None:
        return (query @ key.transpose(-2, -1)).tril()
    if fall.shape[-1] == 1:
        return query @ key.transpose(-2, -1) * _decays(fall)
    high, low = _middle(fall)
    return (query * high @ (key * low).transpose(-2, -1)).tril()


def _by_weights(by: Tensor, query: Tensor, key: Tensor, fall: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradients of queries and keys, where ``by`` (B, H, N, C, C) is that of the weights."""
    if fall is None or fall.shape[-1] == 1:
        by = by.tril() if fall is None else by * _decays(fall)
        return by @ key, by.transpose(-2, -1) @ query
    (high, low), by = _middle(fall), by.tril()
    return by @ (key * low) * high, by.transpose(-2, -1) @ (query * high) * low


def _states(key: Tensor, value: Tensor, state: Tensor, fall: Tensor | None) -> tuple[Tensor, Tensor]:
    """The state before each chunk, (B, H, N, d, e), and the one after the last."""
    added = _write(key, fall).transpose(-2, -1) @ value
    return _accumulated(added, state, None if fall is None else fall[..., -1, :].exp())


def _accumulated(added: Tensor, state: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    """S_n = kept_n S_{n-1} + added_n: the states before each n, and the last one."""
    if kept is None:
        sums = added.cumsum(2) + state[:, :, None]
        return torch.cat([state[:, :, None], sums[:, :, :-1]], dim=2), sums[:, :, -1]
    before = []
    for n in range(added.shape[2]):
        before.append(state)
        state = kept[:, :, n, :, None] * state + added[:, :, n]
    return torch.stack(before, dim=2), state


def _one_token(
    query: Tensor, key: Tensor, value: Tensor, state: Tensor, log_decay: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The recurrent form, of one token."""
    if log_decay is not None:
        fall = log_decay if log_decay.shape[-1] == 1 else log_decay.clamp(min=LEAST)
        state = state * fall.transpose(-2, -1).exp()
    after = state + key.transpose(-2, -1) @ value
    return query @ after, after


def _is_one_token(query: Tensor, key: Tensor, value: Tensor, state: Tensor, log_decay: Tensor | None = None) -> bool:
    return query.shape[2] == 1


def _own_backward(
    query: Tensor, key: Tensor, value: Tensor, state: Tensor, log_decay: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    if log_decay is not None and log_decay.shape[-1] > 1:
        log_decay = log_decay.clamp(min=LEAST)
    y, after = _Scan.apply(query, key, value, state, log_decay)  # type: ignore[no-untyped-call]
    return y, after


def _has_own_backward(
    query: Tensor, key: Tensor, value: Tensor, state: Tensor, log_decay: Tensor | None = None
) -> bool:
    return query.numel() > 0 and value.numel() > 0 and plain(query, key, value, state, log_decay)


linear_scan = Kernel(
    "linear_scan",
    _reference,
    Fast("one_token", _one_token, _is_one_token),
    Fast("own_backward", _own_backward, _has_own_backward),
)
"""S_t = g_t S_{t-1} + k_t v_tᵀ, y_t = S_tᵀ q_t.

(query (B, H, T, d), key (B, H, T, d), value (B, H, T, e), state (B, H, d, e), log_decay (B, H, T, 1 or d) or None) →
y (B, H, T, e) and the state after the last token. A token whose key is 0 and whose log-decay is 0 changes no state.
"""


class _Scan(torch.autograd.Function):
    """The chunked form. Its backward pass computes the weights inside a chunk again instead of keeping them."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, state: Tensor, log_decay: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Y and the last state."""
        q, k, v = (_chunks(x) for x in (query, key, value))
        fall = _fall(log_decay)
        before, after = _states(k, v, state, fall)
        y = _weights(q, k, fall) @ v
        y += _read(q, fall) @ before
        ctx.save_for_backward(query, key, value, state, log_decay, before, after)
        return y.flatten(2, 3)[:, :, : query.shape[2]], after

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """The gradients of queries, keys, values, the first state and log-decays."""
        query, key, value, state, log_decay, before, last = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            return differentiable(_reference, (query, key, value, state, log_decay), ctx.needs_input_grad, above)
        T = query.shape[2]
        q, k, v, by_y = (_chunks(x) for x in (query, key, value, above[0]))
        fall = _fall(log_decay)
        kept = None if fall is None else fall[..., -1, :].exp().flip(2)
        added = (_read(q, fall).transpose(-2, -1) @ by_y).flip(2)
        later, first = _accumulated(added, above[1], kept)  # ∂S′ of each chunk, the last one first
        later = later.flip(2)
        by_q, by_k = _by_weights(by_y @ v.transpose(-2, -1), q, k, fall)
        by_q += _read(by_y @ before.transpose(-2, -1), fall)
        by_k += _write(v @ later.transpose(-2, -1), fall)
        by_v = _weights(q, k, fall).transpose(-2, -1) @ by_y
        by_v += _write(k, fall) @ later
        by_q, by_k, by_v = (x.flatten(2, 3)[:, :, :T] for x in (by_q, by_k, by_v))
        by_decay = None
        if log_decay is not None:
            sums = query * by_q - key * by_k  # ∂a_t
            sums[:, :, -1] += (last * above[1]).sum(-1)
            sums = sums if log_decay.shape[-1] > 1 else sums.sum(-1, keepdim=True)
            by_decay = sums.flip(2).cumsum(2).flip(2)
        return by_q, by_k, by_v, first, by_decay
