"""Compiles a trunk to a decode program: reading one token of each row in one call.

The compiler walks the modules from outside; ``COMPILE`` says what each type of module becomes. A model with a module
that is not in the table, also a subclass of one that is, has no program and runs its operations one by one.

Legend: R rows, D width, V outputs of the head.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.kernels.cap import capped
from ensue.kernels.decode_caches import CacheGroup, group_caches
from ensue.kernels.decode_program import MULTIPLY, CacheView, DecodeProgram, NotCompilable, Rotary
from ensue.kernels.decode_runner import DecodeRunner, ProgramCache
from ensue.kernels.grouped import GroupedLinear
from ensue.kernels.int8 import QuantisedLinear
from ensue.kernels.threads import LANES
from ensue.nn.adapters import AdaptedLinear
from ensue.nn.blocks import Block, PostNormBlock, PreNormBlock, SandwichNormBlock
from ensue.nn.cross_attention import CrossAttention
from ensue.nn.feed_forward import FeedForward
from ensue.nn.gated_feed_forward import GatedFeedForward
from ensue.nn.key_value_cache import KeyValueCache, all_advanced
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.local import LocalAttention
from ensue.nn.norms import RMSNorm
from ensue.nn.source import Source
from ensue.nn.trunk import Clock, Trunk, TrunkState

Compile = Callable[[DecodeProgram, Any, Tensor, Tensor | None], Tensor]
"""(program, module, buffer x, buffer onto) → the buffer of module(x), or of onto + module(x)."""
ANGLES = 128
"""Positions whose angles are computed at once."""
GATE_ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu"}


def compile_module(program: DecodeProgram, module: nn.Module, x: Tensor, onto: Tensor | None = None) -> Tensor:
    """Add a module to a program: module(x), or onto + module(x) in the buffer ``onto``."""
    if type(module) not in COMPILE:
        raise NotCompilable(type(module).__name__)
    return COMPILE[type(module)](program, module, x, onto)


def compile_trunk(program: DecodeProgram, trunk: Trunk, norm: nn.Module, head: nn.Module) -> Tensor:
    """Compile blocks, a last norm and an output layer; returns the buffer of the first block's input."""
    if type(trunk) is not Trunk:
        raise NotCompilable(type(trunk).__name__)
    first = x = program.buffer(cast(int, head.in_features))
    for block in trunk.blocks:
        x = compile_module(program, block, x)
    program.linear(head, compile_module(program, norm, x), answer=True)
    return first


def _norm(program: DecodeProgram, layer: nn.Module, x: Tensor, onto: Tensor | None) -> Tensor:
    return program.norm(layer, x)


def _linear(program: DecodeProgram, layer: nn.Module, x: Tensor, onto: Tensor | None) -> Tensor:
    return _project(program, layer, x, onto=onto)


def _project(program: DecodeProgram, layer: nn.Module, x: Tensor, activation: str = "", **how: Any) -> Tensor:
    """A linear layer, perhaps with a low-rank adapter."""
    if type(layer) is not AdaptedLinear:
        return program.linear(layer, x, activation, **how)
    spare, scale = -len(layer.down) % LANES, layer.scale
    down = program.copied([layer.down], lambda: F.pad(layer.down, (0, 0, 0, spare)))
    up = program.copied([layer.up, scale], lambda: F.pad(scale * layer.up, (0, spare)))
    update = program.linear(up, program.linear(down, x))
    return program.linear(layer.base, x, activation, plus=update, **how)


def _feed_forward(program: DecodeProgram, feed: FeedForward, x: Tensor, onto: Tensor | None) -> Tensor:
    return _project(program, feed.down, _project(program, feed.up, x, feed.activation), onto=onto)


def _gated_feed_forward(program: DecodeProgram, feed: GatedFeedForward, x: Tensor, onto: Tensor | None) -> Tensor:
    h = _project(program, feed.gate, x, GATE_ACTIVATIONS[feed.activation])
    _project(program, feed.up, x, onto=h, combine=MULTIPLY)
    return _project(program, feed.down, h, onto=onto)


