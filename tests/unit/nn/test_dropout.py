"""Dropout by bytes."""

from __future__ import annotations

import pytest
import torch

from ensue.kernels.dropout import mask, seeded_mask
from ensue.kernels.threads import torch_threads
from ensue.nn.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_the_share_that_is_switched_off_is_p_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(0)
    drawn = mask(torch.empty(1000, 999), p)
    assert abs((drawn == 0).float().mean().item() - p) < 1 / 256 + 0.002
    assert abs(drawn.mean().item() - 1) < 0.01
    assert len(drawn.unique()) == 2


def test_all_places_of_a_draw_are_alike() -> None:
    """A byte of a 64-bit number that is never negative would be switched off too often."""
    torch.manual_seed(0)
    off = (mask(torch.empty(80_000), 0.5).view(-1, 8) == 0).float().mean(0)
    assert (off - 0.5).abs().max() < 0.02


def test_nothing_happens_when_not_training_and_the_same_seed_draws_the_same() -> None:
    layer, x = Dropout(0.5), torch.randn(3, 5)
    assert layer.eval()(x) is x
    layer.train()
    torch.manual_seed(1)
    first = layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first)
    assert not torch.equal(layer(x), first)


def test_the_gradient_flows_where_units_are_on() -> None:
    x = torch.randn(50, requires_grad=True)
    y = Dropout(0.5)(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad != 0, y != 0)


def test_a_seed_has_one_mask_in_any_shape_of_rows() -> None:
    """A row's bits depend on the seed and the row: no two rows are alike, and fewer rows are the first of more."""
    if torch_threads() is None:
        pytest.skip("torch runs on another OpenMP here")
    many = seeded_mask(torch.Size((1000, 24)), 128, 7)
    assert torch.equal(many[:300], seeded_mask(torch.Size((300, 24)), 128, 7))
    assert len(many.unique(dim=0)) == 1000
    assert not torch.equal(many, seeded_mask(torch.Size((1000, 24)), 128, 8))
