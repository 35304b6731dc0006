"""Caches of functions that numba compiles: beside their source, in the home, in a temporary folder, or none at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ensue.core.notes import note_once
from ensue.core.user_cache import temporary_cache, trusted, user_cache, writable

NOTE = "no cache folder can be written, so kernels are compiled at each start; set NUMBA_CACHE_DIR to a folder of yours"
BESIDE = "__pycache__"
"""The folder beside the sources: whoever can write there can also change the byte code that Python runs."""


Function = TypeVar("Function", bound=Callable[..., Any])


def compile_cached(function: Function, **options: Any) -> Function:
    """Compile a function with numba on its first call, with numba's ``options``, and cache it on disk."""
    import numba

    compiled: Function = numba.njit(**options)(function)
    enable_cache(compiled)
    return compiled


def enable_cache(compiled: Any) -> bool:
    """Have numba cache a compiled function on disk; return False, with a note, if no folder can be written.

    The cache holds machine code, so a folder that another user could have prepared is never used.
    """
    from numba import config

    if os.environ.get("NUMBA_CACHE_DIR") == config.CACHE_DIR and chosen_folder() is None:
        config.CACHE_DIR = ""  # numba's own choice: beside the sources, or in the home
    if _enable(compiled):
        return True
    folder = temporary_cache()
    if folder is not None:
        config.CACHE_DIR = str(folder / "kernels")
        if _enable(compiled):
            return True
    note_once(NOTE)
    return False


def _enable(compiled: Any) -> bool:
    from numba.core.caching import NullCache

    try:
        compiled.enable_caching()
    except RuntimeError:  # numba found no folder that it can write to
        return False
    folder = Path(compiled._cache.cache_path)
    if folder.name != BESIDE and not trusted(folder):
        compiled._cache = NullCache()
        return False
    return True


@cache
def chosen_folder() -> Path | None:
    """Return ``$NUMBA_CACHE_DIR``; None if there is none, or, with a note, if others can write to it."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if not given:
        return None
    folder = Path(given)
    if (folder.exists() or writable(folder)) and trusted(folder):
        return folder
    note_once(f"NUMBA_CACHE_DIR ({folder}) is not used: others can write to it or to a folder above it")
    return None


@cache
def private_folder() -> Path | None:
    """Return a folder for machine code with the user's other caches, to which nobody else can write; or None."""
    temporary = temporary_cache()
    folders = (user_cache("kernels"), None if temporary is None else temporary / "kernels")
    return next((one for one in folders if one is not None and writable(one) and trusted(one)), None)
