"""Routing: its limit is full attention of normed queries and keys; its clusters move towards their tokens."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ensue.nn.layout import Layout
from ensue.nn.mixers.mixer import MixerConfig, build_mixer

PLAIN = partial(nn.LayerNorm, elementwise_affine=False)


def built(text, **how):
    torch.manual_seed(0)
    return build_mixer(text, MixerConfig(**{"width": 16, "heads": 2, "context": 64} | how)).eval()


@pytest.mark.parametrize("options", [{}, {"kv_heads": 1}, {"rope_base": 100.0}, {"head_width": 4}])
def test_one_cluster_with_a_long_window_is_full_attention_of_normed_queries_and_keys(options):
    routing = built("routing:clusters=1:window=64", causal=False, **options)
    full = built("full", causal=False, qk_norm=PLAIN, **options)
    full.load_state_dict(routing.state_dict(), strict=False)
    x, layout = torch.randn(3, 20, 16), Layout(torch.tensor([20, 7, 11]))
    ours, theirs = routing(x, None, layout, True), full(x, None, layout, True)
    real = torch.arange(20) < layout.lengths[:, None]
    torch.testing.assert_close(ours.y[real], theirs.y[real], atol=1e-5, rtol=1e-5)
    at = real[:, None, :, None].expand_as(ours.weights)
    torch.testing.assert_close(ours.weights[at], theirs.weights[at], atol=1e-5, rtol=1e-5)


def test_causal_with_one_cluster_and_a_long_window_is_full_attention_with_shared_queries_and_keys():
    mixer = built("routing:clusters=1:window=64")
    x = torch.randn(3, 20, 16)
    query, value = torch.split(mixer.project(x), [16, 16], -1)
    query, value = (one.view(3, 20, 2, 8).transpose(1, 2) for one in (query, value))
    query = F.layer_norm(query, [8])
    steps = torch.arange(20)
    scores = query @ query.mT / math.sqrt(8) - 1e5 * torch.eye(20)
    weights = scores.masked_fill(steps > steps[:, None], float("-inf")).softmax(-1)
    torch.testing.assert_close(
        mixer(x).y, mixer.out((weights @ value).transpose(1, 2).flatten(2)), atol=1e-5, rtol=1e-5
    )


def test_clusters_are_balanced_and_a_token_in_none_gets_nothing():
    mixer = built("routing:clusters=2:window=3", causal=False)
    seen = mixer(torch.randn(1, 30, 16), None, Layout(), True).weights[0, 0]
    taken = seen.sum(-1) > 0
    assert 3 <= int(taken.sum()) <= 6
    torch.testing.assert_close(seen.sum(-1)[taken], torch.ones(int(taken.sum())))
    assert ((seen > 0).sum(-1)[taken] >= 3).all()


def test_centroids_move_towards_the_mean_of_their_tokens_and_stay_of_unit_length():
    mixer = built("routing:clusters=3:decay=0.9", causal=False).train()
    before, x = mixer.centroids.clone(), torch.randn(2, 9, 16)
    mixer(x, None, Layout(torch.tensor([9, 4])))
    query, key = torch.split(mixer._projected(x), [16, 16, 16], -1)[:2]
    tokens = torch.cat([torch.cat([one[0], one[1, :4]]) for one in (query, key)]).view(-1, 2, 8)[:, 0]
    nearest = (tokens @ before[0].T).argmax(-1)
    mixer.after_update(9)
    for cluster in range(3):
        own = tokens[nearest == cluster]
        expected = before[0, cluster]
        if len(own):
            expected = F.normalize(0.9 * expected + 0.1 * F.normalize(own.sum(0), dim=-1), dim=-1)
        torch.testing.assert_close(mixer.centroids[0, cluster], expected)
    moved = mixer.centroids.clone()
    mixer.after_update(10)
    assert (mixer.centroids == moved).all()


def test_the_first_updates_bring_centroids_to_their_tokens():
    mixer = built("routing:clusters=4", causal=False).train()
    x = torch.randn(4, 64, 16)

    def near():
        """The mean cosine of tokens with their centroids."""
        query, key = torch.split(mixer._projected(x), [16, 16, 16], -1)[:2]
        tokens = F.normalize(torch.cat([query, key]).view(-1, 2, 8).transpose(0, 1), dim=-1)
        return (tokens @ mixer.centroids.mT).amax(-1).mean().item()

    before, distances = near(), []
    for update in range(1, 20):
        mixer(x)
        mixer.after_update(update)
        distances.append(near())
    assert distances[-1] > before + 0.05
    assert distances[-1] >= distances[0]


@pytest.mark.parametrize("causal", [True, False])
def test_reading_twice_before_an_update_changes_no_bit_and_evaluation_changes_nothing(causal):
    once, twice = (built("routing:clusters=3:decay=0.5", causal=causal).train() for _ in range(2))
    x = torch.randn(2, 9, 16)
    once(x)
    twice(x), twice(x)
    for mixer in (once, twice):
        mixer.after_update(1)
    assert (once.centroids == twice.centroids).all()
    assert not (once.centroids == built("routing:clusters=3", causal=causal).centroids).all()
    once.eval()(x)
    assert (once.sums == 0).all()


def test_sums_of_several_ranks_are_added():
    mixer, alone = (built("routing:clusters=2:decay=0.5").train() for _ in range(2))
    x, other = torch.randn(1, 9, 16), torch.randn(1, 9, 16)
    alone(other)
    theirs = alone.sums.clone()
    mixer.added = lambda sums: sums + theirs
    mixer(x)
    alone(x)
    torch.testing.assert_close(mixer.sums, alone.sums)


def test_the_first_centroids_are_a_function_of_the_seed():
    assert (built("routing").centroids == built("routing").centroids).all()
    assert built("routing").centroids.shape == (2, 8, 8)
    torch.testing.assert_close(built("routing").centroids.norm(dim=-1), torch.ones(2, 8))
