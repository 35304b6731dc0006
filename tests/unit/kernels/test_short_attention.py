"""Attention within short rows: the fused kernel is the equation, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ensue.kernels import short_attention
from ensue.kernels.packing import AttentionRows, Packing
from ensue.kernels.short_attention import Parts, apart, attend, equation, fits, packed
from ensue.kernels.threads import torch_threads
from ensue.nn.cross_attention import CrossAttention
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.source import Source

pytestmark = pytest.mark.skipif(torch_threads() is None, reason="torch runs on another OpenMP here")


Made = Callable[..., Parts]


def plainly(held: Parts, heads: int, sizes: Tensor | None = None, causal: bool = False) -> Tensor:
    """The equation for padded rows."""
    (B, T), S = held[0].shape[:2], held[-1].shape[1]
    rows = AttentionRows.padded(B, T, S, sizes)
    return equation(tuple(one.flatten(0, 1) for one in held), heads, rows, causal).view(B, T, -1)


def results(way: Any, held: Parts, *rest: Any) -> list[Tensor]:
    y = way(held, *rest)
    return [y.detach(), *torch.autograd.grad((y * y.detach().cos()).sum(), held)]


@pytest.mark.parametrize(
    ("queries", "keys", "widths", "sizes", "causal"),
    [
        (11, 11, (3,), (11, 11, 11), True),
        (11, 11, (3,), (11, 4, 1), False),
        (8, 21, (1, 2), (21, 0, 20), False),
        (33, 9, (1, 1, 1), (9, 5, 2), False),
        (64, 64, (3,), (64, 64, 64), True),
    ],
)
@pytest.mark.parametrize("heads", [1, 2])
def test_the_fused_kernel_gives_the_output_and_all_gradients(
    parts: Made, queries: int, keys: int, widths: tuple[int, ...], sizes: tuple[int, ...], causal: bool, heads: int
) -> None:
    held = parts(queries, keys, widths)
    assert fits(held, heads)
    wanted, ours = (results(way, held, heads, torch.tensor(sizes), causal) for way in (plainly, attend))
    for one, other in zip(wanted, ours, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize(("queries", "keys", "whole"), [(11, 11, True), (8, 21, False), (33, 9, False)])
def test_heads_that_share_keys_give_what_repeated_keys_give(
    queries: int, keys: int, whole: bool, kv_heads: int
) -> None:
    """Also where keys are no whole tiles, and queries stand apart from them."""
    torch.manual_seed(0)
    d, heads, sizes = 16, 4, torch.tensor([keys, 5, 0])
    q, k, v = (torch.randn(3, n, h * d) for n, h in ((queries, heads), (keys, kv_heads), (keys, kv_heads)))
    held = (torch.cat([q, k, v], -1),) if whole else (q, torch.cat([k, v], -1))
    held = tuple(one.requires_grad_() for one in held)
    assert fits(held, heads, kv_heads)
    ours = attend(held, heads, sizes, whole, kv_heads)
    query, key, value = apart(held, heads, kv_heads)
    key, value = (one.unflatten(-1, (-1, d)).repeat_interleave(heads // kv_heads, 2).flatten(2) for one in (key, value))
    wanted = plainly((query, key, value), heads, sizes, whole)
    gradients = (torch.autograd.grad((y * wanted.detach().cos()).sum(), held) for y in (wanted, ours))
    for one, other in zip(*([y, *by] for y, by in zip((wanted, ours), gradients)), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


def of_lengths(x: Tensor, y: Tensor, heads: int, causal: bool) -> tuple[Tensor, Parts, AttentionRows]:
    """Padded queries, keys and values of rows of different lengths; the same packed, with where they lie."""
    times, own = torch.tensor([9, 20, 1, 16]), torch.tensor([12, 3, 30, 8])
    queries, keys = Packing.of(times, *x.shape[:2], 8), Packing.of(own, *y.shape[:2], 8)
    whole = plainly((x, y), heads, own, causal)
    return queries.pack(whole), (queries.pack(x), keys.pack(y)), AttentionRows.of(queries, keys, own)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 2])
def test_packed_rows_see_what_padded_ones_see(parts: Made, heads: int, causal: bool) -> None:
    x, y = parts(20, 30, (1, 2), rows=4)
    wanted, held, rows = of_lengths(x, y, heads, causal)
    for way in (equation, packed):
        found = way(held, heads, rows, causal)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        by = [
            torch.autograd.grad((one * wanted.detach().cos()).sum(), (x, y), retain_graph=True)
            for one in (wanted, found)
        ]
        for one, other in zip(*by, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


def test_a_row_finds_its_keys_whatever_the_order_of_lengths() -> None:
    queries, keys = Packing.of(torch.tensor([9, 12, 8]), 3, 12), Packing.of(torch.tensor([20, 8, 11]), 3, 20)
    rows = AttentionRows.of(queries, keys, torch.tensor([20, 0, 11]))
    assert rows.table.tolist() == [
        [8, 9, 19, 20, 20, 0],
        [17, 12, 0, 8, 0, 16 * 20],  # it sees nothing
        [0, 8, 8, 11, 11, 16 * 28],
    ]
    assert (rows.queries, rows.keys, rows.weights) == (12, 20, 16 * 39)


def test_a_view_of_something_wider_is_read_where_it_lies(parts: Made) -> None:
    query, key, value = (one.detach() for one in parts(8, 9, (1, 1, 1)))
    wide = torch.cat([torch.randn(3, 9, 7), key, value], dim=-1)
    views = (query, wide[..., 7:39], wide[..., 39:])
    assert not views[1].is_contiguous()
    assert torch.equal(attend(views, 2), attend((query, key, value), 2))


def test_sizes_beyond_the_keys_see_all_of_them_and_below_nothing_none(parts: Made) -> None:
    held, sizes = parts(9, 9, (3,)), torch.tensor([10**12, 9, -1])
    assert torch.equal(attend(held, 2, sizes), attend(held, 2, torch.tensor([9, 9, 0])))


def test_large_scores_neither_overflow_nor_spread(parts: Made) -> None:
    held = tuple(one.detach() * 100 for one in parts(9, 9, (3,)))
    torch.testing.assert_close(attend(held, 2), plainly(held, 2), rtol=1e-4, atol=1e-3)


def test_what_is_not_finite_is_not_hidden(parts: Made) -> None:
    (held,) = (one.detach() for one in parts(9, 9, (3,)))
    held[0, 3, 0], held[1, 3, 32] = float("nan"), float("inf")  # a query, and a key
    y, wanted = attend((held,), 1), plainly((held,), 1)
    assert y[0, 3].isnan().all() and not y[1].isfinite().all() and y[2].isfinite().all()
    assert torch.equal(y.isfinite(), wanted.isfinite())


def test_the_result_does_not_depend_on_the_number_of_threads(parts: Made, threads: None) -> None:
    found = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        found.append(results(attend, parts(20, 20, (3,), rows=40), 2))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_the_gradient_of_a_gradient_goes_through_the_equation(parts: Made) -> None:
    found = []
    for way in (plainly, attend):
        held = parts(10, 8, (1, 2))
        y = way(held, 2, torch.tensor([8, 5, 1]), False)
        (by,) = torch.autograd.grad(y.pow(3).sum(), held[0], create_graph=True)
        by.square().sum().backward()  # type: ignore[no-untyped-call]
        found.append([one.grad for one in held])
    for wanted, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)


def test_only_what_is_learnt_gets_a_gradient(parts: Made) -> None:
    query, rest = parts(10, 8, (1, 2))
    attend((query.requires_grad_(False), rest), 2).sum().backward()  # type: ignore[no-untyped-call]
    assert query.grad is None and rest.grad is not None


@pytest.mark.parametrize(
    ("queries", "keys", "width", "heads"),
    [(7, 9, 32, 2), (9, 7, 32, 2), (65, 9, 32, 2), (9, 65, 32, 2), (9, 9, 32, 4)],
)
def test_what_the_loops_cannot_take_is_left_to_torch(
    parts: Made, queries: int, keys: int, width: int, heads: int
) -> None:
    assert not fits(parts(queries, keys, (1, 2), width=width), heads)


def test_double_precision_and_what_is_not_learnt_are_left_to_torch(parts: Made) -> None:
    held = parts(9, 9, (3,))
    assert not fits(tuple(one.double() for one in held), 2)
    with torch.no_grad():
        assert not fits(held, 2)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Parts]:
    """What the kernel was given."""
    seen: list[Parts] = []

    def counting(held: Parts, *rest: Any, **more: Any) -> Tensor:
        seen.append(held)
        return attend(held, *rest, **more)

    monkeypatch.setattr(short_attention, "attend", counting)
    return seen


def test_each_attention_gives_the_same_with_and_without_it(counted: list[Parts]) -> None:
    torch.manual_seed(0)
    x, other, lengths = torch.randn(3, 9, 32), torch.randn(3, 8, 32), torch.tensor([9, 4, 0])
    own, both, cross = (
        SelfAttention(MixerConfig(width=32, heads=2)),
        SelfAttention(MixerConfig(width=32, heads=2, causal=False)),
        CrossAttention(32, 2),
    )
    source = Source.of((other,), torch.tensor([8, 2, 5]), 8)

    first = torch.arange(8).expand(len(x), -1)

    def found() -> list[Tensor]:
        return [
            own(x)[0],
            own(x, None, Layout(lengths))[0],
            both(x, None, Layout(lengths))[0],
            both.at(first, x[:, :8], x, Layout(lengths))[0],
            cross(x, cross.memory(other), source)[0],
        ]

    ours = found()
    assert len(counted) == len(ours)
    with torch.no_grad():
        plainly = found()
    assert len(counted) == len(ours)
    for one, same in zip(ours, plainly, strict=True):
        torch.testing.assert_close(one.detach(), same, rtol=1e-5, atol=1e-5)


def test_a_memory_and_dropped_weights_are_left_to_others(counted: list[Parts]) -> None:
    x, own = torch.randn(3, 9, 32), SelfAttention(MixerConfig(width=32, heads=2))
    _, state, _ = own(x)
    own(x, state)
    SelfAttention(MixerConfig(width=32, heads=2, dropout=0.5))(x)
    SelfAttention(MixerConfig(width=32, heads=2, causal=False, dropout=0.5))(x)
    assert len(counted) == 1
    SelfAttention(MixerConfig(width=32, heads=2, rope_base=10000.0))(x)
    assert len(counted) == 2
