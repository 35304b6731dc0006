"""``ensue fit --from RUN``: a run that begins with the tokenizers and the weights of another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, unknown_name
from ensue.core.events import Report, silent
from ensue.core.run_folder import RunFolder
from ensue.models.labelled import Labelled
from ensue.models.table import SYSTEMS
from ensue.tasks.labelled import body_of
from ensue.tasks.resolving import task_name
from ensue.tasks.settings import LABELS, Settings
from ensue.tasks.task import build_model
from ensue.verbs.run import load

ENCODER = "bert"
"""The system of a task that labels, where nothing says another."""


def system_and_task(what: str, model: str, begun: str, said: Mapping[str, Any]) -> tuple[str, str]:
    """What ``fit WHAT`` means: a system for its own task, or a task for the system of ``--from`` or ``--model``.

    ``said`` is what a run.toml beside it says.
    """
    if what in LABELS:
        held = load(begun).system if begun else ""
        if model and held and model != held:
            raise InputError(f"is a {held}, not a {model}", where=begun, mend="leave out --model")
        return model or held or str(said.get("system", "")) or ENCODER, what
    if model:
        what_of = f"--model chooses the system of a task ({', '.join(LABELS)})"
        raise InputError(what_of, mend=f"leave it out, or fit one of them in place of {what}")
    if what not in SYSTEMS:
        raise unknown_name("system or task", what, [*SYSTEMS, *LABELS])
    task = str(said.get("task", ""))
    return what, task if task and said.get("system") == what else task_name(what)


def begun_settings(
    path: str, system: str, task: str, file: Mapping[str, Any], typed: Mapping[str, Any]
) -> dict[str, Any]:
    """What a run takes over from the one it begins with: its weights fit only a model of the same shape and direction.

    ``file`` and ``typed`` are the settings of a run.toml and of the command line beside it.
    """
    if any(name.startswith("tokenizer.") for name in typed):
        raise InputError("--from takes the tokenizers of its run too", mend="leave out --tokenizer")
    if hasattr(SYSTEMS.load(system), "counter"):
        raise InputError(f"{system} counts, so it has nothing to begin with", mend="leave out --from")
    first = load(path)
    if first.system != system:
        mend = f"fit {first.system}, or begin with another run"
        raise InputError(f"is a run of {first.system}, not of {system}", where=path, mend=mend)
    taken = dict(first.config["model"])  # with its vocabulary, which may be larger than its tokenizer's
    if first.task == task and task in LABELS:
        taken |= {f"head.{name}": first.config["head"][name] for name in ("pooling", "dense")}
    if task == "language":  # weights that read backward would have to begin again
        taken["data.direction"] = first.direction
        asked = {**file, **typed}.get("data.direction", first.direction)
        if asked != first.direction:
            what = f"reads {first.direction}, so a run that begins with it cannot read {asked}"
            raise InputError(what, where=path, mend="leave out data.direction")
    return taken


def first_folder(settings: Settings, folder: RunFolder) -> RunFolder | None:
    """The folder of the run that the one in ``folder`` begins with."""
    if not settings.run.begin_with:
        return None
    first = RunFolder(Path(settings.run.begin_with))
    if first.path.resolve() == folder.path.resolve():
        raise InputError("a run cannot begin with itself", where=str(folder.path), mend="give another --out")
    return first


def begun_model(settings: Settings, corpus: Any, report: Report = silent) -> Any:
    """A new model, with the weights of the run it begins with where there is one.

    A run of the same task gives all it has; one of another task, or with other labels, its body.
    """
    model = build_model(settings, corpus)
    if not settings.run.begin_with:
        return model
    first = load(settings.run.begin_with)
    try:
        if first.task == settings.run.task and _same_labels(first.config, corpus):
            model.load_state_dict(first.model.state_dict())
        else:
            body_of(model).load_state_dict(body_of(first.model).state_dict())
    except RuntimeError as error:
        what = f"its weights do not fit these settings ({str(error).splitlines()[-1].strip()})"
        raise InputError(what, where=settings.run.begin_with, mend="leave the model's settings as they are") from error
    if isinstance(model, Labelled) and first.task == settings.run.task and not _same_labels(first.config, corpus):
        report("note", {"text": f"{settings.run.begin_with} has other labels, so the head begins anew"})
    return model


def _same_labels(config: Mapping[str, Any], corpus: Any) -> bool:
    """Whether a run has the labels that the examples have; runs without labels agree."""
    held = config.get("data", {}).get("labels", ())
    form = getattr(corpus, "form", None)
    return tuple(held) == (form.labels if form is not None else ())
