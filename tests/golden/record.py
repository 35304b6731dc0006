"""Record or compare golden numbers: ``python tests/golden/record.py [--compare] [--only CASE,…] [--keep FOLDER]``.

Numbers are recorded for one kind of machine (its CPU capability and torch's version), in numbers.json. After a
refactoring that is not meant to change numbers, ``--compare`` on the same kind of machine finds nothing.
"""

import argparse
import gzip
import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import cases
import torch

NUMBERS = Path(__file__).with_name("numbers.json.gz")
TIMED = ("seconds", "speed", "per_second", "milliseconds")
"""Figures that differ from run to run."""


def differences(old, new, where=""):
    """Where two nested values differ, as lines."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if not any(word in key for word in TIMED):
                yield from differences(old.get(key), new.get(key), f"{where}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (a, b) in enumerate(zip(old, new)):
            yield from differences(a, b, f"{where}[{place}]")
    elif old != new:
        yield f"{where}: {old!r} -> {new!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compare", action="store_true", help="compare with what was recorded; exit 1 on a difference")
    parser.add_argument(
        "--only", default="", help="cases, separated by commas; what they begin with must be among them"
    )
    parser.add_argument("--keep", type=Path, help="train in this folder and keep it")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    machine = f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"
    folder = chosen.keep or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True, parents=True)
    os.environ["ENSUE_CACHE"] = str(folder / "cache")
    files, found = cases.write_files(folder), {}
    for name, words in cases.fits(files).items():
        if chosen.only and name not in chosen.only.split(","):
            continue
        begun = time.perf_counter()
        found[name] = cases.figures(folder, name, words, files)
        errors = [
            one["error"] for one in (found[name], *found[name].values()) if isinstance(one, dict) and "error" in one
        ]
        print(f"{name}: {time.perf_counter() - begun:.1f} s {' '.join(errors)}", file=sys.stderr)
    known = json.loads(gzip.decompress(NUMBERS.read_bytes())) if NUMBERS.exists() else {}
    if not chosen.compare:
        known.setdefault(machine, {}).update(found)
        NUMBERS.write_bytes(gzip.compress(json.dumps(known, sort_keys=True).encode(), mtime=0))
        return
    if machine not in known:
        sys.exit(f"nothing was recorded for {machine}, only for {', '.join(known)}")
    lines = [line for name in found for line in differences(known[machine].get(name), found[name], name)]
    for line in lines[:200]:
        print(line[:300])
    print(f"{len(found)} cases, {len(lines)} differences")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
