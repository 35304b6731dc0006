"""Every dotted name of ensue in the docs is a module or an attribute of one."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").rglob("*.md"))]
NAMES = {
    name: page.relative_to(TOP)
    for page in PAGES
    for name in re.findall(r"`(ensue(?:\.\w+)+)`", page.read_text(encoding="utf-8"))
}


def exists(name: str) -> bool:
    """True if the longest part of a name that is a module has the rest as attributes."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for rest in parts[size:]:
            if not hasattr(value, rest):
                return False
            value = getattr(value, rest)
        return True
    return False


def test_the_docs_name_something() -> None:
    assert len(NAMES) > 100


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_the_docs_exists(name: str) -> None:
    assert exists(name), f"{name} in {NAMES[name]}"
