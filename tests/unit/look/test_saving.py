"""Charts as files."""

from __future__ import annotations

from pathlib import Path

import altair as alt

from ensue.look.saving import save_chart


def test_a_text_in_a_chart_cannot_end_the_script_of_its_page(tmp_path: Path) -> None:
    evil = "</script><b id=evil>"
    rows = alt.Data(values=[{"x": evil, "y": 1}])
    chart = alt.Chart(rows, title=evil).mark_bar().encode(x="x:N", y="y:Q")
    page = save_chart(chart, tmp_path / "chart.html").read_text(encoding="utf-8")
    assert evil not in page
    assert "\\u003c/script>" in page
    assert "\ue000" not in page
