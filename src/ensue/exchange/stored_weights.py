"""How the weights of an imported model are stored in its run: as they are, as plain floats, or in groups.

    as-is      in the type that they have in the folder
    float32, bf16
    int8       groups of 32 inputs with a scale: 8.5 bits a weight (GGUF's Q8_0)
    int4       groups of 32 inputs with a scale and an offset: 5 bits a weight (GGUF's Q4_1); the embedding and the
               output layer, which suffer most, in 8 bits

Vectors (norms, biases) are float32, and so are matrices whose rows are no whole groups. Rows come a piece at a time and
are written at once, so a model takes little more memory than its largest scales.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from ensue.exchange.tensor_files import TYPES, TensorPlan
from ensue.kernels.grouped import FILLED, GROUP, PANEL, group_weights, quantise_groups

STORAGES = ("as-is", "float32", "bf16", "int8", "int4")
FLOATS = {"float32": torch.float32, "bf16": torch.bfloat16}
LARGEST = ("embed.weight", "head.weight")
"""Weights that stay in 8 bits with int4."""
Pieces = Callable[[str], Iterator[Tensor]]
"""The rows of a tensor, given its name, a piece at a time; all pieces but the last are whole panels."""


def group_bits(name: str, shape: tuple[int, ...], storage: str) -> int:
    """Return 4 or 8 for a tensor that is stored in groups, and 0 for one of plain numbers."""
    if storage not in ("int8", "int4") or len(shape) != 2 or shape[1] % GROUP:
        return 0
    return 8 if storage == "int8" or name in LARGEST else 4


def plan_tensors(
    shapes: Mapping[str, tuple[int, ...]], types: Mapping[str, str], storage: str
) -> dict[str, list[TensorPlan]]:
    """Return the tensors to write for each of ours, plain ones first; ``types`` are those in the folder."""
    plans: dict[str, list[TensorPlan]] = {}
    for name, shape in shapes.items():
        bits = group_bits(name, shape, storage)
        if bits:
            plans[name] = _grouped_plans(name.removesuffix(".weight"), shape, bits)
        else:
            dtype = TYPES[types[name]] if storage == "as-is" else FLOATS.get(storage, torch.float32)
            plans[name] = [TensorPlan(name, dtype if len(shape) > 1 else torch.float32, shape)]
    order = sorted(plans, key=lambda name: (len(plans[name]) > 1, -plans[name][0].dtype.itemsize))
    return {name: plans[name] for name in order}


def _grouped_plans(layer: str, shape: tuple[int, ...], bits: int) -> list[TensorPlan]:
    panels, groups = -(-shape[0] // FILLED) * FILLED // PANEL, shape[1] // GROUP
    codes, kind = (GROUP // 4, torch.uint8) if bits == 4 else (GROUP // 2, torch.int8)
    share = (panels, groups, PANEL)
    plans = [TensorPlan(f"{layer}.codes", kind, (panels, groups, codes, PANEL, 2))]
    plans.append(TensorPlan(f"{layer}.scales", torch.float16, share))
    return plans + ([TensorPlan(f"{layer}.offsets", torch.float16, share)] if bits == 4 else [])


def stored_pieces(plans: Mapping[str, list[TensorPlan]], pieces: Pieces) -> Iterator[Tensor]:
    """Yield what ``plans`` name, in their order."""
    for name, own in plans.items():
        if len(own) == 1:
            yield from (piece.to(own[0].dtype) for piece in pieces(name))
            continue
        scales: list[Tensor] = []
        offsets: list[Tensor] = []
        for piece in pieces(name):
            codes, scale, offset = group_weights(*quantise_groups(piece, 4 if len(own) == 3 else 8))
            yield codes
            scales.append(scale)
            offsets += [] if offset is None else [offset]
        yield from (*scales, *offsets)
