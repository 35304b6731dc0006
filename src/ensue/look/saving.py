"""Save charts as PNG, SVG, offline HTML or Vega-Lite JSON, and pages as HTML or JSON."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.files import atomic_file

CHART_SUFFIXES = (".html", ".png", ".svg", ".json")
PAGE_SUFFIXES = (".html", ".json")
PLACEHOLDER = "\ue000"
"""A private-use character that stands for < while Vega-Lite writes the page."""


def save_chart(chart: Any, path: str | Path) -> Path:
    """Write an Altair chart in the format of the suffix of ``path``. The file fetches nothing."""
    import vl_convert

    path = check_suffix(path)
    spec = chart.to_dict()
    with atomic_file(path) as temporary:
        if path.suffix == ".png":
            temporary.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
        elif path.suffix == ".svg":
            temporary.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
        elif path.suffix == ".html":
            # a </script> in the chart's texts must not end the page's script
            page = vl_convert.vegalite_to_html(_escaped(spec), bundle=True)
            temporary.write_text(page.replace(PLACEHOLDER, "\\u003c"), encoding="utf-8")
        else:
            temporary.write_text(json.dumps(spec, indent=2), encoding="utf-8")
    return path


def chart_bundle(chart: Any) -> dict[str, Any]:
    """The MIME bundle of a chart for a notebook: Vega-Lite and PNG. Altair's own bundle fetches scripts.

    The Vega-Lite version is part of the schema's address: …/vega-lite/v5.20.1.json.
    """
    import vl_convert

    spec = chart.to_dict()
    version = spec["$schema"].rpartition("/v")[2].partition(".")[0]
    picture = base64.b64encode(vl_convert.vegalite_to_png(spec, scale=2)).decode()
    title = spec.get("title", "")
    text = title.get("text", "") if isinstance(title, dict) else title
    return {f"application/vnd.vegalite.v{version}+json": spec, "image/png": picture, "text/plain": str(text)}


def check_suffix(path: str | Path, page: bool = False) -> Path:
    """The path, if a chart (or a page) can be written in the format of its suffix."""
    path = Path(path)
    if page and path.suffix not in PAGE_SUFFIXES:
        what = f"this view is a page (.html) or numbers (.json), not {path.name!r}"
        raise InputError(what, hint=f"use {' or '.join(PAGE_SUFFIXES)}")
    if path.suffix not in CHART_SUFFIXES:
        raise InputError(f"{path.name!r} is not a picture format", hint=f"use {', '.join(CHART_SUFFIXES)}")
    return path


def save_page(page: str, numbers: dict[str, Any], path: str | Path) -> Path:
    """Write a page as .html, or its numbers as .json."""
    path = check_suffix(path, page=True)
    with atomic_file(path) as temporary:
        text = page if path.suffix == ".html" else json.dumps(numbers, indent=2)
        temporary.write_text(text, encoding="utf-8")
    return path


def _escaped(value: Any) -> Any:
    """A specification with every < in its texts replaced."""
    if isinstance(value, str):
        return value.replace("<", PLACEHOLDER)
    if isinstance(value, dict):
        return {name: _escaped(item) for name, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value
