"""Every fast implementation in the table gives what its reference gives: outputs, gradients, second gradients."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ensue.kernels import capped_cross_entropy, cross_entropy, gru, matmul, sliced_loss
from ensue.kernels.bucket_attention import Near
from ensue.kernels.grouped import GroupedLinear, group_weights
from ensue.kernels.int8 import QuantisedLinear
from ensue.kernels.kernel import use
from ensue.kernels.packing import AttentionRows, Packing
from ensue.kernels.table import KERNELS
from ensue.kernels.threads import torch_threads
from ensue.nn.recurrent import Cell, GRUCell, LSTMCell

pytestmark = [
    pytest.mark.skipif(torch_threads() is None, reason="torch runs on another OpenMP here"),
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here"),
]
D, HEADS = 32, 2


@dataclass
class Case:
    """Arguments of a kernel, made for a number of rows and a type of float."""

    kernel: str
    fast: str
    make: Callable[[int, torch.dtype], tuple[Any, ...]]
    """Rows and dtype → the arguments; tensors that require gradients are its inputs."""
    keywords: dict[str, Any] = field(default_factory=dict)
    gradients: bool = True
    rows: int = 150
    types: tuple[torch.dtype, ...] = (torch.float32,)
    empty: bool = True
    """Whether it takes no rows at all."""
    exact: bool = True
    """Whether threads change no bit; those of torch.bmm do, at odd sizes, and so they do in the reference."""

    def inputs(self, args: tuple[Any, ...]) -> list[Tensor]:
        """The tensors that get gradients."""
        flat = [one for arg in args for one in (arg if isinstance(arg, tuple) else (arg,))]
        weights = [weight for one in flat if isinstance(one, nn.Module) for weight in one.parameters()]
        return [one for one in flat if isinstance(one, Tensor) and one.requires_grad] + weights


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def layers(dtype: torch.dtype) -> tuple[nn.Linear, nn.Linear]:
    return nn.Linear(D, 3 * D, dtype=dtype), nn.Linear(3 * D, D, dtype=dtype)


def gated(rows: int, dtype: torch.dtype, activation: str, bias: bool) -> tuple[Any, ...]:
    sizes = ((D, 37), (D, 37), (37, D))
    return rand(rows, D, dtype=dtype), *(nn.Linear(*size, bias, dtype=dtype) for size in sizes), activation


def norm(dtype: torch.dtype) -> nn.LayerNorm:
    layer = nn.LayerNorm(D, dtype=dtype)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


def int8_layers(dtype: torch.dtype) -> tuple[QuantisedLinear, QuantisedLinear]:
    up, down = layers(dtype)
    return QuantisedLinear(up.weight, up.bias), QuantisedLinear(down.weight, down.bias)


def padded(time: int) -> Callable[[int, torch.dtype], tuple[Any, ...]]:
    def make(rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
        return (rand(rows, time, 3 * D, dtype=dtype),), HEADS, torch.arange(rows) % time + 1

    return make


def shared(time: int) -> Callable[[int, torch.dtype], tuple[Any, ...]]:
    """Four query heads and two of keys and values."""

    def make(rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
        return (rand(rows, time, 4 * D, dtype=dtype),), 4, torch.arange(rows) % time + 1

    return make


def relative(time: int) -> Callable[[int, torch.dtype], tuple[Any, ...]]:
    """A text and a table of distances."""

    def make(rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
        x, table = rand(rows, time, 3 * D, dtype=dtype), rand(HEADS, 2 * time - 1, dtype=dtype)
        return (x,), HEADS, table, torch.arange(rows) % time + 1

    return make


def packed(rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
    lengths = torch.arange(rows) % 9 + 9
    packing = Packing.of(lengths, rows, 17, 8)
    return (rand(len(packing.index), 3 * D, dtype=dtype),), HEADS, AttentionRows.of(packing, packing, lengths)


def recurrent(rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
    shapes = ((rows, 5, D), (64, D), (64, 8), (64,), (8, 16), (rows, 8), (rows, 16))
    return tuple(rand(*shape, dtype=dtype) for shape in shapes)


def cell(rows: int, dtype: torch.dtype, kind: type[Cell] = LSTMCell, hidden: int = 16) -> tuple[Any, ...]:
    one = kind(D, hidden).to(dtype)
    state = tuple(rand(rows, hidden, dtype=dtype) for _ in one.start(1))
    return one, rand(rows, 5, D, dtype=dtype), state


def mixture(rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
    experts = (torch.sin, torch.cos, torch.tanh)
    chosen = torch.stack([torch.arange(rows) % 3, (torch.arange(rows) + 1) % 3], dim=1)
    return rand(rows, D, dtype=dtype), experts, rand(rows, 2, dtype=dtype), chosen


def rotated(rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
    angles = torch.arange(9, dtype=dtype)[None, :, None] * torch.tensor([1.0, 0.1, 1.0, 0.1], dtype=dtype)
    return rand(rows, 9, 21, dtype=dtype), angles.cos(), angles.sin(), 16


def bucketed(rounds: int, near: Near) -> Callable[[int, torch.dtype], tuple[Any, ...]]:
    def make(rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
        parts = (rand(rows, HEADS, 21, 8, dtype=dtype) for _ in range(3))
        return *parts, torch.randint(3, (rows, HEADS, rounds, 21)), near

    return make


def disentangled(rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
    """Content of 21 tokens, and a vector for each of their 41 distances."""
    parts = tuple(rand(rows, HEADS, 21, 8, dtype=dtype) for _ in range(3))
    return parts, tuple(rand(HEADS, 41, 8, dtype=dtype) for _ in range(2))


def scanned(time: int, decays: int) -> Callable[[int, torch.dtype], tuple[Any, ...]]:
    def make(rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
        shapes = ((rows, 2, time, 6), (rows, 2, time, 6), (rows, 2, time, 5), (rows, 2, 6, 5))
        parts = tuple(rand(*shape, dtype=dtype) for shape in shapes)
        return (*parts, (-torch.rand(rows, 2, time, decays, dtype=dtype)).requires_grad_()) if decays else parts

    return make


BOTH, DOUBLE = (torch.float32, torch.float64), (torch.float64,)


def panels(rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
    """Weights of 4 bits in groups, with offsets."""
    codes = torch.randint(0, 16, (rows, 2, 32), dtype=torch.uint8)
    return group_weights(codes, torch.randn(rows, 2), torch.randn(rows, 2))


def updated_layer(rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
    codes = torch.randint(16, (3 * D, 1, D), dtype=torch.uint8)
    layer = GroupedLinear(*group_weights(codes, torch.rand(3 * D, 1) / 9, -torch.rand(3 * D, 1)), 3 * D)
    return layer, rand(rows, D, dtype=dtype), rand(4, D, dtype=dtype), rand(3 * D, 4, dtype=dtype), 2.0


CASES = [
    *(
        Case("feed_forward", "fused", lambda n, t, f=f: (rand(n, D, dtype=t), *layers(t), f), types=BOTH)
        for f in ("gelu", "gelu-erf", "relu")
    ),
    Case("feed_forward", "in_place", lambda n, t: (rand(n, D, dtype=t), *layers(t), "gelu"), {}, False, types=BOTH),
    Case("feed_forward", "int8", lambda n, t: (torch.randn(n, D), *int8_layers(t), "gelu"), {}, False),
    *(
        Case("gated_feed_forward", "fused", lambda n, t, f=f, b=b: gated(n, t, f, b), types=BOTH)
        for f, b in (("swiglu", False), ("geglu", True))
    ),
    *(
        Case("gate", "one_pass", lambda n, t, f=f: (rand(n, 37, dtype=t), rand(n, 37, dtype=t), f))
        for f in ("swiglu", "geglu")
    ),
    Case("rms_norm", "one_pass", lambda n, t: (rand(n, D, dtype=t), rand(D, dtype=t), 1e-5)),
    Case("add_norm", "fused", lambda n, t: (rand(n, D, dtype=t), rand(n, D, dtype=t), 0.3, norm(t))),
    Case("dropout_add", "one_pass", lambda n, t: (rand(n, D, dtype=t), rand(n, D, dtype=t), 0.3), types=BOTH),
    Case("attention", "short", padded(17), rows=7, empty=False),
    Case("attention", "short", padded(17), {"causal": True}, rows=7, empty=False),
    Case("attention", "short", shared(17), {"causal": True, "kv_heads": 2}, rows=7, empty=False),
    Case("attention", "blocked", padded(80), rows=3, empty=False),
    Case("attention", "blocked", padded(80), {"causal": True}, rows=3, empty=False),
    Case("attention", "blocked", shared(80), {"causal": True, "kv_heads": 2}, rows=3, empty=False),
    Case("attention", "cheap_dropout", shared(5), {"dropout": 0.3, "kv_heads": 2}, rows=5, types=DOUBLE),
    Case("attention", "scaled_dot_product", shared(5), {"kv_heads": 2}, rows=5, types=DOUBLE),
    Case("attention", "cheap_dropout", padded(5), {"dropout": 0.3}, rows=5, types=DOUBLE),
    Case("attention", "scaled_dot_product", padded(5), rows=5, types=DOUBLE),
    Case("attention", "scaled_dot_product", padded(5), {"causal": True}, rows=5, types=DOUBLE),
    Case("relative_attention", "blocked", relative(80), rows=3, empty=False),
    Case("relative_attention", "blocked", relative(17), {"causal": True}, rows=3, empty=False),
    Case("relative_attention", "scaled_dot_product", relative(5), {"causal": True}, rows=5, types=DOUBLE, empty=False),
    Case("disentangled_attention", "in_pieces", disentangled, rows=3, types=BOTH, exact=False),
    Case("packed_attention", "short", packed, rows=6, empty=False),
    Case("packed_attention", "grouped", packed, {"causal": True}, False, rows=6, types=BOTH, empty=False),
    Case("rotary", "one_pass", rotated, rows=20, empty=False),
    Case(
        "cross_entropy",
        "sliced",
        lambda n, t: (rand(n, D, dtype=t), rand(70, D, dtype=t), rand(70, dtype=t), torch.arange(n) % 70, 0.1),
        types=BOTH,
        empty=False,
    ),
    Case(
        "capped_cross_entropy",
        "sliced",
        lambda n, t: (rand(n, D, dtype=t), rand(70, D, dtype=t), rand(70, dtype=t), torch.arange(n) % 70, 2.0, 0.1),
        types=BOTH,
        empty=False,
    ),
    Case("lstmp", "fused", recurrent, rows=4, types=BOTH, empty=False),
    Case("recurrent", "fused", cell, rows=4, types=BOTH, empty=False),
    Case("recurrent", "fused", lambda n, t: cell(n, t, GRUCell), rows=4, types=BOTH, empty=False),
    *(Case("recurrent", "gru", lambda n, t: cell(n, t, GRUCell, 96), rows=rows, empty=False) for rows in (5, 9, 23)),
    Case("experts", "grouped", mixture, rows=9, types=BOTH),
    Case("linear", "onednn", lambda n, t: (layers(t)[0], rand(n, D, dtype=t))),
    Case("linear", "onednn", lambda n, t: (nn.Linear(D, 48, bias=False, dtype=t), rand(n, D, dtype=t))),
    Case("matmul", "onednn", lambda n, t: (torch.randn(n, D), torch.randn(48, D), torch.randn(48)), {}, False),
    Case("decode_panels", "loop", panels, {}, False, empty=False),
    Case("decode_rows", "loop", lambda n, t: (*panels(40, t), torch.randint(40, (n,))), {}, False),
    Case("bucket_attention", "own_backward", bucketed(1, Near(4, True)), rows=3, types=BOTH),
    Case("bucket_attention", "own_backward", bucketed(3, Near(4, False, 1)), rows=3, types=BOTH),
    *(
        Case("linear_scan", fast, scanned(time, decays), rows=3, types=BOTH, empty=fast == "one_token")
        for fast, time in (("one_token", 1), ("own_backward", 150), ("own_backward", 5))
        for decays in (0, 1, 6)
    ),
    Case("low_rank_linear", "frozen", updated_layer, empty=False),
    Case("weight_gradient", "onednn", lambda n, t: (torch.randn(n, 48), torch.randn(n, D)), {}, False, empty=False),
]
names = pytest.mark.parametrize("case", CASES, ids=[f"{case.kernel}-{case.fast}" for case in CASES])


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Implementations that are for large inputs take small ones too."""
    monkeypatch.setattr(matmul, "LARGE", 1)
    monkeypatch.setattr(matmul, "LARGE_TRANSPOSED", 1)
    monkeypatch.setattr(matmul, "_amd", lambda: True)
    monkeypatch.setattr(gru, "_avx512", lambda: True)
    monkeypatch.setattr(cross_entropy, "COLUMNS", 37)
    monkeypatch.setattr(sliced_loss, "FEW", 0)
    monkeypatch.setattr(capped_cross_entropy, "SLICE", 70 * 41)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def made(case: Case, dtype: torch.dtype, rows: int | None = None) -> tuple[Any, ...]:
    torch.manual_seed(0)
    return case.make(case.rows if rows is None else rows, dtype)


