"""How fast a 5-gram Kneser–Ney model is trained, against KenLM's lmplz, alternating in one run.

    python -m benchmarks.speed.ngram --lmplz PATH [--rounds 3]

Where ENSUE_DATA is set there are two corpora: the Penn Treebank ($ENSUE_DATA/text/ptb) and a larger one, the
Treebank, Brown ($ENSUE_DATA/text/brown.txt.gz) and the source of Python's standard library, split at white space;
else that source alone. Ours is timed from an array of token ids, from the text, and from the text to an ARPA file,
which is what lmplz does; lmplz runs with the memory setting that is fastest for it.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.record import record
from ensue.exchange.arpa import write_arpa
from ensue.models.ngram import NGram, NGramConfig
from ensue.train.counting import count

ORDER = 5
RESERVED = {"<s>": "<S>", "</s>": "</S>", "<unk>": "<UNK>"}


def treebank(data: Path) -> Iterator[str]:
    with gzip.open(data / "text" / "ptb" / "train.txt.gz", "rt", encoding="utf-8") as file:
        yield from file


def larger(data: Path) -> Iterator[str]:
    yield from treebank(data)
    with gzip.open(data / "text" / "brown.txt.gz", "rt", encoding="utf-8") as file:
        yield from file
    yield from library()


def library() -> Iterator[str]:
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" not in path.parts:
            yield from path.read_text(encoding="utf-8", errors="replace").splitlines()


def write_corpus(lines: Iterator[str], path: Path) -> int:
    """One sentence a line, without words that lmplz reserves; answers the number of words."""
    words = 0
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            split = [RESERVED.get(word, word) for word in line.replace("\0", " ").split()]
            if split:
                words += len(split)
                file.write(" ".join(split) + "\n")
    return words


def read_corpus(path: Path) -> tuple[np.ndarray[Any, np.dtype[np.int32]], list[str]]:
    """The stream of token ids, the end mark 0, and the names; 1 is KenLM's ``<unk>``, never seen."""
    text = path.read_text(encoding="utf-8").replace("\n", " </s> ")
    words = text.split()
    names = ["</s>", "<unk>", *(word for word in dict.fromkeys(words) if word != "</s>")]
    ids = {name: number for number, name in enumerate(names)}
    stream = np.fromiter(map(ids.__getitem__, words), np.int32, len(words))
    return np.append(np.zeros(1, np.int32), stream), names


def trained(stream: np.ndarray[Any, np.dtype[np.int32]], vocabulary: int) -> NGram:
    counter = NGram(NGramConfig(vocabulary=vocabulary, order=ORDER, end=0)).counter()
    count(counter, stream)
    return counter.finish()


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def lmplz(program: str, memory: str, path: Path) -> None:
    with path.open("rb") as source, tempfile.TemporaryDirectory() as folder:
        command = [program, "-o", str(ORDER), "-S", memory, "-T", folder, "--discount_fallback"]
        with (Path(folder) / "out.arpa").open("wb") as out:
            subprocess.run(command, stdin=source, stdout=out, stderr=subprocess.DEVNULL, check=True)


def from_text(path: Path) -> NGram:
    stream, names = read_corpus(path)
    return trained(stream, len(names))


def to_arpa(path: Path, out: Path) -> None:
    stream, names = read_corpus(path)
    write_arpa(trained(stream, len(names)), names, out)


def race(path: Path, program: str | None, rounds: int) -> dict[str, Any]:
    """Seconds of each contender in every round, and ratios theirs ÷ ours."""
    stream, names = read_corpus(path)
    contenders: dict[str, Callable[[], object]] = {
        "ids": lambda: trained(stream, len(names)),
        "text": lambda: from_text(path),
        "text_to_arpa": lambda: to_arpa(path, path.with_suffix(".arpa")),
    }
    result: dict[str, Any] = {
        "vocabulary": len(names),
        "first_call_seconds": round(timed(contenders["ids"]), 3),
    }
    if program:
        settings = {memory: timed(partial(lmplz, program, memory, path)) for memory in ("4G", "1G", "256M")}
        memory = min(settings, key=lambda name: settings[name])
        result["lmplz_memory"] = memory
        contenders["lmplz"] = partial(lmplz, program, memory, path)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, work in contenders.items():
            seconds[name].append(timed(work))
    result["seconds"] = {name: [round(value, 3) for value in values] for name, values in seconds.items()}
    if program:
        for name in ("ids", "text", "text_to_arpa"):
            ratios = sorted(theirs / ours for theirs, ours in zip(seconds["lmplz"], seconds[name]))
            result[f"lmplz_over_{name}"] = [round(value, 2) for value in (ratios[0], median(ratios), ratios[-1])]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lmplz", default=None, help="KenLM's program, to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="one round")
    options = parser.parse_args()
    corpora = {"stdlib": library()}
    if "ENSUE_DATA" in os.environ:
        data = Path(os.environ["ENSUE_DATA"])
        corpora = {"ptb": treebank(data), "ptb+brown+stdlib": larger(data)}
    for name, lines in corpora.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "corpus.txt"
            words = write_corpus(lines, path)
            result = race(path, options.lmplz, 1 if options.short else options.rounds)
        figures = {
            "corpus": name,
            "words": words,
            "order": ORDER,
            **result,
            "words_per_second_from_ids": round(words / median(result["seconds"]["ids"])),
        }
        record("ngram_speed", figures)


if __name__ == "__main__":
    main()
