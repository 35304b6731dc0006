"""How fast a 5-gram Kneser–Ney model is trained, and how fast it scores a text, against KenLM, in turns.

    python -m benchmarks.speed.ngram [--lmplz PATH] [--query PATH] [--build-binary PATH] [--rounds 3] [--short] [--all]

The corpus is all English text of $ENSUE_DATA (see benchmarks.english), or without it the source of Python's standard
library; every tenth line is held out and scored. lmplz is taken from the PATH where it is not named; without it ours is
timed alone against ours from ids.

Training is timed from token ids in memory to a model in memory; from the text to a model in memory; from the text to
model.safetensors and a tokenizer on disk; within 200 MB of memory on disk; and from the text to an ARPA file, which is
what lmplz writes. Scoring is timed from a text file to the sum of its log10 probabilities: KenLM's query has a binary
probing file, its Python module scores a line at a time, ours reads the same model. The sums must agree.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.english import RESERVED, write_english
from benchmarks.turns import Contest, Mark, Round, Work, hold

ORDER = 5
MEMORY = 200_000_000
SHORT_LINES = 40_000


def library() -> Iterator[str]:
    """The source of the standard library."""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" not in path.parts:
            yield from path.read_text(encoding="utf-8", errors="replace").splitlines()


def write_library(train: Path, held: Path) -> tuple[int, int]:
    """The same as a corpus, every tenth line held out."""
    words = [0, 0]
    with train.open("w", encoding="utf-8") as most, held.open("w", encoding="utf-8") as few:
        for number, line in enumerate(library()):
            split = [RESERVED.get(word, word) for word in line.replace("\0", " ").split()]
            if split:
                out = number % 10 == 9
                words[out] += len(split)
                (few if out else most).write(" ".join(split) + "\n")
    return words[0], words[1]


def tokenised(path: Path) -> tuple[Any, np.ndarray]:
    """The tokenizer of a file, every word in it, and the file's tokens."""
    from ensue.data.reading import read_pieces
    from ensue.data.text_pieces import as_parts
    from ensue.data.tokenizers.word import fit_words

    tokenizer = fit_words(as_parts(read_pieces(path)), None, 1)
    return tokenizer, ids_of(tokenizer, path)


def ids_of(tokenizer: Any, path: Path) -> np.ndarray:
    """The tokens of a file, the end mark first."""
    from ensue.data.reading import read_pieces
    from ensue.data.text_pieces import as_parts

    found = [np.array([tokenizer.end], np.int32)]
    found += [tokenizer.encode(text) for text, _, _ in as_parts(read_pieces(path))]
    return np.concatenate(found)


def counted(tokenizer: Any, ids: np.ndarray) -> Any:
    """The model of some tokens."""
    from ensue.models.ngram import NGram, NGramConfig
    from ensue.train.counting import count

    counter = NGram(NGramConfig(vocabulary=tokenizer.size, order=ORDER, end=tokenizer.end)).counter()
    count(counter, ids)
    return counter.finish()


def ready() -> None:
    """What ``ensue fit`` tells its process."""
    from ensue.core.memory import release_freed_memory

    release_freed_memory()


def from_ids(path: Path, words: int) -> Work:
    ready()
    tokenizer, ids = tokenised(path)
    return partial(_timed, words, lambda: counted(tokenizer, ids))


def from_text(path: Path, words: int) -> Work:
    ready()
    return partial(_timed, words, lambda: counted(*tokenised(path)))


def to_run(path: Path, words: int, folder: Path) -> Work:
    """The model and the tokenizer, written as a run has them."""
    from ensue.data.tokenizers.registry import save_tokenizer
    from ensue.runs.save_weights import own_tensors, write_tensors

    def work() -> None:
        tokenizer, ids = tokenised(path)
        model = counted(tokenizer, ids)
        write_tensors(own_tensors(model), folder / "model.safetensors")
        save_tokenizer(tokenizer, folder / "tokenizer.json")

    ready()
    return partial(_timed, words, work)


def on_disk(path: Path, words: int, folder: Path) -> Work:
    """From ids, within a limit of memory."""
    from ensue.models.ngram import NGramConfig
    from ensue.runs.disk_counting import DiskCounter

    ready()
    tokenizer, ids = tokenised(path)
    ids.tofile(folder / "ids.bin")
    config = NGramConfig(vocabulary=tokenizer.size, order=ORDER, end=tokenizer.end)
    del ids, tokenizer

    def work() -> None:
        tokens = np.memmap(folder / "ids.bin", np.int32, "r")
        counter = DiskCounter(config, folder / "counting", MEMORY)
        counter.count(tokens, lambda kind, values: None, lambda: False)
        shutil.rmtree(folder / "counting")

    return partial(_timed, words, work)


def to_arpa(path: Path, words: int, folder: Path) -> Work:
    from ensue.exchange.arpa import write_arpa

    def work() -> None:
        tokenizer, ids = tokenised(path)
        write_arpa(counted(tokenizer, ids), tokenizer.names, folder / "ours.arpa")

    ready()
    return partial(_timed, words, work)


def lmplz(program: str, memory: str, path: Path, words: int, folder: Path) -> Work:
    def work() -> None:
        command = [program, "-o", str(ORDER), "-S", memory, "-T", str(folder), "--discount_fallback"]
        with path.open("rb") as source, (folder / "lmplz.arpa").open("wb") as out:
            subprocess.run(command, stdin=source, stdout=out, stderr=subprocess.DEVNULL, check=True)

    return partial(_timed, words, work)


