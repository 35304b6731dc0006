"""Capabilities of a run: which requests it can answer, under the names that the page and API clients use.

next        next-token probabilities, surprisal           write       text completion
translate   translation                                   attention   attention weights
inside      gates, states and gradients                   words       static word vectors
senses      contextual word vectors                       predict     labels
fill        masked tokens                                 forecast    time series
chat        conversations, by a chat template
"""

from __future__ import annotations

from collections.abc import Callable

from ensue.core.errors import InputError
from ensue.look.attention import attends
from ensue.look.senses import has_context_vectors
from ensue.runs.chat import can_chat
from ensue.runs.forecast import ForecastRun
from ensue.runs.language import LanguageRun
from ensue.runs.load import Run
from ensue.serve.schemas import Score, SeriesInfo


def capabilities(run: Run) -> list[str]:
    """The capabilities of a run."""
    offered = {*run.capabilities, *(name for name, has in MODEL_CAPABILITIES.items() if has(run))}
    return [name for name in ORDER if name in offered]


def validation_scores(run: Run) -> list[Score]:
    """The scores of a run on its held-out data, formatted."""
    scores = run.config.get("figures", {}).get("valid", {})
    race = run.spec.race
    measures = [measure for measure in race.measures if measure.key in scores] if race else []
    values = [(measure, measure.of(scores)) for measure in measures]
    return [Score(name=m.title, value=format(value, m.format_spec)) for m, value in values if value is not None]


def series_info(run: Run) -> SeriesInfo | None:
    """The columns, window and horizon of a forecaster; None for other runs."""
    if not isinstance(run, ForecastRun):
        return None
    encoding = run.encoding
    mean, spread = float(encoding.mean[0]), 2.5 * float(encoding.deviation[0])
    return SeriesInfo(
        names=list(encoding.names),
        targets=encoding.targets,
        window=encoding.window,
        horizon=encoding.horizon,
        low=mean - spread,
        high=mean + spread,
    )


def _has_word_vectors(run: Run) -> bool:
    try:
        return len(run.vectors.words) > 1
    except InputError:
        return False


def context_size(run: Run) -> int | None:
    """The number of tokens that a language model sees at once; None if there is no limit, and for other runs."""
    size: int | None = run.model.traits.context if isinstance(run, LanguageRun) else None
    return size


MODEL_CAPABILITIES: dict[str, Callable[[Run], bool]] = {
    "attention": lambda run: run.spec.reads_text and attends(run),
    "words": _has_word_vectors,
    "senses": has_context_vectors,
    "chat": lambda run: "write" in run.capabilities and can_chat(run),
}
"""Capabilities that depend on the model; the others are the task's, in ``Run.capabilities``."""
ORDER = ("next", "write", "chat", "translate", "attention", "inside", "words", "senses", "predict", "fill", "forecast")
"""The order of the page's tabs."""
