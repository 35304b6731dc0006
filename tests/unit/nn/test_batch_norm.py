"""Batch normalisation: torch's own, and what a batch of one does."""

from __future__ import annotations

import torch
from torch import nn

from ensue.nn.batch_norm import BatchNorm


def test_it_is_torchs_own_as_it_learns_and_in_use() -> None:
    torch.manual_seed(0)
    ours, theirs = BatchNorm(5), nn.BatchNorm1d(5, momentum=None)  # of which all batches count the same
    for x in torch.randn(10, 7, 5) * 3 + 1:
        torch.testing.assert_close(ours(x), theirs(x))
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(x), theirs(x))
    theirs.momentum = 0.1  # from the eleventh on old ones fade
    for held in (ours, theirs):
        held.train()(x)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_what_the_running_figures_began_with_counts_for_nothing() -> None:
    torch.manual_seed(0)
    norm = BatchNorm(4)
    for _ in range(3):
        norm(torch.randn(64, 4) * 0.02 + 0.1)
    assert 0.0003 < float(norm.variance.mean()) < 0.0005


def test_a_batch_of_one_is_read_with_the_running_figures() -> None:
    torch.manual_seed(0)
    norm = BatchNorm(5)
    norm(torch.randn(9, 5) + 2)
    held = {name: value.clone() for name, value in norm.state_dict().items()}
    x = torch.randn(1, 5)
    learning = norm(x)
    torch.testing.assert_close(learning, norm.eval()(x))
    assert all(torch.equal(value, held[name]) for name, value in norm.state_dict().items())
