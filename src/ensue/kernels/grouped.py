"""Weights in groups: codes of 4 or 8 bits, with a scale and perhaps an offset for each group of inputs.

    W_ji = s_jg c_ji + o_jg,    g the group of input i

That is how GGUF files hold large models. A linear layer with such weights is for inference, or for training what is
around it: the weights themselves have no gradient. PANEL outputs lie side by side, in the order in which a decode step
reads them, and so they are in a run's file, which is mapped and not copied:

    4 bits    (out / PANEL, groups, group / 4, PANEL, 2)    a byte holds inputs i (lower half) and i + 2 (upper half)
    8 bits    (out / PANEL, groups, group / 2, PANEL, 2)    a byte holds an input
    scales, offsets                (out / PANEL, groups, PANEL)

Legend: in inputs, out outputs, j an output, i an input, g a group.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.loops import Loops
from ensue.kernels.matmul import matmul
from ensue.kernels.threads import is_fake, loopable, run

loops = Loops("ensue.kernels.grouped_loops")

PANEL, FILLED = 16, 32
"""Outputs that lie side by side, and the multiple that their number is padded to."""
BITS = (4, 8)
DECODED_BYTES = 1 << 22
"""Weights that are decoded at once: they stay in the processor's cache until they are multiplied."""
GROUP = 32
"""Inputs of a group where we make them; GGUF's Q4_1 and Q8_0 have the same."""


