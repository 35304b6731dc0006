"""WordNet (Miller, 1995), read from its database files: sets of synonyms and their hypernyms.

    index.noun   good n 4 … 05159725 04849241 …     a word, and where its synsets begin in data.noun, commonest first
    data.noun    04849241 … good goodness … @ 04723816 … | moral excellence …      words, pointers, meaning
        noun.exc     geese goose                         irregular forms

A synset is named by its first word, part of speech and sense, as in NLTK: ``good.n.02``. Satellite adjectives count
among all adjectives, as WordNet prints them: ``full.s.06`` is the sixth (NLTK counts them apart since 3.10). The files
are memory-mapped: a word is found by binary search among the sorted lines, a synset by its byte offset.
"""

from __future__ import annotations

import difflib
import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ensue.core.errors import InputError

FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
"""Parts of speech, in the order in which synsets are listed, and the names of their files."""
PART_NAMES = {"n": "noun", "v": "verb", "a": "adj", "s": "adj (sat)", "r": "adverb"}
"""Names of the parts of speech; a satellite is an adjective similar to a head adjective."""

INFLECTIONS = {
    "n": "s: ses:s ves:f xes:x zes:z ches:ch shes:sh men:man ies:y",
    "v": "s: ies:y es:e es: ed:e ed: ing:e ing:",
    "a": "er: est: er:e est:e",
    "r": "",
}
"""Suffixes of inflected forms and their replacements in the base form (morphy's rules)."""

HYPERNYMS = ("@", "@i")
"""Pointers to hypernyms and instance hypernyms."""

SEARCH_PATHS = ("/usr/share/wordnet", "/usr/local/WordNet-3.0/dict", "/usr/share/nltk_data/corpora/wordnet")
"""Default folders of the database."""

INSTALL_HINT = (
    "install it (apt install wordnet-base), or name the folder of its files with --wordnet DIR or WNSEARCHDIR"
)
MISMATCH_HINT = "these files do not belong together, so download them again"

_NAME = re.compile(r"(.+)\.([nvasr])\.(\d+)")
_QUOTED = re.compile(r'"([^"]*)"')
_NEAR = 50
"""Entries on either side of a missing word that are searched for similar words."""


@dataclass(frozen=True, slots=True)
class Synset:
    """A set of synonyms."""

    name: str
    """Its first word, part of speech and sense: ``good.n.02``."""
    part: str
    """n, v, a, s (satellite adjective) or r."""
    offset: int
    """Byte offset in its data file."""
    words: tuple[str, ...]
    """Its words, with underscores for spaces."""
    definition: str
    examples: tuple[str, ...]
    pointers: tuple[tuple[str, str, int], ...]
    """Pointers: kind, and part of speech and offset of the other synset."""


def find_wordnet(folder: str | Path | None = None) -> WordNet:
    """Open the database in a folder, in the environment's WNSEARCHDIR, or in a default folder."""
    named = folder or os.environ.get("WNSEARCHDIR") or None
    for path in map(Path, [named] if named else SEARCH_PATHS):
        if (path / "data.noun").is_file() and (path / "index.noun").is_file():
            return WordNet(path)
    if named:
        raise InputError("there is no WordNet here (data.noun, index.noun …)", where=str(named), hint=INSTALL_HINT)
    raise InputError("WordNet is not installed", hint=INSTALL_HINT)


