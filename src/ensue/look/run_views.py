"""``run.look``: the views of a run, for Python and notebooks.

run.look.attention("The law will never be perfect, but its application should be just.", layer=5, word="its")
run.look.next("the students opened their", beside=[other])
run.look.words("king queen man woman", pairs="king:queen man:woman")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import getdoc
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.look.view import View
from ensue.look.views import VIEWS, WITHOUT_RUN, show
from ensue.runs.load import load
from ensue.runs.run import Run

FIRST_ARGUMENT = {"words": "words", "forecast": "data", "bottleneck": "data", "bias": "data", "senses": "word"}
"""The option that a view's first argument sets, where that is not ``text``."""


class RunViews:
    """The views of one run, each a method. ``dir(run.look)`` lists them; their docstrings describe the options."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __dir__(self) -> list[str]:
        return [name for name in VIEWS if name not in WITHOUT_RUN]

    def __getattr__(self, view: str) -> Callable[..., View]:
        if view.startswith("_") or view not in dir(self):
            raise AttributeError(f"there is no view {view!r}; there is {', '.join(dir(self))}")
        method = partial(self._show, view)
        method.__doc__ = getdoc(VIEWS.load(view))
        return method

    def _show(
        self, view: str, first: Any = None, *, beside: Sequence[Any] = (), out: str | Path | None = None, **options: Any
    ) -> View:
        """Show this run and those ``beside`` it; ``first`` is the view's text, word or files.

        For senses, ``beside`` lists files of sentences.
        """
        if view == "senses":
            if not isinstance(first, str):
                raise InputError("senses needs a word", hint='e.g. run.look.senses("bank")')
            options["files"], beside = beside, ()
        if first is not None:
            name = FIRST_ARGUMENT.get(view, "text")
            options[name] = [first] if name == "data" and isinstance(first, str | Path) else first
        if options.get("classifier") is not None:
            options["classifier"] = load(options["classifier"])
        return show(view, [self._run, *map(load, beside)], out=out, **options)
