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
from ensue.kernels.decode_program import MULTIPLY, CacheView, DecodeProgram, NotCompilable, Rotary, StateLayer
from ensue.kernels.decode_runner import DecodeRunner, ProgramCache
from ensue.kernels.decode_states import MatrixGroup, MatrixView, Sums, group_matrices, new_memory
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
from ensue.nn.mixers.gated_linear import ROOT, GatedLinearAttention
from ensue.nn.mixers.linear import FeatureState, LinearAttention
from ensue.nn.mixers.local import LocalAttention
from ensue.nn.mixers.retention import EPSILON, DecayAttention, DecayState, Retention
from ensue.nn.norms import RMSNorm
from ensue.nn.source import Source
from ensue.nn.trunk import Clock, Trunk, TrunkState

Compile = Callable[[DecodeProgram, Any, Tensor, Tensor | None], Tensor]
"""(program, module, buffer x, buffer onto) → the buffer of module(x), or of onto + module(x)."""
ANGLES = 128
"""Positions whose angles are computed at once."""
Group = CacheGroup | MatrixGroup
ENDLESS = 1 << 62
"""Room of states that do not grow."""
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
    how: dict[str, Any] = {"span": mixer.span, "cap": mixer.score_cap, "rotary": _rotary(mixer)}
    y = program.attend(_heads(program, mixer, x), mixer.heads, mixer.kv_heads, mixer.sizes[0], append=True, **how)
    return _project(program, mixer.out, y, onto=onto)


def _heads(program: DecodeProgram, mixer: SelfAttention, x: Tensor) -> Tensor:
    """Queries, keys and values side by side; queries and keys after their norms."""
    projected, (queries, keys, _) = _project(program, mixer.project, x), mixer.sizes
    if mixer.norm_query is not None and mixer.norm_key is not None:
        program.norm_heads(mixer.norm_query, projected[:, :queries], mixer.heads)
        program.norm_heads(mixer.norm_key, projected[:, queries : queries + keys], mixer.kv_heads)
    return projected


def _rotary(mixer: SelfAttention) -> tuple[Any, Rotary] | None:
    """What the rotary positions depend on, and the positions."""
    return None if mixer.rotary is None else (mixer.rotary.identity, mixer.rotary)


def _linear_attention(program: DecodeProgram, mixer: LinearAttention, x: Tensor, onto: Tensor | None) -> Tensor:
    if not mixer.causal:
        raise NotCompilable("attention in both directions")
    y = _recur(program, mixer, x, features="elu")
    return _project(program, mixer.out, y, onto=onto)


def _retention(program: DecodeProgram, mixer: Retention, x: Tensor, onto: Tensor | None) -> Tensor:
    return _gated(program, mixer, x, _recur(program, mixer, x, decays=mixer.get_buffer("decays")), onto)


def _gated_linear(program: DecodeProgram, mixer: GatedLinearAttention, x: Tensor, onto: Tensor | None) -> Tensor:
    u = _project(program, mixer.decay_out, _project(program, mixer.decay_in, x))
    y = _recur(program, mixer, x, decays=u, roots=ROOT.bit_length() - 1)  # a 16th root is four square roots
    return _gated(program, mixer, x, y, onto)


def _gated(program: DecodeProgram, mixer: DecayAttention, x: Tensor, y: Tensor, onto: Tensor | None) -> Tensor:
    """(silu(x W_G) ∘ Norm(y)) W_O."""
    norm = nn.RMSNorm(mixer.head_width, EPSILON, device="cpu", dtype=torch.float32).requires_grad_(False)
    program.norm_heads(norm, y, mixer.heads)
    return _project(program, mixer.out, _project(program, mixer.gate, x, "silu", onto=y, combine=MULTIPLY), onto=onto)


def _recur(program: DecodeProgram, mixer: SelfAttention, x: Tensor, **how: Any) -> Tensor:
    projected = _heads(program, mixer, x)
    return program.recur(projected, mixer.heads, mixer.kv_heads, mixer.sizes[0], rotary=_rotary(mixer), **how)


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
    LinearAttention: _linear_attention,
    Retention: _retention,
    GatedLinearAttention: _gated_linear,
    CrossAttention: _cross_attention,
    PreNormBlock: _pre_norm,
    PostNormBlock: _post_norm,
    SandwichNormBlock: _sandwich_norm,
}
"""What each type of module becomes."""


