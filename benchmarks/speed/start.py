"""How long ``ensue --help`` takes, and that it does not import torch: the median of several starts.

python -m benchmarks.speed.start
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.record import record

HEAVY = """
import sys
sys.argv = ['ensue', '--help']
from ensue.cli.main import main
try:
    main()
except SystemExit:
    print('torch' in sys.modules)
"""


def main() -> None:
    times = []
    for _ in range(9):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "ensue", "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - begun)
    heavy = subprocess.run([sys.executable, "-c", HEAVY], check=True, capture_output=True, text=True).stdout.split()[-1]
    spread = {"median_seconds": statistics.median(times), "slowest_seconds": max(times)}
    record("start", {**spread, "imports_torch": heavy == "True"})


if __name__ == "__main__":
    main()
