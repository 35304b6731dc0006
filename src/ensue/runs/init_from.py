"""``ensue fit --from RUN``: initialise a run with the settings and the weights of another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

import numpy as np

from ensue.core.errors import InputError, unknown_name
from ensue.core.events import Report, silent
from ensue.core.settings import describe
from ensue.models.backbones import body_of
from ensue.models.bidirectional_encoder import features_of
from ensue.models.conditional import ConditionalModel
from ensue.models.labelled import Labelled
from ensue.models.table import SYSTEMS
from ensue.runs.load import Run, load
from ensue.runs.word_tables import init_embeddings
from ensue.tasks.labels.features import COVE, FEATURE_SETTINGS, READER, provides_features
from ensue.tasks.settings import Settings
from ensue.tasks.table import TASKS, all_tasks, model_class, task_name, task_spec, trained_by_counting


def system_and_task(what: str, model: str, initial: Run | None, file: Mapping[str, Any]) -> tuple[str, str]:
    """The system and the task of ``fit WHAT``: a system for its own task, or a task with the system of ``--model``.

    ``initial`` is the run of ``--from``, and ``file`` the settings of a run.toml.
    """
    if what in TASKS and task_spec(what).by_name:
        lender = initial if lends_features(what, initial) else file.get("features.run")
        if lender:
            return model or str(file.get("system", "")) or reading_system(load(lender)), what
        if model and initial and model != initial.system:
            raise InputError(f"is a {initial.system}, not a {model}", where=str(initial), hint="leave out --model")
        inherited = initial.system if initial else ""
        return model or inherited or str(file.get("system", "")) or task_spec(what).default_system, what
    if model:
        message = f"--model chooses the system of a task ({', '.join(_tasks_by_name())})"
        raise InputError(message, hint=f"leave it out, or fit one of them in place of {what}")
    if what not in SYSTEMS:
        raise unknown_name("system or task", what, [*SYSTEMS, *_tasks_by_name()])
    task = str(file.get("task", ""))
    return what, task if task and file.get("system") == what else task_name(what)


def _tasks_by_name() -> list[str]:
    return [spec.name for spec in all_tasks() if spec.by_name]


def lends_features(task: str, initial: Run | None) -> bool:
    """True if a task reads the layers of the run of ``--from`` as features instead of copying its weights."""
    reads = initial is not None and "features" in task_spec(task).settings
    return reads and not initial.spec.labels and provides_features(initial.system)  # type: ignore[union-attr]


def reading_system(lender: Run) -> str:
    """The default system that reads a run's layers as features."""
    return COVE if issubclass(model_class(lender.system, lender.task), ConditionalModel) else READER


def inherited_settings(
    initial: Run, system: str, task: str, file: Mapping[str, Any], typed: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings that a run inherits from the one its weights come from: weights fit one shape and direction.

    ``file`` and ``typed`` are the settings of a run.toml and of the command line.
    """
    if any(name.startswith("tokenizer.") for name in typed):
        raise InputError("--from also takes the tokenizers of its run", hint="leave out --tokenizer")
    if typed.get("embeddings") or file.get("embeddings"):
        raise InputError("--from and --embeddings both initialise the embeddings", hint="leave out one of them")
    if trained_by_counting(system, task):
        raise InputError(f"{system} counts, so it has no weights to initialise", hint="leave out --from")
    where, spec = str(initial), task_spec(task)
    if initial.system != system:
        hint = f"fit {initial.system}, or name another run"
        raise InputError(f"is a run of {initial.system}, not of {system}", where=where, hint=hint)
    inherited = dict(initial.config["model"])
    head = initial.config.get("head")
    if head is not None and initial.task == task:
        inherited |= {f"head.{name}": head[name] for name in ("pooling", "dense", "hidden") if name in head}
    if head is not None and spec.labels:
        inherited["head.directions"] = head.get("directions", "one")
        features = initial.config.get("features", {})
        inherited |= {f"features.{name}": features[name] for name in FEATURE_SETTINGS if name in features}
    if "direction" in {field.name for field in describe(spec.settings["data"])}:
        inherited["data.direction"] = initial.direction
        asked = {**file, **typed}.get("data.direction", initial.direction)
        if asked != initial.direction:
            what = f"reads {initial.direction}, so a run initialised from it cannot read {asked}"
            raise InputError(what, where=where, hint="leave out data.direction")
    return inherited


def init_weights(
    model: Any, settings: Settings, corpus: Any, report: Report = silent, initial: Run | None = None
) -> None:
    """Copy into a new model the weights that its settings name: features, word vectors, and those of another run.

    A run of the same task gives all its weights; one of another task, or with other labels, those of its body. To a
    model of fewer blocks it gives some of its own, evenly spaced from the first to the last (DistilBERT's way, Sanh et
    al., 2019).
    """
    features = features_of(getattr(model, "body", None))
    if features is not None:
        features.reader.load_state_dict(load(settings.features.run).model.reader().state_dict())
    if settings.run.embeddings:
        init_embeddings(settings, model, corpus, report)
    path = settings.run.begin_with
    if not path:
        return
    initial = initial or load(path)
    same_task, labels = initial.task == settings.run.task, getattr(getattr(corpus, "encoding", None), "labels", ())
    same_labels = tuple(initial.config.get("data", {}).get("labels", ())) == labels
    target, source = model, initial.model
    if not (same_task and same_labels):
        target, source = body_of(model), body_of(source)
    weights = source.state_dict()
    blocks = evenly_spaced_blocks(body_of(initial.model), body_of(model))
    if blocks:
        weights = select_blocks(weights, blocks)
        shown = ", ".join(str(block + 1) for block in blocks)
        report("note", {"text": f"its layers are initialised from layers {shown} of {path}"})
    try:
        target.load_state_dict(weights)
    except RuntimeError as error:
        reason = shorten(str(error).splitlines()[-1], 160, placeholder=" …")
        what = f"its weights do not fit these settings ({reason})"
        raise InputError(what, where=path, hint="leave the model's settings as they are") from error
    if isinstance(model, Labelled) and same_task and not same_labels:
        report("note", {"text": f"{path} has other labels, so the head has new random weights"})


def evenly_spaced_blocks(source: Any, target: Any) -> list[int]:
    """The blocks of ``source`` that initialise a ``target`` with fewer; empty if it has no fewer.

    >>> from types import SimpleNamespace as Body
    >>> evenly_spaced_blocks(Body(blocks=range(12)), Body(blocks=range(6)))
    [0, 2, 4, 7, 9, 11]
    """
    given, wanted = (len(getattr(body, "blocks", ())) for body in (source, target))
    return np.linspace(0, given - 1, wanted).round().astype(int).tolist() if wanted < given else []


def select_blocks(weights: Mapping[str, Any], blocks: Sequence[int]) -> dict[str, Any]:
    """Weights by name with only some of the blocks, renumbered.

    >>> select_blocks({"blocks.0.w": 0, "blocks.1.w": 1, "blocks.2.w": 2, "norm.w": 9}, [0, 2])
    {'blocks.0.w': 0, 'blocks.1.w': 2, 'norm.w': 9}
    """
    numbers = {old: new for new, old in enumerate(blocks)}
    selected = {}
    for name, value in weights.items():
        block = re.search(r"(?:^|\.)blocks\.(\d+)\.", name)
        if block is None:
            selected[name] = value
        elif int(block[1]) in numbers:
            selected[f"{name[: block.start(1)]}{numbers[int(block[1])]}{name[block.end(1) :]}"] = value
    return selected
