"""How many of its cores a process shares with others, and how many threads that leaves for it.

Threads that share their cores with other processes wait for each other: with two threads on two cores and two busy
processes beside them, a training step takes many times as long, where a fair share of the cores would make it
twice as long. One thread that has a core for itself is then faster than two. A thread that waits by spinning also takes
its core from the thread it waits for; ``limit_spinning`` makes it sleep soon.
"""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path

from ensue.core.torchrun import available_cores

SPINS = "3000"
"""How often a waiting OpenMP thread looks again before it sleeps: longer than the gaps between
the loops of a training step, shorter than the time for which another process gets the core."""
MIN_INTERVAL = 0.2
"""Seconds that a measurement covers at least: the kernel counts time in hundredths of a second."""
STAT = Path("/proc/stat")
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The limit of a container (cgroup v2), such as ``200000 100000``: microseconds of CPU time in a period."""


def limit_spinning() -> None:
    """Let OpenMP's threads sleep when they have waited for a moment; call it before torch is imported.

    Settings of the user stay. OpenMP reads the variable once, when it is loaded.
    """
    if "torch" not in sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPINS


class CPULoad:
    """Measures the CPU time of other processes, on the cores that this one may use."""

    def __init__(self) -> None:
        self._before = self._now()
        self._total = self._before

    def _now(self) -> tuple[float, float, float]:
        """Return the time, and the seconds of CPU time of all processes and of this one with its children."""
        return time.perf_counter(), _busy_seconds(), sum(os.times()[:4])

    def others(self, interval: float = MIN_INTERVAL) -> float | None:
        """Return the cores that others used since the last result; None before ``interval`` or if it is unknown."""
        if time.perf_counter() - self._before[0] < interval:
            return None
        before, self._before = self._before, self._now()
        return _cores_of_others(before, self._before)

    def restart_mean(self) -> None:
        """Let ``mean_others`` start here."""
        self._total = self._now()

    def mean_others(self) -> float:
        """Return the cores that others used on average since the (re)start; 0 if that was just now or is unknown."""
        now = self._now()
        return 0.0 if now[0] - self._total[0] < MIN_INTERVAL else _cores_of_others(self._total, now) or 0.0


def _busy_seconds() -> float:
    """Return the CPU time of all processes on the cores of this one since the machine was started.

    It is NaN where the kernel does not tell. A container may see its cores under other numbers; then all that it sees
    count.
    """
    try:
        lines = (line.split() for line in STAT.read_text(encoding="ascii").splitlines() if line.startswith("cpu"))
        fields = {name: [int(value) for value in values[:7]] for name, *values in lines}
        own = [f"cpu{number}" for number in os.sched_getaffinity(0)]
        cores = own if fields.keys() >= set(own) else ["cpu"]
        ticks = sum(sum(fields[core]) - sum(fields[core][3:5]) for core in cores)  # less idle and iowait
    except (OSError, ValueError, KeyError):
        return float("nan")
    return ticks / os.sysconf("SC_CLK_TCK")


def _cores_of_others(before: tuple[float, float, float], now: tuple[float, float, float]) -> float | None:
    seconds, busy, own = (b - a for a, b in zip(before, now))
    others = (busy - own) / max(seconds, 1e-9)
    return None if math.isnan(others) else max(0.0, others)


def free_cores(others: float) -> float:
    """Return the cores that others leave to this process, at most the quota of its container."""
    return min(_quota(), available_cores() - others)


def _quota() -> float:
    """Return the CPU time a second that the container may use; infinity without a limit."""
    try:
        limit, period = QUOTA.read_text(encoding="ascii").split()
        return math.inf if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf


def threads_for(free: float, threads: int) -> int:
    """Return the number of threads to use on ``free`` cores; ``threads`` are used now.

    Of the last core half must be free to stay on it, and three quarters to take it.

    >>> [threads_for(free, 2) for free in (1.9, 1.6, 1.4, 0.7, 0.0)]
    [2, 2, 1, 1, 1]
    >>> [threads_for(free, 1) for free in (1.9, 1.6, 1.4)]
    [2, 1, 1]
    >>> threads_for(5.0, 8)
    5
    """
    most, least = (max(1, int(free + slack)) for slack in (0.5, 0.25))
    return min(max(threads, least), most)
