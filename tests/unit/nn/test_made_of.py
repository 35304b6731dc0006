"""Loops that are made of pieces of other files are compiled anew when those change."""

from __future__ import annotations

import ast
import importlib
from hashlib import sha256
from pathlib import Path

import pytest

import ensue.nn

FOLDER = Path(ensue.nn.__path__[0])
TAPE = ("tape_products", "tape_parts", "tape_linear", "tape_attention")
PIECES = ("loops", "vectors", "matrices", "softmax_loops", "short_attention_loops", *TAPE)
LOOPS = sorted(path.stem for path in FOLDER.glob("*.py") if "numba" in path.read_text() and path.stem.endswith("loops"))


def pieces(name: str) -> list[str]:
    """The files of pieces that a file takes some from."""
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return [piece for piece in PIECES if f"ensue.nn.{piece}" in modules]


@pytest.mark.parametrize("name", [*(name for name in LOOPS if name != "loops"), "matrices", *TAPE[2:]])
def test_a_file_of_loops_says_what_it_is_made_of(name: str) -> None:
    """Numba keeps what it compiled until the file with the loop changes, whatever becomes of the files it is made of:
    writing the new word into it is that change."""
    assert pieces(name)
    texts = b"".join((FOLDER / f"{piece}.py").read_bytes() for piece in pieces(name))
    module = importlib.import_module(f"ensue.nn.{name}")
    assert sha256(texts).hexdigest()[:12] == module.MADE_OF, f"write the new word into {name}.py"
