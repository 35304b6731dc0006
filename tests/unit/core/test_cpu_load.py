import subprocess
import sys
import time

import pytest

from ensue.core import cpu_load
from ensue.core.cpu_load import CPULoad, free_cores, threads_for


def test_cpu_time_of_other_processes_is_seen_and_ones_own_is_not(tmp_path, monkeypatch):
    """Between two readings, in one second: 1.9 seconds of CPU time in all, 0.4 of them ours."""
    clock, own, stat = [10.0], [5.0], tmp_path / "stat"
    monkeypatch.setattr(cpu_load, "STAT", stat)
    monkeypatch.setattr(cpu_load.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(cpu_load.os, "times", lambda: (own[0], 0.0, 0.0, 0.0, 0.0))
    monkeypatch.setattr(cpu_load.os, "sysconf", lambda name: 100)
    monkeypatch.setattr(cpu_load.os, "sched_getaffinity", lambda process: {0, 1})
    stat.write_text("cpu  1000 0 500 9000 0 0 0 0 0 0\n")  # a container that does not tell its cores apart
    load = CPULoad()
    assert load.others() is None and load.mean_others() == 0.0  # nothing can be said after no time
    clock[0], own[0] = 11.0, 5.4
    stat.write_text("cpu  1150 10 530 9100 70 0 0 0 0 0\n")
    assert load.others(interval=2.0) is None
    assert load.others() == pytest.approx(1.5) and load.mean_others() == pytest.approx(1.5)


def test_processes_on_other_cores_do_not_count(tmp_path, monkeypatch):
    """Of four cores the last two may be used: ours is busy on one, another process half of the time on the other."""
    clock, own, stat = [10.0], [5.0], tmp_path / "stat"
    monkeypatch.setattr(cpu_load, "STAT", stat)
    monkeypatch.setattr(cpu_load.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(cpu_load.os, "times", lambda: (own[0], 0.0, 0.0, 0.0, 0.0))
    monkeypatch.setattr(cpu_load.os, "sysconf", lambda name: 100)
    monkeypatch.setattr(cpu_load.os, "sched_getaffinity", lambda process: {2, 3})

    def write(*busy):
        lines = [f"cpu{number} {ticks} 0 0 50 7 0 0 0 0 0" for number, ticks in enumerate(busy)]
        stat.write_text("\n".join([f"cpu  {sum(busy)} 0 0 200 28 0 0 0 0 0", *lines, "intr 17 0", "ctxt 9"]))

    write(0, 0, 0, 0)
    load = CPULoad()
    clock[0], own[0] = 11.0, 6.0
    write(100, 100, 100, 50)
    assert load.others() == pytest.approx(0.5)


def test_a_system_that_does_not_tell_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu_load, "STAT", tmp_path / "missing")
    load = CPULoad()
    time.sleep(cpu_load.MIN_INTERVAL)
    assert load.others() is None and load.mean_others() == 0.0


def test_threads_fall_and_rise_with_a_margin():
    threads = [2]
    for free in (2.0, 1.4, 1.6, 1.7, 1.8, 1.6):
        threads.append(threads_for(free, threads[-1]))
    assert threads[1:] == [2, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("limit", "idle", "busy"), [("200000 100000\n", 2.0, 1.0), ("max 100000\n", 8.0, 1.0), ("", 8.0, 1.0)]
)
def test_a_container_has_no_more_cores_than_its_quota(tmp_path, monkeypatch, limit, idle, busy):
    monkeypatch.setattr(cpu_load, "QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(cpu_load, "available_cores", lambda: 8)
    (tmp_path / "cpu.max").write_text(limit)
    assert (free_cores(0.0), free_cores(7.0)) == (idle, busy)


def test_openmp_is_told_to_sleep_before_torch_is_loaded_unless_the_user_decided():
    code = "import os, ensue; print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))"

    def printed(**more):
        done = subprocess.run([sys.executable, "-c", code], env=more, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert printed() == [cpu_load.SPINS, "None"]
    assert printed(OMP_WAIT_POLICY="active") == ["None", "active"]
    assert printed(GOMP_SPINCOUNT="7") == ["7", "None"]
