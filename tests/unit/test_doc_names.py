"""What the docs name is there: every dotted name of ensue in them is a module or something in one."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAMES = {
    name: page.relative_to(DOCS)
    for page in sorted(DOCS.rglob("*.md"))
    for name in re.findall(r"`(ensue(?:\.\w+)+)`", page.read_text(encoding="utf-8"))
}


def found(name: str) -> bool:
    """Whether the longest part of a name that is a module has all the rest."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            held = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for rest in parts[size:]:
            if not hasattr(held, rest):
                return False
            held = getattr(held, rest)
        return True
    return False


def test_the_docs_name_something() -> None:
    assert len(NAMES) > 100


@pytest.mark.parametrize("name", NAMES)
def test_what_the_docs_name_is_there(name: str) -> None:
    assert found(name), f"{name} in docs/{NAMES[name]}"
