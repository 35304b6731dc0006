"""Damaged files: is each one refused when a run is loaded, and is a run complete or absent after kill -9?

python -m benchmarks.reliability.damage [--short]

Every file that a run needs is damaged in several ways, in a run of each kind. Then processes that write runs are killed
at random moments. At last the cost of verification: the start of a command with and without --no-verify, in turns.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import ensue
from benchmarks.record import record
from benchmarks.reliability.interrupted_saves import kill_while_saving
from benchmarks.reliability.row import Row
from benchmarks.reliability.small_runs import make_runs
from ensue.core import manifest
from ensue.core.files import sha256
from ensue.core.manifest import MANIFEST, damaged_files, write_manifest
from ensue.core.notes import NOTES, note_once
from ensue.train.checkpoints import Checkpoints

LARGE_BYTES = 256 << 20
Damage = tuple[str, Callable[[Path], None]]


class Notes(logging.Handler):
    """Collects notes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, entry: logging.LogRecord) -> None:
        self.seen.append(entry.getMessage())


def damages(size: int, flips: int, chance: random.Random) -> Iterator[Damage]:
    """Ways to damage a file of ``size`` bytes: one changed bit at several positions, cut short, emptied, deleted."""
    positions = {0, size // 2, size - 1, *(chance.randrange(size) for _ in range(flips))}
    for position in sorted(positions):
        bit = 1 << chance.randrange(8)
        yield f"bit {position}", lambda path, position=position, bit=bit: flip(path, position, bit)
    for kept in (0, size // 2, size - 1):
        yield f"cut to {kept}", lambda path, kept=kept: path.write_bytes(path.read_bytes()[:kept])
    yield "deleted", lambda path: path.unlink()


def flip(path: Path, position: int, bit: int) -> None:
    """Change one bit."""
    content = bytearray(path.read_bytes())
    content[position] ^= bit
    path.write_bytes(content)


def load_result(run: Path, notes: Notes) -> str:
    """Load a run with its model: refused (in one line), noted, silent, or the name of another error."""
    notes.seen.clear()
    note_once.cache_clear()
    try:
        loaded = ensue.load(run)
        _ = loaded.model, loaded.settings
    except ensue.InputError as error:
        return "refused" if "\n" not in str(error) else "several lines"
    except Exception as error:  # a traceback for the user
        return type(error).__name__
    return "noted" if notes.seen else "silent"


def damage_runs(runs: dict[str, Path], flips: int) -> Row:
    """Damage each file of each run that its manifest lists, and the manifest."""
    notes, chance, results, silent = Notes(), random.Random(0), Counter[str](), []
    NOTES.addHandler(notes)
    for name, run in runs.items():
        assert load_result(run, notes) == "silent", f"{name}: the undamaged run must load"
        for file in (*json.loads((run / MANIFEST).read_text(encoding="utf-8")), MANIFEST):
            before = (run / file).read_bytes()
            for what, harm in damages(len(before), flips, chance):
                harm(run / file)
                result = load_result(run, notes)
                results[result] += 1
                if result not in ("refused", "noted"):
                    silent.append(f"{name}, {file}, {what}: {result}")
                (run / file).write_bytes(before)
    NOTES.removeHandler(notes)
    print(*silent, sep="\n")
    cases = sum(results.values())
    measured = f"{results['refused']} refused, {results['noted']} with a note (no manifest.json), {len(silent)} silent"
    what = f"{cases} damaged files in {len(runs)} kinds of runs: one line at load (a deleted manifest.json: a note)"
    return Row(what, "0 silent", measured, not silent and results["noted"] <= len(runs))


def damage_checkpoints(run: Path, flips: int) -> Row:
    """Damage each file of a run's newest checkpoint: resuming must take the one before."""
    chance, cases, wrong = random.Random(0), 0, 0
    latest = Checkpoints(run / "checkpoints").latest()
    assert latest is not None and latest.path is not None
    for file in sorted(path for path in latest.path.rglob("*") if path.is_file()):
        before = file.read_bytes()
        for _, harm in damages(len(before), flips, chance):
            harm(file)
            checkpoints = Checkpoints(run / "checkpoints")
            found = checkpoints.latest()
            cases += 1
            wrong += found is None or found.step >= latest.step or len(checkpoints.notes) != 1
            file.write_bytes(before)
    what = f"{cases} damaged files of a checkpoint: the one before is taken, with a note"
    return Row(what, "0 others", f"{wrong} others", wrong == 0)


def start_seconds(run: Path, *words: str) -> float:
    """CPU seconds of ``ensue next``, in a process of its own; they depend less on other work than time does."""
    command = [sys.executable, "-m", "ensue", "next", str(run), "the", "--json", *words]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def start_cost(run: Path, rounds: int) -> Row:
    """The start of a command with and without verification, in alternating rounds."""
    start_seconds(run)
    pairs = [(start_seconds(run), start_seconds(run, "--no-verify")) for _ in range(rounds)]
    verified, plain = (statistics.median(column) for column in zip(*pairs))
    folder = ensue.load(run).folder
    begin = time.process_time()
    for _ in range(20):
        folder.verify()
    alone = (time.process_time() - begin) / 20
    size = sum(path.stat().st_size for path in run.iterdir() if path.is_file())
    what = f"start of `ensue next` on a run of {size / 1e6:.1f} MB: the share of verification"
    measured = (
        f"{alone / plain:.1%} ({1000 * alone:.1f} ms of {verified:.2f} s; with --no-verify {plain:.2f} s; CPU time)"
    )
    return Row(what, "at most 3 %", measured, alone < 0.03 * plain)


def large_file_cost(folder: Path) -> Row:
    """A large file is hashed once, and remembered until it changes."""
    folder.mkdir()
    with (folder / "weights").open("wb") as file:
        for block in range(LARGE_BYTES >> 20):
            file.write(bytes([block % 251]) * (1 << 20))
    digests = {"weights": sha256(folder / "weights")}
    write_manifest(folder, digests)
    time.sleep(manifest.SETTLED_SECONDS + 0.5)
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        assert not list(damaged_files(folder, digests, remember=True))
        seconds.append(time.perf_counter() - begin)
    measured = f"{seconds[0]:.2f} s ({LARGE_BYTES / seconds[0] / 1e9:.1f} GB/s), then {1000 * seconds[1]:.1f} ms"
    what = f"a file of {LARGE_BYTES >> 20} MiB is hashed at the first load, later only if it has changed"
    return Row(what, "later at most 10 ms", measured, seconds[1] < 0.01)


def measure(short: bool) -> list[Row]:
    """Measure everything."""
    flips = 2 if short else 12
    with tempfile.TemporaryDirectory(prefix="ensue-damage-") as name:
        folder = Path(name)
        runs = make_runs(folder)
        rows = [damage_runs(runs, flips), damage_checkpoints(runs["lstm"], flips)]
        rows += kill_while_saving(folder / "killed", kills=6 if short else 30)
        ngram = folder / "pydoc"
        ensue.fit("ngram", "pydoc", out=ngram)
        rows += [start_cost(ngram, 3 if short else 15), large_file_cost(folder / "large")]
        shutil.rmtree(folder / "large")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true", help="take at most two minutes")
    rows = measure(parser.parse_args().short)
    for row in rows:
        print(f"{'holds' if row.holds else 'FAILS'}  {row.what}\n       target: {row.target}; measured: {row.measured}")
    record("reliability", {"part": "damage", "rows": [row._asdict() for row in rows]})


if __name__ == "__main__":
    main()
