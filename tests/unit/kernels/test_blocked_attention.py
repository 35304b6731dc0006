"""Attention a block of queries at a time: the equation, its gradients, its masks, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ensue.kernels import blocked_attention
from ensue.kernels.blocked_attention import attend, fits, mask, reference
from ensue.kernels.dropout import limit, new_seed
from ensue.kernels.packing import AttentionRows
from ensue.kernels.short_attention import Parts
from ensue.kernels.threads import torch_threads
from ensue.nn.cross_attention import CrossAttention
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.source import Source

pytestmark = pytest.mark.skipif(torch_threads() is None, reason="torch runs on another OpenMP here")


Made = Callable[..., Parts]


def both(
    held: Parts, heads: int, sizes: Tensor | None, causal: bool, dropout: float, kv_heads: int = 0, span: int = 0
) -> list[list[Tensor]]:
    """The output and all gradients, by the equation and by the loops, with the same random numbers."""
    (B, T), S = held[0].shape[:2], held[-1].shape[1]
    torch.manual_seed(3)
    ours = attend(held, heads, sizes, causal, dropout, kv_heads, span)
    torch.manual_seed(3)
    off, seed = (limit(dropout), new_seed()) if dropout else (0, 0)
    wanted = reference(held, heads, AttentionRows.padded(B, T, S, sizes), causal, off, seed, kv_heads, span)
    way = wanted.detach().cos()
    return [[y.detach(), *torch.autograd.grad((y * way).sum(), held)] for y in (wanted, ours)]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(
    ("queries", "keys", "widths", "sizes", "causal"),
    [
        (5, 5, (3,), None, True),
        (64, 64, (3,), None, True),
        (130, 130, (3,), (130, 77, 1), True),
        (130, 130, (3,), (130, 9, 0), False),
        (70, 21, (1, 2), (21, 0, 20), False),
        (1, 200, (1, 1, 1), (200, 64, 3), False),
    ],
)
def test_the_blocked_kernel_gives_the_output_and_all_gradients(
    parts: Made,
    queries: int,
    keys: int,
    widths: tuple[int, ...],
    sizes: tuple[int, ...] | None,
    causal: bool,
    dropout: float,
) -> None:
    held = parts(queries, keys, widths)
    assert fits(held, 2)
    seen = None if sizes is None else torch.tensor(sizes)
    for wanted, ours in zip(*both(held, 2, seen, causal, dropout), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("time", [21, 64, 130])
def test_heads_that_share_keys_give_the_output_and_all_gradients(time: int, kv_heads: int, dropout: float) -> None:
    torch.manual_seed(0)
    held = (torch.randn(3, time, (4 + 2 * kv_heads) * 16, requires_grad=True),)
    assert fits(held, 4, kv_heads)
    for wanted, ours in zip(*both(held, 4, torch.tensor([time, 9, 1]), True, dropout, kv_heads), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("time", "span", "sizes"),
    [
        (1, 1, None),
        (5, 1, None),
        (130, 1, None),
        (64, 63, None),
        (130, 17, (130, 77)),
        (130, 64, None),
        (200, 65, (1, 0)),
        (200, 199, None),
        (200, 8, (119, 120)),
    ],
)
def test_a_span_gives_the_output_and_all_gradients(
    time: int, span: int, sizes: tuple[int, int] | None, causal: bool, kv_heads: int, dropout: float
) -> None:
    torch.manual_seed(0)
    held = (torch.randn(2, time, (2 + 2 * kv_heads) * 16, requires_grad=True),)
    assert fits(held, 2, kv_heads, span)
    seen = None if sizes is None else torch.tensor(sizes)
    for wanted, ours in zip(*both(held, 2, seen, causal, dropout, kv_heads, span), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=2e-5)


def test_what_is_outside_the_span_is_not_read() -> None:
    torch.manual_seed(0)
    held = torch.randn(1, 300, 3 * 16, requires_grad=True)
    before = attend((held,), 1, None, True, span=20)
    with torch.no_grad():
        changed = held.clone()
        changed[:, :100] = 1e3
        after = attend((changed,), 1, None, True, span=20)
    assert torch.equal(before[:, 119:], after[:, 119:]) and not torch.equal(before[:, 118], after[:, 118])
    (grad,) = torch.autograd.grad(before[:, 200:].square().sum(), held)
    assert not grad[:, :181].any() and grad[:, 181].any()


def test_masks_are_of_mean_one_and_differ_between_rows_heads_and_places() -> None:
    drawn = mask(torch.empty(2, 2, 100, 90), limit(0.25), 7)
    torch.testing.assert_close(drawn.unique(), torch.tensor([0.0, 256 / 192]))
    assert abs(float(drawn.mean()) - 1) < 0.02
    assert not torch.equal(drawn[0, 0], drawn[0, 1]) and not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0, 0, :30], drawn[0, 0, 64:94])
    assert torch.equal(drawn, mask(torch.empty(2, 2, 100, 90), limit(0.25), 7))


def test_the_result_does_not_depend_on_the_number_of_threads(parts: Made, threads: None) -> None:
    found = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        found.append(both(parts(100, 100, (3,), rows=5), 2, None, True, 0.2)[1])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_the_gradient_of_a_gradient_goes_through_the_equation(parts: Made) -> None:
    found = []
    for plainly in (True, False):
        held = parts(70, 66, (1, 2))
        torch.manual_seed(3)
        off, seed, rows = limit(0.2), new_seed(), AttentionRows.padded(3, 70, 66)
        torch.manual_seed(3)
        y = reference(held, 2, rows, False, off, seed) if plainly else attend(held, 2, None, False, 0.2)
        (by,) = torch.autograd.grad(y.pow(3).sum(), held[0], create_graph=True)
        by.square().sum().backward()  # type: ignore[no-untyped-call]
        found.append([one.grad for one in held])
    for wanted, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-3, atol=1e-4)


def test_what_is_not_finite_is_not_hidden(parts: Made) -> None:
    (held,) = (one.detach() for one in parts(70, 70, (3,)))
    held[0, 3, 0] = float("nan")  # a query
    y = attend((held,), 1)
    assert y[0, 3].isnan().all() and y[1:].isfinite().all()


def test_what_the_loops_cannot_take_is_left_to_torch(parts: Made) -> None:
    held = parts(70, 70, (3,))
    assert not fits(held, 4)  # heads of half a lane
    assert not fits(tuple(one.double() for one in held), 2)
    with torch.no_grad():
        assert not fits(held, 2)


def test_each_attention_of_long_rows_gives_the_same_with_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x, other, lengths = torch.randn(2, 80, 32), torch.randn(2, 70, 32), torch.tensor([80, 4])
    own, turned, full, cross = (
        SelfAttention(MixerConfig(width=32, heads=2)),
        SelfAttention(MixerConfig(width=32, heads=2, rope_base=10000.0)),
        SelfAttention(MixerConfig(width=32, heads=2, causal=False)),
        CrossAttention(32, 2),
    )
    source = Source.of((other,), torch.tensor([70, 2]), 70)
    calls = []
    monkeypatch.setattr(blocked_attention, "attend", lambda *a, **k: (calls.append(a), attend(*a, **k))[1])

    first = torch.arange(8).expand(len(x), -1)

    def found() -> list[Tensor]:
        return [
            own(x)[0],
            own(x, None, Layout(lengths))[0],
            turned(x)[0],
            full(x, None, Layout(lengths))[0],
            full.at(first, x[:, :8], x, Layout(lengths))[0],
            cross(x, cross.memory(other), source)[0],
        ]

    ours = found()
    assert len(calls) == len(ours)
    with torch.no_grad():
        plainly = found()
    assert len(calls) == len(ours)
    for one, same in zip(ours, plainly, strict=True):
        torch.testing.assert_close(one.detach(), same, rtol=1e-5, atol=1e-5)
