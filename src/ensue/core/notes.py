"""Notes to the user from code that has no ``Report``, such as loading a run; each is logged once per process."""

from __future__ import annotations

import logging
from functools import cache

NOTES = logging.getLogger(__name__)
"""Commands print it as lines "note: …"; in Python it goes to standard error unless logging is configured."""


@cache
def note_once(text: str) -> None:
    """Log a note, unless the same was logged before."""
    NOTES.warning(text)
