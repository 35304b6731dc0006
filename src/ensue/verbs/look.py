"""``ensue look``: load runs and show a view of them, drawn to a file or as numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.look.confusion import confusion_chart
from ensue.look.saving import save_chart
from ensue.look.view import View
from ensue.look.views import check_request, show
from ensue.look.word_map import WordVectorSource
from ensue.runs.init_from import read_vectors
from ensue.runs.load import load
from ensue.verbs.racing.folder import open_race

RunOrPath = str | PathLike[str]
"""A run, its folder, or a file."""


def look(
    view: str, what: Sequence[RunOrPath], *, out: str | Path | None = None, report: Report = silent, **options: Any
) -> View:
    """Show a view of runs (or of what else it takes), saved to ``out`` if given; see ``ensue.look.views.VIEWS``.

    ``look("senses", [run, word, *files])`` is short for ``look("senses", [run], word=word, files=files)``.
    """
    if view == "senses" and "word" not in options:
        what, options = what[:1], {**options, "word": str(what[1]) if len(what) > 1 else "", "files": what[2:]}
    check_request(view, options, out)
    opener = OPENERS.get(view, load)
    if options.get("classifier") is not None:
        options["classifier"] = load(options["classifier"])
    return show(view, [opener(subject) for subject in what], out=out, report=report, **options)


def _open_vectors(source: RunOrPath) -> Any:
    """A run, or the word vectors of a file."""
    path = Path(source)
    return WordVectorSource(path.name, read_vectors(source)) if path.is_file() else load(source)


OPENERS: dict[str, Callable[[RunOrPath], Any]] = {
    "race": open_race,
    "ngrams": str,
    "bptt": str,
    "pattern": str,
    "equivalence": str,
    "words": _open_vectors,
}
"""How to open the subjects of views that are not of runs."""


def draw_confusion(figures: Mapping[str, Any], path: Path) -> None:
    """Draw the confusion matrix in the result of ``score`` to a file."""
    if "confusion" not in figures:
        raise InputError("only labels have a confusion matrix", hint="leave out --out")
    save_chart(confusion_chart(figures["confusion"], figures["labels"]), path)
