"""Reversible blocks: two streams, so that activations need not be kept for the backward pass (Gomez et al., 2017).

    y_1 = x_1 + Mix(Norm(x_2)),      y_2 = x_2 + FFN(Norm(y_1))                        (Kitaev et al., 2020, section 3)
    x_2 = y_2 − FFN(Norm(y_1)),      x_1 = y_1 − Mix(Norm(x_2))

Each part maps streams (a, b) to (b, a + F(Norm(b))), cross-attention too, where a block has it. So the inputs of a
block follow from its outputs: training keeps the outputs of the last block only, and runs every part again in the
backward pass, with the random state that it had. Memory does not grow with the depth, and time does by a third.

The first block gets (x, x), and the trunk returns the mean of the last two streams. Streams stand side by side,
(B, T, 2D). Inputs that are computed back differ by rounding.

Legend: B rows, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import get_device_states, set_device_states

from ensue.kernels.autograd_guards import visible
from ensue.nn.blocks import Block
from ensue.nn.cross_attention import Memory
from ensue.nn.experts import Experts
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.mixer import Mixed
from ensue.nn.state import State

Part = Callable[[Tensor], Tensor]
"""F(Norm(b)) after dropout, of a stream b."""


class ReversibleBlock(Block):
    """(a, b) → (b, a + Mix(Norm(b))), then the same with cross-attention and with the feed-forward network."""

    streams = 2

    def forward(
        self, x: Tensor, state: Any = None, layout: Layout = PADDED, memory: Memory | None = None, weights: bool = False
    ) -> Mixed:
        """(B, T, 2D) → (B, T, 2D)."""
        a, b = x.chunk(2, dim=-1)
        y, state, seen = self.mix(self.norm_attention(b), state, layout, weights and self.cross is None)
        a, b = b, self.dropout.add(a, y)
        if self.cross is not None:
            assert memory is not None
            y, seen = self.cross(self.norm_cross(b), memory.layers[0], memory.source, weights)
            a, b = b, self.dropout.add(a, y)
        a, b = b, self.dropout.add(a, self.feed(self.norm_feed(b)))
        return Mixed(torch.cat([a, b], dim=-1), state, seen)

    def at(
        self,
        x: Tensor,
        index: Tensor,
        layout: Layout = PADDED,
        weights: bool = False,
        here: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        z = self.norm_attention(x.chunk(2, dim=-1)[1])
        a, b = (layout.pick(x, index) if here is None else here).chunk(2, dim=-1)
        asked = layout.pick(z, index) if here is None else self.norm_attention(b)
        y, seen = self.mix_at(index, asked, z, layout, weights)
        a, b = b, self.dropout.add(a, y)
        return torch.cat([b, self.dropout.add(a, self.feed(self.norm_feed(b)))], dim=-1), seen

    def parts(self, state: Any, layout: Layout, memory: Memory | None) -> list[Part]:
        """What is added to a stream, in order."""

        def mix(b: Tensor) -> Tensor:
            y: Tensor = self.dropout(self.mix(self.norm_attention(b), state, layout, False).y)
            return y

        def cross(b: Tensor) -> Tensor:
            assert self.cross is not None and memory is not None
            y: Tensor = self.dropout(self.cross(self.norm_cross(b), memory.layers[0], memory.source, False)[0])
            return y

        def feed(b: Tensor) -> Tensor:
            y: Tensor = self.dropout(self.feed(self.norm_feed(b)))
            return y

        return [mix, feed] if self.cross is None else [mix, cross, feed]


def reversible(blocks: Sequence[Block], pasts: Sequence[State | None]) -> bool:
    """Whether inputs can be computed back in the backward pass; elsewhere autograd keeps them.

    A gradient must not be needed of states, nor of what a mixture of experts adds to the loss; modules must not be
    hooked, compiled or sharded.
    """
    if not torch.is_grad_enabled() or visible() or not all(isinstance(block, ReversibleBlock) for block in blocks):
        return False
    if any(tensor.requires_grad for past in pasts if past is not None for _, tensor in past.tensors()):
        return False
    modules = [module for block in blocks for module in block.modules()]
    usual = not any(isinstance(one, Experts) or one._forward_hooks or one._forward_pre_hooks for one in modules)
    return usual and all(block.training for block in blocks) and all(type(p) is nn.Parameter for p in _weights(blocks))


def run_reversibly(
    blocks: Sequence[Block],
    x: Tensor,
    pasts: Sequence[State | None],
    layout: Layout,
    memory: Memory | None,
) -> Tensor:
    """The streams (B, T, 2D) after all blocks; activations inside them are not kept."""
    layers = () if memory is None else memory.layers[: len(blocks)]
    run = _Run(blocks, pasts, layout, memory, [len(one) for one in layers])
    kept = [tensor for one in layers for tensor in one]
    y: Tensor = _Reversible.apply(run, x, *kept, *_weights(blocks))  # type: ignore[no-untyped-call]
    return y


def _weights(blocks: Sequence[Block]) -> list[nn.Parameter]:
    """The parameters that are trained, each once."""
    return list(dict.fromkeys(p for block in blocks for p in block.parameters() if p.requires_grad))


@dataclass(frozen=True)
class _Run:
    """Blocks, and what they are given beside their inputs."""

    blocks: Sequence[Block]
    pasts: Sequence[State | None]
    layout: Layout
    memory: Memory | None
    counts: list[int]
    """How many tensors of the memory each block has."""

    def parts(self, number: int, memory: Sequence[Tensor]) -> list[Part]:
        """The parts of a block, with its own tensors of the memory."""
        block, own = self.blocks[number], None
        assert isinstance(block, ReversibleBlock)
        if self.memory is not None:
            own = Memory((tuple(memory),), self.memory.source)
        return block.parts(self.pasts[number], self.layout, own)

    def split(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """Tensors of the memory by block."""
        rest, found = list(tensors), []
        for number in range(len(self.blocks)):
            count = self.counts[number] if self.counts else 0
            found.append(rest[:count])
            rest = rest[count:]
        return found


class _Reversible(torch.autograd.Function):
    """All blocks; the backward pass computes the inputs of each part from its outputs."""

    @staticmethod
    def forward(ctx: Any, run: _Run, x: Tensor, *given: Tensor) -> Tensor:
        """Streams after all blocks."""
        memory = run.split(given[: sum(run.counts)])
        states = []
        a, b = x.chunk(2, dim=-1)
        for number in range(len(run.blocks)):
            for part in run.parts(number, memory[number]):
                states.append(_random_state(x))
                with torch.enable_grad():  # kernels, and the masks that they draw, must be those of the backward pass
                    added = part(b.detach().requires_grad_())
                a, b = b, a + added.detach()
                del added
        y = torch.cat([a, b], dim=-1)
        ctx.run, ctx.states = run, states
        ctx.save_for_backward(y, *given)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> Any:
        """The gradients of the streams, of the memory and of the weights."""
        y, *given = ctx.saved_tensors
        run, states = ctx.run, list(ctx.states)
        count = sum(run.counts)
        memory = run.split([one.detach().requires_grad_(one.requires_grad) for one in given[:count]])
        found: dict[Tensor, Tensor] = {}
        (a, b), (by_a, by_b) = y.chunk(2, dim=-1), above.chunk(2, dim=-1)
        with _kept_random_state(y):
            for number in reversed(range(len(run.blocks))):
                own = [*(one for one in memory[number] if one.requires_grad), *_weights([run.blocks[number]])]
                for part in reversed(run.parts(number, memory[number])):
                    _set_random_state(states.pop())
                    with torch.enable_grad():
                        stream = a.detach().requires_grad_()
                        added = part(stream)
                    by_stream, *others = torch.autograd.grad(added, [stream, *own], by_b, allow_unused=True)
                    for one, gradient in zip(own, others, strict=True):
                        if gradient is not None:
                            found[one] = found[one] + gradient if one in found else gradient
                    a, b = b - added.detach(), a
                    by_a, by_b = by_b, by_a + by_stream
        kept = [one for layer in memory for one in layer]
        return None, torch.cat([by_a, by_b], dim=-1), *(found.get(one) for one in (*kept, *_weights(run.blocks)))


RandomState = tuple[Tensor, tuple[Sequence[int], Sequence[Tensor]]]
"""Of the CPU, and of the device of a tensor."""


def _random_state(near: Tensor) -> RandomState:
    return torch.get_rng_state(), get_device_states(near)


def _set_random_state(state: RandomState) -> None:
    torch.set_rng_state(state[0])
    set_device_states(*state[1])


@contextmanager
def _kept_random_state(near: Tensor) -> Iterator[None]:
    """Restores the random state at the end of a ``with`` block."""
    state = _random_state(near)
    try:
        yield
    finally:
        _set_random_state(state)
