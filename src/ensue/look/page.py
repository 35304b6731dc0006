"""Pages of their own: one file each, that needs nothing else and fetches nothing, so it works offline.

page.html is the frame of all of them, page.css what they share. Those that one steps through add stepper.html (the
buttons), stepper.css and stepper.js (what buttons, keys and slider do); a page's own script says how a step is drawn.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

STEPPER = "stepper"
"""The name of the files that pages with steps share."""


def page(title: str, body: str, data: Any, parts: Sequence[str]) -> str:
    """The page with a title, a body of HTML, data that its script reads, and the styles and scripts of its parts."""
    return filled(
        "page.html",
        title=html.escape(title),
        body=body,
        style="".join(beside(f"{part}.css") for part in ("page", *parts)),
        script="".join(beside(f"{part}.js") for part in parts),
        data=safe_json(data),
    )


def stepped(title: str, body: str, data: dict[str, Any], part: str) -> str:
    """A page that one steps through: ``data["steps"]`` are its steps, each with a title and a text."""
    return page(title, body, data, (STEPPER, part))


def controls(steps: int) -> str:
    """The buttons of a page with so many steps."""
    return filled(f"{STEPPER}.html", last=steps - 1).strip()


def in_words(steps: Sequence[dict[str, Any]]) -> str:
    """All steps as items of a list, for print and for browsers without scripts."""
    return "\n".join(f"<li><b>{html.escape(s['title'])}.</b> {html.escape(s['text'])}</li>" for s in steps)


def filled(name: str, **values: Any) -> str:
    """A file that lies beside this one, with its $names filled in."""
    return Template(beside(name)).substitute(values)


def beside(name: str) -> str:
    """A file that lies beside this one."""
    return files("ensue.look").joinpath(name).read_text(encoding="utf-8")


def safe_json(value: Any) -> str:
    """JSON that is safe inside a script element: no <, > or & is left that could end it."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
