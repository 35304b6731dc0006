"""Count n-grams within a memory limit, by external sorting on disk; the model is identical to one counted in memory.

Each part of the text is counted in memory and written, order by order, as sorted runs (see
``ensue.data.external_sort``). Then the runs of all parts are merged, order by order: the key of an n-gram is the index
of its context among all contexts, known from the order before, and its last word. At last the tables are memory-mapped
and estimated in place, and their pages are released before they exceed the limit.

``progress.json`` records each finished step, so that a killed process resumes after it.
"""

from __future__ import annotations

import mmap
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.core.files import disk_errors, read_json, sync, write_json
from ensue.data.external_sort import ArrayFile, SortedRun, merge_runs
from ensue.models.ngram import NGram, NGramConfig
from ensue.models.ngram_counting import TrieCounter
from ensue.models.ngram_estimates import kneser_ney
from ensue.models.ngram_lookup import Trie
from ensue.models.ngram_trie import TableStorage
from ensue.train.interrupts import Interrupts
from ensue.train.training import Outcome

TOKEN_BYTES = 80
"""Memory for each token of a part: its id, position and node, and a trie of about 2.5 nodes per token."""
KEY_BYTES = 128
"""Memory for each key of a run while runs are merged."""
MIN_TOKENS = 1 << 16
"""Tokens of a part, at least."""
COLUMNS = ("words", "offsets", "suffix", "counts")
CONTEXTS = 1 << 12
"""Contexts that are estimated between two checks of the memory."""
ENTRIES = 1 << 16
"""Table entries that are read between two checks of the memory."""


