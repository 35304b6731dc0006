"""int8 linear layers for inference on a CPU (dynamic quantisation).

    W_j ≈ s_j Ŵ_j,  s_j = max|W_j| / 127,  Ŵ ∈ {−127 … 127}            once, a scale for each output j
    x ≈ r s (x̂ − z),  r = max|x|,  x̂ ∈ {0 … 255}                       as it comes, r for each token, s and z always
    y_j = r s s_j Σ_i (x̂_i − z) Ŵ_ji + b_j                              products and sums in integers, y in float32

Each token is divided by its largest value r: a few ([CLS], [SEP]) are many times as large as others, which would have
four or five bits left if all shared one scale. One extra row, from −1 to 1, makes s and z the same in every batch; so a
text's result does not depend on the others in its batch, except for the order of sums.

Linear layers of 32 outputs or more are quantised: those of attention, of feed-forward networks, poolers, the output
layer of a language model, and the layers of a classification head before its last one. Not quantised: that last layer,
embeddings, a masked model's output layer that is tied to them, recurrent cells, norms, softmax.

A decode step, one token of few rows, is bound by reading weights: there only they are int8, and x̂ has 16 bits, or a
few less where sums would overflow (see ensue.kernels.decode_matmul).

x̂ has 7 bits where the processor adds pairs of products in 16 bits, which 2 · 255 · 127 overflows (AVX2 without VNNI). A
product with a known result shows which.
"""

from __future__ import annotations

import copy
import warnings
from functools import cache, cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.kernels.grouped import count_grouped

ENGINES = ("x86", "fbgemm", "qnnpack")
"""Engines, the fastest first. Not onednn: it trusts the processor's report of AMX, which may be wrong in a virtual
machine, and then the process crashes."""
NARROW = 32
"""Layers of fewer outputs are not quantised: they gain no speed and lose accuracy."""
PANEL, FILLED = 16, 32
"""Outputs that lie side by side for a decode step, and the multiple that their number is padded to."""
TINY = 1e-12
"""The size of a row of zeros."""

M = TypeVar("M", bound=nn.Module)


class QuantisedLinear(nn.Module):
    """y = W x + b with W and x in int8."""

    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.register_buffer("bias", weight.new_zeros(len(weight)) if bias is None else bias.detach().clone())
        self.reduced = overflows()
        self._packed = packed(weight.detach())
        self.scale = scales(weight.detach()).float()  # s_j
        self._parts: dict[tuple[int, int], Any] = {}

    def extra_repr(self) -> str:
        """The text that ``print(model)`` shows."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bits={7 if self.reduced else 8}"

    @property
    def weight(self) -> Tensor:
        """s_j Ŵ_j (out, in) in float32."""
        whole: Tensor = torch.ops.quantized.linear_unpack(self._packed)[0].dequantize()
        return whole

    @property
    def example(self) -> Tensor:
        """An empty tensor of the type and on the device of ``weight``."""
        return torch.empty(0, dtype=torch.float32)

    @cached_property
    def panels(self) -> Tensor:
        """Ŵ in the layout of a decode step, computed when first needed."""
        return panels(self._whole)

    @cached_property
    def most(self) -> int:
        """The largest x̂ of such a step."""
        return largest(self._whole)

    @property
    def _whole(self) -> Tensor:
        """Ŵ, (out, in)."""
        whole: Tensor = torch.ops.quantized.linear_unpack(self._packed)[0].int_repr()
        return whole

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        return self._product(x, self._packed, self.bias)

    def part(self, x: Tensor, start: int, stop: int) -> Tensor:
        """The outputs from ``start`` to ``stop``, (…, in) → (…, stop − start). Their packed weights are cached."""
        if (start, stop) not in self._parts:
            self._parts[start, stop] = packed(self.weight[start:stop])
        return self._product(x, self._parts[start, stop], self.bias[start:stop])

    def _product(self, x: Tensor, weights: Any, bias: Tensor) -> Tensor:
        flat = x.reshape(-1, self.in_features)
        size = torch.maximum(flat.amax(1), -flat.amin(1)).clamp_(min=TINY)[:, None]  # faster than a norm
        rows = flat.new_zeros(len(flat) + 1, self.in_features)
        torch.div(flat, size, out=rows[:-1])
        rows[-1, 0], rows[-1, -1] = 1.0, -1.0  # so that s and z do not depend on the other rows
        y: Tensor = torch.ops.quantized.linear_dynamic(rows, weights, self.reduced)[:-1]
        return torch.addcmul(bias, y, size, out=y).view(*x.shape[:-1], len(bias))


def part(layer: nn.Module, x: Tensor, start: int, stop: int) -> Tensor:
    """Some of a linear layer's outputs, (…, in) → (…, stop − start)."""
    if isinstance(layer, QuantisedLinear):
        return layer.part(x, start, stop)
    assert isinstance(layer, nn.Linear)
    return F.linear(x, layer.weight[start:stop], None if layer.bias is None else layer.bias[start:stop])


