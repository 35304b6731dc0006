import subprocess
import sys
import time

import pytest

from ensue.core import cpu_load
from ensue.core.cpu_load import CPULoad, threads_for


def test_cpu_time_of_other_processes_is_seen_and_ones_own_is_not(tmp_path, monkeypatch):
    """Between two readings, in one second: 1.9 seconds of CPU time in all, 0.4 of them ours."""
    clock, own, stat = [10.0], [5.0], tmp_path / "stat"
    monkeypatch.setattr(cpu_load, "STAT", stat)
    monkeypatch.setattr(cpu_load.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(cpu_load.os, "times", lambda: (own[0], 0.0, 0.0, 0.0, 0.0))
    monkeypatch.setattr(cpu_load.os, "sysconf", lambda name: 100)
    stat.write_text("cpu  1000 0 500 9000 0 0 0 0 0 0\ncpu0 1 2 3\n")
    load = CPULoad()
    assert load.others() is None  # nothing can be said after no time
    clock[0], own[0] = 11.0, 5.4
    stat.write_text("cpu  1150 10 530 9100 0 0 0 0 0 0\ncpu0 1 2 3\n")
    assert load.others() == pytest.approx(1.5) and load.mean_others() == pytest.approx(1.5)


def test_a_system_that_does_not_tell_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu_load, "STAT", tmp_path / "missing")
    load = CPULoad()
    time.sleep(cpu_load.MIN_INTERVAL)
    assert load.others() is None and load.mean_others() == 0.0


def test_threads_fall_and_rise_with_a_margin():
    threads = [2]
    for others in (0.0, 0.6, 0.4, 0.3, 0.2, 0.4):
        threads.append(threads_for(others, threads[-1], cores=2))
    assert threads[1:] == [2, 1, 1, 1, 2, 2]


def test_openmp_is_told_to_sleep_before_torch_is_loaded_unless_the_user_decided():
    code = "import os, ensue; print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))"

    def printed(**more):
        done = subprocess.run([sys.executable, "-c", code], env=more, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert printed() == [cpu_load.SPINS, "None"]
    assert printed(OMP_WAIT_POLICY="active") == ["None", "active"]
    assert printed(GOMP_SPINCOUNT="7") == ["7", "None"]
