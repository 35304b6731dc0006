"""What a run can be asked for, in words that the page and other clients know.

next        what comes next, and what surprises it        write       going on with a text
translate   another language                              attention   where it looks
inside      gates, states and gradients                   words       vectors of words
senses      vectors of words where they stand             predict     labels
fill        what is hidden                                forecast    numbers to come
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
from ensue.serve.schemas import Figure, SeriesForm


def abilities(run: Run) -> list[str]:
    """What a run can be asked for."""
    return [name for name, able in ABLE.items() if able(run)]


def figures(run: Run) -> list[Figure]:
    """What the run reached on what was held out, as people read it."""
    held = run.config.get("figures", {}).get("valid", {})
    race = run.spec.race
    measures = [measure for measure in race.measures if measure.key in held] if race else []
    values = [(measure, measure.of(held)) for measure in measures]
    return [Figure(name=m.title, value=format(value, m.form)) for m, value in values if value is not None]


def series_form(run: Run) -> SeriesForm | None:
    """What a forecaster reads and says."""
    if not isinstance(run, ForecastRun):
        return None
    form = run.form
    mean, spread = float(form.mean[0]), 2.5 * float(form.deviation[0])
    return SeriesForm(
        names=list(form.names),
        targets=form.targets,
        window=form.window,
        horizon=form.horizon,
        low=mean - spread,
        high=mean + spread,
    )


def _goes_on(run: Run) -> bool:
    return isinstance(run, LanguageRun) and run.model.traits.steps and run.direction == "forward"


def _recurs(run: Run) -> bool:
    return isinstance(run, LanguageRun) and any(isinstance(part, Recurrent) for part in _parts(run))


def _parts(run: Run) -> list[object]:
    return list(run.model.modules()) if hasattr(run.model, "modules") else []


def _has_words(run: Run) -> bool:
    try:
        return len(run.vectors.words) > 1
    except InputError:
        return False


ABLE: dict[str, Callable[[Run], bool]] = {
    "next": _goes_on,
    "write": _goes_on,
    "translate": lambda run: isinstance(run, TranslationRun),
    "attention": lambda run: not isinstance(run, ForecastRun) and attends(run),
    "inside": _recurs,
    "words": _has_words,
    "senses": has_context_vectors,
    "predict": lambda run: isinstance(run, LabelRun),
    "fill": lambda run: isinstance(run, MaskedRun | ContextRun),
    "forecast": lambda run: isinstance(run, ForecastRun),
}
