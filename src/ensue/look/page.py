"""Pages of their own: one file each, that needs nothing else and fetches nothing, so it works offline.

page.html is the frame of all of them, page.css and page.js what they share. Those that one steps through add
stepper.html (their body, with the buttons), stepper.css and stepper.js (what buttons, keys and slider do); a page's own
script says how a step is drawn.
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
    """The page with a title, a body of HTML, data that its script reads, and the styles and scripts of its parts;
    what is saved from it is called as the last of them."""
    return filled(
        "page.html",
        title=html.escape(title),
        own=parts[-1],
        body=body,
        style="".join(own_file(f"{part}.css") for part in ("page", *parts)),
        script="".join(own_file(f"{part}.js") for part in ("page", *parts)),
        data=safe_json(data),
    )


def stepped(
    title: str, above: Mapping[str, str], data: dict[str, Any], part: str, *, beside: str, below: str = ""
) -> str:
    """A page that one steps through: ``data["steps"]`` are its steps, each with a title and a text.

    ``above`` are the paragraphs over the picture, by their class; ``beside`` names what its script fills beside it,
    ``below`` is HTML that stands under it. All steps stand at the end in words, for print and for browsers without
    scripts.
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
    """A file that lies beside this one, with its $names filled in."""
    return Template(own_file(name)).substitute(values)


def own_file(name: str) -> str:
    """A file that lies beside this one."""
    return files("ensue.look").joinpath(name).read_text(encoding="utf-8")


def safe_json(value: Any) -> str:
    """JSON that is safe inside a script element: no <, > or & is left that could end it."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
