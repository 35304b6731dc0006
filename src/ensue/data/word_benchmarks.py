"""Read benchmarks for word vectors: word similarity and analogies."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from ensue.core.errors import InputError
from ensue.data.lines import read_lines, source_name


@dataclass(frozen=True, slots=True)
class WordSimilarity:
    """Two words and their similarity as rated by people."""

    first: str
    second: str
    score: float


@dataclass(frozen=True, slots=True)
class AnalogySection:
    """Analogies of one kind: the first is to the second as the third is to the fourth."""

    name: str
    questions: tuple[tuple[str, str, str, str], ...]


def read_similarities(source: str | Path) -> list[WordSimilarity]:
    """Read pairs separated by tabs, commas or spaces: two words, then the first column that is a number.

    So are WordSim-353, SimLex-999, MEN and RW written. Lines that begin with # say something else, and the first line
    may name the columns.
    """
    found: list[WordSimilarity] = []
    for number, line in enumerate(read_lines(source), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        separator = "\t" if "\t" in line else "," if "," in line else None
        cells = [cell.strip() for cell in line.split(separator)]
        score = next((value for value in map(_number, cells[2:]) if value is not None), None)
        if score is not None and cells[0] and cells[1]:
            found.append(WordSimilarity(cells[0], cells[1], score))
        elif found or number > 1:
            hint = "a line should look like tiger<tab>cat<tab>7.35"
            raise InputError("not two words and a number", where=f"{source_name(source)}:{number}", hint=hint)
    if not found:
        raise InputError(
            "there are no pairs of words", where=source_name(source), hint="give word, word, number a line"
        )
    return found


def _number(cell: str) -> float | None:
    """Parse a cell as a finite number, or return None."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_analogies(source: str | Path) -> list[AnalogySection]:
    """Read analogies, four words per line, in sections that start with a line ": name" (questions-words.txt)."""
    sections: list[tuple[str, list[tuple[str, str, str, str]]]] = []
    for number, line in enumerate(read_lines(source), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(":"):
            sections.append((line[1:].strip(), []))
            continue
        words = re.split(r"\s+", line.strip())
        if len(words) != 4:
            hint = "a line should look like Athens Greece Berlin Germany"
            where = f"{source_name(source)}:{number}"
            raise InputError(f"{len(words)} words, where a question has four", where=where, hint=hint)
        if not sections:
            sections.append(("all", []))
        sections[-1][1].append((words[0], words[1], words[2], words[3]))
    found = [AnalogySection(name, tuple(questions)) for name, questions in sections if questions]
    if not found:
        raise InputError("there are no questions", where=source_name(source), hint="give four words a line")
    return found
