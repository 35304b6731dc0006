"""The cache folder for token files and built-in corpora."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Return ``$ENSUE_CACHE``, or a folder of the user, or a temporary folder if that is not writable."""
    chosen = os.environ.get("ENSUE_CACHE")
    if chosen:
        return Path(chosen)
    folder = Path.home() / ".cache" / "ensue" / "tokens"
    return folder if writable(folder) else Path(tempfile.gettempdir()) / f"ensue-{os.getuid()}" / "tokens"


def writable(folder: Path) -> bool:
    """Return whether files can be written to a folder, which is created if needed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
