"""Measure a trained model and write its run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import ensue
from ensue.core.events import report_all
from ensue.core.files import write_text
from ensue.core.run_files import COUNTING
from ensue.models.backbones import system_config
from ensue.models.ngram import NGram
from ensue.runs.chat import inherited_chat
from ensue.runs.grouped_weights import count_parameters
from ensue.runs.held_out import RestFolder, rest_figures
from ensue.runs.model_card import model_card
from ensue.runs.save_weights import write_weights
from ensue.tasks.labels.features import describe_features
from ensue.tasks.table import trained_by_counting
from ensue.train.training import Outcome
from ensue.verbs.fitting.work import Fit


def measure_and_forget(work: Fit, folder: RestFolder, outcome: Outcome) -> None:
    """Measure a model of all but the held-out part, of which nothing but the figures is kept."""
    if outcome.stopped.startswith("SIG"):
        return
    valid = work.task.final_figures(work.settings, work.model, work.corpus, folder, work.report)
    data = work.task.describe_corpus(work.corpus)
    figures = {"valid": valid, "data": data, "order": work.model.config.order, "seconds": outcome.seconds}
    folder.write_figures(figures, folder.path / COUNTING)


def measure_and_write(work: Fit, outcome: Outcome) -> None:
    """Measure the model and write the weights, the model card and config.json, which makes the run complete."""
    model, settings, folder = work.model, work.settings, work.folder
    write_weights(model, folder)
    figures: dict[str, Any] = {
        "stopped": outcome.stopped,
        "steps": outcome.step,
        "seconds": round(outcome.seconds, 1),
        "unit": "passes" if trained_by_counting(settings.run.system, settings.run.task) else "steps",
        "tokens": outcome.tokens,
        "parameters": count_parameters(model),
        **({"ngrams": sum(model.counts)} if isinstance(model, NGram) else {}),
        "bytes": sum(one.weights.stat().st_size for one in (folder, folder.base) if one is not None),
        **({"budget": outcome.pace.figures()} if outcome.pace else {}),
    }
    report_all(outcome.pace.remarks(outcome.step) if outcome.pace else (), work.report)
    data = work.task.describe_corpus(work.corpus)
    if work.rest is not None:
        figures |= rest_figures(work.rest, model.config.order, outcome.seconds)
        data |= {name: work.rest["data"][name] for name in ("valid_tokens", "valid_bytes")}
    elif not outcome.stopped.startswith("SIG"):
        valid = work.task.final_figures(settings, model, work.corpus, folder, work.report)
        figures |= {"valid": valid} if valid is not None else {}
    facts: dict[str, Any] = {"task": settings.run.task, "data": data, "figures": figures}
    if hasattr(settings.data, "direction"):
        facts["direction"] = settings.data.direction
    if settings.head is not None:
        facts["head"] = asdict(settings.head)
    if settings.features is not None:
        facts["features"] = describe_features(model)
    facts |= inherited_chat(settings, folder)
    write_text(folder.card, model_card(settings, facts))
    folder.write_config(settings.run.system, system_config(model), ensue.__version__, **facts)
