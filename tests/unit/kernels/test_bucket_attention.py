"""Attention within buckets: chunks of sorted tokens against the dense equation, and every gradient."""

import pytest
import torch

from ensue.kernels.bucket_attention import Near, bucket_attention, bucket_weights, count_seen
from ensue.kernels.kernel import use

NEARS = [Near(4, True), Near(4, False), Near(4, False, 1), Near(64, True), Near(64, False), Near(1, True)]


def inputs(T, rounds, buckets=3):
    torch.manual_seed(T + rounds)
    parts = [torch.randn(3, 2, T, 6, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    real = torch.arange(T) < torch.tensor([T, max(1, T // 2), T - 1])[:, None]
    return parts, torch.randint(buckets, (3, 2, rounds, T)), real


@pytest.mark.parametrize("kernel", ["reference", "own_backward"])
@pytest.mark.parametrize("near", NEARS, ids=str)
@pytest.mark.parametrize(("T", "rounds"), [(1, 1), (5, 3), (37, 1), (37, 3)])
def test_chunks_of_sorted_tokens_give_the_dense_equation_and_its_gradients(T, rounds, near, kernel):
    parts, bucket, real = inputs(T, rounds)
    slopes = torch.tensor([0.5, 0.25], dtype=torch.float64)
    above = torch.randn_like(parts[0])
    with use(kernel, "bucket_attention"):
        y = bucket_attention(*parts, bucket, near, real, slopes)
    steps = torch.arange(T)
    bias = -slopes[:, None, None] * (steps[:, None] - steps).abs()
    dense = bucket_weights(*parts[:2], count_seen(bucket, near, real), bias) @ parts[2]
    torch.testing.assert_close(y, dense, atol=1e-10, rtol=0)
    for ours, theirs in zip(torch.autograd.grad(y, parts, above), torch.autograd.grad(dense, parts, above)):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


def test_a_token_sees_the_last_tokens_of_its_bucket():
    bucket = torch.tensor([0, 1, 0, 0, 1, 0, 0])[None, None, None]
    seen = count_seen(bucket, Near(3, True))[0, 0]
    assert [seen[t].nonzero().flatten().tolist() for t in range(7)] == [
        [0],
        [1],
        [0, 2],
        [0, 2, 3],
        [1, 4],
        [2, 3, 5],
        [3, 5, 6],
    ]


def test_chunks_see_their_own_tokens_and_the_chunk_before():
    bucket = torch.tensor([0, 1, 0, 0, 1, 0, 0])[None, None, None]  # sorted: 0 2 | 3 5 | 6 1 | 4
    seen = count_seen(bucket, Near(2, False))[0, 0]
    assert [seen[t].nonzero().flatten().tolist() for t in range(7)] == [
        [0, 2],
        [1],
        [0, 2],
        [0, 2, 3, 5],
        [1, 4],
        [0, 2, 3, 5],
        [3, 5, 6],
    ]
    after = count_seen(bucket, Near(2, False, 1))[0, 0]
    assert after[0].nonzero().flatten().tolist() == [0, 2, 3, 5]


def test_a_token_alone_in_all_rounds_gets_its_own_value_and_rounds_where_it_is_alone_count_nothing():
    query, value = torch.randn(1, 1, 3, 4), torch.randn(1, 1, 3, 4)
    bucket = torch.tensor([[0, 1, 2], [0, 0, 2]])[None, None]  # tokens 0 and 1 meet in the second round only
    y = bucket_attention(query, query, value, bucket, Near(4, False))[0, 0]
    torch.testing.assert_close(y, value[0, 0, [1, 0, 2]])


def test_the_gradient_of_a_gradient_is_that_of_the_equation():
    parts, bucket, _ = inputs(9, 2)

    def squared(*parts):
        return bucket_attention(*parts, bucket, Near(3, True))

    assert torch.autograd.gradgradcheck(squared, parts)


def test_dropout_keeps_the_mean():
    torch.manual_seed(0)
    query, value = torch.randn(1, 1, 64, 8), torch.ones(1, 1, 64, 8)
    bucket = torch.zeros(1, 1, 1, 64, dtype=torch.long)
    y = bucket_attention(query, query, value, bucket, Near(64, False), None, None, 0.5)
    assert y.std() > 0.01
    assert y.mean().item() == pytest.approx(1.0, abs=0.05)
