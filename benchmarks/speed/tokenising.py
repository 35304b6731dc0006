"""How fast a text becomes a file of tokens, on one core and on all, beside the tokenizers library, alternating.

    python -m benchmarks.speed.tokenising [--rounds 3] [--megabytes 64]

The text is Brown, the Penn Treebank and Linux's sources ($ENSUE_DATA/text), or without ENSUE_DATA the source of
Python's standard library, repeated up to the size. A BPE of 4,096 tokens is fitted to it beforehand. Ours is timed from
the text file to the finished, checked token file, hashing included. The peer reads the same file and gives its lines to
``encode_batch_fast`` of the same tokenizer, a thousand at a time (it is slower with more), on all the library's
threads, and keeps the numbers alone. Its tokens are those of lines, so line ends are not among them.

    python -m benchmarks.speed.tokenising --kill

kills ours with SIGKILL half way, goes on, and compares the file with one that was made without a break; it writes down
the peak of memory of a process that does nothing else, and of a worker.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.record import data_folder, record
from benchmarks.turns import Contest, Mark, Round, Work, hold
from ensue.core.files import sha256
from ensue.data.tokenizers.registry import fit_tokenizer, load_tokenizer, save_tokenizer
from ensue.data.tokens import tokenize

LINES = 1000
VOCABULARY = 4096


def texts() -> Iterator[bytes]:
    """What the text is made of, once."""
    if "ENSUE_DATA" in os.environ:
        for name in ("brown.txt.gz", "ptb/train.txt.gz", "linux.c.txt.gz"):
            yield gzip.decompress((data_folder() / "text" / name).read_bytes())
        return
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" not in path.parts:
            yield path.read_text(encoding="utf-8", errors="replace").encode()


def write_text(path: Path, size: int) -> None:
    """A text of about ``size`` bytes."""
    once = b"\n".join(texts())
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(once[: max(0, size - file.tell())].rpartition(b"\n")[0] + b"\n")


def ours(folder: Path, workers: int) -> Work:
    text = folder / "text.txt"

    def work(turn: int) -> Round:
        tokenizer = load_tokenizer(folder / "tokenizer.json")  # one that remembers no words of the last round
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            begun = time.perf_counter()
            made = tokenize([text], tokenizer, cache=cache, workers=workers)
            seconds = time.perf_counter() - begun
        return Round(text.stat().st_size / 1e6, seconds, len(made))

    return work


def library(folder: Path) -> Work:
    from tokenizers import Tokenizer

    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    text = folder / "text.txt"

    def work(turn: int) -> Round:
        begun = time.perf_counter()
        count, held = 0, []
        with text.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                held.append(line.removesuffix("\n"))
                if len(held) == LINES:
                    count += sum(len(one.ids) for one in tokenizer.encode_batch_fast(held, add_special_tokens=False))
                    held = []
        count += sum(len(one.ids) for one in tokenizer.encode_batch_fast(held, add_special_tokens=False))
        return Round(text.stat().st_size / 1e6, time.perf_counter() - begun, count)

    return work


def agree(done: dict[str, list[Round]]) -> dict[str, Any]:
    counts = {name: rounds[0].result for name, rounds in done.items()}
    assert counts["ours, 1 core"] == counts["ours, 2 cores"] > counts["tokenizers"]
    return {"tokens": counts}


ALONE = """if True:
    import json, os, re, resource, signal, sys, time
    from pathlib import Path
    from ensue.data.tokenizers.registry import load_tokenizer
    from ensue.data.tokens import tokenize

    folder, cache, stop = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "stop"
    done = []

    def report(kind, values):
        if kind == "progress":
            done.append(values["done"])
            if stop and values["done"] > values["total"] / 2:
                os.kill(os.getpid(), signal.SIGKILL)

    begun = time.perf_counter()
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    made = tokenize([folder / "text.txt"], tokenizer, cache=folder / cache, report=report)
    seconds = time.perf_counter() - begun
    peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    facts = {"megabytes": made.bytes / 1e6, "tokens": len(made), "words": made.words, "seconds": seconds}
    print(json.dumps({**facts, "first": done[0] / 1e6, "peak": peak / 1e6, "worker": workers / 1e6}))
"""
"""Tokenises in a process that has nothing else in it; as told, it kills itself half way."""


def kill_and_go_on(folder: Path) -> None:
    """SIGKILL half way; the file that is gone on with must be the one that was never broken."""

    def run(cache: str, stop: str = "") -> dict[str, Any]:
        words = [sys.executable, "-c", ALONE, str(folder), cache, stop]
        ended = subprocess.run(words, check=not stop, stdout=subprocess.PIPE)
        assert not stop or ended.returncode == -9, ended
        found: dict[str, Any] = json.loads(ended.stdout or b"{}")
        return found

    def digest(cache: str) -> str:
        (file,) = (folder / cache).glob("*.tokens")
        return sha256(file)

    whole = run("whole")
    run("cut", "stop")
    again = run("cut")
    same = digest("whole") == digest("cut") and whole["words"] == again["words"]
    figures = {
        "megabytes": round(whole["megabytes"], 1),
        "tokens": whole["tokens"],
        "seconds": round(whole["seconds"], 1),
        "megabytes_per_second": round(whole["megabytes"] / whole["seconds"], 1),
        "peak_megabytes": round(whole["peak"]),
        "peak_megabytes_of_a_worker": round(whole["worker"]),
        "killed_at_megabytes": round(again["first"]),
        "same_file": same,
    }
    record("tokenising", figures)
    assert same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--short", action="store_true", help="one round of 16 MB")
    parser.add_argument("--kill", action="store_true", help="kill it half way and go on, instead")
    options = parser.parse_args()
    size = 16 if options.short else options.megabytes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "text.txt", size * 1_000_000)
        sample = folder / "sample.txt"
        write_text(sample, 8_000_000)
        save_tokenizer(fit_tokenizer("bpe", [sample], vocabulary=VOCABULARY), folder / "tokenizer.json")
        if options.kill:
            kill_and_go_on(folder)
            return
        contest = Contest(
            result="tokenising",
            work="tokenising with BPE into a file",
            size=f"{size} MB of text, {VOCABULARY:,} tokens",
            unit="megabytes",
            programs={
                "ours, 1 core": partial(ours, folder, 1),
                "ours, 2 cores": partial(ours, folder, 2),
                "tokenizers": partial(library, folder),
            },
            marks=[Mark("ours, 2 cores", "tokenizers"), Mark("ours, 2 cores", "ours, 1 core")],
        )
        hold(contest, 1 if options.short else options.rounds, agree)


if __name__ == "__main__":
    main()
