"""metrics.jsonl and TensorBoard's events tell the same story, also of a run that was broken off."""

import pytest

from ensue.train import metrics as module
from ensue.train.metrics import Metrics, read_metrics

FIRST, SECOND = 1.0, 100.0
"""What is added to the losses of the first attempt and of the second."""


def record(step, attempt, **more):
    return {"step": step, "loss": attempt + step, **more}


def written(folder, steps, attempt, begin=0):
    """Write records as a run does that was resumed at a step."""
    metrics = Metrics(folder, begin)
    for step in steps:
        metrics.write(record(step, attempt))
    metrics.close()


def board(folder, name="loss"):
    """Steps and values of a curve as TensorBoard shows it."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "events"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_a_resumed_run_drops_records_after_its_checkpoint(tmp_path):
    written(tmp_path, [2, 4, 6, 8], FIRST)
    written(tmp_path, [6, 8, 10], SECOND, begin=4)
    expected = [record(2, FIRST), record(4, FIRST), record(6, SECOND), record(8, SECOND), record(10, SECOND)]
    assert read_metrics(tmp_path) == expected
    assert board(tmp_path) == [(one["step"], one["loss"]) for one in expected]


def test_events_are_cut_back_even_where_nothing_is_written_again(tmp_path):
    written(tmp_path, [2, 4, 6], FIRST)
    written(tmp_path, [5], SECOND, begin=4)
    assert [step for step, _ in board(tmp_path)] == [2, 4, 5]
    assert [one["step"] for one in read_metrics(tmp_path)] == [2, 4, 5]


def test_a_restarted_run_keeps_no_records(tmp_path):
    written(tmp_path, [1, 2, 3], FIRST)
    written(tmp_path, [1, 2], SECOND)
    assert board(tmp_path) == [(1, 101.0), (2, 102.0)]
    assert read_metrics(tmp_path) == [record(1, SECOND), record(2, SECOND)]


def test_a_half_written_line_is_dropped_and_what_follows_it_too(tmp_path):
    written(tmp_path, [1, 2], FIRST)
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 3, "lo')
    assert [one["step"] for one in read_metrics(tmp_path)] == [1, 2]
    written(tmp_path, [3], SECOND, begin=2)
    assert read_metrics(tmp_path) == [record(1, FIRST), record(2, FIRST), record(3, SECOND)]


def test_a_rollback_removes_the_records_of_the_abandoned_steps(tmp_path):
    metrics = Metrics(tmp_path)
    for step in (1, 2, 3):
        metrics.write(record(step, FIRST))
    metrics.truncate(1)
    metrics.write(record(2, SECOND))
    metrics.close()
    assert read_metrics(tmp_path) == [record(1, FIRST), record(2, SECOND)]


def test_only_numbers_become_curves(tmp_path):
    metrics = Metrics(tmp_path)
    metrics.write(record(1, FIRST, valid_loss=0.5, note="a word"))
    metrics.close()
    assert board(tmp_path, "valid_loss") == [(1, 0.5)]
    with pytest.raises(KeyError):
        board(tmp_path, "note")


def test_metrics_work_without_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    written(tmp_path, [1], FIRST)
    assert read_metrics(tmp_path) == [record(1, FIRST)] and not (tmp_path / "events").exists()


def test_event_files_have_different_seconds(tmp_path):
    for begin in (0, 1, 2):
        written(tmp_path, [begin + 1], FIRST, begin=begin)
    seconds = [path.name.split(".")[3] for path in (tmp_path / "events").iterdir()]
    assert len(set(seconds)) == len(seconds) == 3  # TensorBoard reads them in the order of their names
