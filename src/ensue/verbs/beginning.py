"""``ensue fit --from RUN``: a run that begins with the tokenizers and the weights of another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.run_folder import RunFolder
from ensue.models.model import Model
from ensue.models.table import SYSTEMS
from ensue.tasks.settings import VOCABULARIES, Settings
from ensue.tasks.task import build_model
from ensue.verbs.run import load


def begun_settings(path: str, system: str, file: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
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
    taken = {name: value for name, value in first.config["model"].items() if name not in VOCABULARIES}
    if first.task == "language":  # weights that read backward would have to begin again
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


def begun_model(settings: Settings, corpus: Any) -> Model:
    """A new model, with the weights of the run it begins with where there is one."""
    model = build_model(settings, corpus)
    if settings.run.begin_with:
        try:
            model.load_state_dict(load(settings.run.begin_with).model.state_dict())
        except RuntimeError as error:
            what = f"its weights do not fit these settings ({str(error).splitlines()[-1].strip()})"
            raise InputError(
                what, where=settings.run.begin_with, mend="leave the model's settings as they are"
            ) from error
    return model
