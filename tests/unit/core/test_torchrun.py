import pytest

from ensue.core import torchrun as launch
from ensue.core.errors import InputError


def test_a_process_that_torchrun_did_not_start_is_alone(monkeypatch):
    for name in launch.NEEDED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")  # as some queues set it
    assert (launch.rank(), launch.count(), launch.local_rank()) == (0, 1, 0)


def test_ranks_are_those_that_torchrun_names(monkeypatch):
    for name, value in zip(launch.NEEDED, ("5", "8", "localhost", "29500"), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert (launch.rank(), launch.count(), launch.local_rank()) == (5, 8, 1)


@pytest.mark.parametrize(
    ("rank", "count", "port"),
    [("abc", "2", "1"), ("5", "2", "1"), ("3", "1", "1"), ("0", "x", "1"), ("-1", "2", "1"), ("0", "2", "99999")],
)
def test_ranks_that_cannot_be_are_refused_and_nobody_is_silent(monkeypatch, rank, count, port):
    for name, value in zip(launch.NEEDED, (rank, count, "localhost", port), strict=True):
        monkeypatch.setenv(name, value)
    assert (launch.rank(), launch.count()) == (0, 1)
    with pytest.raises(InputError, match=f"RANK={rank}, WORLD_SIZE={count}.*start them with torchrun"):
        launch.check()


@pytest.mark.parametrize(("said", "local", "threads"), [("1", "2", 4), ("", "16", 1), ("3", "2", 3)])
def test_cores_are_shared_unless_a_number_of_threads_is_said(monkeypatch, said, local, threads):
    monkeypatch.setattr(launch.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    assert launch.threads() == threads
