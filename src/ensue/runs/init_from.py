"""``ensue fit --from RUN``: a run that begins with the tokenizers and the weights of another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

from ensue.core.errors import InputError, unknown_name
from ensue.core.events import Report, silent
from ensue.core.run_folder import RunFolder
from ensue.core.settings import describe
from ensue.models.conditional import ConditionalModel
from ensue.models.labelled import Labelled
from ensue.models.reader import features_of
from ensue.models.table import SYSTEMS
from ensue.runs.load import Run, load
from ensue.runs.word_tables import start_tables
from ensue.tasks.backbones import body_of
from ensue.tasks.build_model import build_model
from ensue.tasks.features import BODY, COVE, FEATURE_SETTINGS, lends
from ensue.tasks.settings import Settings
from ensue.tasks.table import TASKS, all_tasks, model_class, task_name, task_spec


def system_and_task(what: str, model: str, initial: Run | None, said: Mapping[str, Any]) -> tuple[str, str]:
    """The system and the task of ``fit WHAT``: a system for its own task, or a task with the system of ``--model``.

    ``initial`` is the run of ``--from``, and ``said`` the settings of a run.toml.
    """
    if what in TASKS and task_spec(what).by_name:
        lender = initial if lends_features(what, initial) else said.get("features.run")
        if lender:
            return model or str(said.get("system", "")) or reading_system(load(lender)), what
        if model and initial and model != initial.system:
            raise InputError(f"is a {initial.system}, not a {model}", where=str(initial), hint="leave out --model")
        held = initial.system if initial else ""
        return model or held or str(said.get("system", "")) or task_spec(what).default_system, what
    if model:
        what_of = f"--model chooses the system of a task ({', '.join(_tasks_by_name())})"
        raise InputError(what_of, hint=f"leave it out, or fit one of them in place of {what}")
    if what not in SYSTEMS:
        raise unknown_name("system or task", what, [*SYSTEMS, *_tasks_by_name()])
    task = str(said.get("task", ""))
    return what, task if task and said.get("system") == what else task_name(what)


def _tasks_by_name() -> list[str]:
    return [spec.name for spec in all_tasks() if spec.by_name]


def lends_features(task: str, initial: Run | None) -> bool:
    """True if a task reads the layers of the run of ``--from`` as features, and does not go on with its weights."""
    reads = initial is not None and "features" in task_spec(task).settings
    return reads and not initial.spec.labels and lends(initial.system)  # type: ignore[union-attr]


def reading_system(lender: Run) -> str:
    """The default system that reads a run's layers as features."""
    return COVE if issubclass(model_class(lender.system, lender.task), ConditionalModel) else BODY


