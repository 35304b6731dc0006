"""Disentangled attention: views of shifted scores against the equation written out, and every gradient."""

import math

import pytest
import torch

from ensue.kernels import disentangled_attention as module
from ensue.kernels.disentangled_attention import disentangled_attention, disentangled_weights
from ensue.kernels.kernel import use

SIZES = [(1, 1, 1, 2), (2, 1, 1, 3), (3, 2, 2, 6), (3, 4, 9, 5), (2, 2, 40, 8)]
"""Rows, heads, tokens, width of a head."""


def inputs(B, H, T, d, G=0, dtype=torch.float64):
    torch.manual_seed(T)
    shapes = [(B, H, T, d), (B, G or H, T, d), (B, G or H, T, d), (G or H, 2 * T - 1, d), (H, 2 * T - 1, d)]
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def written_out(query, key, value, by_key, by_query, seen=None):
    """The sum over i and j, with a vector for each pair of positions."""
    T, each = query.shape[2], query.shape[1] // key.shape[1]
    key, value, by_key = (one.repeat_interleave(each, -3) for one in (key, value, by_key))
    row = T - 1 - torch.arange(T)[:, None] + torch.arange(T)
    scores = torch.einsum("bhid,bhjd->bhij", query, key)
    scores = scores + torch.einsum("bhid,hijd->bhij", query, by_key[:, row])
    scores = scores + torch.einsum("bhjd,hijd->bhij", key, by_query[:, row])
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    return ((scores / math.sqrt(3 * query.shape[-1])).softmax(-1) @ value).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("kernel", ["reference", "in_pieces"])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_both_give_the_equation_and_its_gradients(size, padded, kernel, monkeypatch):
    monkeypatch.setattr(module, "PIECE", 3 * size[2] ** 2)  # of four heads, three and then one
    given, T = inputs(*size), size[2]
    seen = (torch.arange(T) < torch.randint(1, T + 1, (size[0],))[:, None])[:, None, None] if padded else None
    with use(kernel, "disentangled_attention"):
        y = disentangled_attention(tuple(given[:3]), tuple(given[3:]), seen)
    expected = written_out(*given, seen)
    above = torch.randn_like(expected)
    torch.testing.assert_close(y, expected, atol=1e-12, rtol=0)
    for ours, theirs in zip(torch.autograd.grad(y, given, above), torch.autograd.grad(expected, given, above)):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


def test_heads_can_share_keys_and_values():
    given = inputs(2, 4, 7, 3, G=2)
    assert disentangled_attention.choice(tuple(given[:3]), tuple(given[3:])) == "reference"
    y = disentangled_attention(tuple(given[:3]), tuple(given[3:]))
    torch.testing.assert_close(y, written_out(*given), atol=1e-12, rtol=0)


def test_some_queries_have_the_weights_of_their_positions():
    query, *rest = inputs(3, 2, 9, 4)
    whole = disentangled_weights((query, *rest[:2]), tuple(rest[2:]), None)
    index = torch.tensor([[0, 8, 3], [5, 5, 1], [2, 7, 6]])
    pick = index[:, None, :, None]
    some = disentangled_weights((query.gather(2, pick.expand(-1, 2, -1, 4)), *rest[:2]), tuple(rest[2:]), None, index)
    torch.testing.assert_close(some, whole.gather(2, pick.expand(-1, 2, -1, 9)), atol=1e-12, rtol=0)


def test_dropped_weights_are_those_of_the_backward_pass():
    given = inputs(2, 2, 6, 4)
    above = torch.randn(2, 6, 8, dtype=torch.float64)

    def run(*own):
        torch.manual_seed(7)
        return disentangled_attention(own[:3], own[3:], None, 0.3)

    assert disentangled_attention.choice(tuple(given[:3]), tuple(given[3:]), None, 0.3) == "in_pieces"
    assert not torch.allclose(run(*given), written_out(*given))
    assert torch.autograd.gradcheck(run, given, fast_mode=True)
    torch.testing.assert_close(run(*given), run(*given))
    assert (run(*given) * above).sum().isfinite()


def test_a_gradient_of_a_gradient():
    given = inputs(2, 2, 4, 3)
    assert torch.autograd.gradgradcheck(lambda *own: disentangled_attention(own[:3], own[3:]), given, fast_mode=True)
