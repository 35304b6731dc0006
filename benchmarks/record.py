"""One line of results: what was measured, by which command, at which commit, on what machine, when."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).resolve().parent / "results"


def record(name: str, figures: dict[str, Any], seed: int | list[int] = 0) -> None:
    """Append figures to results/NAME.jsonl and print them."""
    ask = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(ask, capture_output=True, text=True, check=False, cwd=RESULTS.parent)
    capability = torch.backends.cpu.get_cpu_capability()
    module = getattr(sys.modules["__main__"].__spec__, "name", "")
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    line = {
        "benchmark": name,
        "command": " ".join(["python -m", module, *words]),
        **figures,
        "commit": commit.stdout.strip(),
        "machine": f"{os.cpu_count()} cores, {capability}, {torch.get_num_threads()} threads",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "seed": seed,
        "date": datetime.now(UTC).date().isoformat(),
    }
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=2))


def data_folder() -> Path:
    """$ENSUE_DATA, the folder with the public data sets that some benchmarks read."""
    if "ENSUE_DATA" not in os.environ:
        raise SystemExit("set ENSUE_DATA to the folder with text/ptb and text/tinyshakespeare.txt.gz")
    return Path(os.environ["ENSUE_DATA"])
