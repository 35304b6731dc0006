"""Served models by name, each with an engine for completions and a queue for other requests."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from fastapi import Request

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.data.chat_template import ChatTemplate
from ensue.runs.chat import chat_template
from ensue.runs.load import Run
from ensue.serve.capabilities import capabilities, context_size, series_info, validation_scores
from ensue.serve.engine import Engine, EngineClosed, QueueFull, ReaderTooSlow
from ensue.serve.errors import ApiError
from ensue.serve.path_names import PathNames
from ensue.serve.request_queue import RETRY_AFTER, RequestQueue, shutting_down
from ensue.serve.schemas import ModelCard

Result = TypeVar("Result")
Kind = TypeVar("Kind", bound=Run)


class ServedModel:
    """A run, its card, its engine and its request queue."""

    def __init__(self, name: str, run: Run, names: PathNames) -> None:
        self.name, self.run, self.names = name, run, names
        self._queue = RequestQueue(name)
        self.tokenising = RequestQueue(name)
        """Long prompts of completions, which need not wait for other requests."""
        self._engine: Engine | None = None
        self.card = ModelCard(
            id=self.name,
            created=int(run.folder.weights.stat().st_mtime),
            system=run.system,
            task=run.task,
            parameters=run.config.get("figures", {}).get("parameters"),
            can=capabilities(run),
            figures=validation_scores(run),
            series=series_info(run),
            context=context_size(run),
        )

    def require(self, kind: type[Kind], action: str) -> Kind:
        """The run, if it is of a kind; otherwise raise ApiError saying that it cannot do ``action``."""
        if not isinstance(self.run, kind):
            raise self._cannot(action)
        return self.run

    def _cannot(self, action: str) -> ApiError:
        return ApiError(400, f"{self.name} ({self.run.system}) cannot {action}", param="model")

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """The chat template of the run, read on first use; InputError if it has none."""
        return chat_template(self.run)

    def engine(self) -> Engine:
        """The engine that decodes completions, created on first use."""
        if "write" not in self.run.capabilities:
            raise self._cannot("complete text")
        if self._engine is None:
            self._engine = Engine(self.run.model)
        return self._engine

    @property
    def load(self) -> tuple[int, int, int]:
        """Running rows and requests, waiting ones, and tokens generated so far."""
        running, waiting = self._engine.load if self._engine else (0, 0)
        tokens = self._engine.tokens if self._engine else 0
        return running + self._queue.running, waiting + self._queue.waiting, tokens

    async def ask(
        self, work: Callable[[Report], Result], request: Request | None = None, notes: list[str] | None = None
    ) -> Result:
        """Run ``work`` on a thread, one at a time; InputError becomes status 400.

        ``notes`` collects what the run reports for users, e.g. that a text was cut.
        """
        try:
            return await self._queue.run(work, request, notes)
        except InputError as error:
            raise ApiError(400, without_dashes(str(error))) from error
        finally:
            if notes:
                notes[:] = map(self.names.message, notes)

    @property
    def closers(self) -> list[Callable[[float], None]]:
        """Functions that finish running requests within some seconds."""
        return [self._queue.close, self.tokenising.close, *([self._engine.close] if self._engine else [])]


class ModelRegistry:
    """All served models and races, by name."""

    def __init__(self, runs: Mapping[str, Run], races: Mapping[str, Path] | None = None) -> None:
        self.races = dict(races or {})
        self.names = PathNames({**self.races, **{name: Path(run) for name, run in runs.items()}})
        """What clients are shown instead of paths."""
        self.models = {name: ServedModel(name, run, self.names) for name, run in runs.items()}
        self.chart_queue = RequestQueue("the chart renderer")

    def get(self, name: str) -> ServedModel:
        """The model of this name, or ApiError 404."""
        if name not in self.models:
            known = ", ".join(self.models) or "none"
            raise ApiError(404, f"there is no model of that name; available: {known}", param="model")
        return self.models[name]

    def close(self, seconds: float = 25.0) -> None:
        """Finish running requests of all models at the same time."""
        closers = [self.chart_queue.close, *(close for model in self.models.values() for close in model.closers)]
        threads = [threading.Thread(target=close, args=(seconds,), daemon=True) for close in closers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def without_dashes(text: str) -> str:
    """Turn names of command-line options into names of fields.

    >>> without_dashes('give it with --text "…"')
    'give it with text "…"'
    """
    return re.sub(r"(?<![\w-])--(?=\w)", "", text)


def api_error(error: Exception) -> ApiError | None:
    """An error of the engine as an ApiError; None for internal errors."""
    if isinstance(error, QueueFull):
        return ApiError(429, "too many completions are waiting", retry=RETRY_AFTER)
    if isinstance(error, EngineClosed):
        return shutting_down()
    if isinstance(error, ReaderTooSlow):
        return ApiError(408, "the client reads too slowly", retry=RETRY_AFTER)
    if isinstance(error, InputError):
        return ApiError(400, str(error))
    return error if isinstance(error, ApiError) else None
