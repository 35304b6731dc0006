"""Checks of the runs and texts that views are given. Views take loaded runs and open no run themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from ensue.core.errors import InputError
from ensue.look.chart_parts import short_names
from ensue.runs.forecast import ForecastRun
from ensue.runs.language import LanguageRun
from ensue.runs.run import Run
from ensue.runs.translation import TranslationRun

RunKind = TypeVar("RunKind", bound=Run)
MAX_TOKENS = 128
"""Longer texts are cut where the cost grows with the square of the length."""


def language_run(run: Run) -> LanguageRun:
    """The run, checked to be a language model."""
    what = f"this {run.system} was trained for the task {run.task}; it is not a language model"
    return _checked(run, LanguageRun, what, "name a run of rnn, gru, lstm or gpt")


def translation_run(run: Run) -> TranslationRun:
    """The run, checked to be a translation model."""
    return _checked(run, TranslationRun, f"{run.system} does not translate", "name a run of a translation system")


def forecast_run(run: Run) -> ForecastRun:
    """The run, checked to be a forecaster."""
    return _checked(run, ForecastRun, f"{run.system} does not forecast", "name a run of `ensue fit forecast`")


def _checked(run: Run, kind: type[RunKind], what: str, hint: str) -> RunKind:
    if not isinstance(run, kind):
        raise InputError(what, where=str(run), hint=hint)
    return run


def single(runs: Sequence[Run], view: str) -> Run:
    """The only run of a view that shows one."""
    if len(runs) != 1:
        raise InputError(f"{view} shows one run, not {len(runs)}", hint="name one")
    return runs[0]


def named(runs: Sequence[Run], view: str) -> list[tuple[str, Run]]:
    """The runs of a view that shows one or more, each with a short name."""
    if not runs:
        raise InputError(f"{view} needs a run", hint="name one or more")
    return list(zip(short_names([str(run) for run in runs]), runs))


def check_text(text: str, view: str) -> None:
    """Refuse an empty text."""
    if not text.strip():
        raise InputError(f"{view} needs a text", hint='give it with --text "…"')


def first_tokens(run: LanguageRun, text: str) -> tuple[np.ndarray, int]:
    """The end token and the first tokens of a text, up to the context; and the number of tokens in the text."""
    tokens = run.tokens(text=text).tokens.astype(np.int64)
    context = run.model.traits.context
    return tokens[: 1 + min(MAX_TOKENS, context or MAX_TOKENS)], len(tokens) - 1


def label(run: Run) -> str:
    """The name of a run with its system, for titles."""
    return f"{run.folder.path.name} ({run.system})"
