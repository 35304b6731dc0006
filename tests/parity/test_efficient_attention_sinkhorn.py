"""Sinkhorn attention in both directions gives what the package sinkhorn-transformer 0.11.4 gives.

The package takes the logarithm of positive scores (we take the exponential of any, as the paper), so its scores are
given to ours as logarithms; its noise is switched off. It mixes sorted keys where it means sorted values, unless
SortCut is used, so keys and values are the same where it isn't. Its causal form is another one than ours.
"""

import pytest
import torch

from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.mixers.sinkhorn import SinkhornAttention, sinkhorn

reference = pytest.importorskip("sinkhorn_transformer.sinkhorn_transformer")


def rand(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def seeded(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(reference, "sample_gumbel", lambda shape, device, dtype: torch.zeros(shape, dtype=dtype))


@pytest.mark.parametrize("iterations", [1, 3, 8])
def test_the_soft_permutation_is_that_of_the_package(iterations):
    scores = rand(3, 7, 7)
    wanted = reference.sinkhorn_sorting_operator(scores, iterations)
    torch.testing.assert_close(sinkhorn(scores, iterations), wanted, atol=1e-12, rtol=0)
    wanted = reference.gumbel_sinkhorn(scores.exp(), iterations, temperature=0.7)
    torch.testing.assert_close(sinkhorn((scores.exp() + 1e-6).log() / 0.7, iterations), wanted, atol=1e-12, rtol=0)


def test_noise_has_the_distribution_of_the_package():
    own = SinkhornAttention(MixerConfig(width=4, causal=False), temperature=1.0, iterations=1).train()
    given = []
    own_sinkhorn = sinkhorn

    def kept(logs, iterations, there):
        given.append(logs)
        return own_sinkhorn(logs, iterations, there)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ensue.nn.mixers.sinkhorn.sinkhorn", kept)
        own._shares(torch.zeros(1, 1, 300, 4), torch.zeros(1, 1, 300, 4), torch.ones(1, 300, dtype=torch.bool))
    (noise,) = given
    assert abs(noise.mean().item() - 0.57722) < 0.02  # Euler's constant
    assert abs(noise.var().item() - torch.pi**2 / 6) < 0.05


def attention(cut):
    """The mixer and the package's one, with the same weights; the sorting network is the projections'."""
    theirs = reference.SinkhornSelfAttention(
        16, 4, 24, heads=2, non_permutative=False, sinkhorn_iter=5, n_sortcut=cut, temperature=0.75
    ).double()
    config = MixerConfig(width=16, heads=2, causal=False, context=24)
    own = SinkhornAttention(config, block=4, iterations=5, temperature=0.75, cut=cut).double().eval()
    with torch.no_grad():
        theirs.to_q.weight *= 3
        projected = torch.cat([theirs.to_q.weight, theirs.to_kv.weight])
        own.project.weight.copy_(projected)
        own.project.bias.zero_()
        own.sort.weight.copy_(projected[:32])
    own.out.load_state_dict(theirs.to_out.state_dict())
    return own, theirs.eval()


def test_the_scores_of_blocks_are_those_of_the_package():
    own, theirs = attention(0)
    x = rand(3, 24, 16)
    query, key, _ = own._heads(own._projected(x))
    wanted = theirs.sinkhorn_attention.sort_net(query.flatten(0, 1), key.flatten(0, 1)).view(3, 2, 6, 6)
    asking, asked = own._asking(x.view(3, 6, 4, 16).mean(2))
    scores = asking @ asked.transpose(-2, -1) / 8**0.5
    found = sinkhorn((scores.relu() + 1e-6).log() / 0.75, 5)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)


def test_attention_to_sorted_blocks_is_that_of_the_package(monkeypatch):
    own, theirs = attention(0)
    with torch.no_grad():
        theirs.to_kv.weight[16:] = theirs.to_kv.weight[:16]  # values are the keys
        own.project.weight[32:] = own.project.weight[16:32]
    x = rand(3, 24, 16).requires_grad_()
    share = sinkhorn(rand(3, 2, 6, 6), 5)
    monkeypatch.setattr(own, "_shares", lambda *_: share)
    monkeypatch.setattr(theirs.sinkhorn_attention.sort_net, "forward", lambda q, k, topk: share.flatten(0, 1))
    found, wanted = own(x).y, theirs(x)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    by_own, by_theirs = (torch.autograd.grad(one.sin().sum(), x) for one in (found, wanted))
    torch.testing.assert_close(by_own, by_theirs, atol=1e-12, rtol=0)


def test_sort_cut_is_that_of_the_package_without_the_own_block(monkeypatch):
    own, theirs = attention(2)
    theirs.sinkhorn_attention.bucket_size = 24  # one block of queries, which then has no own keys
    x, share = rand(3, 24, 16), sinkhorn(rand(3, 2, 6, 6), 5)
    monkeypatch.setattr(own, "_shares", lambda *_: share)
    monkeypatch.setattr(theirs.sinkhorn_attention.sort_net, "forward", lambda q, k, topk: share.flatten(0, 1))
    torch.testing.assert_close(own(x).y, theirs(x), atol=1e-12, rtol=0)
