"""What ``ensue look`` answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from typing import Any

from ensue.look.saving import chart_bundle

Place = str | PathLike[str]
"""A file, the folder of a run, or a run itself."""
Files = Sequence[Place]
FRAME = "width: 100%; height: 44rem; border: 0"
"""How a page is framed in a notebook."""


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

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """What a notebook shows: the chart, or the page in a frame of its own; nothing is fetched."""
        drawn = self.draw()
        if isinstance(drawn, str):
            frame = f'<iframe sandbox="allow-scripts" style="{FRAME}" srcdoc="{escape(drawn)}"></iframe>'
            return {"text/html": frame, "text/plain": self.said or repr(self)}
        return chart_bundle(drawn)