def flattened(found: Any) -> list[Tensor]:
    return [one for part in found for one in flattened(part)] if isinstance(found, tuple) else [found]


def computed(case: Case, implementation: str, args: tuple[Any, ...], twice: bool = False) -> list[Tensor]:
    """Outputs and gradients of the inputs; with ``twice`` the gradients of the gradients' size."""
    torch.manual_seed(1)
    with torch.set_grad_enabled(case.gradients):
        found = KERNELS[case.kernel].implementations[implementation](*args, **case.keywords)
    outputs = flattened(found)
    if not case.gradients:
        return outputs
    inputs = case.inputs(args)
    size = sum((output.sin() * output.detach().cos()).sum() for output in outputs)
    gradients = torch.autograd.grad(size, inputs, create_graph=twice)
    if twice:
        again = sum(one.square().sum() for one in gradients)
        return list(torch.autograd.grad(again, inputs, allow_unused=True))
    return [output.detach() for output in outputs] + list(gradients)


def assert_same(found: list[Tensor], wanted: list[Tensor], dtype: torch.dtype) -> None:
    loose = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    for ours, plain in zip(found, wanted, strict=True):
        if ours is not None or plain is not None:
            scale = max(1.0, plain.abs().max().item()) if plain.numel() else 1.0
            torch.testing.assert_close(ours / scale, plain / scale, **loose)


