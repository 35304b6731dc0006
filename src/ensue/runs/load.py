"""The run that people hold: a trained model with its tokenizer, and what it can do."""

from __future__ import annotations

from os import PathLike

from ensue.runs.contexts import ContextRun
from ensue.runs.forecast import ForecastRun
from ensue.runs.labelled import LabelRun
from ensue.runs.language import LanguageRun
from ensue.runs.masked import MaskedRun
from ensue.runs.run import Run
from ensue.runs.translation import TranslationRun
from ensue.runs.words import WordRun
from ensue.tasks.labels import LABEL_KINDS

__all__ = ["RUNS", "Run", "load"]

RUNS: dict[str, type[Run]] = {
    "language": LanguageRun,
    "translation": TranslationRun,
    "masked": MaskedRun,
    "contexts": ContextRun,
    "words": WordRun,
    "forecast": ForecastRun,
    **dict.fromkeys(LABEL_KINDS, LabelRun),
}


def load(path: str | PathLike[str]) -> Run:
    """The run in a folder; a run is itself."""
    if isinstance(path, Run):
        return path
    run = Run(path)
    return RUNS[run.task](path)