def begun_settings(
    initial: Run, system: str, task: str, file: Mapping[str, Any], typed: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings that a run takes over from the one its weights come from: weights fit one shape and direction.

    ``file`` and ``typed`` are the settings of a run.toml and of the command line.
    """
    if any(name.startswith("tokenizer.") for name in typed):
        raise InputError("--from takes the tokenizers of its run too", hint="leave out --tokenizer")
    if typed.get("embeddings") or file.get("embeddings"):
        raise InputError("--from says how embeddings begin, and so does --embeddings", hint="leave out one of them")
    if hasattr(model_class(system, task), "counter"):
        raise InputError(f"{system} counts, so it has nothing to begin with", hint="leave out --from")
    where, spec = str(initial), task_spec(task)
    if initial.system != system:
        hint = f"fit {initial.system}, or begin with another run"
        raise InputError(f"is a run of {initial.system}, not of {system}", where=where, hint=hint)
    taken = dict(initial.config["model"])
    head = initial.config.get("head")
    if head is not None and initial.task == task:
        taken |= {f"head.{name}": head[name] for name in ("pooling", "dense", "hidden") if name in head}
    if head is not None and spec.labels:
        taken["head.directions"] = head.get("directions", "one")
        features = initial.config.get("features", {})
        taken |= {f"features.{name}": features[name] for name in FEATURE_SETTINGS if name in features}
    if "direction" in {field.name for field in describe(spec.settings["data"])}:
        taken["data.direction"] = initial.direction
        asked = {**file, **typed}.get("data.direction", initial.direction)
        if asked != initial.direction:
            what = f"reads {initial.direction}, so a run that begins with it cannot read {asked}"
            raise InputError(what, where=where, hint="leave out data.direction")
    return taken


def first_folder(settings: Settings, folder: RunFolder) -> RunFolder | None:
    """The folder of the run that the one in ``folder`` begins with."""
    if not settings.run.begin_with:
        return None
    first = RunFolder(Path(settings.run.begin_with))
    if first.path.resolve() == folder.path.resolve():
        raise InputError("a run cannot begin with itself", where=str(folder.path), hint="give another --out")
    return first


def check_apart(settings: Settings, folder: RunFolder) -> None:
    """Refuse a folder inside the teacher's, or around it: ``--force`` would delete the teacher with it."""
    if not settings.run.teacher:
        return
    own, teacher = folder.path.resolve(), Path(settings.run.teacher).resolve()
    if own.is_relative_to(teacher) or teacher.is_relative_to(own):
        what = "a student needs a folder apart from its teacher's"
        raise InputError(what, where=str(folder.path), hint="give another --out")


def begun_model(settings: Settings, corpus: Any, report: Report = silent, initial: Run | None = None) -> Any:
    """A new model, with the weights of the run it begins with where there is one.

    A run of the same task gives all it has; one of another task, or with other labels, its body. To a model of fewer
    blocks it gives some of its own, from the first to the last, evenly spaced (DistilBERT's way, Sanh et al., 2019).
    """
    model = build_model(settings, corpus)
    features = features_of(getattr(model, "body", None))
    if features is not None:
        features.reader.load_state_dict(load(settings.features.run).model.reader().state_dict())
    if settings.run.embeddings:
        start_tables(settings, model, corpus, report)
    if not settings.run.begin_with:
        return model
    first = initial or load(settings.run.begin_with)
    whole = first.task == settings.run.task and _same_labels(first.config, corpus)
    taken = (first.model if whole else body_of(first.model)).state_dict()
    blocks = some_blocks(body_of(first.model), body_of(model))
    if blocks:
        taken = thinned(taken, blocks)
        shown = ", ".join(str(place + 1) for place in blocks)
        report("note", {"text": f"of the layers of {settings.run.begin_with} it begins with {shown}"})
    try:
        (model if whole else body_of(model)).load_state_dict(taken)
    except RuntimeError as error:
        said = shorten(str(error).splitlines()[-1], 160, placeholder=" …")
        what = f"its weights do not fit these settings ({said})"
        raise InputError(what, where=settings.run.begin_with, hint="leave the model's settings as they are") from error
    if isinstance(model, Labelled) and first.task == settings.run.task and not _same_labels(first.config, corpus):
        report("note", {"text": f"{settings.run.begin_with} has other labels, so the head begins anew"})
    return model


def some_blocks(first: Any, own: Any) -> list[int]:
    """Which of a body's blocks one with fewer begins with; none where it has no fewer.

    >>> from types import SimpleNamespace as Body
    >>> some_blocks(Body(blocks=range(12)), Body(blocks=range(6)))
    [0, 2, 4, 7, 9, 11]
    """
    held, wanted = (len(getattr(body, "blocks", ())) for body in (first, own))
    return np.linspace(0, held - 1, wanted).round().astype(int).tolist() if wanted < held else []


def thinned(weights: Mapping[str, Any], blocks: Sequence[int]) -> dict[str, Any]:
    """Weights by name with only some of the blocks, counted anew.

    >>> thinned({"blocks.0.w": 0, "blocks.1.w": 1, "blocks.2.w": 2, "norm.w": 9}, [0, 2])
    {'blocks.0.w': 0, 'blocks.1.w': 2, 'norm.w': 9}
    """
    new = {old: place for place, old in enumerate(blocks)}
    found = {}
    for name, value in weights.items():
        part = re.search(r"(?:^|\.)blocks\.(\d+)\.", name)
        if part is None:
            found[name] = value
        elif int(part[1]) in new:
            found[f"{name[: part.start(1)]}{new[int(part[1])]}{name[part.end(1) :]}"] = value
    return found


def _same_labels(config: Mapping[str, Any], corpus: Any) -> bool:
    """Whether a run has the labels that the examples have; runs without labels agree."""
    held = config.get("data", {}).get("labels", ())
    form = getattr(corpus, "form", None)
    return tuple(held) == getattr(form, "labels", ())
