"""Check the tables of an n-gram model before compiled loops follow them.

The loops read ``words``, ``offsets`` and ``suffix`` without bounds checks, so a damaged table could lead them outside
the arrays, or round in a circle. These conditions rule out both:

    starts    0, V, …, N             never decreasing
    words     0 … V − 1
    offsets   V … N                  one more than there are contexts, never decreasing, from V to N
    suffix    −1 for words           of a longer n-gram: a node of the order below
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ensue.models.ngram_config import NGramConfig

TABLES = ("words", "offsets", "suffix", "starts", "probability", "backoff", "scale")
INTEGERS = (torch.int32, torch.int64)
TYPES = {
    **dict.fromkeys(("words", "offsets", "suffix", "starts"), INTEGERS),
    **dict.fromkeys(("probability", "backoff", "scale"), (torch.float32, torch.float64)),
}
BLOCK = 1 << 22
"""Entries that are checked at once, which bounds the memory for tables that are mapped from a file."""


def find_mismatch(config: NGramConfig, tables: Mapping[str, Tensor]) -> str:
    """Return what is wrong with tables; empty if nothing is."""
    for name in TABLES:
        if name not in tables:
            return f"table {name} is missing"
        if tables[name].dim() != 1 or tables[name].dtype not in TYPES[name]:
            return f"table {name} is not a list of {'whole ' if TYPES[name] is INTEGERS else ''}numbers"
    order, size = config.order, config.vocabulary
    starts = tables["starts"].tolist() if len(tables["starts"]) == order + 1 else []
    if not starts or starts[:2] != [0, size] or starts != sorted(starts):
        return f"the tables are not those of order {order} over {size} words"
    nodes, contexts = starts[-1], starts[-2] if order > 1 else 0
    sizes = {"words": nodes, "suffix": nodes, "probability": nodes, "offsets": contexts + 1, "backoff": contexts}
    for name, length in (*sizes.items(), ("scale", 1)):
        if len(tables[name]) != length:
            return f"table {name} has {len(tables[name])} entries instead of {length}"
    return _find_wrong_node(tables, starts)


def _find_wrong_node(tables: Mapping[str, Tensor], starts: list[int]) -> str:
    """Return which table has entries that lead nowhere; empty if none has."""
    words, offsets, suffix, size = tables["words"], tables["offsets"], tables["suffix"], starts[1]
    if not _within(words, 0, size):
        return "table words has words that are not in the vocabulary"
    if not _within(suffix[:size], -1, 0) or any(
        not _within(suffix[first:last], low, first) for low, first, last in zip(starts, starts[1:], starts[2:])
    ):
        return "table suffix has nodes of a wrong order"
    ends = (int(offsets[0]), int(offsets[-1]))
    rising = all(bool((block[1:] >= block[:-1]).all()) for block in _blocks(offsets))
    if not rising or (len(offsets) > 1 and ends != (size, starts[-1])):
        return "table offsets does not divide the n-grams among their contexts"
    return ""


def _within(values: Tensor, low: int, high: int) -> bool:
    """Return whether all values are at least ``low`` and below ``high``."""
    return all(low <= int(block.min()) and int(block.max()) < high for block in _blocks(values))


def _blocks(values: Tensor) -> Iterator[Tensor]:
    """Yield parts of a table, each with the first entry of the next."""
    for start in range(0, len(values), BLOCK):
        yield values[start : start + BLOCK + 1]
