"""Runs of low-rank adapters beside the weights of another run, of which they have a copy in their folder ``base``.

Weights in groups of 4 or 8 bits stay as they are, so model.safetensors holds the adapters alone: ``….down``, ``….up``
and ``….scale`` are the adapter of the layer ``…``.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ensue.core import run_files
from ensue.core.errors import InputError
from ensue.core.files import atomic_folder
from ensue.core.manifest import MANIFEST
from ensue.core.run_folder import RunFolder
from ensue.kernels.grouped import GroupedLinear
from ensue.nn.adapters import AdaptedLinear, load_trained_state, replace_layer

DOWN, UP, SCALE = ".down", ".up", ".scale"


def use_adapters(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Add to a model with weights in groups the adapters that a file holds."""
    names = [name.removesuffix(SCALE) for name in tensors if name.endswith(SCALE)]
    for name in names:
        try:
            layer = model.get_submodule(name)
        except AttributeError as error:
            raise _misfit(name, where) from error
        down, up, scale = (tensors.get(name + part) for part in (DOWN, UP, SCALE))
        if not isinstance(layer, GroupedLinear) or down is None or up is None or scale is None:
            raise _misfit(name, where)
        if not down.dim() or not len(down):
            raise _misfit(name, where)
        shapes = (len(down), layer.in_features), (layer.out_features, len(down)), ()
        own = zip((down, up, scale), shapes, strict=True)
        if not all(tensor.shape == shape and tensor.dtype == torch.float32 for tensor, shape in own):
            raise _misfit(name, where)
        replace_layer(model, name, AdaptedLinear(layer, len(down), 1.0))
    if not names or len(tensors) != 3 * len(names):
        raise _misfit(next((n for n in tensors if not n.endswith((DOWN, UP, SCALE))), "no adapters"), where)
    load_trained_state(model, tensors)


def _misfit(name: str, where: str) -> InputError:
    return InputError(f"does not fit the weights in base ({name})", where=where, hint="the folder may be damaged")


def copy_base(initial: RunFolder, folder: RunFolder) -> None:
    """Copy into a run's folder the run whose weights its adapters are beside, so that it works alone.

    A base has no base itself: the adapters of a run with adapters are trained further.
    """
    source = initial.base or initial
    with atomic_folder(folder.path / run_files.BASE) as temporary:
        for name in (*run_files.NEEDED, MANIFEST):
            if (source.path / name).is_file():
                shutil.copyfile(source.path / name, temporary / name)