def tolerance_type(case: Case, dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if case.fast == "int8" else dtype


def test_every_fast_implementation_is_tested() -> None:
    there = {(kernel.name, fast.name) for kernel in KERNELS.values() for fast in kernel.fast}
    assert {(case.kernel, case.fast) for case in CASES} == there


@names
def test_outputs_and_gradients_are_those_of_the_reference(case: Case) -> None:
    for dtype in case.types:
        args = made(case, dtype)
        with torch.set_grad_enabled(case.gradients):
            assert KERNELS[case.kernel].choice(*args, **case.keywords) == case.fast
        assert_same(computed(case, case.fast, args), computed(case, "reference", args), tolerance_type(case, dtype))


@names
def test_gradients_of_gradients_are_those_of_the_reference(case: Case) -> None:
    if not case.gradients:
        pytest.skip("runs outside autograd")
    if case.fast == "scaled_dot_product" or (case.kernel, case.fast) == ("recurrent", "fused"):
        pytest.skip("torch's kernel is not twice differentiable")
    for dtype in case.types:
        args = made(case, dtype)
        assert_same(computed(case, case.fast, args, True), computed(case, "reference", args, True), dtype)


@names
def test_inputs_in_any_order_of_memory_give_the_same(case: Case) -> None:
    args = made(case, case.types[0])
    wanted = computed(case, "reference", args)

    def scattered(x: Any) -> Any:
        """The same numbers, every second of a larger tensor."""
        if isinstance(x, tuple):
            return tuple(scattered(one) for one in x)
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        wide = torch.empty(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
        wide[..., ::2] = x.detach()
        return wide[..., ::2].requires_grad_(x.requires_grad)

    moved = tuple(scattered(one) for one in args)
    with torch.set_grad_enabled(case.gradients):
        chosen = KERNELS[case.kernel].choice(*moved, **case.keywords)
    assert_same(computed(case, chosen, moved), wanted, torch.float32)


@names
def test_no_rows_give_no_rows(case: Case) -> None:
    if not case.empty:
        pytest.skip("has no rows to leave out")
    args = made(case, case.types[0], rows=0)
    with torch.set_grad_enabled(case.gradients):
        chosen = KERNELS[case.kernel].choice(*args, **case.keywords)
    found = computed(case, chosen, args)
    assert found[0].shape[0] == 0
    assert all(not one.any() for one in found[1:])


@names
def test_threads_do_not_change_a_bit(case: Case) -> None:
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(computed(case, case.fast, made(case, case.types[0])))
    if case.exact:
        assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    else:
        assert_same(*found, case.types[0])


def test_an_implementation_can_be_forced_in_one_thread() -> None:
    args = made(CASES[0], torch.float32)
    kernel, chosen = KERNELS["feed_forward"], {}
    with use("reference"):
        chosen["here"] = kernel.choice(*args)
        assert torch.equal(kernel(*args), kernel.reference(*args))
        other = threading.Thread(target=lambda: chosen.update(there=kernel.choice(*args)))
        other.start()
        other.join()
    with use("reference", "attention"):
        chosen["another"] = kernel.choice(*args)
    assert chosen == {"here": "reference", "there": "fused", "another": "fused"}


def test_the_table_does_not_import_numba() -> None:
    script = "import sys, ensue.kernels.table; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
