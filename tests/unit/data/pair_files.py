from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import strategies as st

from ensue.core.errors import InputError
from ensue.data.pairs import Pairs, read_pairs

sentences = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\t"), min_size=1, max_size=20)
sentences = sentences.filter(lambda text: bool(text.strip()) and not text.endswith("\r") and text[0] != "\ufeff")


def put(folder: Path, name: str, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    file = folder / name
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return file


def complaint(*files: str | Path, columns: dict[str, str] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read_pairs(files, columns)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pairs_of(*both: tuple[str, str]) -> Pairs:
    return Pairs([one for one, _ in both], [other for _, other in both], list(range(1, len(both) + 1)), "")


def table(pairs: Pairs) -> list[tuple[int, str, str]]:
    return list(zip(pairs.numbers, pairs.source, pairs.target, strict=True))
