"""The chart of an evaluation: a panel for each task, error bars, and chance level."""

import json

from ensue.look.eval_chart import eval_chart


def result(task, shots, value, chance=None, run="a", error=0.1):
    figures = {"acc": {"value": value, "error": error}}
    kind = "choice" if chance else "cloze"
    facts = {"kind": kind, "measure": "acc", "figures": figures, "chance": chance, "examples": 20}
    return {"run": run, "task": task, "shots": shots, **facts}


def rows_of(chart, name):
    """The rows of every layer's data that have a field."""
    found = [json.loads(one["values"]) if isinstance(one["values"], str) else one["values"] for one in _data(chart)]
    return [row for rows in found for row in rows if name in row]


def _data(node):
    if isinstance(node, dict):
        if isinstance(node.get("data"), dict) and "values" in node["data"]:
            yield node["data"]
        for value in node.values():
            yield from _data(value)
    elif isinstance(node, list):
        for value in node:
            yield from _data(value)


def test_each_task_has_a_panel_with_its_own_chance():
    results = [result("arc", 0, 0.4, 0.25), result("arc", 4, 0.5, 0.25), result("cloze", 0, 0.3)]
    chart = eval_chart(results).to_dict()
    assert [panel["title"] for panel in chart["concat"]] == ["arc", "cloze"]
    assert [row["chance"] for row in rows_of(chart["concat"][0], "chance")] == [0.25]
    assert rows_of(chart["concat"][1], "chance") == []
    assert "a, arc, 4 shots: acc 0.5" in chart["description"]


def test_error_bars_are_one_standard_error_on_each_side():
    chart = eval_chart([result("arc", 0, 0.4, 0.25), result("arc", 0, 0.7, 0.25, run="b", error=None)]).to_dict()
    bars = {row["run"]: (round(row["low"], 6), round(row["high"], 6)) for row in rows_of(chart, "low")}
    assert bars == {"a": (0.3, 0.5), "b": (0.7, 0.7)}


def test_a_result_without_a_value_is_left_out():
    chart = eval_chart([result("arc", 0, None, 0.25), result("arc", 1, 0.5, 0.25)]).to_dict()
    assert {row["shots"] for row in rows_of(chart, "low")} == {1}
    assert "no value" in chart["description"]
