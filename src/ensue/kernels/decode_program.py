"""A step of decoding as a tape: all that is done to one token of a few rows, written down once and played in one call.

What a model does to one token is hundreds of small operations, and each call of one costs as much as it computes. A
tape holds them as instructions (which weights, from where, to where), and a loop of our own plays all of them on
torch's threads (ensue.kernels.decode_loops). Blocks write themselves down in the order of their equations:

    h = tape.norm(self.norm_feed, x)
    u = tape.linear(self.up, h, "gelu")
    tape.linear(self.down, u, onto=x)                    x + W_2 f(W_1 LN(x) + b_1) + b_2

Nothing of it is stored elsewhere: the tape points to the weights where they lie, so that whoever changes them in place
need not know of it. It is for reading few rows, one token each, outside autograd; otherwise operations run one by one.

Legend: R rows, D width, H heads, d width of a head, S places of a memory.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ensue.kernels.autograd_guards import plain
from ensue.kernels.int8 import QuantisedLinear
from ensue.kernels.threads import LANES, reachable, torch_threads

NORM, LINEAR, ATTEND, WIDTH = 1, 2, 3, 24
"""Instructions, and how many numbers each has; see ensue.kernels.decode_loops."""
ROWS = (16, 128)
"""The rows that a tape has room for: few, as people ask, or those of many hypotheses. With more torch is as fast."""
ACTIVATIONS = {"": 0, "gelu": 1, "relu": 2}
PAGE = 4096
"""How far apart the rooms of two threads begin, so that none writes where another reads."""
INPUTS = 16384
"""The most inputs of a layer."""
PART = 32
"""How many outputs of a product are a part of the work."""


class Unwritten(Exception):
    """Something that a tape has no instruction for."""


@dataclass(eq=False)
class Tape:
    """Instructions, and room for what stands between them, (rows, width) each."""

    rows: int = ROWS[0]
    code: list[list[int]] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)
    """Weights that it points to, which must not go as long as it is there."""
    room: list[Tensor] = field(default_factory=list)
    memories: list[int] = field(default_factory=list)
    """The instructions that attend to a memory, in order."""
    last: list[int] = field(default_factory=list)
    """Instructions whose output is answered, not kept."""
    widest: int = 0
    """The width of a head."""
    inputs: int = 0
    """The most inputs of a layer."""

    def space(self, width: int) -> Tensor:
        """Room for rows of so many numbers."""
        with torch.inference_mode(False):  # else it could be written in that mode alone
            self.room.append(torch.zeros(self.rows, width, dtype=torch.float32, device="cpu"))
        return self.room[-1]

    def norm(self, layer: nn.Module, x: Tensor) -> Tensor:
        """LN(x); x where there is no norm."""
        if type(layer) is nn.Identity:
            return x
        if type(layer) is not nn.LayerNorm or layer.bias is None or len(layer.normalized_shape) != 1:
            raise Unwritten(type(layer).__name__)
        self._fits(layer.normalized_shape[0], x)
        z, epsilon = self.space(x.shape[1]), torch.tensor([layer.eps], dtype=torch.float32, device="cpu")
        self.room.append(epsilon)
        self._add(NORM, x.shape[1], x, z, self._held(layer.weight), self._held(layer.bias), epsilon)
        return z

    def linear(
        self, layer: nn.Module, x: Tensor, activation: str = "", onto: Tensor | None = None, answer: bool = False
    ) -> Tensor:
        """f(W x + b), added ``onto`` something where that is given; or what is answered in the end."""
        weight: Tensor
        scale: Tensor | int = 0
        most = 0
        if isinstance(layer, QuantisedLinear):
            weight, scale, most = self._held(layer.panels), self._held(layer.scale), layer.most
        elif type(layer) is nn.Linear:
            weight = self._held(layer.weight)
        else:
            raise Unwritten(type(layer).__name__)
        outputs, inputs = layer.out_features, layer.in_features
        self._fits(inputs, x)
        ragged = inputs % LANES or inputs > INPUTS or outputs < LANES or (activation and outputs % LANES)
        if ragged or activation not in ACTIVATIONS:
            raise Unwritten(f"{inputs} to {outputs} {activation}")
        bias = self._held(layer.bias) if isinstance(layer.bias, Tensor) else 0
        y = x if answer else self.space(outputs) if onto is None else onto
        if answer:
            self.last.append(len(self.code))
        kind, self.inputs = ACTIVATIONS[activation], max(self.inputs, inputs)
        self._add(LINEAR, inputs, outputs, kind, int(onto is not None), weight, scale, bias, x, y, most)
        return y

    def attend(self, query: Tensor, key: Tensor | None, value: Tensor | None, heads: int, width: int) -> Tensor:
        """What each row sees of a memory, which ``play`` is given; a new key and value join it first.

        Query, key and value are where they begin in rows as they were projected, of ``width`` D.
        """
        d = width // heads
        if d % LANES:
            raise Unwritten(f"heads of {d}")
        y = self.space(width)
        self.memories.append(len(self.code))
        news = (0, 0) if key is None or value is None else (key, value)
        row = query.stride(0)
        self._add(ATTEND, heads, d, int(key is not None), query, *news, row, 0, 0, 0, 0, 0, y)
        self.widest = max(self.widest, d)
        return y

    def decoder(self, blocks: Iterable[nn.Module], norm: nn.Module, head: nn.Module) -> Tensor:
        """Blocks one after the other, a norm and what is answered; tells where the first begins."""
        parts = written(*blocks)
        first = x = self.space(head.in_features)  # type: ignore[arg-type]
        for block in parts:
            x = block.write(self, x)
        self.linear(head, self.norm(norm, x), answer=True)
        return first

    def _held(self, weight: Tensor) -> Tensor:
        if not weight.is_contiguous():
            raise Unwritten("weights that do not lie in a row")
        self.kept.append(weight)
        return weight

    @staticmethod
    def _fits(width: int, x: Tensor) -> None:
        """Addresses know no shapes: what torch would refuse must not be written down."""
        if width != x.shape[1]:
            raise Unwritten(f"a layer of {width} inputs after one of {x.shape[1]} outputs")

    def _add(self, what: int, *fields: Tensor | int) -> None:
        numbers = [one if isinstance(one, int) else one.data_ptr() for one in fields]
        self.code.append([what, 0, *numbers, *[0] * (WIDTH - 2 - len(numbers))])


@dataclass(eq=False)
class Memory:
    """What rows of a tape attend to: keys and values (N, H, C, d), and how many of them each row sees."""

    keys: Tensor
    values: Tensor
    lengths: Tensor  # (R,), int64
    index: Tensor | None = None  # (R,), which of N is a row's own, where it is not its number
    each: int = 1
    """How many rows share one, in order."""
    seen: Tensor | None = None  # (R, P), which places are a row's own past, where they share one


class Player:
    """A tape of a model, and what it takes to play it."""

    def __init__(self, tape: Tape, x: Tensor, where: list[int], modules: Sequence[nn.Module] = ()) -> None:
        self.tape, self.x, self.where = tape, x, where
        self.modules = modules  # held, so that no other gets their number
        self.code = np.array(tape.code, np.int64)
        self.own = self.shared = torch.empty(0, dtype=torch.uint8)
        self.lock = threading.Lock()

    def play(self, x: Tensor, memories: Sequence[Memory], turn: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """x (R, D) → what the tape answers, (R, out); one call at a time, for room and instructions are shared."""
        from ensue.kernels import decode_loops as tape_loops  # numba takes a while to import

        rows, code = len(x), self.code
        assert rows <= self.tape.rows
        with self.lock:
            answer = x.new_empty(rows, int(code[self.tape.last[0], 3]), dtype=torch.float32)
            self.x[:rows] = x
            code[:, [1, -1]] = 0
            code[self.tape.last, 10] = answer.data_ptr()
            longest = self._remember(memories, turn, rows)
            head = self._head(rows, longest)
            torch_threads()(tape_loops.play.address, ctypes.addressof(head), torch.get_num_threads(), 0)
        return answer

    def _head(self, rows: int, longest: int) -> Any:
        """What a player is given: how much there is to do, and room for each thread and for all of them."""
        high = -(-rows // LANES) * LANES
        numbers = max(self.tape.widest + longest + 2 * LANES, high * (3 * PART + LANES) + 2 * PART)
        places = longest + 2 * LANES
        prepared = 4 * high * (1 + self.tape.inputs)  # sizes of rows, and the rows
        each = -(-(4 * numbers + 8 * places + (prepared if rows <= ROWS[0] else 0)) // PAGE) * PAGE
        threads = torch.get_num_threads()
        self.own, self.shared = _roomy(self.own, threads * each), _roomy(self.shared, prepared)
        own, shared, code = self.own.data_ptr(), self.shared.data_ptr(), self.code
        return (ctypes.c_int64 * 10)(
            0, rows, len(code), code.ctypes.data, barrier(), own, each, numbers, places, shared
        )

    def _remember(self, memories: Sequence[Memory], turn: tuple[Tensor, Tensor] | None, rows: int) -> int:
        """Write down where memories are; the most places that one has."""
        code, longest = self.code, 0
        cos, sin, apart = 0, 0, 0
        if turn is not None:
            cos, sin = turn[0].data_ptr(), turn[1].data_ptr()
            apart = turn[0].shape[-1] if len(turn[0]) > 1 else 0
        for at, memory in zip(self.tape.memories, memories, strict=True):
            keys, values, lengths = memory.keys, memory.values, memory.lengths
            assert keys.stride() == values.stride() and keys.stride(-1) == 1
            assert keys.dtype == values.dtype == torch.float32 and lengths.dtype == torch.int64
            assert len(lengths) == rows and lengths.is_contiguous()
            code[at, 9:13] = keys.data_ptr(), values.data_ptr(), keys.stride(0), keys.stride(1)
            code[at, 13] = lengths.data_ptr()
            code[at, 15:18] = (cos, sin, apart) if code[at, 4] else (0, 0, 0)
            code[at, 18] = 0 if memory.index is None else memory.index.data_ptr()
            code[at, 19:21] = keys.stride(2), memory.each
            code[at, 21:23] = (0, 0)
            if memory.seen is not None:
                assert memory.seen.is_contiguous() and len(memory.seen) == rows
                code[at, 21:23] = memory.seen.data_ptr(), memory.seen.shape[1]
            longest = max(longest, keys.shape[2])
        return longest


def _roomy(room: Tensor, size: int) -> Tensor:
    """Room for so many bytes: the old where it is large enough, so that a step asks for none."""
    with torch.inference_mode(False):
        return room if len(room) >= size else torch.empty(size, dtype=torch.uint8, device="cpu")


@cache
def barrier() -> int:
    """The address of GOMP_barrier(), at which threads wait for each other; 0 where there is none."""
    if torch_threads() is None:
        return 0
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    found = getattr(library, "GOMP_barrier", None)
    return 0 if found is None else int(ctypes.cast(found, ctypes.c_void_p).value or 0)


def standing(model: nn.Module) -> list[int] | None:
    """What a tape of a model stands on: its parts, and where its weights are. None where nothing can be played.

    That is where a part trains, or somebody looks on or has put something of their own in, and so wants operations one
    by one; or where weights cannot be reached. It is asked at every step, hence in one pass.
    """
    every = torch.nn.modules.module
    if every._global_forward_hooks or every._global_forward_pre_hooks or not barrier():
        return None
    parts: list[int] = []
    weights: list[Tensor] = []
    left = [model]
    while left:
        part = left.pop()
        own = vars(part)
        hooked = own["_forward_hooks"] or own["_forward_pre_hooks"] or own.get("_compiled_call_impl")
        if own["training"] or hooked or "forward" in own:
            return None
        parts.append(id(part))
        weights.extend(weight for weight in own["_parameters"].values() if weight is not None)
        left.extend(inner for inner in own["_modules"].values() if inner is not None)
    if not reachable(*weights) or not plain(weights[0]):
        return None
    return parts + [weight.data_ptr() for weight in weights]


def single(tokens: Tensor, lengths: Tensor | None, want: Sequence[str]) -> bool:
    """Whether one token of each row is read (R, 1), and nothing is asked but what comes next."""
    return tokens.shape[1] == 1 and lengths is None and len(want) == 1 and want[0] in ("logits", "last")


def written(*parts: nn.Module) -> Any:
    """Parts of a model, which can write themselves down; one whose ``forward`` somebody has changed cannot."""
    for part in parts:
        order = [cls.__dict__ for cls in type(part).__mro__]
        own = next((at for at, held in enumerate(order) if "write" in held), len(order))
        if own > next(at for at, held in enumerate(order) if "forward" in held) or "forward" in vars(part):
            raise Unwritten(type(part).__name__)
    return parts


class Recorder:
    """Keeps the tapes of a model: written when first wanted, and again where weights or parts are others."""

    def __init__(self, kernel: str = "auto") -> None:
        self.kernel = kernel
        """``reference`` lets operations run one by one, as they do where there can be no tape."""
        self.players: dict[int, Player] = {}
        self.unwritten: list[int] = []
        """What the weights and parts were of which no tape could be made."""
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Recorder], tuple[str]]:
        """A copy of a model has weights of its own, and so tapes of its own."""
        return Recorder, (self.kernel,)

    def ready(self, model: nn.Module, rows: int, write: Callable[[Tape], Tensor]) -> Player | None:
        """What plays a model's tape, where so few rows can be read by it; ``write`` answers where they begin."""
        if self.kernel == "reference" or not 0 < rows <= ROWS[-1] or torch.is_grad_enabled():
            return None
        where = standing(model)
        if where is None:
            return None
        size = next(most for most in ROWS if rows <= most)
        with self.lock:
            if self.unwritten == where:
                return None
            if size in self.players and self.players[size].where == where:
                return self.players[size]
            try:
                tape = Tape(size)
                self.players[size] = Player(tape, write(tape), where, list(model.modules()))
            except Unwritten:
                self.players, self.unwritten = {}, where
            return self.players.get(size)
