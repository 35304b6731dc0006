"""``ensue words wordnet`` and ``ensue words context``: what people, and what texts, say of a word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ensue.data.concordance import concordance
from ensue.data.sources import Source
from ensue.data.wordnet import FILES, PART_NAMES, Synset, WordNet, find_wordnet

_NAMED = re.compile(r".+\.[nvasr]\.\d+")


def wordnet(word: str, *, closure: bool = False, folder: str | Path | None = None) -> dict[str, Any]:
    """The synsets of a word, or the one synset with a name such as panda.n.01, by WordNet's files.

    With ``closure`` each has all that is above it: ``closure``, breadth first, and ``above``, the same as a tree.
    """
    held = find_wordnet(folder)
    named = bool(_NAMED.fullmatch(word))
    found = [held.synset(word)] if named else held.synsets(word)
    if not found:
        raise held.missing(word)
    forms = {} if named else {PART_NAMES[part]: held.forms(word, part) for part in FILES if held.forms(word, part)}
    rows = [_described(synset) | (_above(held, synset) if closure else {}) for synset in found]
    return {"word": word, "wordnet": str(held.folder), "version": held.version, "forms": forms, "synsets": rows}


def _described(synset: Synset) -> dict[str, Any]:
    return {
        "name": synset.name,
        "part": PART_NAMES[synset.part],
        "words": list(synset.words),
        "definition": synset.definition,
        "examples": list(synset.examples),
    }


def _above(held: WordNet, synset: Synset) -> dict[str, Any]:
    seen: set[str] = set()

    def tree(one: Synset) -> list[dict[str, Any]]:
        """What stands above a synset; what was shown before is named again, but not gone up."""
        rows = []
        for other in held.hypernyms(one):
            again = other.name in seen and bool(held.hypernyms(other))
            seen.add(other.name)
            rows.append({"name": other.name, "again": again, "above": [] if again else tree(other)})
        return rows

    return {"closure": [other.name for other in held.closure(synset)], "above": tree(synset)}


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
    """Where a word stands in texts, and the words that stand within its window most often, with how often.

    ``ratio`` is how many times as often as by chance. ``lines`` and ``top`` limit what is given (0: all).
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