def packed(weight: Tensor) -> Any:
    """Weights (out, in) in int8, in the layout of this machine's engine."""
    zero = torch.zeros(len(weight), dtype=torch.long)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine()
    try:
        with warnings.catch_warnings():  # torch will have other ways one day; these are the fastest it has today
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor, torch.quantize_per_channel", UserWarning)
            whole = torch.quantize_per_channel(weight.float(), scales(weight).double(), zero, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(whole, None)
    finally:
        torch.backends.quantized.engine = before


def panels(whole: Tensor) -> Tensor:
    """Ŵ (out, in) in the layout of a decode step: (out / PANEL, in / 2, PANEL, 2), padded with zeros.

    The weights of PANEL outputs for two inputs lie side by side, and all weights of those outputs are contiguous.
    """
    outputs, inputs = whole.shape
    filled = F.pad(whole, (0, inputs % 2, 0, -outputs % FILLED))
    return filled.view(-1, PANEL, (inputs + 1) // 2, 2).transpose(1, 2).contiguous()


def largest(whole: Tensor) -> int:
    """M, the largest x̂ of sixteen bits for which no sum of products is beyond 31: M max_j Σ_i |Ŵ_ji| < 2³¹."""
    sums = whole.abs().sum(1, dtype=torch.int64)
    return int(min(2**15 - 1, (2**31 - 1) // max(1, int(sums.max()))))


def scales(weight: Tensor) -> Tensor:
    """s_j of weights (out, in)."""
    return weight.abs().amax(1).clamp(min=TINY) / 127


def engine() -> str:
    """The fastest int8 engine of this build of torch."""
    there = [name for name in ENGINES if name in torch.backends.quantized.supported_engines]
    if not there:
        raise InputError("this build of torch has no int8 engine", hint="leave --int8 out")
    return there[0]


@cache
def overflows() -> bool:
    """True if sums of two products of full 8-bit integers overflow on this processor."""
    x, ones = torch.ones(1, 64), torch.ones(4, 64)
    x[0, 0] = 0.0  # so that 0 is 0 and 1 is 255
    y = torch.ops.quantized.linear_dynamic(x, packed(ones), False)
    return bool(((y - 63.0).abs() > 0.5).any())


def quantise(model: M) -> M:
    """A copy with int8 linear layers, for inference only."""
    if any(p.device.type != "cpu" for p in model.parameters()):
        raise InputError("int8 runs on the CPU only", hint="move the model to the CPU, or leave --int8 out")
    if count_grouped(model):
        raise InputError("its weights have 4 or 8 bits already", hint="leave out --int8")
    engine()
    found = {id(layer.weight): layer for layer in _layers(model)}
    words = _words(model)
    memo: dict[int, Any] = {key: layer.weight for key, layer in found.items()}  # these need no copy
    result = copy.deepcopy(model, memo).eval().requires_grad_(False)
    for parent in list(result.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear) and id(layer.weight) in found:
                setattr(parent, name, QuantisedLinear(layer.weight, layer.bias))
    if words is not None:
        result.head = QuantisedLinear(words.weight, words.bias)
    return result.eval()


def _words(model: nn.Module) -> nn.Linear | None:
    """The output layer of a model that says what comes next, which may share its weights with the embeddings."""
    head = getattr(model, "head", None)
    vocabulary = getattr(getattr(model, "config", None), "vocabulary", None)
    plain = type(head) is nn.Linear and head.out_features == vocabulary and head.out_features >= NARROW
    return head if plain else None


def _layers(model: nn.Module) -> list[nn.Linear]:
    """The linear layers whose weights are theirs alone, but for narrow ones and a language model's ``head``."""
    owners: dict[int, int] = {}
    for module in model.modules():
        for own in module.parameters(recurse=False):
            owners[id(own)] = owners.get(id(own), 0) + 1
    return [
        layer
        for name, layer in model.named_modules()
        if type(layer) is nn.Linear
        and layer.out_features >= NARROW
        and owners[id(layer.weight)] == 1
        and name.rpartition(".")[2] != "head"
    ]
