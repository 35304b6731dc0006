"""Rows with targets: selection, padding, and batches that are a function of (seed, step)."""

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.labelled_rows import IGNORE_INDEX, RowBatches, evaluation_batches, make_batch, make_rows
from ensue.data.length_grouping import batch_boundaries, group_by_length, pad_rows

CHANCE = np.random.default_rng(5)
LENGTHS = CHANCE.integers(2, 30, size=60)


def made(lengths=LENGTHS, each=1, per_token=False):
    """Rows whose tokens say which row they are of, and what is wanted says which example or token."""
    rows = [(np.full(n, 100 + row), np.arange(n) % 2) for row, n in enumerate(lengths)]
    targets = np.arange(sum(lengths)) if per_token else np.arange(len(lengths) // each) * 10
    return make_rows(rows, targets, each, per_token)


def test_selected_examples_come_in_the_given_order():
    rows = made()
    some = rows.select([7, 3, 3])
    assert len(some) == 3 and some.targets.tolist() == [70, 30, 30]
    assert some.lengths.tolist() == LENGTHS[[7, 3, 3]].tolist()
    assert [int(some.tokens[at]) for at in some.starts[:-1]] == [107, 103, 103]
    assert some.hash != rows.hash and rows.select(range(60)).hash == rows.hash
    assert len(rows.select([])) == 0


def test_selected_examples_keep_their_rows_and_targets():
    choices = made(each=3).select([2, 0])
    assert [int(choices.tokens[at]) for at in choices.starts[:-1]] == [106, 107, 108, 100, 101, 102]
    assert choices.targets.tolist() == [20, 0] and len(choices) == 2
    tagged = made([3, 2, 4], per_token=True).select([2, 1])
    assert tagged.targets.tolist() == [5, 6, 7, 8, 3, 4]


def test_a_batch_pads_on_the_right():
    batch = make_batch(made([3, 1, 2]), np.array([2, 1]))
    assert batch.tokens.tolist() == [[102, 102], [101, 0]]
    assert batch.segments.tolist() == [[0, 1], [0, 0]]
    assert batch.lengths.tolist() == [2, 1] and batch.size == 3
    assert batch.targets.tolist() == [20, 10] and batch.examples.tolist() == [2, 1]


def test_a_batch_of_choices_has_all_rows_of_an_example():
    batch = make_batch(made([2, 3, 1, 2], each=2), np.array([1, 0]))
    assert batch.tokens[:, 0].tolist() == [102, 103, 100, 101] and batch.targets.tolist() == [10, 0]


def test_padding_has_no_target():
    batch = make_batch(made([3, 1], per_token=True), np.array([1, 0]))
    assert batch.targets.tolist() == [[3, IGNORE_INDEX, IGNORE_INDEX], [0, 1, 2]]
    vectors = make_rows([(np.ones(2), np.zeros(2)), (np.ones(1), np.zeros(1))], np.ones((3, 4), np.float32), 1, True)
    asked = make_batch(vectors, np.array([0, 1])).targets
    assert asked.shape == (2, 2, 4) and asked[1, 1].isnan().all() and asked.nansum() == 12


def test_slices_of_a_flat_array_become_padded_rows():
    block, real = pad_rows(np.arange(10), np.array([4, 0]), np.array([3, 1]), fill=-1)
    assert block.tolist() == [[4, 5, 6], [0, -1, -1]] and real.sum() == 4


@pytest.mark.parametrize("each", [1, 4])
def test_every_epoch_has_every_example_once_in_batches_within_their_size(each):
    batches = RowBatches(made(each=each), tokens=150, seed=3)
    step = 0
    for _ in range(3):
        seen = []
        while len(seen) < 60 // each:
            batch = batches.batch(step)
            assert batch.tokens.numel() <= 150 or len(batch.examples) == 1
            assert batch.tokens.shape[1] == batch.lengths.max()
            seen += batch.examples.tolist()
            step += 1
        assert sorted(seen) == list(range(60 // each))
    assert batches.rows <= 60


def test_a_batch_is_a_function_of_seed_and_step_alone():
    one, other = RowBatches(made(), 100, seed=8), RowBatches(made(), 100, seed=8)
    late = [other.batch(step).examples.tolist() for step in (40, 0, 17)]
    assert late == [one.batch(step).examples.tolist() for step in (40, 0, 17)]
    assert [RowBatches(made(), 100, seed=9).batch(step).examples.tolist() for step in (40, 0, 17)] != late
    epochs = [[one.batch(step + shift).examples.tolist() for step in range(4)] for shift in (0, one.steps_per_epoch)]
    assert epochs[0] != epochs[1]


def test_the_share_of_padding_is_that_of_the_first_epoch():
    batches = RowBatches(made(), 100, seed=1)
    first = [batches.batch(step) for step in range(batches.steps_per_epoch)]
    places = sum(batch.tokens.numel() for batch in first)
    assert batches.padding == pytest.approx(1 - sum(batch.size for batch in first) / places)
    assert batches.padding < 0.15


def test_a_row_longer_than_a_batch_is_its_own_batch():
    batches = RowBatches(made([50, 2, 2, 2]), tokens=6)
    found = sorted(sorted(batches.batch(step).examples.tolist()) for step in range(batches.steps_per_epoch))
    assert found == [[0], [1, 2, 3]]


def test_evaluation_batches_have_every_example_once_with_the_longest_first():
    for each in (1, 3):
        rows = made(each=each)
        found = evaluation_batches(rows, 200)
        assert sorted(np.concatenate(found).tolist()) == list(range(60 // each))
        longest = [int(rows.lengths.reshape(-1, each)[part].max()) for part in found]
        assert longest == sorted(longest, reverse=True)
        assert all(len(part) == 1 or len(part) * each * size <= 200 for part, size in zip(found, longest))


def test_rows_are_grouped_in_a_given_order_and_too_few_rows_or_tokens_are_errors():
    plan = group_by_length(np.full(6, 2), 4, order=lambda chance: np.arange(6))
    assert sorted(part.tolist() for part in plan.epoch(0)) == [[0, 1], [2, 3], [4, 5]]
    assert batch_boundaries([9, 1, 1], 2) == [1]
    with pytest.raises(InputError, match="no rows to make batches of"):
        group_by_length(np.zeros(0), 4)
    with pytest.raises(InputError, match="batches of 0 tokens"):
        group_by_length(np.ones(2), 0)
