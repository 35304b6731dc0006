"""The page: a few files as they lie here, and the script that draws charts, made once by vl-convert."""

from __future__ import annotations

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "page"
FILES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}


def page_file(name: str) -> tuple[bytes, str] | None:
    """A file of the page and its kind; None where there is none of that name."""
    return _read(name) if name in FILES or name == "vega.js" else None


@cache
def _read(name: str) -> tuple[bytes, str]:
    if name == "vega.js":
        import vl_convert

        return vl_convert.javascript_bundle().encode(), FILES["page.js"]  # type: ignore[call-arg]
    return (FOLDER / name).read_bytes(), FILES[name]
