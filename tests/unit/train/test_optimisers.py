"""Clipping that goes along with a fused update: whatever the precision, and leaving nothing behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ensue.train.optimisers import clipped_step, gradient_norm


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_fused_update_clips_in_any_precision(kind: torch.dtype) -> None:
    found = []
    for scale, threshold in ((9.0, 1.0), (0.5, 0.0)):  # ‖g‖ = 18 clipped to 1, and a g with ‖g‖ = 1 as it is
        parameter = nn.Parameter(torch.zeros(4, dtype=kind))
        parameter.grad = torch.full((4,), scale, dtype=kind)
        optimiser = torch.optim.AdamW([parameter], lr=0.1, eps=1.0, fused=True)
        clipped_step(optimiser, [parameter.grad], gradient_norm([parameter.grad]), threshold)
        found.append(parameter.detach())
        assert not hasattr(optimiser, "grad_scale")
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-9)


def test_an_update_that_fails_leaves_no_scale_behind() -> None:
    parameter = nn.Parameter(torch.zeros(4))
    parameter.grad = torch.ones(4)
    optimiser = torch.optim.AdamW([parameter], lr=0.1, fused=True)

    def fail(*given: object) -> None:
        raise RuntimeError("no")

    optimiser.register_step_pre_hook(fail)
    with pytest.raises(RuntimeError, match="no"):
        clipped_step(optimiser, [parameter.grad], 2.0, 1.0)
    assert not hasattr(optimiser, "grad_scale")
