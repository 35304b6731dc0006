"""The folder for what can be made again: token files, and corpora that take seconds to gather."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """``$ENSUE_CACHE``, or a folder of the user's; where that cannot be written, one of temporary files."""
    chosen = os.environ.get("ENSUE_CACHE")
    if chosen:
        return Path(chosen)
    folder = Path.home() / ".cache" / "ensue" / "tokens"
    return folder if writable(folder) else Path(tempfile.gettempdir()) / f"ensue-{os.getuid()}" / "tokens"


def writable(folder: Path) -> bool:
    """Whether files can be put into a folder; it is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
