"""Public names of a package that are imported when first used (PEP 562)."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_exports(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    The public names are those that its ``__init__.py`` imports under ``if TYPE_CHECKING``, so type checkers see the
    same names.

    >>> import ensue.nn
    >>> get, names, _ = lazy_exports("ensue.nn", ensue.nn.__file__)
    >>> "SelfAttention" in names(), get("State").__module__
    (True, 'ensue.nn.state')
    """
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: str(node.module) for node in imports for alias in node.names}
    public = sorted(modules)

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return get, lambda: public, public
