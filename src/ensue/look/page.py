"""Offline pages: each is one HTML file that fetches nothing.

page.html is the frame of all pages; page.css and page.js are shared. Pages with steps add stepper.html (their body with
the buttons), stepper.css and stepper.js (buttons, keys and slider); a page's own script draws a step.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

STEPPER = "stepper"
"""The name of the files that pages with steps share."""


def page(title: str, body: str, data: Any, parts: Sequence[str]) -> str:
    """A page with a title, a body of HTML, data for its script, and the styles and scripts of its ``parts``.

    Files that are saved from the page are named after the last part.
    """
    parts = ("page", *parts)
    style, script = ("".join(_read(f"{part}.{suffix}") for part in parts) for suffix in ("css", "js"))
    names = {"title": html.escape(title), "own": parts[-1], "body": body, "data": safe_json(data)}
    return filled("page.html", **names, style=style, script=script)


def step_page(
    title: str, above: Mapping[str, str], data: dict[str, Any], part: str, *, beside: str, below: str = ""
) -> str:
    """A page with steps: ``data["steps"]``, each with a title and a text.

    ``above`` has the paragraphs above the drawing, by their class; ``beside`` is the id of an element beside it that
    the script fills, ``below`` is HTML below it. All steps are listed as text at the end, for print and for browsers
    without scripts.
    """
    steps = data["steps"]
    body = filled(
        f"{STEPPER}.html",
        above="\n".join(f'<p class="{name}">{html.escape(text)}</p>' for name, text in above.items()),
        last=len(steps) - 1,
        beside=beside,
        below=below,
        words="\n".join(f"<li><b>{html.escape(s['title'])}.</b> {html.escape(s['text'])}</li>" for s in steps),
    )
    return page(title, body, data, (STEPPER, part))


def filled(name: str, **values: Any) -> str:
    """A template of this package with its $names filled in."""
    return Template(_read(name)).substitute(values)


def _read(name: str) -> str:
    return files("ensue.look").joinpath(name).read_text(encoding="utf-8")


def safe_json(value: Any) -> str:
    """JSON that is safe inside a script element: no <, > or & is left that could end it."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
