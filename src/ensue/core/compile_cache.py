"""Caches of functions that numba compiles: beside their source, in the home, in a temporary folder, or none at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ensue.core.notes import note_once
from ensue.core.user_cache import temporary_cache

NOTE = "no cache folder can be written, so kernels are compiled at each start; set NUMBA_CACHE_DIR to a folder of yours"


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
    if _enable(compiled):
        return True
    from numba import config

    folder = temporary_cache()
    if folder is not None:
        config.CACHE_DIR = str(folder / "kernels")
        if _enable(compiled):
            return True
    note_once(NOTE)
    return False


def _enable(compiled: Any) -> bool:
    try:
        compiled.enable_caching()
    except RuntimeError:  # numba found no folder that it can write to
        return False
    return True
