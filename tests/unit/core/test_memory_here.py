"""How much memory there is for this process."""

import pytest

from ensue.core.errors import InputError
from ensue.core.memory import NONE, _limits, memory_here


def test_what_is_said_counts(monkeypatch):
    monkeypatch.setenv("ENSUE_MEMORY", "3G")
    assert memory_here() == 3 * 10**9
    monkeypatch.setenv("ENSUE_MEMORY", "much")
    with pytest.raises(InputError, match="no amount of memory"):
        memory_here()


def test_else_it_is_the_machines(monkeypatch):
    monkeypatch.delenv("ENSUE_MEMORY", raising=False)
    assert 1 << 28 < memory_here() < 1 << 50


def test_a_group_has_no_more_than_the_one_it_is_in(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "memory.max").write_text("5000\n")
    (tmp_path / "a" / "b" / "memory.max").write_text("max\n")
    (tmp_path / "mine").write_text("0::/a/b\n")
    assert min(_limits(tmp_path / "mine", tmp_path)) == 5000


def test_groups_of_the_first_version(tmp_path):
    (tmp_path / "memory" / "a").mkdir(parents=True)
    (tmp_path / "memory" / "a" / "memory.limit_in_bytes").write_text("7000\n")
    (tmp_path / "mine").write_text("5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n")
    assert min(_limits(tmp_path / "mine", tmp_path)) == 7000


def test_a_container_that_sees_no_group_of_that_name(tmp_path):
    (tmp_path / "memory.max").write_text("9000\n")
    (tmp_path / "mine").write_text("0::/../elsewhere\n")
    assert min(_limits(tmp_path / "mine", tmp_path)) == 9000
    assert list(_limits(tmp_path / "no such file", tmp_path)) == [NONE]
