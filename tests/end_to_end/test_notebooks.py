"""The notebooks of docs/notebooks run from top to bottom, cell by cell, and what their cells show is drawn."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from ensue.look.view import View

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.py"))
CELL = re.compile(r"^# %%(.*)$", re.MULTILINE)


def cells(name: str) -> list[tuple[str, str]]:
    """The cells of a script in percent format: their kind, code or markdown, and their text."""
    parts = CELL.split((NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8"))
    assert not parts[0].strip(), "the first cell begins the file"
    return [
        ({"": "code", "[markdown]": "markdown"}[mark.strip()], text) for mark, text in zip(parts[1::2], parts[2::2])
    ]


def run_cell(code: str, names: dict[str, Any], where: str) -> Any:
    """Run a cell as a notebook does; the answer is what its last line is worth, if that is an expression."""
    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), where, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), names)


def looks(code: str) -> bool:
    """Whether a cell's last line asks for a view."""
    last = ast.parse(code).body[-1]
    return isinstance(last, ast.Expr) and re.match(r"(\w+(\[.+?\])*\.)?look(\.|\()", ast.unparse(last)) is not None


def run(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run a notebook: the names that it leaves behind, and what its views show."""
    names: dict[str, Any] = {"__name__": name}
    shown = []
    for number, (kind, text) in enumerate(cells(name), start=1):
        if kind == "code":
            answer = run_cell(text, names, f"{name}, cell {number}")
            assert isinstance(answer, View) == looks(text)
            if isinstance(answer, View):
                shown.append(answer._repr_mimebundle_())
    return names, shown


def test_there_are_notebooks():
    assert NAMES == ["bert_to_your_task", "ngrams_to_gpt", "quiz", "seq2seq_to_transformer"]


@pytest.mark.parametrize("name", NAMES)
def test_cells_are_in_percent_format(name):
    found = cells(name)
    kinds = [kind for kind, _ in found]
    assert kinds[0] == "markdown" and found[0][1].startswith("\n# # ")
    assert kinds.count("code") >= 8 and kinds.count("markdown") >= 8
    for kind, text in found:
        assert text.strip(), "no cell is empty"
        if kind == "markdown":
            assert all(line.startswith("#") for line in text.strip().splitlines())
    assert text.endswith("\n")


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_shows_what_it_says(name, own_folder):
    names, shown = run(name)
    assert len(shown) >= 4
    for bundle in shown:
        picture = any(kind.startswith("application/vnd.vegalite") for kind in bundle) and "image/png" in bundle
        assert picture or bundle["text/html"].startswith("<iframe")
    assert [path.name for path in own_folder.iterdir()] == ["runs"], "everything that is made is under runs"
    assert names["FOLDER"] == Path("runs") / name
