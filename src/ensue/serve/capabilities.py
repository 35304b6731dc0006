"""Capabilities of a run: which requests it can answer, under the names that the page and API clients use.

next        next-token probabilities, surprisal           write       text completion
translate   translation                                   attention   attention weights
inside      gates, states and gradients                   words       static word vectors
senses      contextual word vectors                       predict     labels
fill        masked tokens                                 forecast    time series
"""

from __future__ import annotations

from collections.abc import Callable

from ensue.core.errors import InputError
from ensue.look.attention import attends
from ensue.look.senses import has_context_vectors
from ensue.nn.recurrent import Recurrent
from ensue.runs.contexts import ContextRun
from ensue.runs.forecast import ForecastRun
from ensue.runs.labelled import LabelRun
from ensue.runs.language import LanguageRun
from ensue.runs.load import Run
from ensue.runs.masked import MaskedRun
from ensue.runs.translation import TranslationRun
from ensue.serve.schemas import Score, SeriesInfo


def capabilities(run: Run) -> list[str]:
    """The capabilities of a run."""
    return [name for name, has in CAPABILITIES.items() if has(run)]


def validation_scores(run: Run) -> list[Score]:
    """The scores of a run on its held-out data, formatted."""
    scores = run.config.get("figures", {}).get("valid", {})
    race = run.spec.race
    measures = [measure for measure in race.measures if measure.key in scores] if race else []
    values = [(measure, measure.of(scores)) for measure in measures]
    return [Score(name=m.title, value=format(value, m.form)) for m, value in values if value is not None]


def series_info(run: Run) -> SeriesInfo | None:
    """The columns, window and horizon of a forecaster; None for other runs."""
    if not isinstance(run, ForecastRun):
        return None
    form = run.form
    mean, spread = float(form.mean[0]), 2.5 * float(form.deviation[0])
    return SeriesInfo(
        names=list(form.names),
        targets=form.targets,
        window=form.window,
        horizon=form.horizon,
        low=mean - spread,
        high=mean + spread,
    )


def can_complete(run: Run) -> bool:
    """True for language models that decode step by step, from left to right."""
    return isinstance(run, LanguageRun) and run.model.traits.steps and run.direction == "forward"


def _is_recurrent(run: Run) -> bool:
    modules = run.model.modules() if hasattr(run.model, "modules") else ()
    return isinstance(run, LanguageRun) and any(isinstance(module, Recurrent) for module in modules)


def _has_word_vectors(run: Run) -> bool:
    try:
        return len(run.vectors.words) > 1
    except InputError:
        return False


CAPABILITIES: dict[str, Callable[[Run], bool]] = {
    "next": can_complete,
    "write": can_complete,
    "translate": lambda run: isinstance(run, TranslationRun),
    "attention": lambda run: not isinstance(run, ForecastRun) and attends(run),
    "inside": _is_recurrent,
    "words": _has_word_vectors,
    "senses": has_context_vectors,
    "predict": lambda run: isinstance(run, LabelRun),
    "fill": lambda run: isinstance(run, MaskedRun | ContextRun),
    "forecast": lambda run: isinstance(run, ForecastRun),
}