def _self_attention(program: DecodeProgram, mixer: SelfAttention, x: Tensor, onto: Tensor | None) -> Tensor:
    if not mixer.causal or mixer.score_bias is not None:
        raise NotCompilable("attention in both directions or with a score bias")
    projected, (queries, keys, _) = _project(program, mixer.project, x), mixer.sizes
    if mixer.norm_query is not None and mixer.norm_key is not None:
        program.norm_heads(mixer.norm_query, projected[:, :queries], mixer.heads)
        program.norm_heads(mixer.norm_key, projected[:, queries : queries + keys], mixer.kv_heads)
    rotary = None if mixer.rotary is None else (mixer.rotary.identity, mixer.rotary)
    how: dict[str, Any] = {"span": mixer.span, "cap": mixer.score_cap, "rotary": rotary}
    y = program.attend(projected, mixer.heads, mixer.kv_heads, queries, append=True, **how)
    return _project(program, mixer.out, y, onto=onto)


def _cross_attention(program: DecodeProgram, cross: CrossAttention, x: Tensor, onto: Tensor | None) -> Tensor:
    query = _project(program, cross.query, x)
    y = program.attend(query, cross.heads, cross.heads, query.shape[1], append=False)
    return _project(program, cross.out, y, onto=onto)


def _parts(block: Block) -> list[tuple[nn.Module, nn.Module]]:
    """The parts of a block in order, each with its norm."""
    cross = [] if block.cross is None else [(block.cross, block.norm_cross)]
    return [(block.attention, block.norm_attention), *cross, (block.feed, block.norm_feed)]


def _pre_norm(program: DecodeProgram, block: Block, x: Tensor, onto: Tensor | None) -> Tensor:
    for part, norm in _parts(block):
        compile_module(program, part, compile_module(program, norm, x), onto=x)
    return x


def _sandwich_norm(program: DecodeProgram, block: SandwichNormBlock, x: Tensor, onto: Tensor | None) -> Tensor:
    after = [block.norm_mixed, *([] if block.cross is None else [block.norm_crossed]), block.norm_fed]
    for (part, norm), last in zip(_parts(block), after, strict=True):
        program.norm(last, compile_module(program, part, compile_module(program, norm, x)), onto=x)
    return x


def _post_norm(program: DecodeProgram, block: Block, x: Tensor, onto: Tensor | None) -> Tensor:
    for part, norm in _parts(block):
        compile_module(program, part, x, onto=x)
        x = compile_module(program, norm, x)
    return x


COMPILE: dict[type[nn.Module], Compile] = {
    nn.Identity: _norm,
    nn.LayerNorm: _norm,
    nn.RMSNorm: _norm,
    RMSNorm: _norm,
    nn.Linear: _linear,
    QuantisedLinear: _linear,
    GroupedLinear: _linear,
    AdaptedLinear: _linear,
    FeedForward: _feed_forward,
    GatedFeedForward: _gated_feed_forward,
    SelfAttention: _self_attention,
    LocalAttention: _self_attention,
    CrossAttention: _cross_attention,
    PreNormBlock: _pre_norm,
    PostNormBlock: _post_norm,
    SandwichNormBlock: _sandwich_norm,
}
"""What each type of module becomes."""


class Continued:
    """What a decode step knows of its key–value caches, kept so that the next step need not look at each of them."""

    def __init__(
        self,
        runner: DecodeRunner,
        blocks: Sequence[KeyValueCache],
        groups: Sequence[tuple[CacheGroup, Rotary | None]],
        room: int,
    ) -> None:
        self.groups, self.room = groups, room
        self.runner = weakref.ref(runner)  # neither old weights nor a text that ended must be kept alive
        self.blocks = [weakref.ref(one) for one in blocks]

    def by(self, runner: DecodeRunner, blocks: Sequence[Any]) -> bool:
        """Whether these are the caches, and have room for one more token."""
        if self.runner() is not runner or not self.room or len(blocks) != len(self.blocks):
            return False
        return all(known() is one for known, one in zip(self.blocks, blocks))


