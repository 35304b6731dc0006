"""The depth of each parameter of a backbone, so that layers can have their own learning rates or be frozen.

Depth 0 is the embeddings, l is layer l of L, and L + 1 is what comes after the last layer: a norm, a projection, an
encoder's pooler and the output layer. A block that layers share counts once, so there L is the number of blocks. A
table that is both embedding and output layer counts where it is used last: at L + 1 if the model predicts the next
token, at 0 in a backbone whose own output layer is not used.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ensue.core.errors import InputError
from ensue.models.bidirectional_encoder import features_of
from ensue.models.encoder import Encoder


def layers_of(backbone: Any) -> list[list[nn.Module]]:
    """Return the modules of each layer, lowest first: blocks, or recurrent layers with their connections."""
    if hasattr(backbone, "blocks"):
        return [[block] for block in backbone.blocks]
    if not hasattr(backbone, "stack"):
        what = f"{type(backbone).__name__} has no stacked layers"
        raise InputError(what, hint="leave out train.layer_decay and train.freeze")
    return [list(pair) for pair in zip(backbone.stack.layers, backbone.stack.connections)]


def parameter_depths(backbone: Any, own_output: bool = False) -> dict[str, int]:
    """Return the depth of each parameter by name; ``own_output`` says whether the backbone's output layer is used.

    Parameters that are never trained (of frozen features) have no depth.
    """
    layers = layers_of(backbone)
    depths = {id(p): depth for depth, modules in enumerate(layers, 1) for part in modules for p in part.parameters()}
    names = ("pooler",) if isinstance(backbone, Encoder) else ("norm", "down", "head")
    modules = [module for name in names if (module := getattr(backbone, name, None)) is not None]
    after = [p for module in modules for p in module.parameters()]
    embeddings = set() if own_output else {id(p) for p in backbone.embed.parameters()}
    frozen: set[int] = set()
    features = features_of(backbone)
    if features is not None:
        after += [features.weights, features.scale]
        frozen = set() if features.config.tuned else {id(p) for p in features.reader.parameters()}
    depths |= {id(p): 1 + len(layers) for p in after if id(p) not in embeddings}
    return {name: depths.get(id(p), 0) for name, p in backbone.named_parameters() if id(p) not in frozen}
