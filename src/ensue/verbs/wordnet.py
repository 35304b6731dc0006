"""``ensue words wordnet`` and ``ensue words context``: the senses of a word, and its contexts in texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ensue.data.concordance import concordance
from ensue.data.sources import Source
from ensue.data.wordnet import FILES, PART_NAMES, Synset, WordNet, find_wordnet

SYNSET_NAME = re.compile(r".+\.[nvasr]\.\d+")


def wordnet(word: str, *, closure: bool = False, folder: str | Path | None = None) -> dict[str, Any]:
    """The synsets of a word, or the one synset with a name such as panda.n.01.

    With ``closure`` each has its hypernyms: ``closure``, breadth first, and ``above``, as a tree.
    """
    database = find_wordnet(folder)
    named = bool(SYNSET_NAME.fullmatch(word))
    synsets = [database.synset(word)] if named else database.synsets(word)
    if not synsets:
        raise database.missing(word)
    forms = {PART_NAMES[part]: database.forms(word, part) for part in FILES if not named and database.forms(word, part)}
    rows = [_described(synset) | (_hypernyms(database, synset) if closure else {}) for synset in synsets]
    return {"word": word, "wordnet": str(database.folder), "version": database.version, "forms": forms, "synsets": rows}


def _described(synset: Synset) -> dict[str, Any]:
    return {
        "name": synset.name,
        "part": PART_NAMES[synset.part],
        "words": list(synset.words),
        "definition": synset.definition,
        "examples": list(synset.examples),
    }


def _hypernyms(database: WordNet, synset: Synset) -> dict[str, Any]:
    seen: set[str] = set()

    def tree(one: Synset) -> list[dict[str, Any]]:
        """The hypernyms of a synset; one that was shown before is named without its own hypernyms."""
        rows = []
        for other in database.hypernyms(one):
            again = other.name in seen and bool(database.hypernyms(other))
            seen.add(other.name)
            rows.append({"name": other.name, "again": again, "above": [] if again else tree(other)})
        return rows

    return {"closure": [other.name for other in database.closure(synset)], "above": tree(synset)}


def context(
    files: Sequence[Source],
    word: str,
    *,
    window: int = 5,
    lines: int = 20,
    top: int = 20,
    paragraphs: bool = False,
    field: str | None = None,
) -> dict[str, Any]:
    """The occurrences of a word in texts, and the most frequent words within its window, with their counts.

    ``ratio`` is the count over that expected by chance. ``lines`` and ``top`` limit the lists (0: no limit).
    """
    found = concordance(files, word, window, most=lines, paragraphs=paragraphs, field=field)
    order = sorted(found.near, key=lambda one: (-found.near[one], one))
    return {
        "word": word,
        "window": window,
        "count": found.count,
        "words": found.words,
        "lines": [
            {"left": " ".join(one.left), "word": one.word, "right": " ".join(one.right)} for one in found.occurrences
        ],
        "near": [
            {"word": one, "count": found.near[one], "ratio": found.ratio(one)} for one in order[: top or len(order)]
        ],
    }