class GroupedWeight(nn.Module):
    """A matrix (out, in) in groups; ``weight`` is the matrix in float32."""

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None

    def __init__(self, codes: Tensor, scales: Tensor, offsets: Tensor | None, outputs: int) -> None:
        """``codes``, ``scales`` and ``offsets`` in panels, as ``group_weights`` returns them."""
        super().__init__()
        self.bits = 4 if codes.dtype == torch.uint8 else 8
        self.group = codes.shape[2] * (4 if self.bits == 4 else 2)
        self.out_features, self.in_features = outputs, codes.shape[1] * self.group
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)
        self.register_buffer("offsets", offsets)

    def extra_repr(self) -> str:
        """The text that ``print(model)`` shows."""
        shape = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{shape}, bits={self.bits}, group={self.group}, offsets={self.offsets is not None}"

    @property
    def weight(self) -> Tensor:
        """W (out, in) in float32."""
        return self.some_rows(0, self.out_features)

    def some_rows(self, start: int, count: int, place: Tensor | None = None) -> Tensor:
        """``count`` rows from ``start``, or as many as there are, in float32; in ``place`` if that is given."""
        last = min(self.out_features, start + count)
        panels = slice(start // PANEL, -(-last // PANEL))
        offsets = None if self.offsets is None else self.offsets[panels]
        rows: Tensor = decode_panels(self.codes[panels], self.scales[panels], offsets, place)
        return rows[start % PANEL :][: last - start]

    def slices(self) -> Iterator[tuple[slice, Tensor]]:
        """W in float32, a few outputs at a time: which ones, and their rows of W, which the next ones overwrite."""
        step = max(FILLED, DECODED_BYTES // (4 * self.in_features) // FILLED * FILLED)
        place = _workspace(min(step, self.out_features + FILLED) * self.in_features)
        for start in range(0, self.out_features, step):
            yield slice(start, min(start + step, self.out_features)), self.some_rows(start, step, place)

    def rows(self, index: Tensor) -> Tensor:
        """The rows W_j for ``index`` (…,), (…, in) in float32."""
        found = decode_rows(self.codes, self.scales, self.offsets, index.flatten())
        return found.view(*index.shape, self.in_features)

    def apart(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Codes (out, G, group), scales and offsets (out, G): what ``group_weights`` made the panels of."""
        codes, scales, offsets = separated(self.codes, self.scales, self.offsets)
        n = self.out_features
        return codes[:n], scales[:n], None if offsets is None else offsets[:n]


class GroupedLinear(GroupedWeight):
    """y = W x + b with W in groups."""

    def __init__(
        self, codes: Tensor, scales: Tensor, offsets: Tensor | None, outputs: int, bias: Tensor | None = None
    ) -> None:
        super().__init__(codes, scales, offsets, outputs)
        self.register_buffer("bias", bias)

    @property
    def most(self) -> int:
        """The largest x̂ of a decode step, for which no sum over a group is beyond 31 bits."""
        return min(2**15 - 1, (2**31 - 1) // (int(self.group) * (1 << self.bits)))

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        y: Tensor = _Product.apply(x.reshape(-1, self.in_features), self)  # type: ignore[no-untyped-call]
        return y.view(*x.shape[:-1], self.out_features)


class _Product(torch.autograd.Function):
    """x Wᵀ + b on matrices. W is decoded in each direction, a few outputs at a time, and not kept in between."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: GroupedLinear) -> Tensor:
        """y."""
        ctx.layer = layer
        bias = None if layer.bias is None else layer.get_buffer("bias")
        y: Tensor | None = None
        for here, weight in layer.slices():
            part: Tensor = matmul(x, weight.to(x.dtype), None if bias is None else bias[here])
            if part.shape[1] == layer.out_features:
                return part
            y = x.new_empty(len(x), layer.out_features) if y is None else y
            y[:, here] = part
        assert y is not None
        return y

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂x = ∂y W; W has no gradient."""
        by_y = above[0]
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operation
            return by_y @ ctx.layer.weight.to(by_y.dtype), None
        by_x = by_y.new_zeros(len(by_y), ctx.layer.in_features)
        for here, weight in ctx.layer.slices():
            by_x += matmul(by_y[:, here].contiguous(), weight.to(by_y.dtype).T)
        return by_x, None


class GroupedEmbedding(GroupedWeight):
    """The rows of W for tokens; the output layer may share its weights."""

    def forward(self, tokens: Tensor) -> Tensor:
        """(…,) → (…, in), in float64 where the model was converted to it."""
        rows = self.rows(tokens)
        return rows.double() if self.scales.dtype == torch.float64 else rows


class _Workspace(threading.local):
    """A buffer of each thread for decoded weights: new ones each time would leave holes between what is kept."""

    buffer = torch.empty(0)


_WORKSPACE = _Workspace()


def _workspace(size: int) -> Tensor:
    """A buffer of at least ``size`` floats, the same each time."""
    if len(_WORKSPACE.buffer) < size:
        with torch.inference_mode(False):
            _WORKSPACE.buffer = torch.empty(size, dtype=torch.float32, device="cpu")
    return _WORKSPACE.buffer


def count_grouped(model: nn.Module) -> int:
    """Return the number of layers whose weights are in groups."""
    return sum(isinstance(layer, GroupedWeight) for layer in model.modules())


def _decode_reference(codes: Tensor, scales: Tensor, offsets: Tensor | None, place: Tensor | None = None) -> Tensor:
    """The equation."""
    return decoded(*separated(codes, scales, offsets))


def _decode_loop(codes: Tensor, scales: Tensor, offsets: Tensor | None, place: Tensor | None = None) -> Tensor:
    panels, groups, loads = codes.shape[:3]
    bits = 4 if codes.dtype == torch.uint8 else 8
    wide = [scales.float() if one is None else one.float() for one in (scales, offsets)]
    shape = panels * PANEL, groups * loads * (4 if bits == 4 else 2)
    out = torch.empty(shape, dtype=torch.float32) if place is None else place[: shape[0] * shape[1]].view(shape)
    run(loops.decode_groups, panels * PANEL, groups, loads, bits, int(offsets is not None), codes, *wide, out)
    return out


def _can_loop(codes: Tensor, scales: Tensor, offsets: Tensor | None, place: Tensor | None = None) -> bool:
    shares = [one for one in (scales, offsets) if one is not None]
    whole = codes.shape[3] == PANEL and all(one.is_contiguous() for one in (codes, *shares))
    cpu = all(one.device.type == "cpu" and not is_fake(one) for one in (codes, *shares))
    return whole and cpu and loopable()


decode_panels = Kernel("decode_panels", _decode_reference, Fast("loop", _decode_loop, _can_loop))
"""All rows of panels in float32: (codes, scales, offsets or None, place=None) → (P · PANEL, in).

``place`` is a buffer that may hold the result; the next call with it overwrites that.
"""


def _rows_reference(codes: Tensor, scales: Tensor, offsets: Tensor | None, index: Tensor) -> Tensor:
    """The equation, for the rows of the index alone."""
    panel, lane, n = index // PANEL, index % PANEL, torch.arange(len(index), device=index.device)
    # whole panels first: torch would copy all of them to index panels and lanes at once
    own = codes.index_select(0, panel)[n, ..., lane, :][..., None, :]
    shares = [None if one is None else one.index_select(0, panel)[n, :, lane, None] for one in (scales, offsets)]
    assert shares[0] is not None
    return decoded(*separated(own, shares[0], shares[1]))


def _rows_loop(codes: Tensor, scales: Tensor, offsets: Tensor | None, index: Tensor) -> Tensor:
    panels, groups, loads = codes.shape[:3]
    bits = 4 if codes.dtype == torch.uint8 else 8
    out = torch.empty(len(index), groups * loads * (4 if bits == 4 else 2), dtype=torch.float32)
    if not len(index):
        return out
    low, high = (int(end) for end in index.aminmax()) if len(index) > 1 else (int(index),) * 2
    if not 0 <= low <= high < panels * PANEL:
        raise IndexError(f"an index is not within 0 and {panels * PANEL}")
    if low == high:  # as in each step of one text: a view, and no operation that gathers
        shares = [None if one is None else one[low // PANEL].expand(len(index), -1, -1) for one in (scales, offsets)]
    else:
        of = index.div(PANEL, rounding_mode="floor")
        shares = [None if one is None else one.index_select(0, of) for one in (scales, offsets)]
    first, second = shares[0], shares[0] if offsets is None else shares[1]
    assert first is not None and second is not None
    wide = [one.float().contiguous() for one in (first, second)]
    run(loops.decode_rows, len(index), panels, groups, loads, bits, int(offsets is not None), codes, *wide, index, out)
    return out


def _can_loop_rows(codes: Tensor, scales: Tensor, offsets: Tensor | None, index: Tensor) -> bool:
    ready = index.device.type == "cpu" and index.dtype == torch.int64 and index.is_contiguous() and not is_fake(index)
    return ready and _can_loop(codes, scales, offsets)


decode_rows = Kernel("decode_rows", _rows_reference, Fast("loop", _rows_loop, _can_loop_rows))
"""Some rows of panels in float32: (codes, scales, offsets or None, index (n,)) → (n, in)."""


def decoded(codes: Tensor, scales: Tensor, offsets: Tensor | None) -> Tensor:
    """W (n, in) in float32, of codes (n, G, group), scales and offsets (n, G)."""
    values = codes.float() * scales.float()[..., None]
    if offsets is not None:
        values = values + offsets.float()[..., None]
    return values.flatten(1)


def separated(codes: Tensor, scales: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Panels of codes (P, G, loads, lanes, 2) → (P · lanes, G, group), and of scales and offsets → (P · lanes, G)."""
    P, G, loads, lanes, _ = codes.shape
    group = loads * (4 if codes.dtype == torch.uint8 else 2)
    if codes.dtype == torch.uint8:
        codes = torch.stack([codes & 15, codes >> 4], dim=3)  # inputs i, i + 1, then i + 2, i + 3
        codes = codes.permute(0, 4, 1, 2, 3, 5)
    else:
        codes = codes.permute(0, 3, 1, 2, 4)
    shares = [None if one is None else one.transpose(1, 2).reshape(P * lanes, G) for one in (scales, offsets)]
    assert shares[0] is not None
    return codes.reshape(P * lanes, G, group), shares[0], shares[1]


def group_weights(codes: Tensor, scales: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return codes (out, G, group), scales and offsets (out, G) in panels; uint8 codes have 4 bits, int8 ones 8.

    >>> codes, scales, _ = group_weights(torch.ones(16, 1, 4, dtype=torch.uint8), torch.ones(16, 1), None)
    >>> codes.shape, int(codes[0, 0, 0, 0, 0]), scales.shape
    (torch.Size([2, 1, 1, 16, 2]), 17, torch.Size([2, 1, 16]))
    """
    outputs, G, group = codes.shape
    four = codes.dtype == torch.uint8
    if group % 4:
        raise ValueError(f"a group of {group} inputs is not a multiple of 4")
    filled = -outputs % FILLED
    codes = F.pad(codes, (0, 0, 0, 0, 0, filled))
    if four:
        halves = codes.view(-1, PANEL, G, group // 4, 2, 2)
        packed = halves[..., 0, :] | halves[..., 1, :] << 4
    else:
        packed = codes.view(-1, PANEL, G, group // 2, 2)
    panels = [
        None if one is None else F.pad(one, (0, 0, 0, filled)).view(-1, PANEL, G).transpose(1, 2).contiguous()
        for one in (scales, offsets)
    ]
    assert panels[0] is not None
    return packed.permute(0, 2, 3, 1, 4).contiguous(), panels[0], panels[1]


def quantise_groups(weight: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the codes of a matrix (n, in), and scales and offsets in float16, as ``group_weights`` takes them.

        8 bits    s = max |w| / 127                              c = w / s          −127 … 127
        4 bits    o = min w,  s = (max w − o) / 15               c = (w − o) / s    0 … 15

    >>> codes, scales, offsets = quantise_groups(torch.arange(32.0)[None] - 16, 4)
    >>> codes[0, 0, ::8].tolist(), offsets.tolist()
    ([0, 4, 8, 12], [[-16.0]])
    """
    w = weight.float().view(len(weight), -1, GROUP)
    offsets = None
    if bits == 4:
        offsets = w.amin(-1).half()
        w = w - offsets.float()[..., None]
        scales, low, high = (w.amax(-1) / 15).half(), 0, 15
    else:
        scales, low, high = (w.abs().amax(-1) / 127).half(), -127, 127
    steps = torch.where(scales == 0, 1, scales).float()[..., None]
    codes = (w / steps).round_().clamp_(low, high).to(torch.uint8 if bits == 4 else torch.int8)
    return codes, scales, offsets
