import pytest

from ensue.core import torchrun
from ensue.core.errors import InputError


def test_without_torchrun_there_is_one_rank(monkeypatch):
    for name in torchrun.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")  # as some queues set it
    assert (torchrun.rank(), torchrun.world_size(), torchrun.local_rank()) == (0, 1, 0)


def test_rank_and_world_size_come_from_torchrun(monkeypatch):
    for name, value in zip(torchrun.VARIABLES, ("5", "8", "localhost", "29500"), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert (torchrun.rank(), torchrun.world_size(), torchrun.local_rank()) == (5, 8, 1)


@pytest.mark.parametrize(
    ("rank", "count", "port"),
    [("abc", "2", "1"), ("5", "2", "1"), ("3", "1", "1"), ("0", "x", "1"), ("-1", "2", "1"), ("0", "2", "99999")],
)
def test_invalid_variables_are_rejected(monkeypatch, rank, count, port):
    for name, value in zip(torchrun.VARIABLES, (rank, count, "localhost", port), strict=True):
        monkeypatch.setenv(name, value)
    assert (torchrun.rank(), torchrun.world_size()) == (0, 1)
    with pytest.raises(InputError, match=f"RANK={rank}, WORLD_SIZE={count}.*start them with torchrun"):
        torchrun.check()


@pytest.mark.parametrize(("said", "local", "threads"), [("1", "2", 4), ("", "16", 1), ("3", "2", 3)])
def test_ranks_share_the_cores_unless_omp_num_threads_is_set(monkeypatch, said, local, threads):
    monkeypatch.setattr(torchrun.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    assert torchrun.threads_per_rank() == threads
