"""Linear layers in eight bits, for inference on a CPU (dynamic quantisation).

    W_j ≈ s_j Ŵ_j,  s_j = max|W_j| / 127,  Ŵ ∈ {−127 … 127}            once, a scale for each output j
    x ≈ r s (x̂ − z),  r = max|x|,  x̂ ∈ {0 … 255}                       as it comes, r for each token, s and z always
    y_j = r s s_j Σ_i (x̂_i − z) Ŵ_ji + b_j                              products and sums in integers, y in float32

Each token is divided by its largest value r, for a few ([CLS], [SEP]) are many times as large as others, which with one
scale for all would be left with four or five bits. s and z are those of the range from −1 to 1, which one row beside
them sees to; so what a text comes to does not depend on those it is read with, but for the order of sums.

Quantised are plain linear layers of 32 outputs or more: those of attention, of two-layer networks, poolers, the output
layer of a model that says what comes next, and what a head that labels has before its last layer. Left as they are:
that last layer, embeddings, what fills in masks and is tied to them, recurrent cells, norms, softmax.

A step of decoding, one token of few rows, is bound by reading weights: there they alone have eight bits, and x̂ has
sixteen, or a few less where sums would run over (see ensue.kernels.decode_matmul).

x̂ has seven bits where the processor adds up pairs of products in sixteen: 2 · 255 · 127 is more than they hold (AVX2
without VNNI). A product whose answer is known tells.
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

ENGINES = ("x86", "fbgemm", "qnnpack")
"""What computes, the fastest first. onednn is not among them: it trusts a processor's word about AMX, which in a
virtual machine may be wrong, and then the process dies."""
NARROW = 32
"""A layer of fewer outputs has nothing to gain, and its answers to lose."""
PANEL, FILLED = 16, 32
"""How many outputs lie side by side where a step of decoding reads them, and what their number is filled up to."""
TINY = 1e-12
"""What stands for the size of what is all zeros."""

M = TypeVar("M", bound=nn.Module)


class QuantisedLinear(nn.Module):
    """y = W x + b with W and x in eight bits."""

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
        """What ``print(model)`` says of it."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bits={7 if self.reduced else 8}"

    @property
    def weight(self) -> Tensor:
        """s_j Ŵ_j (out, in) in float32, for those who read a layer as a matrix."""
        whole: Tensor = torch.ops.quantized.linear_unpack(self._packed)[0].dequantize()
        return whole

    @cached_property
    def panels(self) -> Tensor:
        """Ŵ as a step of decoding reads it; made where there is one."""
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
        """The outputs from ``start`` to ``stop``, (…, in) → (…, stop − start); their weights are kept apart from then
        on.
        """
        if (start, stop) not in self._parts:
            self._parts[start, stop] = packed(self.weight[start:stop])
        return self._product(x, self._parts[start, stop], self.bias[start:stop])

    def _product(self, x: Tensor, weights: Any, bias: Tensor) -> Tensor:
        flat = x.reshape(-1, self.in_features)
        size = torch.maximum(flat.amax(1), -flat.amin(1)).clamp_(min=TINY)[:, None]  # faster than a norm
        rows = flat.new_zeros(len(flat) + 1, self.in_features)
        torch.div(flat, size, out=rows[:-1])
        rows[-1, 0], rows[-1, -1] = 1.0, -1.0  # so that s and z are the same whoever is read with whom
        y: Tensor = torch.ops.quantized.linear_dynamic(rows, weights, self.reduced)[:-1]
        return torch.addcmul(bias, y, size, out=y).view(*x.shape[:-1], len(bias))


def part(layer: nn.Module, x: Tensor, start: int, stop: int) -> Tensor:
    """Some of a linear layer's outputs, (…, in) → (…, stop − start)."""
    if isinstance(layer, QuantisedLinear):
        return layer.part(x, start, stop)
    assert isinstance(layer, nn.Linear)
    return F.linear(x, layer.weight[start:stop], None if layer.bias is None else layer.bias[start:stop])


def packed(weight: Tensor) -> Any:
    """Weights (out, in) in eight bits, laid out as this machine's engine wants them."""
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
    """Ŵ (out, in) as a step of decoding reads it: (out / PANEL, in / 2, PANEL, 2), what is missing in zeros.

    Of two inputs the weights of PANEL outputs lie side by side; all that is read for those outputs lies in a row.
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
    """The engine that computes in eight bits here."""
    there = [name for name in ENGINES if name in torch.backends.quantized.supported_engines]
    if not there:
        raise InputError("this build of torch does not compute in eight bits", hint="leave --int8 out")
    return there[0]


@cache
def overflows() -> bool:
    """Whether sums of two products of full eight bits come out wrong here."""
    x, ones = torch.ones(1, 64), torch.ones(4, 64)
    x[0, 0] = 0.0  # so that 0 is 0 and 1 is 255
    y = torch.ops.quantized.linear_dynamic(x, packed(ones), False)
    return bool(((y - 63.0).abs() > 0.5).any())


def quantise(model: M) -> M:
    """A copy whose linear layers compute in eight bits; it can only be read with, not trained."""
    if any(p.device.type != "cpu" for p in model.parameters()):
        raise InputError("eight bits are for the CPU", hint="move the model to the CPU, or leave --int8 out")
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
