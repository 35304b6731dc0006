"""Which questions of a task share long runs of words with a model's training text."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.evaluation.task import Example
from ensue.data.lines import located_lines

WORDS_IN_ROW = 13
"""Brown et al. (2020) call a question dirty if it shares 13 words in a row with the training text."""
MAX_BYTES = 200_000_000
"""Larger training files are not searched."""
_WORD = re.compile(r"\w+")


def training_overlap(
    files: Sequence[str], tasks: Mapping[str, Sequence[Example]], report: Report = silent
) -> dict[str, int] | None:
    """Return the number of questions of each task that overlap with the text of ``files``.

    None if a file is not there any more, is no text, or is too large. Questions of fewer words are never found.
    """
    paths = [Path(file) for file in files]
    if not paths or not all(path.is_file() and path.stat().st_size <= MAX_BYTES for path in paths):
        return None
    wanted: dict[tuple[str, ...], set[tuple[str, int]]] = {}
    for task, examples in tasks.items():
        for number, example in enumerate(examples):
            words = _WORD.findall(f"{example.context} {example.answer}".lower())
            for start in range(len(words) - WORDS_IN_ROW + 1):
                wanted.setdefault(tuple(words[start : start + WORDS_IN_ROW]), set()).add((task, number))
    seen: set[tuple[str, int]] = set()
    if wanted:
        report("phase", {"name": "comparing with the training text"})
        try:
            for path in paths:
                seen |= _search(path, wanted)
        except InputError:
            return None
    return {task: sum(name == task for name, _ in seen) for task in tasks}


def _search(path: Path, wanted: Mapping[tuple[str, ...], set[tuple[str, int]]]) -> set[tuple[str, int]]:
    """The questions of which a file has a run of words."""
    found: set[tuple[str, int]] = set()
    row: deque[str] = deque(maxlen=WORDS_IN_ROW)
    for _, line in located_lines(path):
        for word in _WORD.findall(line.lower()):
            row.append(word)
            if len(row) == WORDS_IN_ROW:
                found |= wanted.get(tuple(row), set())
    return found
