"""``View``: the result of ``ensue look``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from ensue.look.saving import chart_bundle

IFRAME_STYLE = "width: 100%; height: 44rem; border: 0"


@dataclass(frozen=True)
class View:
    """A chart or page, and the numbers that it shows."""

    draw: Callable[[], Any]
    """Returns the Altair chart, or the HTML text of a page."""
    numbers: dict[str, Any]
    """For JSON."""
    text: Callable[[], Any] | None = None
    """Returns what a terminal prints, as a rich renderable; None if there is only a picture."""
    note: str = ""
    """A sentence to print beside the file's name."""
    chart: Callable[[], Any] | None = None
    """Returns the charts of a page as one Altair chart; None if the page has none, or if ``draw`` returns a chart."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """What a notebook shows: the chart, or the page in an iframe. Nothing is fetched."""
        drawn = self.draw()
        if isinstance(drawn, str):
            frame = f'<iframe sandbox="allow-scripts" style="{IFRAME_STYLE}" srcdoc="{escape(drawn)}"></iframe>'
            return {"text/html": frame, "text/plain": self.note or repr(self)}
        return chart_bundle(drawn)
