"""The cache folder for token files and built-in corpora."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from ensue.core.errors import InputError
from ensue.core.notes import note_once
from ensue.core.user_cache import user_cache, writable

__all__ = ["cache_folder", "writable"]

HINT = "set ENSUE_CACHE to a folder of yours"


def cache_folder() -> Path:
    """Return ``$ENSUE_CACHE``, or a folder of the user; if none can be written, one that this process deletes."""
    chosen = os.environ.get("ENSUE_CACHE")
    return Path(chosen) if chosen else user_cache("tokens") or _process_folder()


@cache
def _process_folder() -> Path:
    """Create a temporary folder that is deleted when this process ends."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="ensue-tokens-"))
    except OSError as error:
        raise InputError("there is no folder that token files can be written to", hint=HINT) from error
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    note_once(f"no cache folder can be written, so texts are tokenised again each time; {HINT}")
    return folder
