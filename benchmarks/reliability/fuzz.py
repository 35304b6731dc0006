"""Open damaged files of every format.

python -m benchmarks.reliability.fuzz [--cases 100000] [--seconds 3600] [--only NAME]

Each case damages one file of one target and uses it. It must be read, or refused by an ``InputError`` of one line: no
other exception, no crash of the process, no more memory than ``MEMORY``, and no file opened that the call does not
name. Cases are numbered; a number and a target repeat a case (``--only NAME --case N``).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.reliability.mutations import damage, restore
from benchmarks.reliability.targets import Target, Workshop
from ensue.core.errors import InputError, InvalidDistribution

MEMORY = 1 << 30
"""Bytes that a case may allocate."""
SECONDS_PER_CASE = 20
ENDINGS = ("read", "refused", "traceback", "crash", "foreign")
"""How a case can end; the last three are problems."""
_PREFIXES = (
    "/proc",
    "/sys",
    "/dev",
    "/usr",
    "/etc",
    "/lib",
    sys.prefix,
    sys.base_prefix,
    *sysconfig.get_paths().values(),
)
_OWN = (Path(__file__).resolve().parents[2] / "src", Path(__file__).parent, Path("~/.cache").expanduser())
SYSTEM_FOLDERS = tuple({os.path.realpath(path) for path in (*_PREFIXES, *_OWN)})
"""Folders of Python, its packages and the system, whose files may be opened at any time."""


@dataclass
class Tally:
    """How the cases of a target ended."""

    cases: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    """read, refused, traceback, foreign, crash."""
    problems: list[str] = field(default_factory=list)
    peak: int = 0
    """Most bytes of memory above those before the first case."""

    def merge(self, other: Tally) -> None:
        self.cases += other.cases
        self.endings.update(other.endings)
        self.problems += other.problems
        self.peak = max(self.peak, other.peak)


class OpenedFiles:
    """The files that Python opens during a case, by an audit hook, which stays for the life of the process."""

    def __init__(self) -> None:
        tempfile.gettempdir()  # it tries to write a file when it is first asked
        self.watching, self.paths = False, set[str]()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self.watching and event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            self.paths.add(os.fsdecode(args[0]))

    def foreign(self, target: Target, workshop: Workshop) -> list[str]:
        """Return what was opened besides the files that a target names, the cache and the output.

        A name that does not exist here was opened relative to a folder, as ``shutil.rmtree`` does.
        """
        mine = (*map(str, target.named), str(workshop.folder / "cache"), str(workshop.folder / "out"), *SYSTEM_FOLDERS)
        others = (os.path.realpath(path) for path in self.paths if path and not path.startswith(mine))
        return sorted(path for path in others if not path.startswith(mine) and Path(path).exists())


OPENED: list[OpenedFiles] = []


def opened_files() -> OpenedFiles:
    """Return the one audit hook of this process."""
    if not OPENED:
        OPENED.append(OpenedFiles())
    return OPENED[0]


@contextmanager
def limits() -> Iterator[None]:
    """Bound the address space and the time of a case."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    before = signal.signal(signal.SIGALRM, _too_slow)
    signal.alarm(SECONDS_PER_CASE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class TooSlow(BaseException):
    """A case takes too long; no ``except Exception`` catches it."""


def _too_slow(number: int, frame: Any) -> None:
    raise TooSlow(f"more than {SECONDS_PER_CASE} seconds")


def run_case(target: Target, workshop: Workshop, number: int) -> tuple[str, str]:
    """Run a case; return its ending and, if it is a problem, a line on it."""
    chance = random.Random(f"{target.name} {number}")
    file = chance.choice(target.files)
    data, watch = file.read_bytes(), opened_files()
    whole = {path: path.read_bytes() for path in target.whole.rglob("*") if path.is_file()} if target.whole else {}
    damage(file, chance, workshop.canary)
    watch.paths.clear()
    watch.watching = True
    try:
        ending, problem = _outcome(target)
    finally:
        watch.watching = False
        if target.whole:
            shutil.rmtree(target.whole)
            for path, content in whole.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        else:
            restore(file, data)
    foreign = watch.foreign(target, workshop)
    if foreign and ending != "traceback":
        ending, problem = "foreign", f"opened {foreign[0]}"
    return ending, f"{target.name} {number} ({file.name}): {problem}" if problem else ""


def _outcome(target: Target) -> tuple[str, str]:
    start = time.monotonic()
    try:
        with limits():
            target.use()
    except (InputError, InvalidDistribution) as error:
        message = str(error)
        if "\n" in message or message.encode("utf-8", "replace").decode() != message:
            return "traceback", f"a message that cannot be shown on one line: {message!r}"
        if time.monotonic() - start > SECONDS_PER_CASE:  # a library that returns to Python too late
            return "traceback", f"refused after {time.monotonic() - start:.0f} seconds"
        return "refused", ""
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        place = next((f for f in reversed(traceback.extract_tb(error.__traceback__)) if "/ensue/" in f.filename), None)
        where = f"{place.filename.partition('/ensue/')[2]}:{place.lineno}" if place else "?"
        return "traceback", f"{type(error).__name__} in {where}: {str(error)[:200]!r}"
    return "read", ""


def peak_memory(reset: bool = False) -> int:
    """Return the most memory this process had since the last reset, in bytes."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def run_cases(
    target: Target, workshop: Workshop, numbers: range, until: float = float("inf"), note: Path | None = None
) -> Tally:
    """Run cases of a target until a time; the file ``note`` holds the number of the current one."""
    tally, before = Tally(), peak_memory(reset=True)
    for number in numbers:
        if time.monotonic() > until:
            break
        if note is not None:
            note.write_text(str(number), encoding="utf-8")
        ending, problem = run_case(target, workshop, number)
        tally.cases += 1
        tally.endings[ending] += 1
        tally.problems += [problem] if problem else []
    tally.peak = max(0, peak_memory() - before)
    return tally


def run_apart(names: list[str], cases: int, seconds: float, report: Any = None) -> dict[str, Tally]:
    """Run cases of targets in processes of their own: one that crashes is counted, and the next goes on after it."""
    until, tallies = time.monotonic() + seconds, {name: Tally() for name in names}
    share = -(-cases // max(1, len(names)))
    for place, name in enumerate(names):
        first = 0
        deadline = time.monotonic() + max(1.0, (until - time.monotonic()) / (len(names) - place))
        while first < share and time.monotonic() < deadline:
            tally, first = _in_process(name, first, share, deadline)
            tallies[name].merge(tally)
        if report is not None:
            report(name, tallies[name])
    return tallies


def _in_process(name: str, first: int, last: int, deadline: float) -> tuple[Tally, int]:
    """Run cases in a process; return how they ended and the number to go on with."""
    with tempfile.TemporaryDirectory(prefix="ensue-fuzz-") as folder:
        note, out = Path(folder) / "note", Path(folder) / "out"
        seconds = max(1.0, deadline - time.monotonic())
        words = ["--only", name, "--worker", folder, "--first", first, "--cases", last, "--seconds", seconds]
        command = [sys.executable, "-m", "benchmarks.reliability.fuzz", *map(str, words)]
        process = subprocess.run(command, check=False, capture_output=True, text=True)
        if out.exists():
            held = json.loads(out.read_text(encoding="utf-8"))
            return Tally(held["cases"], Counter(held["endings"]), held["problems"], held["peak"]), last
        number = int(note.read_text(encoding="utf-8")) if note.exists() else last
        line = f"{name} {number}: the process ended with {process.returncode}: {process.stderr.strip()[-300:]}"
        return Tally(number - first + 1, Counter(crash=1), [line]), number + 1


def _worker(arguments: argparse.Namespace) -> None:
    """Run the cases of one target in this process and write how they ended."""
    folder = Path(arguments.worker)
    workshop = Workshop(folder / "files")
    target = next(one for one in workshop.targets() if one.name == arguments.only)
    until = time.monotonic() + arguments.seconds
    tally = run_cases(target, workshop, range(arguments.first, arguments.cases), until, folder / "note")
    held = {"cases": tally.cases, "endings": dict(tally.endings), "problems": tally.problems, "peak": tally.peak}
    (folder / "out").write_text(json.dumps(held), encoding="utf-8")


def target_names() -> list[str]:
    """Return the names of all targets."""
    with tempfile.TemporaryDirectory(prefix="ensue-fuzz-") as folder:
        return [target.name for target in Workshop(Path(folder) / "files").targets()]


def _show(name: str, tally: Tally) -> None:
    ends = " ".join(f"{tally.endings[ending]:>9,}" for ending in ENDINGS)
    print(f"{name:<28} {tally.cases:>8,} {ends} {tally.peak / 1e6:>8,.0f}", flush=True)
    for problem in tally.problems[:20]:
        print(f"    {problem}", flush=True)


def main() -> None:
    """Run cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--case", type=int, default=-1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--worker", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if arguments.worker:
        _worker(arguments)
        return
    if arguments.case >= 0:
        with tempfile.TemporaryDirectory(prefix="ensue-fuzz-") as folder:
            workshop = Workshop(Path(folder) / "files")
            target = next(one for one in workshop.targets() if one.name == arguments.only)
            print(*run_case(target, workshop, arguments.case))
        return
    heads = " ".join(f"{head:>9}" for head in ENDINGS)
    print(f"{'target':<28} {'cases':>8} {heads} {'peak MB':>8}")
    names = [name for name in target_names() if arguments.only in name]
    tallies = run_apart(names, arguments.cases, arguments.seconds, _show)
    total = Tally()
    for tally in tallies.values():
        total.merge(tally)
    total.problems.clear()
    _show("all", total)
    raise SystemExit(any(total.endings[ending] for ending in ENDINGS[2:]))


if __name__ == "__main__":
    main()
