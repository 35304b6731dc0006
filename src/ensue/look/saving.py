"""Charts to files: PNG, SVG, HTML that works offline, or Vega-Lite JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.files import whole_file

ENDINGS = (".html", ".png", ".svg", ".json")


def save_chart(chart: Any, path: str | Path) -> Path:
    """Write an Altair chart as the ending of ``path`` says; nothing is fetched, then or later."""
    import vl_convert

    path = Path(path)
    if path.suffix not in ENDINGS:
        raise InputError(f"{path.name!r} has no ending for a picture", mend=f"use {', '.join(ENDINGS)}")
    spec = chart.to_dict()
    with whole_file(path) as temporary:
        if path.suffix == ".png":
            temporary.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
        elif path.suffix == ".svg":
            temporary.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
        elif path.suffix == ".html":
            temporary.write_text(vl_convert.vegalite_to_html(spec, bundle=True), encoding="utf-8")
        else:
            temporary.write_text(json.dumps(spec, indent=2), encoding="utf-8")
    return path
