"""Charts to files: PNG, SVG, HTML that works offline, or Vega-Lite JSON; and pages, with their numbers as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.files import whole_file

ENDINGS = (".html", ".png", ".svg", ".json")
PAGE_ENDINGS = (".html", ".json")
HIDDEN = "\ue000"
"""A character for private use, which no chart has."""


def save_chart(chart: Any, path: str | Path) -> Path:
    """Write an Altair chart as the ending of ``path`` says; nothing is fetched, then or later."""
    import vl_convert

    path = check_ending(path)
    spec = chart.to_dict()
    with whole_file(path) as temporary:
        if path.suffix == ".png":
            temporary.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
        elif path.suffix == ".svg":
            temporary.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
        elif path.suffix == ".html":
            # a text in the chart that holds </script> must not end the script it stands in
            page = vl_convert.vegalite_to_html(_changed(spec, lambda text: text.replace("<", HIDDEN)), bundle=True)
            temporary.write_text(page.replace(HIDDEN, "\\u003c"), encoding="utf-8")
        else:
            temporary.write_text(json.dumps(spec, indent=2), encoding="utf-8")
    return path


def chart_bundle(chart: Any) -> dict[str, Any]:
    """A chart for a notebook: as Vega-Lite where it can draw that, else as a picture; Altair's own way fetches scripts.

    The version stands in the address of the chart's schema: …/vega-lite/v5.20.1.json.
    """
    import vl_convert

    spec = chart.to_dict()
    version = spec["$schema"].rpartition("/v")[2].partition(".")[0]
    picture = base64.b64encode(vl_convert.vegalite_to_png(spec, scale=2)).decode()
    title = spec.get("title", "")
    said = title.get("text", "") if isinstance(title, dict) else title
    return {f"application/vnd.vegalite.v{version}+json": spec, "image/png": picture, "text/plain": str(said)}


def check_ending(path: str | Path) -> Path:
    """The path, where its ending says what to write; else refuse it."""
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise InputError(f"{path.name!r} has no ending for a picture", hint=f"use {', '.join(ENDINGS)}")
    return path


def check_page_ending(path: str | Path) -> Path:
    """The path, where its ending is one that a page can be written as; else refuse it."""
    path = Path(path)
    if path.suffix not in PAGE_ENDINGS:
        what = f"this view is a page (.html) or numbers (.json), not {path.name!r}"
        raise InputError(what, hint=f"use {' or '.join(PAGE_ENDINGS)}")
    return path


def save_page(page: str, numbers: dict[str, Any], path: str | Path) -> Path:
    """Write a page, or where ``path`` ends so the numbers that it shows."""
    path = check_page_ending(path)
    with whole_file(path) as temporary:
        text = page if path.suffix == ".html" else json.dumps(numbers, indent=2)
        temporary.write_text(text, encoding="utf-8")
    return path


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """A specification with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: _changed(item, change) for name, item in value.items()}
    return [_changed(item, change) for item in value] if isinstance(value, list) else value
