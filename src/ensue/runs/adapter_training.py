"""``ensue fit --from RUN --set train.lora=8`` where the run's weights are in groups of 4 or 8 bits (QLoRA, Dettmers et
al., 2023): they stay frozen, and adapters beside them are trained."""

from __future__ import annotations

from typing import Any

from ensue.core.errors import InputError
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive, seed_everything
from ensue.nn.adapters import adapters
from ensue.runs.build_model import model_values
from ensue.runs.grouped_weights import MISFIT, has_groups
from ensue.runs.load_model import load_model, read_header
from ensue.runs.run import Run
from ensue.tasks.settings import Settings
from ensue.train.ranks import Ranks


def has_frozen_weights(run: Run) -> bool:
    """Whether the weights of a run are in groups, so that only adapters beside them can be trained."""
    return run.folder.base is not None or has_groups(read_header(run.folder.weights))


def weights_to_adapt(settings: Settings, initial: Run | None, folder: RunFolder, ranks: Ranks) -> RunFolder | None:
    """Return the run whose weights in groups adapters are trained beside: that of ``--from``, or of a resumed run its
    own base. None if weights themselves are trained."""
    if initial is None:
        if folder.base is not None:
            folder.base.verify()
        return folder.base
    if not has_frozen_weights(initial):
        return None
    where = str(initial)
    if initial.task != settings.run.task:
        what = f"its weights have 4 or 8 bits, so it cannot be trained to {settings.run.task}"
        raise InputError(what, where=where, hint="convert a file of F16 or F32 weights, and name that run")
    if not settings.train.lora:
        what = "its weights have 4 or 8 bits, which cannot be trained themselves"
        raise InputError(what, where=where, hint="train adapters beside them: --set train.lora=8")
    if ranks.world_size > 1:
        raise InputError("adapters beside weights of 4 or 8 bits train in one process", hint="run it without torchrun")
    return initial.folder


def build_on(base: RunFolder, settings: Settings, corpus: Any) -> Any:
    """Build a model of the weights of another run, with its adapters if it has some.

    ``Task.prepare_model`` adds those it lacks, from the run's seed.
    """
    described = {"system": settings.run.system, "task": settings.run.task, "model": model_values(settings, corpus)}
    try:
        model = load_model(base, described, corpus.tokenizer)
    except InputError as error:
        if MISFIT not in str(error):
            raise
        what, hint = "its weights do not fit these settings", "leave the model's settings as they are"
        raise InputError(what, where=str(base.path), hint=hint) from error
    rank = settings.train.lora
    others = {len(layer.down) for _, layer in adapters(model)} - {rank}
    if others:
        what = f"has adapters of rank {min(others)}, which are trained further, not {rank}"
        raise InputError(what, where=str(base.path), hint=f"--set train.lora={min(others)}")
    seed_everything(derive(settings.run.seed, "model"))
    return model
