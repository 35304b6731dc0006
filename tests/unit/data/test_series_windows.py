"""Windows of series: inputs, targets, and their order."""

import numpy as np
import pytest
import torch

from ensue.data.series_windows import SeriesBatches, SeriesWindows


def windows(count=10, window=4, horizon=2, centre="none"):
    values = np.stack([np.arange(30.0), 100 + np.arange(30.0)], axis=1).astype(np.float32)
    origins = np.arange(window, window + count)
    return SeriesWindows(values, np.ones((30, 2), bool), origins, window, horizon, centre)


def test_mode_vector_forecasts_the_horizon_from_the_last_position():
    batch = SeriesBatches(windows(), "vector", 1, 3).of(np.array([0, 5]))
    assert batch.x[:, :, 0].tolist() == [[0, 1, 2, 3], [5, 6, 7, 8]]
    assert batch.y.shape == (2, 1, 2, 1) and batch.y[1].flatten().tolist() == [9, 10]
    assert batch.size == 8


def test_mode_sequence_forecasts_the_horizon_from_every_position():
    batch = SeriesBatches(windows(), "sequence", 1, 3).of(np.array([0]))
    assert batch.y.shape == (1, 4, 2, 1)
    assert batch.y[0, :, :, 0].tolist() == [[1, 2], [2, 3], [3, 4], [4, 5]]


def test_mode_step_forecasts_every_column_one_step_ahead():
    batch = SeriesBatches(windows(), "step", 1, 3).of(np.array([0]))
    assert batch.x.shape == (1, 5, 2) and batch.y.shape == (1, 5, 1, 2)
    assert batch.y[0, :, 0, 1].tolist() == [101, 102, 103, 104, 105]


@pytest.mark.parametrize(("centre", "first"), [("last", -3), ("mean", -1.5), ("none", 5)])
def test_the_offset_depends_on_the_window_only(centre, first):
    held = windows(centre=centre)
    values, _, offset = held.cut(np.array([5]))
    assert values[0, 0, 0] == first
    assert np.allclose(values + offset, windows().cut(np.array([5]))[0])
    later = SeriesWindows(held.values + 1000 * (np.arange(30)[:, None] >= 9), held.observed, held.origins, 4, 2, centre)
    assert np.array_equal(later.cut(np.array([5]))[0][:, :4], values[:, :4])  # the future changes nothing of the past


def test_an_epoch_has_every_window_once_and_batches_depend_on_their_number_only():
    batches = SeriesBatches(windows(), "vector", 1, 5, seed=3)
    assert batches.steps_per_epoch == 2
    seen = torch.cat([batches.batch(n).y.flatten()[::2] for n in range(2)])
    assert sorted(seen.tolist()) == list(range(4, 14))
    again = SeriesBatches(windows(), "vector", 1, 5, seed=3)
    assert torch.equal(again.batch(7).x, batches.batch(7).x)
    assert not torch.equal(batches.batch(0).x, batches.batch(2).x)


def test_fewer_windows_than_rows_make_one_batch():
    batches = SeriesBatches(windows(count=3), "vector", 1, 32)
    assert batches.rows == 3 and batches.steps_per_epoch == 1
