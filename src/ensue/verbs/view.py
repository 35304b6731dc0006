"""What ``ensue look`` answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Files = Sequence[str | Path]


@dataclass(frozen=True)
class View:
    """Something to look at: how to draw it, and the numbers that it shows."""

    draw: Callable[[], Any]
    """Makes the Altair chart; the text of the page where the view is one of ``PAGES``."""
    numbers: dict[str, Any]
    """For JSON."""
    told: Callable[[], Any] | None = None
    """Makes what a terminal shows, for rich to print; None where there is only a picture."""
    said: str = ""
    """What people should know without looking."""
