"""Build a model and fill it with the tensors of a folder, by a map of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from ensue.core.errors import InputError, errors_in
from ensue.exchange.huggingface.conversion import import_weights
from ensue.exchange.huggingface.reading import CONFIG_FILE
from ensue.exchange.huggingface.weight_maps import WeightMap
from ensue.exchange.tensor_files import StoredTensors, listed
from ensue.nn.planning import without_storage

AnyModel = TypeVar("AnyModel", bound=nn.Module)


def build_filled(
    build: Callable[[], AnyModel], names: WeightMap, found: Mapping[str, str], stored: StoredTensors, path: Path
) -> AnyModel:
    """Return the model with the stored tensors; raise InputError if some are missing, wrong or too many.

    ``names`` maps their names to ours, ``found`` their names to those that the folder has. Sizes are compared before
    anything takes memory.
    """
    for problem, wrong in (
        ("tensors are missing", sorted(names.keys() - found.keys())),
        ("tensors that its class does not have", sorted(found.keys() - names.keys())),
    ):
        if wrong:
            raise InputError(f"{problem}: {listed(wrong)}", where=str(path))
    with errors_in(path / CONFIG_FILE, RuntimeError, OverflowError, TypeError, MemoryError):
        with without_storage():
            shapes = {name: tensor.shape for name, tensor in build().state_dict().items()}
        wrong = [theirs for theirs in names if not _fits(names, theirs, found, stored, shapes)]
        if wrong:
            what = f"{listed(wrong)}: the sizes are not those that {CONFIG_FILE} gives"
            raise InputError(what, where=str(path))
        model = build()
    weights = {theirs: stored.read(name).float() for theirs, name in found.items()}
    if broken := sorted(name for name, tensor in weights.items() if not bool(tensor.isfinite().all())):
        raise InputError(f"tensors hold NaN or infinite values: {listed(broken)}", where=str(path))
    own = model.state_dict()
    with torch.no_grad():
        for name, tensor in import_weights(names, weights).items():
            own[name].copy_(tensor)  # tied weights share one tensor, so copying once is enough
    return model.eval()


def _fits(
    names: WeightMap,
    theirs: str,
    found: Mapping[str, str],
    stored: StoredTensors,
    shapes: Mapping[str, torch.Size],
) -> bool:
    """True if a tensor has the size of ours, or of its part of ours."""
    ours, how = names[theirs]
    size = list(shapes[ours])
    if "/" in how:
        size[0] //= int(how.partition("/")[2])
    return list(stored.tensors[found[theirs]].shape) == size
