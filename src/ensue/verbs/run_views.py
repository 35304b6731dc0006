"""``run.look``: the views of a run, for Python and notebooks.

run.look.attention("The law will never be perfect, but its application should be just.", layer=5, word="its")
run.look.next("the students opened their", beside=[other])
run.look.words("king queen man woman", pairs="king:queen man:woman")
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import getdoc
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.runs.run import Run
from ensue.verbs.look import VIEWS, look
from ensue.verbs.view import Files, View

FIRST = {"words": "words", "forecast": "data", "bottleneck": "data"}
"""What a view takes first where that is no text."""
BARE = ("bptt", "ngrams", "race")
"""Views that are not of a run."""


class Looking:
    """The views of one run, each a method: ``dir(run.look)`` names them, their docstrings say what they take."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __dir__(self) -> list[str]:
        return [name for name in VIEWS if name not in BARE]

    def __getattr__(self, view: str) -> Callable[..., View]:
        if view.startswith("_") or view not in dir(self):
            raise AttributeError(f"there is no view {view!r}; there is {', '.join(dir(self))}")
        shown = partial(self._show, view)
        shown.__doc__ = getdoc(VIEWS[view])
        return shown

    def _show(
        self, view: str, first: Any = None, *, beside: Files = (), out: str | Path | None = None, **how: Any
    ) -> View:
        """A view of the run and of those ``beside`` it; ``first`` is its text, its word or its files."""
        what: list[Any] = [self._run, *beside]
        if view == "senses":
            if not isinstance(first, str):
                raise InputError("senses of which word?", hint='e.g. run.look.senses("bank")')
            what = [self._run, first, *beside]
        elif first is not None:
            name = FIRST.get(view, "text")
            how[name] = [first] if name == "data" and isinstance(first, str | Path) else first
        return look(view, what, out=out, **how)
