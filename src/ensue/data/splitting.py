"""Hold out part of a text or of pairs for validation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from ensue.core.errors import InputError
from ensue.core.wording import counted
from ensue.data.pairs import Pairs
from ensue.data.reading import measure_text, read_pieces
from ensue.data.sources import Slice, Source, TableColumn, as_source_list

Item = TypeVar("Item")
MIN_BYTES = 64
"""Smaller texts are not split."""
MAX_HELD_OUT_PAIRS = 2_000
"""Maximum number of held-out pairs."""
_STARTS = re.compile(rb"[\x00-\x7f\xc0-\xff]")


def hold_out(
    sources: Sequence[Source] | Source, share: float = 0.1, limit_bytes: int | None = None, field: str | None = None
) -> tuple[list[Source], list[Source]]:
    """Split ``sources`` into a training part and a validation tail of about ``share`` of the bytes.

    The tail has at most about ``limit_bytes``. The cut is at the end of a document if one is near, else at the end of a
    line, else before a space, else between two characters. The two parts join to the whole text.
    """
    _check_share(share)
    if limit_bytes is not None and limit_bytes < 1:
        raise InputError(f"at most {limit_bytes} bytes held out is none", hint="choose at least 1")
    names: list[str | Path | TableColumn] = []
    for source in as_source_list(sources):
        if isinstance(source, Slice):
            raise InputError("a slice of a text cannot be split again", where=str(source))
        names.append(source)
    _, total = measure_text(names, field)
    tail = round(total * share) if limit_bytes is None else min(round(total * share), limit_bytes)
    if total < MIN_BYTES or tail < 1:
        where = " ".join(map(str, names))
        hint = "give more text, or a validation text with --valid"
        raise InputError(f"{total} bytes are too few to hold a part out", where=where, hint=hint)
    at = _cut_near(names, field, total, tail)
    return [Slice(tuple(names), 0, at)], [Slice(tuple(names), at, None)]


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise InputError(f"the share held out is {share}", hint="choose one between 0 and 1")


def _cut_near(names: list[str | Path | TableColumn], field: str | None, total: int, tail: int) -> int:
    """Return the best cut within half a tail of the target (a quarter for the end of a document)."""
    target = total - tail
    reach = max(4, tail // 2)  # a character has at most four bytes
    low, high = max(1, target - reach), min(total - 1, target + reach)
    best: dict[str, int] = {}

    def offer(kind: str, cuts: Iterable[int]) -> None:
        for cut in cuts:
            if low <= cut <= high and abs(cut - target) < abs(best.get(kind, -total) - target):
                best[kind] = cut

    at = 0
    for piece in read_pieces(names, field):
        data = piece.text.encode()
        start, at = at, at + len(data)
        if at < low:
            continue
        middle = min(max(target - start, 0), len(data))
        for kind, character, width in (("line", b"\n", 1), ("space", b" ", 0)):
            nearest = (data.rfind(character, 0, middle), data.find(character, middle))
            offer(kind, [start + index + width for index in nearest if index >= 0])
        around = _STARTS.finditer(data, max(0, middle - 4), middle + 4)
        offer("character", [start + match.start() for match in around])
        offer("document", [at] if piece.ends and abs(at - target) <= tail // 4 else [])
        if at > high:
            break
    return next(best[kind] for kind in ("document", "line", "space", "character") if kind in best)


def hold_out_pairs(pairs: Pairs, share: float = 0.1, least: int = 1) -> tuple[Pairs, Pairs]:
    """Split pairs into a training part and about ``share`` of the pairs, at most 2,000, for validation.

    The pairs with the smallest SHA-256 are held out: a fair, reproducible sample that keeps copies of a pair on one
    side. Each side has at least ``least`` pairs.
    """
    _check_share(share)
    copies: dict[bytes, list[int]] = {}
    for index, sides in enumerate(zip(pairs.source, pairs.target)):
        copies.setdefault(hashlib.sha256("\n".join(sides).encode()).digest(), []).append(index)
    wanted = min(MAX_HELD_OUT_PAIRS, max(least, round(share * len(pairs))))
    held: list[int] = []
    for digest in sorted(copies):
        if len(held) + len(copies[digest]) <= wanted:
            held += copies[digest]
        if len(held) == wanted:
            break
    if min(len(held), len(pairs) - len(held)) < max(1, least):
        what = f"{counted(len(pairs), 'pair')} ({len(copies):,} different) are too few to hold a part out"
        raise InputError(what, hint="give more, or validation pairs with --valid")
    train, valid = split_at(range(len(pairs)), held)
    return pairs.select(train), pairs.select(valid)


def evenly_spaced_groups(keys: Sequence[Hashable], share: float) -> list[int]:
    """Return evenly spaced indices to hold out, a share of the different ``keys``; equal keys stay together.

    >>> evenly_spaced_groups(["a", "a", "b", "c", "b"], 0.4)
    [2, 4]
    """
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    if len(numbers) < 2:
        return []
    held = set(evenly_spaced(len(numbers), share))
    return [index for index, key in enumerate(keys) if numbers[key] in held]


def split_at(items: Sequence[Item], held_out: Iterable[int]) -> tuple[list[Item], list[Item]]:
    """Split items into a training part and the held-out ones, by their indices.

    >>> split_at("abcd", [1, 3])
    (['a', 'c'], ['b', 'd'])
    """
    held = set(held_out)
    return [x for i, x in enumerate(items) if i not in held], [x for i, x in enumerate(items) if i in held]


def evenly_spaced(count: int, share: float) -> list[int]:
    """Return evenly spaced indices below ``count``, a share of them: at least one, never all.

    >>> evenly_spaced(10, 0.2)
    [2, 7]
    """
    held = min(count - 1, max(1, round(share * count)))
    return [int((number + 0.5) * count / held) for number in range(held)]
