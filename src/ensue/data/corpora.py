"""Built-in corpora of text that comes with Python, so that training needs no download.

Documents are ordered by the SHA-256 of their names: the same on every machine with that Python version, yet mixed, so
that the last tenth is a fair sample.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import os
import sys
import sysconfig
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from ensue.core.errors import unknown_name
from ensue.core.files import write_text
from ensue.data.cache import cache_folder, writable
from ensue.data.copy_task import copy_text
from ensue.data.senses import sense_text

BUILTIN: dict[str, str] = {
    "pydoc": "the English of Python's own reference and of its library's docstrings",
    "stdlib": "the source of Python's standard library",
    "hello": "the one word of the first lecture on recurrent networks, with its alphabet of four letters",
    "bank": "sentences in which bank and play have one of two senses each",
    "copying": "letters that come again after gaps of dots: what a model remembers, and over how many tokens",
}
"""Names and descriptions of the built-in corpora."""

_SKIPPED = "test tests idlelib lib2to3 turtledemo pydoc_data site-packages dist-packages __pycache__"
SKIPPED_FOLDERS = frozenset(_SKIPPED.split())
"""Folders of the standard library that are skipped: tests, programs, data, and other packages."""

PYDOC_BYTES = 6_000_000
"""Maximum size of the corpus ``pydoc``."""


def builtin_documents(name: str) -> Iterator[tuple[str, str]]:
    """Yield the documents of a built-in corpus: name and text.

    >>> list(builtin_documents("hello"))
    [('hello', 'hello')]
    """
    makers: dict[str, Callable[[], tuple[tuple[str, str], ...]]] = {
        "pydoc": _pydoc,
        "stdlib": _stdlib,
        "hello": lambda: (("hello", "hello"),),
        "bank": lambda: (("bank", sense_text()),),
        "copying": lambda: (("copying", copy_text()),),
    }
    if name not in makers:
        raise unknown_name("corpus", name, makers)
    yield from makers[name]()


def _mixed(documents: dict[str, str]) -> list[tuple[str, str]]:
    """Return documents in a fixed but mixed order."""
    return sorted(documents.items(), key=lambda item: hashlib.sha256(item[0].encode()).digest())


@cache
def _pydoc() -> tuple[tuple[str, str], ...]:
    """Return the documents of ``pydoc``, cached on disk until the library's files change."""
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in _files()]
    key = hashlib.sha256(f"{sys.version} {PYDOC_BYTES} {stamps}".encode()).hexdigest()
    store = cache_folder() / f"pydoc-{key[:16]}.json"
    try:
        return tuple((origin, text) for origin, text in json.loads(store.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        documents = _collect_pydoc()
    if writable(store.parent):
        write_text(store, json.dumps(documents))
    return documents


def _collect_pydoc() -> tuple[tuple[str, str], ...]:
    """Collect the documents of ``pydoc`` from the library, which takes seconds of parsing."""
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    documents = {f"pydoc:topic/{name}": text.strip() + "\n" for name, text in topics.items()}
    documents |= {f"pydoc:{name}": text for name, source in _modules() if (text := docstrings(name, source))}
    chosen, size = [], 0
    for origin, text in _mixed(documents):
        size += len(text.encode())
        if size > PYDOC_BYTES:
            break
        chosen.append((origin, text))
    return tuple(chosen)


@cache
def _stdlib() -> tuple[tuple[str, str], ...]:
    return tuple(_mixed({f"stdlib:{name}": text for name, text in _modules() if text}))


def _modules() -> Iterator[tuple[str, str]]:
    """Yield the dotted names and sources of the standard library's modules, sorted by path."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in _files():
        with tokenize.open(path) as file:
            text = file.read()
        yield ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"), text


def _files() -> list[Path]:
    """Return the source files of the standard library, without those skipped or specific to a machine."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = []
    for parent, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith("config-")]
        files += [Path(parent, name) for name in names if name.endswith(".py")]
    return sorted(path for path in files if not path.name.startswith("_sysconfigdata"))


def docstrings(name: str, source: str) -> str:
    """Return the docstrings of a module in source order, each under its dotted name.

    >>> print(docstrings("a", "'What it is.'\\ndef f():\\n    'Do.'"), end="")
    a
    <BLANKLINE>
    What it is.
    <BLANKLINE>
    a.f
    <BLANKLINE>
    Do.
    """
    parts: list[str] = []

    def visit(node: ast.AST, path: str) -> None:
        text = ast.get_docstring(node) if isinstance(node, Documented) else None
        if text:
            # A docstring written with escapes can hold half a surrogate pair, which no UTF-8 text has.
            parts.append(f"{path}\n\n{text}\n".encode("utf-8", "replace").decode())
        for child in ast.iter_child_nodes(node):
            inner = f"{path}.{child.name}" if isinstance(child, Named) else path
            if isinstance(child, ast.stmt | ast.ExceptHandler):
                visit(child, inner)

    visit(ast.parse(source), name)
    return "\n".join(parts)


Named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | Named
