"""Memory available to this process."""

import pytest

from ensue.core.errors import InputError
from ensue.core.memory import UNLIMITED, _limits, available_memory


def test_ensue_memory_overrides_the_machine(monkeypatch):
    monkeypatch.setenv("ENSUE_MEMORY", "3G")
    assert available_memory() == 3 * 10**9
    monkeypatch.setenv("ENSUE_MEMORY", "much")
    with pytest.raises(InputError, match="is not a size"):
        available_memory()


def test_the_default_is_the_memory_of_the_machine(monkeypatch):
    monkeypatch.delenv("ENSUE_MEMORY", raising=False)
    assert 1 << 28 < available_memory() < 1 << 50


def test_limits_of_parent_control_groups_apply(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "memory.max").write_text("5000\n")
    (tmp_path / "a" / "b" / "memory.max").write_text("max\n")
    (tmp_path / "mine").write_text("0::/a/b\n")
    assert min(_limits(tmp_path / "mine", tmp_path)) == 5000


def test_control_groups_of_version_1(tmp_path):
    (tmp_path / "memory" / "a").mkdir(parents=True)
    (tmp_path / "memory" / "a" / "memory.limit_in_bytes").write_text("7000\n")
    (tmp_path / "mine").write_text("5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n")
    assert min(_limits(tmp_path / "mine", tmp_path)) == 7000


def test_a_control_group_outside_the_container(tmp_path):
    (tmp_path / "memory.max").write_text("9000\n")
    (tmp_path / "mine").write_text("0::/../elsewhere\n")
    assert min(_limits(tmp_path / "mine", tmp_path)) == 9000
    assert list(_limits(tmp_path / "no such file", tmp_path)) == [UNLIMITED]
