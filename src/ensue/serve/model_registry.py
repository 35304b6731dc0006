"""The runs that are served: found by name, each with an engine or a lock of its own."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.runs.language import LanguageRun
from ensue.runs.load import Run
from ensue.serve.abilities import abilities, figures, series_form
from ensue.serve.engine import Busy, Closed, Engine
from ensue.serve.errors import Refused
from ensue.serve.request_queue import RETRY, Turns, closing
from ensue.serve.schemas import ModelCard

Answer = TypeVar("Answer")
Kind = TypeVar("Kind", bound=Run)


class Served:
    """One run."""

    def __init__(self, name: str, run: Run) -> None:
        self.name, self.run = name, run
        self._turns = Turns(name)
        self._engine: Engine | None = None
        self.card = self._described()

    def _described(self) -> ModelCard:
        """What is said of it."""
        run = self.run
        return ModelCard(
            id=self.name,
            created=int(run.folder.weights.stat().st_mtime),
            system=run.system,
            task=run.task,
            parameters=run.config.get("figures", {}).get("parameters"),
            can=abilities(run),
            figures=figures(run),
            series=series_form(run),
        )

    def needs(self, kind: type[Kind], what: str) -> Kind:
        """The run, where it is of a kind; others are said not to do ``what``."""
        if not isinstance(self.run, kind):
            raise self._does_not(what)
        return self.run

    def _does_not(self, what: str) -> Refused:
        return Refused(400, f"{self.name} ({self.run.system}) does not {what}", param="model")

    def engine(self) -> Engine:
        """Where a language model's texts go on, made when it is first asked."""
        run = self.needs(LanguageRun, "go on with a text")
        if not run.model.traits.steps or run.direction != "forward":
            raise self._does_not("go on with a text")
        if self._engine is None:
            self._engine = Engine(run.model)
        return self._engine

    @property
    def load(self) -> tuple[int, int, int]:
        """Rows and requests that run, those that wait, and tokens that were drawn."""
        running, waiting = self._engine.load if self._engine else (0, 0)
        drawn = self._engine.tokens if self._engine else 0
        return running + self._turns.running, waiting + self._turns.waiting, drawn

    async def ask(
        self, what: Callable[[Report], Answer], request: Request | None = None, notes: list[str] | None = None
    ) -> Answer:
        """Do something with the run on a thread, one at a time; what the run refuses is the client's fault.

        ``notes`` gets what the run says for people: that a text was cut, for one.
        """
        try:
            return await self._turns.take(what, request, notes)
        except InputError as error:
            raise Refused(400, without_dashes(str(error).replace(str(self.run), self.name))) from error

    def close(self, seconds: float) -> None:
        """Finish what runs."""
        turns = threading.Thread(target=self._turns.close, args=(seconds,), daemon=True)
        turns.start()
        if self._engine is not None:
            self._engine.close(seconds)
        turns.join()


class Hall:
    """All of them."""

    def __init__(self, runs: Mapping[str, Run], races: Mapping[str, Path] | None = None) -> None:
        self.served = {name: Served(name, run) for name, run in runs.items()}
        self.races = dict(races or {})
        self.drawing = Turns("what draws charts of no run")

    def find(self, name: str) -> Served:
        """The run of a name."""
        if name not in self.served:
            known = ", ".join(self.served) or "none"
            raise Refused(404, f"there is no model of that name; there is {known}", param="model")
        return self.served[name]

    def named(self, value: Any) -> Any:
        """A value with the names of runs where the folders they lie in are told."""
        if isinstance(value, str):
            for one in sorted(
                self.served.values(), key=lambda one: -len(str(one.run))
            ):  # one may begin as another does
                value = value.replace(str(one.run), one.name)
            return value
        if isinstance(value, dict):
            return {name: self.named(item) for name, item in value.items()}
        return [self.named(item) for item in value] if isinstance(value, list) else value

    def close(self, seconds: float = 25.0) -> None:
        """Finish what runs, everywhere at once."""
        ends = [self.drawing.close, *(one.close for one in self.served.values())]
        threads = [threading.Thread(target=end, args=(seconds,), daemon=True) for end in ends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def without_dashes(text: str) -> str:
    """What is said of options, for those who send fields.

    >>> without_dashes('give it with --text "…"')
    'give it with text "…"'
    """
    return re.sub(r"(?<![\w-])--(?=\w)", "", text)


def refusal_of(error: Exception) -> Refused | None:
    """How an error of the engine is told to a client, if it is not one of the server."""
    if isinstance(error, Busy):
        return Refused(429, "too many texts are waiting", retry=RETRY)
    if isinstance(error, Closed):
        return closing()
    if isinstance(error, InputError):
        return Refused(400, str(error))
    return error if isinstance(error, Refused) else None


def jsonable(value: Any) -> Any:
    """A value as strict JSON has it: numbers that are none become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): jsonable(item) for name, item in value.items()}
    return [jsonable(item) for item in value] if isinstance(value, list | tuple) else value
