"""Selecting rows of batches, as ranks do: the parts join to the batch."""

import numpy as np
import pytest
import torch

from ensue.data.batches import Batch
from ensue.data.labelled_rows import IGNORE_INDEX, RowBatch, make_batch, make_rows
from ensue.data.masking import MaskedBatch
from ensue.data.pair_batches import PairBatch
from ensue.data.series_windows import SeriesBatch


def tokens(*size):
    return torch.arange(int(np.prod(size))).view(size)


def choices():
    """Three examples of two choices each, of different lengths."""
    rows = [(np.arange(n), np.zeros(n)) for n in (3, 2, 4, 1, 2, 2)]
    return make_batch(make_rows(rows, np.array([0, 1, 1]), rows_per_example=2), np.arange(3))


def tagged():
    """Three rows with a label for some tokens."""
    rows = [(np.arange(n), np.zeros(n)) for n in (3, 2, 4)]
    return make_batch(make_rows(rows, np.array([0, IGNORE_INDEX, 1, 0, 1, 1, 0, 0, 1]), per_token=True), np.arange(3))


BATCHES = {
    "text": Batch(tokens(3, 4), tokens(3, 4) + 1, False, keep_state=True),
    "padded text": Batch(tokens(3, 4), tokens(3, 4) + 1, True, torch.tensor([4, 2, 3])),
    "pairs": PairBatch(
        source=tokens(3, 5),
        source_lengths=torch.tensor([5, 1, 2]),
        tokens=tokens(3, 4),
        targets=tokens(3, 4),
        lengths=torch.tensor([4, 3, 1]),
    ),
    "choices": choices(),
    "tags": tagged(),
    "series": SeriesBatch(
        tokens(3, 4, 1).float(), tokens(3, 1, 2, 1).float(), torch.ones(3, 1, 2, 1, dtype=torch.bool)
    ),
    "masked": MaskedBatch(
        tokens=tokens(3, 4),
        segments=tokens(3, 4),
        lengths=torch.tensor([4, 3, 2]),
        positions=torch.tensor([[1, 2], [1, 0], [0, 1]]),
        is_masked=torch.tensor([[True, True], [True, False], [True, True]]),
        targets=torch.tensor([5, 6, 7, 8, 9]),
        noise=torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5]),
        not_next=torch.tensor([0, 1, 1]),
    ),
}


@pytest.mark.parametrize("name", BATCHES)
def test_the_parts_of_a_batch_are_the_batch(name):
    batch = BATCHES[name]
    assert len(batch) == 3
    parts = [batch.select(slice(0, 1)), batch.select(slice(1, 3))]
    assert [len(part) for part in parts] == [1, 2]
    assert sum(part.size for part in parts) == batch.size
    for field in type(batch).__dataclass_fields__:
        whole, *own = (getattr(one, field) for one in (batch, *parts))
        if isinstance(whole, torch.Tensor):
            assert torch.equal(torch.cat(own), whole), field
        else:
            assert own == [whole, whole], field


def test_masked_tokens_are_selected_with_their_rows():
    part = BATCHES["masked"].select(slice(1, 2))
    assert part.targets.tolist() == [7] and part.not_next.tolist() == [1]


def test_an_example_keeps_all_its_choices():
    part = BATCHES["choices"].select(slice(1, 2))
    assert isinstance(part, RowBatch)
    assert part.lengths.tolist() == [4, 1] and part.targets.tolist() == [1]
