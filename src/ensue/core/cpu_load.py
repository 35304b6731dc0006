"""How many cores other processes use, and how many threads that leaves for this one.

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


def limit_spinning() -> None:
    """Let OpenMP's threads sleep when they have waited for a moment; call it before torch is imported.

    Settings of the user stay. OpenMP reads the variable once, when it is loaded.
    """
    if "torch" not in sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPINS


class CPULoad:
    """Measures the CPU time of other processes since it was made, or since the last call of ``others``."""

    def __init__(self) -> None:
        self._before = self._now()
        self._total = self._before

    def _now(self) -> tuple[float, float, float]:
        """Return the time, and the seconds of CPU time of all processes and of this one with its children."""
        return time.perf_counter(), _busy_seconds(), sum(os.times()[:4])

    def others(self) -> float | None:
        """Return the cores that others used since the last call; None if that was just now or cannot be known."""
        if time.perf_counter() - self._before[0] < MIN_INTERVAL:
            return None
        before, self._before = self._before, self._now()
        return _cores_of_others(before, self._before)

    def restart_mean(self) -> None:
        """Let ``mean_others`` start here."""
        self._total = self._now()

    def mean_others(self) -> float:
        """Return the cores that others used on average since the (re)start; 0 if it cannot be known."""
        return _cores_of_others(self._total, self._now()) or 0.0


def _busy_seconds() -> float:
    """Return the CPU time of all processes since the machine was started; NaN where the kernel does not tell."""
    try:
        fields = STAT.read_text(encoding="ascii").split("\n", 1)[0].split()
        user, nice, system, _, _, irq, softirq = map(int, fields[1:8])
    except (OSError, ValueError):
        return float("nan")
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _cores_of_others(before: tuple[float, float, float], now: tuple[float, float, float]) -> float | None:
    seconds, busy, own = (b - a for a, b in zip(before, now))
    others = (busy - own) / max(seconds, 1e-9)
    return None if math.isnan(others) else max(0.0, others)


def threads_for(others: float, threads: int, cores: int | None = None) -> int:
    """Return the number of threads to use, given the cores that others use; ``threads`` are used now.

    A core counts as taken when more than half of it is used, and as free again below a quarter.

    >>> [threads_for(others, 2, cores=2) for others in (0.1, 0.4, 0.6, 1.3, 2.0)]
    [2, 2, 1, 1, 1]
    >>> [threads_for(others, 1, cores=2) for others in (0.1, 0.4, 0.6)]
    [2, 1, 1]
    >>> threads_for(3.0, 8, cores=8)
    5
    """
    free = (cores or available_cores()) - others
    most, least = (max(1, int(free + slack)) for slack in (0.5, 0.25))
    return min(max(threads, least), most)