class DiskCounter:
    """Counts tokens in parts, with files in a folder that may be deleted when the model is saved."""

    def __init__(self, config: NGramConfig, folder: Path, memory: int) -> None:
        if config.mode != "kneser-ney":
            hint = "leave out --memory, or use mode=kneser-ney"
            raise InputError(f"mode {config.mode!r} is not estimated within a limit of memory", hint=hint)
        self.config, self.folder, self.memory = config, folder, memory

    def count(self, tokens: NDArray[Any], report: Report, stopped: Callable[[], bool]) -> NGram | None:
        """Return the model, with tables mapped from the folder; None if ``stopped`` returns True, to resume later."""
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._resume(tokens)
            for work in (self._sort, self._merge):
                for _ in work(tokens, report):
                    if stopped():
                        return None
            return self._estimate(report)

    def _resume(self, tokens: NDArray[Any]) -> None:
        """Read the progress of an earlier process, or start anew."""
        self.size = max(MIN_TOKENS, self.memory // TOKEN_BYTES)
        self.parts = -(-len(tokens) // self.size)
        wide = self.config.order * len(tokens) + self.config.vocabulary >= 2**31
        self.index = "<i8" if wide else "<i4"
        kinds = {"words": "<i4", "offsets": self.index, "suffix": self.index, "counts": self.index}
        self.tables = {name: ArrayFile(self.folder / f"{name}.bin", kinds[name]) for name in COLUMNS}
        plan = {"config": asdict(self.config), "tokens": len(tokens), "size": self.size}
        self.journal = self.folder / "progress.json"
        self.state: dict[str, Any] = read_json(self.journal) if self.journal.exists() else {}
        if self.state.get("plan") != plan:
            shutil.rmtree(self.folder)
            self.folder.mkdir()
            self.state = {"plan": plan, "parts": 0, "starts": []}

    def _record(self, *names: str) -> None:
        """Record the progress, once the files with these names are synced to the disk."""
        for name in names:
            for file in self.folder.glob(name):
                sync(file)
        write_json(self.journal, self.state)

    def _files(self, part: int, level: int) -> dict[str, ArrayFile]:
        """Return the files of one order of a part: the counts, and the sorted run."""
        kinds = {"words": "<i4", "fan": "<i4", "suffix": "<i4", "counts": "<i4", "numbers": self.index, "keys": "<i8"}
        kinds["values"] = self.index
        return {name: ArrayFile(self.folder / f"part-{part}-{level}-{name}.bin", kind) for name, kind in kinds.items()}

    def _remove(self, part: int, level: int, *names: str) -> None:
        for name, file in self._files(part, level).items():
            if not names or name in names:
                file.path.unlink(missing_ok=True)

    def _sort(self, tokens: NDArray[Any], report: Report) -> Iterator[None]:
        """Write each part of the text as sorted runs."""
        report("phase", {"name": f"sorting n-grams in {self.parts} parts"})
        for part in range(self.state["parts"], self.parts):
            begin = part * self.size
            before = min(begin, self.config.order - 1)
            counter = TrieCounter(self.config, before)
            for _ in counter.count(np.array(tokens[begin - before : begin + self.size])):
                yield
            for level in range(1, self.config.order + 1):
                self._remove(part, level)
                self._write_part(counter.trie, part, level)
            self.state["parts"] = part + 1
            self._record(f"part-{part}-*.bin")
            report("progress", {"done": min(begin + self.size, len(tokens)), "total": len(tokens)})
            del counter
            yield

    def _write_part(self, trie: Trie, part: int, level: int) -> None:
        here, run = trie.level(level), self._files(part, level)
        run["counts"].append(trie.counts[here])
        if level > 1:
            run["words"].append(trie.words[here])
            run["fan"].append(trie.child_counts(level))
            run["suffix"].append(trie.suffix[here] - trie.level(level - 1).start)

    def _merge(self, tokens: NDArray[Any], report: Report) -> Iterator[None]:
        """Merge the runs of each order into a level of the trie."""
        report("phase", {"name": "merging n-grams"})
        order, vocabulary = self.config.order, self.config.vocabulary
        if not self.state["starts"]:
            self._truncate([0])
            counts = np.zeros(vocabulary, np.int64)
            for part in range(self.parts):
                counts += self._files(part, 1)["counts"].read()
            if self.parts > 1 and self.config.end >= 0:
                counts[self.config.end] += self._end_tokens_at_starts(tokens)
            for name, values in zip(COLUMNS, (np.arange(vocabulary), [vocabulary], [-1] * vocabulary, counts)):
                self.tables[name].append(np.asarray(values))
            self.state["starts"] = [0, vocabulary]
            self._record("[!p]*.bin")
        for level in range(len(self.state["starts"]), order + 1):
            self._truncate(self.state["starts"])
            for part in range(self.parts):
                self._write_keys(part, level)
                yield
            yield from self._merge_level(level)
            self.state["starts"].append(len(self.tables["words"]))
            self._record(f"part-*-{level}-numbers.bin", "[!p]*.bin")
            for part in range(self.parts):
                self._remove(part, level, "words", "fan", "suffix", "counts", "keys", "values")
                self._remove(part, level - 1)
            report("progress", {"done": level - 1, "total": order - 1})
            yield

    def _end_tokens_at_starts(self, tokens: NDArray[Any]) -> int:
        """Count later parts that start with the end token: the counter takes it for the start of the text."""
        return sum(int(tokens[part * self.size] == self.config.end) for part in range(1, self.parts))

    def _truncate(self, starts: Sequence[int]) -> None:
        """Truncate the tables to their last finished level."""
        total, contexts = starts[-1], (starts[-2] + 1 if len(starts) > 1 else 0)
        for name, table in self.tables.items():
            table.path.touch()
            size = (contexts if name == "offsets" else total) * np.dtype(table.dtype).itemsize
            with table.path.open("r+b") as file:
                file.truncate(size)

    def _write_keys(self, part: int, level: int) -> None:
        """Replace the part's indices of contexts and of shorter n-grams by their indices in the merged tables."""
        run, shorter = self._files(part, level), self._files(part, level - 1)
        self._remove(part, level, "keys", "values", "numbers")
        first = 0 if level == 2 else self.state["starts"][-2]
        numbers = np.arange(self.config.vocabulary) if level == 2 else shorter["numbers"].read()
        contexts = np.repeat(numbers.astype(np.int64), run["fan"].read())
        run["keys"].append(contexts * self.config.vocabulary + run["words"].read())
        run["values"].append(numbers[run["suffix"].read()] + first)

    def _merge_level(self, level: int) -> Iterator[None]:
        """Merge the runs of one order."""
        runs = [self._files(part, level) for part in range(self.parts)]
        start, base = self.state["starts"][-1], 0
        contexts = start - self.state["starts"][-2]
        closed = 0  # contexts that have all their n-grams
        block = max(1 << 10, self.memory // (KEY_BYTES * max(1, self.parts)))
        for merged in merge_runs([SortedRun(run["keys"], run["counts"], run["values"]) for run in runs], block):
            inside, words = np.divmod(merged.keys, self.config.vocabulary)
            last = int(inside[-1])
            ends = np.searchsorted(inside, np.arange(closed, last), "right")
            self.tables["offsets"].append(ends + start + base)
            closed = last
            for name, values in (("words", words), ("suffix", merged.values), ("counts", merged.counts)):
                self.tables[name].append(values)
            for run, indices in zip(runs, merged.indices):
                run["numbers"].append(indices + base)
            base += len(words)
            yield
        self.tables["offsets"].append(np.full(contexts - closed, start + base))

    def _estimate(self, report: Report) -> NGram:
        """Estimate the probabilities in place, in a copy of the counts."""
        report("phase", {"name": "estimating"})
        storage = MappedStorage(self.folder, self.memory)
        shutil.copyfile(self.tables["counts"].path, self.folder / "estimate-0.bin")
        counts = ArrayFile(self.folder / "estimate-0.bin", self.index)
        arrays = {name: storage.mapped(self.tables[name]) for name in ("words", "offsets", "suffix")}
        starts = np.array(self.state["starts"])
        trie = Trie(**arrays, starts=starts, counts=storage.mapped(counts, "r+"))
        estimate = kneser_ney(trie, storage)
        tables = {**arrays, "starts": starts, "probability": estimate.probability, "backoff": estimate.backoff}
        tables["scale"] = np.zeros(1, np.float32)
        model = NGram(self.config)
        model.adopt({name: torch.from_numpy(table) for name, table in tables.items()})
        model.notes = list(estimate.notes)
        storage.release()
        return model


def check_on_disk(model: Any, budget: float) -> None:
    """Raise InputError for what cannot be counted within a memory limit."""
    if not isinstance(model, NGram):
        raise InputError("train.memory is for n-grams", hint="leave out --memory")
    if budget:
        hint = "leave out one of them; Ctrl-C stops, and --resume continues"
        raise InputError("a budget cannot be kept where n-grams are counted on disk", hint=hint)
    DiskCounter(model.config, Path(), 0)


def fit_on_disk(
    config: NGramConfig, tokens: NDArray[Any], folder: Path, memory: int, report: Report
) -> tuple[NGram, Outcome]:
    """Count within a memory limit, from the progress in the folder on; an interrupt keeps it there."""
    start = time.perf_counter()
    with Interrupts() as interrupts:
        model = DiskCounter(config, folder, memory).count(tokens, report, lambda: bool(interrupts.signal))
    if model is None:
        raise KeyboardInterrupt
    return model, Outcome("finished", config.order, time.perf_counter() - start, 0.0, len(tokens) - 1)


class MappedStorage(TableStorage):
    """Tables in memory-mapped files, whose pages are released before they exceed the limit."""

    def __init__(self, folder: Path, memory: int) -> None:
        self.folder, self.memory = folder, memory
        self._maps: list[mmap.mmap] = []
        self._base = _mapped_bytes()

    def mapped(self, table: ArrayFile, mode: str = "c") -> Any:
        """Return a memory-mapped table; only mode r+ writes changes to the file."""
        array = table.mapped(mode)
        if isinstance(array, np.memmap):
            self._maps.append(array._mmap)  # type: ignore[attr-defined]
        return array

    def zeros(self, size: int, dtype: np.dtype[Any]) -> Any:
        """Return a new table, in a file of its own."""
        path = self.folder / f"estimate-{len(self._maps) + 1}.bin"
        with path.open("wb") as file:
            file.truncate(size * dtype.itemsize)
        return self.mapped(ArrayFile(path, dtype.str), "r+") if size else np.zeros(0, dtype)

    def chunks(self, whole: slice) -> Iterator[slice]:
        """Yield slices of a few entries."""
        for low in range(whole.start, whole.stop, ENTRIES):
            yield slice(low, min(low + ENTRIES, whole.stop))
            self._release_if_full()

    def for_contexts(self, trie: Trie, level: int, work: Callable[[int, int], int]) -> None:
        """Call ``work`` for a few contexts at a time."""
        inner = trie.level(level - 1)
        for low in range(inner.start, inner.stop, CONTEXTS):
            work(low, min(low + CONTEXTS, inner.stop))
            self._release_if_full()

    def _release_if_full(self) -> None:
        if _mapped_bytes() - self._base > self.memory // 2:
            self.release()

    def release(self) -> None:
        """Release all pages; changes stay in the files."""
        for one in self._maps:
            if hasattr(mmap, "MADV_DONTNEED"):
                one.madvise(mmap.MADV_DONTNEED)


def _mapped_bytes() -> int:
    """Return the size of mapped files in this process's memory; 0 if the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0