class DecodeSteps:
    """Reads one token of each row of a model by a decode program, where it has one."""

    def __init__(self) -> None:
        self.programs = ProgramCache()
        self.last: Continued | None = None

    def __reduce__(self) -> tuple[type[DecodeSteps], tuple[()]]:
        """A copy of a model has programs and texts of its own."""
        return DecodeSteps, ()

    def step(
        self,
        model: Any,
        trunk: Trunk,
        tokens: Tensor,
        state: TrunkState,
        lengths: Tensor | None,
        want: Sequence[str],
        source: Source | None = None,
    ) -> tuple[Tensor, TrunkState] | None:
        """Return the logits (R, 1, V) of one token of each row (R, 1), and the state after them.

        None if there are other tokens, if more than logits are wanted, or if there is no program. ``model`` has the
        ``embed`` and ``positions`` before the trunk, and the ``norm``, ``head`` and ``logit_cap`` after it.
        """
        if tokens.shape[1] != 1 or lengths is not None or len(want) != 1 or want[0] not in ("logits", "last"):
            return None
        runner = self.programs.runner(
            model, len(tokens), lambda program: compile_trunk(program, trunk, model.norm, model.head)
        )
        if runner is None:
            return None
        clock, layers = state.clock, runner.program.layers
        positions = clock.positions(1)
        x = model.positions(model.embed(tokens), positions, clock.used + 1)
        rotations: dict[Any, Any] = {
            rotary: _rotation(rotary, positions, x, clock, runner.program.angles)
            for rotary in runner.program.rotaries.values()
        }
        blocks, last = cast(tuple[KeyValueCache, ...], state.blocks), self.last
        if last is not None and source is None and last.by(runner, blocks):
            room = last.room
            groups = [(group.later(group.lengths, rotations.get(by)), by) for group, by in last.groups]
        else:
            blocks = tuple(one.with_room(span) for one, (span, _) in zip(blocks, layers, strict=True))
            room = min((one.room for one in blocks), default=0)
            groups = self._groups(runner, blocks, rotations, source)
        logits = capped(runner.run_groups(x[:, 0], [group for group, _ in groups]), model.logit_cap)
        after = all_advanced(blocks, [span for span, _ in layers])
        settled = len({id(one.lengths) for one in blocks}) == len({id(one.lengths) for one in after})
        if source is None and room > 1 and settled:
            numbers = {number: at for at, number in enumerate(runner.program.attends)}
            later = [(group.later(after[numbers[group.numbers[0]]].lengths, None), by) for group, by in groups]
            self.last = Continued(runner, after, later, room - 1)
        return logits[:, None], TrunkState(clock.after(1), after)

    @staticmethod
    def _groups(
        runner: DecodeRunner, blocks: Sequence[KeyValueCache], rotations: dict[Any, Any], source: Source | None
    ) -> list[tuple[CacheGroup, Rotary | None]]:
        """The caches of all blocks in groups, each with its rotary positions; then those of a source."""
        layers, found = runner.program.layers, []
        views = [[cache.view(rotations.get(rotary))] for cache, (_, rotary) in zip(blocks, layers)]
        if source is not None:
            for view, cross in zip(views, _source_views(source), strict=True):
                view.append(cross)
        by_rotation = {id(rotation): rotary for rotary, rotation in rotations.items()}
        for group in group_caches(runner.program.attends, [one for view in views for one in view]):
            found.append((group, by_rotation.get(id(group.rotation))))
        return found


def _rotation(
    rotary: Rotary, positions: Tensor, x: Tensor, clock: Clock, known: dict[Rotary, tuple[int, Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """cos and sin of the next positions. Where all rows are equally long they are a row of ANGLES known positions."""
    if not clock.even:
        return rotary(positions, x)
    block, row = divmod(clock.used, ANGLES)
    found = known.get(rotary)  # read once: another thread may need another block
    if found is None or found[0] != block:
        start = block * ANGLES
        found = known[rotary] = block, *rotary(torch.arange(start, start + ANGLES, device=positions.device)[None], x)
    _, cos, sin = found
    return cos[:, row : row + 1], sin[:, row : row + 1]


def _source_views(source: Source) -> list[CacheView]:
    """The keys and values of a source for each block's cross-attention."""
    lengths = source.lengths.index_select(0, source.index).long().clamp(0, source.parts[0].shape[2])
    index, views = source.index.long().contiguous(), []
    for keys, values in zip(source.parts[::2], source.parts[1::2], strict=True):
        if keys.dtype != torch.float32 or keys.stride() != values.stride() or keys.stride(-1) != 1:
            keys, values = keys.float().contiguous(), values.float().contiguous()
        views.append(CacheView(keys, values, lengths, index))
    return views
