"""Read contexts of a word from a file: one sentence per line, with or without its sense."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ensue.core.errors import InputError
from ensue.data.lines import read_lines, source_name
from ensue.data.senses import Context


def read_contexts(source: str | Path, word: str) -> list[Context]:
    """Return every occurrence of ``word`` in the sentences of a file; see ``contexts_in``."""
    return contexts_in(read_lines(source), word, source_name(source))


def contexts_in(lines: Iterable[str], word: str, where: str) -> list[Context]:
    """Return every occurrence of ``word`` in sentences, one per line; a sense and a tab may precede a sentence.

    Case is ignored. A line without the word is an error.
    """
    found: list[Context] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        sense, tab, text = line.partition("\t")
        words = tuple((text if tab else line).split())
        places = [place for place, one in enumerate(words) if one.lower() == word.lower()]
        if not places:
            hint = "put spaces around words, or drop the line"
            raise InputError(f"there is no {word!r} here", where=f"{where}, line {number}", hint=hint)
        found += [Context(words, place, sense.strip() if tab else "") for place in places]
    if not found:
        raise InputError("there is no sentence in it", where=where, hint=f"give some with {word!r}")
    return found
