"""Budgets and races beside busy processes: the time used, the speed against a fair share, the ranking, exact resume.

python -m benchmarks.reliability.budget [--short] [--only fit,race,resume,demo] [--rounds N]

Each busy process is an endless loop of the same priority. With n of them beside a training of two threads on two cores,
a fair share is 2 / (2 + n) of the cores. Reads Tiny Shakespeare from $ENSUE_DATA, or else the built-in corpus pydoc.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.record import record
from benchmarks.reliability.row import Row
from ensue.core.files import sha256
from ensue.core.torchrun import available_cores

ENSUE = [sys.executable, "-m", "ensue"]
SYSTEMS = "ngram,window,rnn,gru,gru-cho,lstm,gpt"
BUSY = (0, 1, 2, 4)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Endless loops beside the block."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.5 * bool(count))
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def text() -> str:
    """The text to learn from."""
    folder = os.environ.get("ENSUE_DATA")
    return str(Path(folder) / "text" / "tinyshakespeare.txt.gz") if folder else "pydoc"


def fit(out: Path, *words: str) -> dict[str, Any]:
    """Train the default gpt on characters, and return the figures of its config.json."""
    command = [*ENSUE, "fit", "gpt", text(), "--tokenizer", "char", "--out", str(out), "--json", *words]
    subprocess.run(command, check=True, capture_output=True)
    figures: dict[str, Any] = json.loads((out / "config.json").read_text())["figures"]
    return figures


def fits(folder: Path, budget: float, rounds: int) -> list[Row]:
    """Trainings with a budget beside 0, 1, 2 and 4 busy processes, in turns."""
    found: dict[int, list[dict[str, Any]]] = {count: [] for count in BUSY}
    for turn in range(rounds):
        for count in BUSY:
            with busy(count):
                found[count].append(fit(folder / f"fit-{count}-{turn}", "--budget", f"{budget:g}s"))
    rows = []
    speeds = {n: [one["tokens"] / one["seconds"] for one in runs] for n, runs in found.items()}
    for count, runs in found.items():
        shares = [one["budget"]["used"] / budget for one in runs]
        steps, bits = (sorted(values) for values in zip(*((r["steps"], r["valid"]["bits_per_byte"]) for r in runs)))
        used = f"{min(shares):.0%} to {max(shares):.0%} used; {steps[0]} to {steps[-1]} steps, {median(bits):.2f} bits"
        kept = all(0.9 <= share <= 1.1 for share in shares)
        rows.append(Row(f"budget of {budget:g} s beside {count} busy", "90 to 110 % used", used, kept))
        if count:
            slowdown, cores = median(speeds[0]) / median(speeds[count]), available_cores()
            fair = (cores + count) / cores
            measured = f"{slowdown:.2f} times slower, a fair share is {fair:.2f}"
            what = f"speed beside {count} busy"
            rows.append(Row(what, f"at most {1.5 * fair:.2f} times slower", measured, slowdown <= 1.5 * fair))
    return rows


def race(folder: Path, match: str, budget: str, count: int) -> dict[str, float]:
    """The race of the demo beside busy processes; bits per byte by system."""
    out = folder / f"race-{match}-{budget}-{count}"
    command = [
        *ENSUE,
        "race",
        "pydoc",
        "--systems",
        SYSTEMS,
        "--budget",
        budget,
        "--match",
        match,
        "--out",
        str(out),
        "--json",
    ]
    with busy(count):
        subprocess.run(command, check=True, capture_output=True)
    systems = json.loads((out / "race.json").read_text())["systems"]
    return {one["system"]: one["bits_per_byte"] for one in systems}


def demo(folder: Path, count: int) -> list[Row]:
    """The systems of the demo with 40 seconds each, beside busy processes: how much of its budget each one used."""
    race(folder, "time", "40s", count)
    configs = [json.loads(path.read_text()) for path in folder.glob(f"race-time-40s-{count}/*/config.json")]
    used = {one["system"]: one["figures"]["budget"]["used"] / 40 for one in configs if "budget" in one["figures"]}
    measured = ", ".join(f"{name} {share:.0%}" for name, share in sorted(used.items()))
    kept = all(0.9 <= share <= 1.1 for share in used.values())
    return [Row(f"the demo's systems, 40 s each, beside {count} busy", "90 to 110 % used", measured, kept)]


def kendall(a: dict[str, float], b: dict[str, float]) -> float:
    """Kendall's τ of two rankings of the same systems.

    >>> kendall({"x": 1, "y": 2, "z": 3}, {"x": 1, "y": 3, "z": 2})
    0.3333333333333333
    """
    names = sorted(a)
    signs = [
        1 if (a[one] - a[two]) * (b[one] - b[two]) > 0 else -1
        for place, one in enumerate(names)
        for two in names[place + 1 :]
    ]
    return sum(signs) / len(signs)


def races(folder: Path) -> list[Row]:
    """The demo, a race of equal CPU time, on a quiet machine and beside two busy processes."""
    quiet, loaded = (race(folder, "cpu", "40s", count) for count in (0, 2))
    tau = kendall(quiet, loaded)
    table = ", ".join(f"{name} {quiet[name]:.2f}/{loaded[name]:.2f}" for name in sorted(quiet, key=lambda n: quiet[n]))
    what = "ranking of seven systems, --match cpu, 40 s, quiet and beside 2 busy"
    return [Row(what, "Kendall's τ ≥ 0.9", f"{tau:.2f}: {table}", tau >= 0.9)]


def resumes(folder: Path, kills: int) -> list[Row]:
    """Trainings with a budget, killed beside two busy processes and resumed, against repetitions of their plan."""
    same = 0
    for trial in range(kills):
        out, again = folder / f"killed-{trial}", folder / f"repeated-{trial}"
        command = [*ENSUE, "fit", "gpt", text(), "--tokenizer", "char", "--budget", "12s", "--out", str(out), "--json"]
        command += ["--set", "train.log_every=1", "--set", "dropout=0.1", "--set", "train.keep=last"]
        with busy(2):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            log, wanted = out / "metrics.jsonl", 12 + 9 * trial
            while process.poll() is None and (not log.exists() or log.read_text().count("\n") < wanted):
                time.sleep(0.01)
            killed = process.poll() is None
            process.kill()
            process.wait()
            subprocess.run([*ENSUE, "fit", str(out), "--resume", "--json"], check=True, capture_output=True)
        words = ["fit", "gpt", "--config", str(out / "run.toml"), "--set", "data.hash=", "--out", str(again), "--json"]
        subprocess.run([*ENSUE, *words], check=True, capture_output=True)
        same += killed and sha256(out / "model.safetensors") == sha256(again / "model.safetensors")
    what = "killed beside 2 busy, resumed; repeated from run.toml, not interrupted"
    return [Row(what, "equal SHA-256 of the weights", f"{same} of {kills} equal", same == kills)]


def measure(
    short: bool,
    only: tuple[str, ...] = ("fit", "race", "resume"),
    rounds: int = 3,
    busy_beside_demo: tuple[int, ...] = BUSY,
) -> list[Row]:
    """All rows; ``short`` takes a few minutes. ``demo``, five minutes for each number of busy processes, is extra."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "fit" in only:
            rows += fits(folder, 12.0, 1 if short else rounds)
        if "resume" in only:
            rows += resumes(folder, 1 if short else 4)
        for count in busy_beside_demo if "demo" in only else ():
            rows += demo(folder, count)
        if "race" in only and not short:
            rows += races(folder)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default="fit,race,resume")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", default="0,1,2,4", help="busy processes beside the demo")
    chosen = parser.parse_args()
    counts = tuple(map(int, chosen.busy.split(",")))
    rows = measure(chosen.short, tuple(chosen.only.split(",")), chosen.rounds, counts)
    record("reliability", {"part": "budget", "rows": [row._asdict() for row in rows]})


if __name__ == "__main__":
    main()