def scored(train: Path, held: Path, words: int) -> Work:
    """Ours, from the text of the file to the sum."""
    import math

    from ensue.measure.language import total_log_prob

    ready()
    tokenizer, ids = tokenised(train)
    model = counted(tokenizer, ids)
    del ids
    return partial(_timed, words, lambda: total_log_prob(model, ids_of(tokenizer, held)) / math.log(10))


def kenlm_module(binary: Path, held: Path, words: int) -> Work:
    import kenlm

    model = kenlm.Model(str(binary))

    def work() -> float:
        with held.open(encoding="utf-8") as file:
            return sum(model.score(line) for line in file)

    return partial(_timed, words, work)


def kenlm_query(program: str, binary: Path, held: Path, words: int) -> Work:
    def work() -> float:
        with held.open("rb") as source:
            done = subprocess.run(
                [program, "-v", "summary", str(binary)], stdin=source, capture_output=True, check=True
            )
        texts = dict(line.split(":\t") for line in done.stdout.decode().splitlines() if ":\t" in line)
        perplexity, tokens = float(texts["Perplexity including OOVs"]), int(texts["Tokens"])
        return -tokens * float(np.log10(perplexity))

    return partial(_timed, words, work)


def _timed(words: int, work: Callable[[], Any], turn: int) -> Round:
    begun = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - begun
    return Round(words, seconds, result if isinstance(result, float) else None)


def sums_agree(done: dict[str, list[Round]]) -> dict[str, Any]:
    """The sums of log10 probabilities: all the same to a ten-thousandth."""
    sums = {name: rounds[0].result for name, rounds in done.items()}
    first = next(iter(sums.values()))
    if any(abs(value / first - 1) > 1e-4 for value in sums.values()):
        raise SystemExit(f"the sums of log10 probabilities differ: {sums}")
    return {"sum_log10": {name: round(value, 1) for name, value in sums.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("lmplz", "query", "build-binary"):
        parser.add_argument(f"--{name}", default=shutil.which(name.replace("-", "_")), help="KenLM's program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("training", "scoring"), default="", help="one of the two")
    parser.add_argument("--all", action="store_true", help="within 200 MB and to an ARPA file too: ten minutes more")
    parser.add_argument("--short", action="store_true", help="one round on a smaller corpus")
    options = parser.parse_args()
    rounds = 1 if options.short else options.rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, held = folder / "train.txt", folder / "held.txt"
        named = "English" if "ENSUE_DATA" in os.environ else "stdlib"
        if named == "English":
            words = write_english(Path(os.environ["ENSUE_DATA"]), train, held)
        else:
            words = write_library(train, held)
        if options.short:
            lines = train.read_text(encoding="utf-8").split("\n")[:SHORT_LINES]
            train.write_text("\n".join(lines) + "\n", encoding="utf-8")
            words = (sum(len(line.split()) for line in lines), words[1])
        if options.only != "scoring":
            training(options, train, words[0], folder, named, rounds)
        if options.only != "training" and options.lmplz and options.build_binary:
            scoring(options, (train, held), words, folder, named, rounds)


def training(options: Any, train: Path, words: int, folder: Path, named: str, rounds: int) -> None:
    programs: dict[str, Callable[[], Work]] = {
        "ensue, ids": partial(from_ids, train, words),
        "ensue, text": partial(from_text, train, words),
        "ensue, text to run": partial(to_run, train, words, folder),
    }
    marks = [Mark("ensue, text", "ensue, ids")]
    if options.all:
        programs["ensue, ids, 200 MB"] = partial(on_disk, train, words, folder)
        programs["ensue, text to ARPA"] = partial(to_arpa, train, words, folder)
    if options.lmplz:
        programs["lmplz"] = partial(lmplz, options.lmplz, "4G", train, words, folder)
        asked = {"ensue, text to run": (2.5, 1.0), "ensue, ids": (2.5, 1.0), "ensue, text": (2.5, 1.0)}
        marks = [Mark(name, "lmplz", *asked.get(name, ())) for name in programs if name != "lmplz"]
    contest = Contest(
        result="ngram_training",
        work="5-gram Kneser–Ney training",
        size=f"{named}, {words:,} words",
        unit="words",
        programs=programs,
        marks=marks,
    )
    hold(contest, rounds)


def scoring(
    options: Any, files: tuple[Path, Path], words: tuple[int, int], folder: Path, named: str, rounds: int
) -> None:
    train, held = files
    lmplz(options.lmplz, "4G", train, words[0], folder)(0)
    binary = folder / "lmplz.bin"
    command = [options.build_binary, "probing", str(folder / "lmplz.arpa"), str(binary)]
    subprocess.run(command, check=True, capture_output=True)
    programs: dict[str, Callable[[], Work]] = {
        "ensue": partial(scored, train, held, words[1]),
        "kenlm module": partial(kenlm_module, binary, held, words[1]),
    }
    if options.query:
        programs["kenlm query"] = partial(kenlm_query, options.query, binary, held, words[1])
    contest = Contest(
        result="ngram_scoring",
        work="n-gram scoring of a file",
        size=f"{named}, 5-gram of {words[0]:,} words, {words[1]:,} words scored",
        unit="words",
        programs=programs,
        marks=[Mark("ensue", name, 1.0) for name in programs if name != "ensue"],
    )
    hold(contest, rounds, sums_agree)


if __name__ == "__main__":
    main()
