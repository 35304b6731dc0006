"""The experts of a mixture, each on the tokens that chose it.

    y = Σ_i g_i FFN_i(x)                   g_i = 0 unless the token chose expert i

Legend: M tokens, D width, E experts, k experts of each token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ensue.kernels.autograd_guards import visible
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.threads import is_fake

Expert = Callable[[Tensor], Tensor]


def _reference(x: Tensor, experts: Sequence[Expert], weights: Tensor, chosen: Tensor) -> Tensor:
    """Every expert on every token, with weight 0 where it was not chosen."""
    gates = torch.zeros(x.shape[0], len(experts), dtype=weights.dtype, device=x.device).scatter(1, chosen, weights)
    return torch.stack([gates[:, i, None] * expert(x) for i, expert in enumerate(experts)]).sum(0)


def _grouped(x: Tensor, experts: Sequence[Expert], weights: Tensor, chosen: Tensor) -> Tensor:
    """Tokens sorted by expert, so that each expert runs once, on its own tokens only."""
    k, learns = chosen.shape[1], torch.is_grad_enabled()
    order = chosen.flatten().argsort(stable=True)
    token = order.div(k, rounding_mode="floor")
    parts = torch.split(x.index_select(0, token), _sizes(chosen, len(experts)))
    # under autograd an expert without tokens gets gradients of zero: ranks and optimisers rely on them
    outputs = [expert(part) for expert, part in zip(experts, parts) if learns or len(part)]
    weighted = torch.cat(outputs) * weights.flatten().index_select(0, order)[:, None] if outputs else x
    return torch.zeros_like(x, dtype=weighted.dtype).index_add(0, token, weighted)


def _sizes(chosen: Tensor, experts: int) -> list[int]:
    """The number of tokens of each expert; equal shares for a tensor without data."""
    if is_fake(chosen):
        return [chosen.numel() // experts + (i < chosen.numel() % experts) for i in range(experts)]
    return chosen.flatten().bincount(minlength=experts).tolist()


def _can_group(x: Tensor, experts: Sequence[Expert], weights: Tensor, chosen: Tensor) -> bool:
    return not visible()


mix_experts = Kernel("experts", _reference, Fast("grouped", _grouped, _can_group))
"""y (M, D): (x (M, D), experts, g of the chosen experts (M, k), their indices (M, k))."""
