"""How deep each parameter of a body lies, so that layers can learn at their own rates or not at all.

Depth 0 is what reads tokens, l is layer l of L, and L + 1 what comes after the last: a norm, a projection, an encoder's
pooling and the output layer. A table that is embedding and output layer at once lies where it is used last: at L + 1
while the model says the next token, at 0 in a body whose own output layer is not asked.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ensue.core.errors import InputError
from ensue.models.bidirectional_encoder import features_of
from ensue.models.encoder import Encoder


def layers_of(body: Any) -> list[list[nn.Module]]:
    """The modules of each layer, lowest first: blocks, or recurrent layers with what joins them to the next."""
    if hasattr(body, "blocks"):
        return [[block] for block in body.blocks]
    if not hasattr(body, "stack"):
        what = f"{type(body).__name__} has no layers on each other, so none is further from the output"
        raise InputError(what, hint="leave out train.layer_decay and train.freeze")
    return [list(pair) for pair in zip(body.stack.layers, body.stack.connections)]


def body_depths(body: Any, writes: bool = False) -> dict[str, int]:
    """The depth of each parameter by name; ``writes`` says whether the body's own output layer is what answers."""
    layers = layers_of(body)
    found = {id(p): 1 + place for place, parts in enumerate(layers) for part in parts for p in part.parameters()}
    features = features_of(body)
    names = ("pooler",) if isinstance(body, Encoder) else ("norm", "down", "head")
    after = [p for name in names if getattr(body, name, None) is not None for p in getattr(body, name).parameters()]
    read = set() if writes else {id(p) for p in body.embed.parameters()}
    still: set[int] = set()  # what never learns has no depth
    if features is not None:
        after += [features.weights, features.scale]
        still = set() if features.config.tuned else {id(p) for p in features.reader.parameters()}
    found |= {id(p): 1 + len(layers) for p in after if id(p) not in read}
    return {name: found.get(id(p), 0) for name, p in body.named_parameters() if id(p) not in still}
