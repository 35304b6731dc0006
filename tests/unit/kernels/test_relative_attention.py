"""Unscaled attention with a bias by distance: every implementation gives the equation's output and gradients."""

from __future__ import annotations

import pytest
import torch

from ensue.kernels.blocked_attention import mask as dropout_mask
from ensue.kernels.dropout import limit, new_seed
from ensue.kernels.kernel import use
from ensue.kernels.relative_attention import attend_relative, bias_of, equation
from ensue.kernels.threads import torch_threads

SHAPES = [
    # rows, queries, keys, heads, key–value heads, causal, sizes
    (2, 130, 130, 4, 4, True, None),
    (3, 70, 70, 2, 2, False, (70, 1, 33)),
    (2, 9, 70, 2, 2, False, (70, 3)),
    (2, 5, 5, 4, 2, True, None),
]


def held(B, T, S, H, G):
    """Queries, keys and values: side by side of one text, else apart."""
    torch.manual_seed(0)
    widths = [(T, (H + 2 * G) * 16)] if T == S else [(T, H * 16), (S, 2 * G * 16)]
    parts = tuple((torch.randn(B, time, width) / 2).requires_grad_() for time, width in widths)
    return parts, torch.randn(H, T + S - 1).requires_grad_()


def with_gradients(y, inputs):
    return [y.detach(), *torch.autograd.grad((y * y.detach().cos()).sum(), inputs)]


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("B", "T", "S", "H", "G", "causal", "sizes"), SHAPES)
@pytest.mark.parametrize("name", ["blocked", "scaled_dot_product"])
def test_output_and_all_gradients_equal_the_equation(B, T, S, H, G, causal, sizes, biased, name):
    if name == "blocked" and torch_threads() is None:
        pytest.skip("torch runs on another OpenMP here")
    parts, table = held(B, T, S, H, G)
    lengths = None if sizes is None else torch.tensor(sizes)
    found = []
    for implementation in ("reference", name):
        with use(implementation, "relative_attention"):
            y = attend_relative(parts, H, table if biased else None, lengths, causal=causal, kv_heads=G)
        found.append(with_gradients(y, [*parts, *([table] if biased else [])]))
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(torch_threads() is None, reason="torch runs on another OpenMP here")
def test_with_dropout_the_loops_equal_the_equation_with_their_mask():
    parts, table = held(2, 70, 70, 2, 2)
    torch.manual_seed(5)
    assert attend_relative.choice(parts, 2, table, None, dropout=0.3) == "blocked"
    ours = with_gradients(attend_relative(parts, 2, table, None, causal=True, dropout=0.3), [*parts, table])
    torch.manual_seed(5)
    off, seed = limit(0.3), new_seed()
    y = equation(parts, table, 2, None, True, lambda weights: weights * dropout_mask(weights, off, seed))
    for left, right in zip(with_gradients(y, [*parts, table]), ours, strict=True):
        torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-4)


def test_the_gradient_has_a_gradient():
    parts, table = held(1, 6, 6, 1, 1)

    def twice(implementation):
        with use(implementation, "relative_attention"):
            y = attend_relative(parts, 1, table, None)
        (slope,) = torch.autograd.grad(y.square().sum(), table, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), parts[0])[0]

    names = ["reference", *(["blocked"] if torch_threads() is not None else [])]
    first, *others = map(twice, names)
    for other in others:
        torch.testing.assert_close(first, other, atol=1e-4, rtol=1e-4)


def test_a_table_of_distances_becomes_a_matrix():
    table = torch.arange(-2, 4)[None]  # of 4 queries and 3 keys: distances −2 … 3
    matrix = bias_of(table, 4, 3)[0]
    assert torch.equal(matrix, torch.arange(4)[:, None] - torch.arange(3))