class Continued:
    """What a decode step knows of the layers' states, kept so that the next step need not look at each of them.

    ``spare`` is memory of the program, one for each layer whose state is a matrix: the next step writes there.
    """

    def __init__(
        self,
        runner: DecodeRunner,
        blocks: Sequence[BlockState],
        groups: Sequence[tuple[Group, Rotary | None]],
        room: int,
        spare: list[Sums],
    ) -> None:
        self.groups, self.room, self.spare = groups, room, spare
        self.runner = weakref.ref(runner)  # neither old weights nor a text that ended must be kept alive
        self.blocks = [weakref.ref(one, lambda _: spare.clear()) for one in blocks]

    def by(self, runner: DecodeRunner, blocks: Sequence[Any]) -> bool:
        """Whether these are the states, and have room for one more token."""
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
        blocks, last = cast(tuple[BlockState, ...], state.blocks), self.last
        if last is not None and source is None and last.by(runner, blocks):
            room, into, spare = last.room, last.spare, _matrices(blocks)
            groups = [(group.rotated(rotations.get(by)), by) for group, by in last.groups]
        else:
            blocks = tuple(_readable(one, layer) for one, layer in zip(blocks, layers, strict=True))
            room = min((one.room for one in blocks if isinstance(one, KeyValueCache)), default=ENDLESS)
            into, spare = (
                [new_memory(one) for one in _matrices(blocks)] for _ in range(2)
            )  # of this step and the next
            sources = _source_views(source)  # kept until the program has run: groups hold addresses only
            groups = self._groups(runner, blocks, into, rotations, sources)
        logits = capped(runner.run_groups(x[:, 0], [group for group, _ in groups]), model.logit_cap)
        clock = clock.after(1)
        after = _advanced(blocks, into, layers, clock)
        settled = len({*_lengths(blocks)}) == len({*_lengths(after)})
        if source is None and room > 1 and settled:
            known = {layer.number: one for layer, one in zip(layers, after)}
            free = dict(zip([layer.number for layer in layers if layer.recurrent], spare, strict=True))
            later = [(_later(group, known, free), by) for group, by in groups]
            self.last = Continued(runner, after, later, room - 1, spare)
        return logits[:, None], TrunkState(clock, after)

    @staticmethod
    def _groups(
        runner: DecodeRunner,
        blocks: Sequence[BlockState],
        into: Sequence[Sums],
        rotations: dict[Any, Any],
        sources: Sequence[CacheView],
    ) -> list[tuple[Group, Rotary | None]]:
        """The states of all blocks in groups, each with its rotary positions, and the keys and values of a source."""
        caches: list[CacheView] = []
        matrices: list[MatrixView] = []
        for number, (layer, one) in enumerate(zip(runner.program.layers, blocks, strict=True)):
            rotation = rotations.get(layer.rotary)
            if isinstance(one, KeyValueCache):
                caches.append(one.view(rotation))
            else:
                matrices.append(MatrixView(_sums(one), into[len(matrices)], rotation))
            caches += sources[number : number + 1]
        numbers = [layer.number for layer in runner.program.layers if layer.recurrent]
        by_rotation = {id(rotation): rotary for rotary, rotation in rotations.items()}
        groups: list[Group] = [*group_caches(runner.program.attends, caches), *group_matrices(numbers, matrices)]
        return [(group, by_rotation.get(id(group.rotation))) for group in groups]


MatrixState = FeatureState | DecayState
BlockState = KeyValueCache | MatrixState
"""States that a program can change."""


def _readable(state: BlockState, layer: StateLayer) -> BlockState:
    """The state as instructions can read it; a cache with room for one more token of each row."""
    if isinstance(state, KeyValueCache):
        return state.with_room(layer.span)
    matrix, total = _sums(state)
    total = None if total is None else total.float().contiguous()
    return _with_sums(state, (matrix.float().contiguous(), total))


def _sums(state: MatrixState) -> Sums:
    """The matrix, and the sum of features where it is kept."""
    return state.matrix, state.total if isinstance(state, FeatureState) else None


def _with_sums(state: MatrixState, sums: Sums, **more: Any) -> MatrixState:
    matrix, total = sums
    return state.changed(matrix=matrix, **({} if total is None else {"total": total}), **more)


def _matrices(blocks: Sequence[BlockState]) -> list[Sums]:
    """The sums of all layers that have some."""
    return [_sums(one) for one in blocks if not isinstance(one, KeyValueCache)]


def _advanced(
    blocks: Sequence[BlockState], into: Sequence[Sums], layers: Sequence[StateLayer], clock: Clock
) -> tuple[BlockState, ...]:
    """The states after one more token of each row: caches got a column, matrices are in ``into``."""
    caches = [(one, layer.span) for one, layer in zip(blocks, layers) if isinstance(one, KeyValueCache)]
    advanced, sums = iter(all_advanced([one for one, _ in caches], [span for _, span in caches])), iter(into)
    return tuple(
        next(advanced)
        if isinstance(one, KeyValueCache)
        else _with_sums(one, next(sums), tokens=clock.lengths)  # all blocks have read what the clock says
        for one in blocks
    )


def _lengths(blocks: Sequence[BlockState]) -> list[int]:
    """The identities of the caches' lengths."""
    return [id(one.lengths) for one in blocks if isinstance(one, KeyValueCache)]


def _later(group: Group, after: dict[int, BlockState], spare: dict[int, Sums]) -> Group:
    """A group as the next step finds it, given the states and the spare memory of layers by instruction."""
    numbers = group.numbers.tolist()
    if isinstance(group, MatrixGroup):
        return group.later([spare[number] for number in numbers])
    first = after[numbers[0]]
    assert isinstance(first, KeyValueCache)
    return group.later(first.lengths)


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


def _source_views(source: Source | None) -> list[CacheView]:
    """The keys and values of a source for each block's cross-attention; none without a source."""
    if source is None:
        return []
    lengths = source.lengths.index_select(0, source.index).long().clamp(0, source.parts[0].shape[2])
    index, views = source.index.long().contiguous(), []
    for keys, values in zip(source.parts[::2], source.parts[1::2], strict=True):
        if keys.dtype != torch.float32 or keys.stride() != values.stride() or keys.stride(-1) != 1:
            keys, values = keys.float().contiguous(), values.float().contiguous()
        views.append(CacheView(keys, values, lengths, index))
    return views
