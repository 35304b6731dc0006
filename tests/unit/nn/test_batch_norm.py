"""Batch normalisation: torch's own, and what a batch of one does."""

from __future__ import annotations

import torch
from torch import nn

from ensue.nn.batch_norm import BatchNorm


def test_it_is_torchs_own_as_it_learns_and_in_use() -> None:
    torch.manual_seed(0)
    ours, theirs = BatchNorm(5), nn.BatchNorm1d(5)
    for x in torch.randn(4, 7, 5) * 3 + 1:
        torch.testing.assert_close(ours(x), theirs(x))
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(x), theirs(x))


def test_a_batch_of_one_is_read_with_the_running_figures() -> None:
    torch.manual_seed(0)
    norm = BatchNorm(5)
    norm(torch.randn(9, 5) + 2)
    held = {name: value.clone() for name, value in norm.state_dict().items()}
    x = torch.randn(1, 5)
    learning = norm(x)
    torch.testing.assert_close(learning, norm.eval()(x))
    assert all(torch.equal(value, held[name]) for name, value in norm.state_dict().items())
