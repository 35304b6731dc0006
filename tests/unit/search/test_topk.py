"""The largest few: what topk finds, wherever they are."""

from __future__ import annotations

import pytest
import torch

from ensue.search.topk import DEPTH, fast_topk


@pytest.mark.parametrize("size", [1, 5, 3 * DEPTH, 12 * DEPTH, 12 * DEPTH + 1, 40 * DEPTH - 1, 6000])
@pytest.mark.parametrize("count", [1, 2, 6])
def test_equals_topk(size: int, count: int) -> None:
    torch.manual_seed(size)
    values = torch.rand(7, size).argsort(dim=1).float()  # all different
    found, places = fast_topk(values, count)
    wanted = values.topk(min(count, size))
    assert torch.equal(found, wanted.values) and torch.equal(places, wanted.indices)


def test_all_in_one_column_or_beyond_the_last() -> None:
    columns = 20
    values = torch.zeros(2, columns * DEPTH + 3)
    values[0, 4::columns] = torch.arange(DEPTH + 1.0)[: len(values[0, 4::columns])] + 1  # one below the other
    values[1, -3:] = torch.tensor([3.0, 5.0, 4.0])  # in no column
    for row, wanted in zip(values, ([4 + columns * n for n in range(DEPTH - 1, DEPTH - 4, -1)], [321, 322, 320])):
        assert fast_topk(row[None], 3)[1].tolist() == [wanted]


def test_minus_infinity_comes_last() -> None:
    values = torch.full((1, 50 * DEPTH), float("-inf"))
    values[0, 77] = -3.0
    found, places = fast_topk(values, 4)
    assert places[0, 0] == 77 and found[0, 0] == -3.0 and bool((found[0, 1:] == float("-inf")).all())
    assert len(set(places[0].tolist())) == 4


def test_nan_is_not_lost() -> None:
    values = torch.zeros(1, 50 * DEPTH)
    values[0, 123] = float("nan")
    assert fast_topk(values, 2)[1][0, 0] == 123
