"""Read benchmarks for word vectors: word similarity, analogies, and contexts of a word with its senses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ensue.core.errors import InputError
from ensue.data.column_inference import parse_number
from ensue.data.lines import located_lines, read_lines, source_name
from ensue.data.senses import Context


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

    This is the format of WordSim-353, SimLex-999, MEN and RW. Lines that begin with # are comments, and the first line
    may be a header.
    """
    pairs: list[WordSimilarity] = []
    for number, (where, line) in enumerate(located_lines(source)):
        if not line.strip() or line.startswith("#"):
            continue
        separator = "\t" if "\t" in line else "," if "," in line else None
        cells = [cell.strip() for cell in line.split(separator)]
        score = next((value for value in map(parse_number, cells[2:]) if value is not None), None)
        if score is not None and cells[0] and cells[1]:
            pairs.append(WordSimilarity(cells[0], cells[1], score))
        elif pairs or number:
            hint = "a line should look like tiger<tab>cat<tab>7.35"
            raise InputError("not two words and a number", where=where, hint=hint)
    if not pairs:
        hint = "give word, word, number a line"
        raise InputError("there are no pairs of words", where=source_name(source), hint=hint)
    return pairs


def read_analogies(source: str | Path) -> list[AnalogySection]:
    """Read analogies, four words per line, in sections that start with a line ": name" (questions-words.txt)."""
    sections: list[tuple[str, list[tuple[str, str, str, str]]]] = []
    for where, line in located_lines(source):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(":"):
            sections.append((line[1:].strip(), []))
            continue
        words = line.split()
        if len(words) != 4:
            hint = "a line should look like Athens Greece Berlin Germany"
            raise InputError(f"{len(words)} words, where a question has four", where=where, hint=hint)
        if not sections:
            sections.append(("all", []))
        sections[-1][1].append((words[0], words[1], words[2], words[3]))
    full = [AnalogySection(name, tuple(questions)) for name, questions in sections if questions]
    if not full:
        raise InputError("there are no questions", where=source_name(source), hint="give four words a line")
    return full


def read_contexts(source: str | Path, word: str) -> list[Context]:
    """Return every occurrence of ``word`` in the sentences of a file; see ``contexts_in``."""
    return contexts_in(read_lines(source), word, source_name(source))


def contexts_in(lines: Iterable[str], word: str, where: str) -> list[Context]:
    """Return every occurrence of ``word`` in sentences, one per line; a sense and a tab may precede a sentence.

    Case is ignored. A line without the word is an error.
    """
    contexts: list[Context] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        sense, tab, text = line.partition("\t")
        words = tuple((text if tab else line).split())
        positions = [position for position, other in enumerate(words) if other.lower() == word.lower()]
        if not positions:
            hint = "put spaces around words, or drop the line"
            raise InputError(f"there is no {word!r} here", where=f"{where}, line {number}", hint=hint)
        contexts += [Context(words, position, sense.strip() if tab else "") for position in positions]
    if not contexts:
        raise InputError("there is no sentence in it", where=where, hint=f"give some with {word!r}")
    return contexts