class WordNet:
    """A WordNet database in a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._maps: dict[str, mmap.mmap] = {}

    @cached_property
    def version(self) -> str:
        """The version in the licence at the start of the files, such as 3.0; empty if there is none."""
        version = re.search(rb"WordNet (\d+\.\d+)", self._mapped("data.noun")[:4096])
        return version[1].decode() if version else ""

    def synsets(self, word: str) -> list[Synset]:
        """Return the synsets of a word in all its forms: nouns, verbs, adjectives, adverbs, most common first."""
        forms = [(part, form) for part in FILES for form in self.forms(word, part)]
        return [self._synset(part, offset) for part, form in forms for offset in self._offsets(form, part)]

    def forms(self, word: str, part: str) -> list[str]:
        """Return the base forms of a word for a part of speech, including the word itself if it is listed."""
        form = _listed(word)
        rules = (rule.split(":") for rule in INFLECTIONS[part].split())
        regular = [form.removesuffix(old) + new for old, new in rules if form.endswith(old)]
        guesses = self._exceptions(form, part) or regular
        return [guess for guess in dict.fromkeys([form, *guesses]) if self._offsets(guess, part)]

    def synset(self, name: str) -> Synset:
        """Return the synset with a name such as ``panda.n.01``."""
        match = _NAME.fullmatch(_listed(name))
        if not match:
            raise InputError(f"{name!r} is not the name of a synset", hint="write it as panda.n.01")
        word, part, number = match[1], match[2], int(match[3])
        offsets = self._offsets(word, part)
        if not offsets:
            raise self.missing(word)
        if not 1 <= number <= len(offsets):
            what = f"{word!r} has no sense {number} as {PART_NAMES[part]}"
            raise InputError(what, hint=f"it has {len(offsets)}")
        return self._synset(part, offsets[number - 1])

    def hypernyms(self, synset: Synset) -> list[Synset]:
        """Return the hypernyms and instance hypernyms, sorted by name."""
        above = [self._synset(part, offset) for kind, part, offset in synset.pointers if kind in HYPERNYMS]
        return sorted(above, key=lambda other: other.name)

    def closure(self, synset: Synset) -> list[Synset]:
        """Return all synsets above it, breadth first, each once."""
        seen, queue = {synset.name: synset}, [synset]
        while queue:
            for other in self.hypernyms(queue.pop(0)):
                if other.name not in seen:
                    seen[other.name] = other
                    queue.append(other)
        return list(seen.values())[1:]

    def synonyms(self, word: str) -> list[str]:
        """Return the other words of all its synsets, each once."""
        words = dict.fromkeys(other for synset in self.synsets(word) for other in synset.words)
        return [other for other in words if other.lower() != _listed(word)]

    def missing(self, word: str) -> InputError:
        """Return the error for a missing word, suggesting similar ones."""
        form = _listed(word)
        around = {near for part in FILES for near in self._around(form, part)}
        near = difflib.get_close_matches(form, sorted(around), n=3, cutoff=0.6)
        hint = f"near it: {', '.join(near)}" if near else "it has no word of similar spelling"
        return InputError(f"WordNet has no {word!r}", hint=hint)

    def _offsets(self, word: str, part: str) -> list[int]:
        """Return the offsets of a listed word's synsets; empty if it is not listed."""
        lines = self._mapped(f"index.{_file(part)}")
        start = _find_line(lines, word.encode())
        fields = lines[start : _line_end(lines, start)].decode("utf-8", "replace").split()
        if not fields or fields[0] != word:
            return []
        return [int(field) for field in fields[-int(fields[2]) :]]

    def _around(self, word: str, part: str) -> Iterator[str]:
        """Yield the words listed near the position of a missing word."""
        lines = self._mapped(f"index.{_file(part)}")
        start = _find_line(lines, word.encode())
        for _ in range(_NEAR):
            start = _line_start(lines, max(0, start - 1))
        for line in lines[start : start + 200 * _NEAR].decode("utf-8", "replace").split("\n")[: 2 * _NEAR]:
            if line and not line.startswith(" "):  # skip the licence
                yield line.partition(" ")[0]

    def _exceptions(self, form: str, part: str) -> list[str]:
        path = self.folder / f"{_file(part)}.exc"
        lines = b"\n" + (path.read_bytes() if path.is_file() else b"")
        at = lines.rfind(f"\n{form} ".encode())
        return [] if at < 0 else lines[at + 1 : _line_end(lines, at + 1)].decode("utf-8", "replace").split()[1:]

    def _synset(self, part: str, offset: int) -> Synset:
        lines = self._mapped(f"data.{_file(part)}")
        line = lines[offset : _line_end(lines, offset)].decode("utf-8", "replace") if offset < len(lines) else ""
        columns, _, gloss = line.partition("|")
        fields = columns.split()
        if not fields or not fields[0].isdecimal() or int(fields[0]) != offset:
            where = str(self.folder / f"data.{_file(part)}")
            raise InputError(f"no synset begins at byte {offset:,}", where=where, hint=MISMATCH_HINT)
        count = int(fields[3], 16)
        words = tuple(re.sub(r"\((?:a|p|ip)\)$", "", word) for word in fields[4 : 4 + 2 * count : 2])
        at = 4 + 2 * count
        pointers = [fields[at + 1 + 4 * i : at + 4 + 4 * i] for i in range(int(fields[at]))]
        definition, example, more = gloss.partition('; "')  # a definition may contain a quoted word
        return Synset(
            name=self._named(words[0].lower(), fields[2], offset),
            part=fields[2],
            offset=offset,
            words=words,
            definition=definition.strip().strip("; "),
            examples=tuple(_QUOTED.findall(f'"{more}')) if example else (),
            pointers=tuple((kind, part, int(target)) for kind, target, part in pointers),
        )

    def _named(self, word: str, part: str, offset: int) -> str:
        """Return the name of a synset with this first word."""
        offsets = self._offsets(word, part)
        if offset not in offsets:
            where = str(self.folder / f"index.{_file(part)}")
            raise InputError(f"{word!r} is not listed with all its synsets", where=where, hint=MISMATCH_HINT)
        return f"{word}.{part}.{offsets.index(offset) + 1:02d}"

    def _mapped(self, name: str) -> mmap.mmap:
        if name not in self._maps:
            path = self.folder / name
            if not path.is_file() or not path.stat().st_size:
                raise InputError("is missing or empty", where=str(path), hint=INSTALL_HINT)
            with path.open("rb") as file:
                self._maps[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[name]


def _listed(word: str) -> str:
    """Return a word as it is listed: in lower case, with underscores for spaces.

    >>> _listed("Ice cream")
    'ice_cream'
    """
    return "_".join(word.lower().split())


def _file(part: str) -> str:
    """Return the name of a part of speech's files; satellites are among the adjectives."""
    return FILES["a" if part == "s" else part]


def _find_line(lines: mmap.mmap, word: bytes) -> int:
    """Return the start of the first line whose word is not before this one, in byte order."""
    low, high = 0, len(lines)
    while low < high:
        start = _line_start(lines, (low + high) // 2)
        end = _line_end(lines, start)
        if lines[start:end].split(b" ", 1)[0] < word:
            low = end + 1
        else:
            high = start
    return low


def _line_start(lines: mmap.mmap, at: int) -> int:
    """Return the start of the line that contains a byte; a newline belongs to the line it ends."""
    return lines.rfind(b"\n", 0, at) + 1


def _line_end(lines: mmap.mmap | bytes, start: int) -> int:
    """Return the end of a line: its newline, or the end of the file."""
    end = lines.find(b"\n", start)
    return len(lines) if end < 0 else end
