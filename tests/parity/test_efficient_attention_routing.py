"""Routing against routing-transformer 1.6.1's KmeansAttention, with its centroids.

Theirs clusters unit vectors and attends with what it is given; it is given our normed queries and keys. It divides the
sum over a token's clusters by their number + 1e-5. Causal, its clusters depend on later tokens: one cluster of all
tokens is the same; there keys have unit length, so that its queries are ours times √d.
"""

import pytest
import torch

from ensue.nn.layout import Layout
from ensue.nn.mixers.mixer import MixerConfig, build_mixer

package = pytest.importorskip("routing_transformer.routing_transformer")
H, D = 2, 8


def pair(clusters, window, causal):
    torch.manual_seed(0)
    config = MixerConfig(width=16, heads=H, causal=causal, context=64, bias=False)
    mixer = build_mixer(f"routing:clusters={clusters}:window={window}", config).double().eval()
    mixer.out.weight.data.copy_(torch.eye(16))
    theirs = package.KmeansAttention(clusters, window, H, D, causal=causal, shared_qk=causal).double().eval()
    theirs.kmeans.initted.fill_(True)
    mixer.centroids.copy_(theirs.kmeans.means)
    return mixer, theirs


@pytest.mark.parametrize(("clusters", "window"), [(1, 64), (4, 6), (3, 30)])
@pytest.mark.parametrize("padded", [False, True])
def test_both_directions_are_kmeans_attention(clusters, window, padded):
    mixer, theirs = pair(clusters, window, causal=False)
    x = torch.randn(2, 40, 16, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([40, 33]) if padded else None
    query, key, value = mixer._heads(mixer._projected(x))
    if padded:  # theirs chooses padding too, unless it is far from every centroid
        alone = [
            theirs(*(one[row : row + 1, :, :n] for one in (query, key, value)))[0] for row, n in enumerate((40, 33))
        ]
        y = mixer(x, None, Layout(lengths)).y
        for row, found in enumerate(alone):
            expected = found[0].transpose(0, 1).flatten(1)
            torch.testing.assert_close(y[row, : len(expected)], expected, atol=2e-5, rtol=0)
        return
    expected = theirs(query, key, value)[0].transpose(1, 2).flatten(2)
    y = mixer(x).y
    torch.testing.assert_close(y, expected, atol=2e-5, rtol=0)
    above = torch.randn_like(y)
    torch.testing.assert_close(
        torch.autograd.grad(y, x, above)[0], torch.autograd.grad(expected, x, above)[0], atol=2e-4, rtol=0
    )


def test_causal_is_kmeans_attention_where_all_tokens_are_in_one_cluster():
    mixer, theirs = pair(1, 40, causal=True)
    x = torch.randn(2, 40, 16, dtype=torch.float64)
    query, value = mixer._shared(x, torch.arange(40)[None], Layout())
    expected = theirs(query * D**0.5, query, value)[0].transpose(1, 2).flatten(2)
    torch.testing.assert_close(mixer(x).y, expected, atol=2e-4, rtol=0)  # a layer norm adds 1e-5 to variances


def test_clusters_move_as_theirs_do():
    mixer, theirs = pair(4, 6, causal=False)
    mixer.centroids.copy_(torch.nn.functional.normalize(mixer.centroids, dim=-1))
    theirs.kmeans.means.copy_(mixer.centroids)
    x = torch.randn(2, 40, 16, dtype=torch.float64)
    query, key, value = mixer._heads(mixer._projected(x))
    theirs.train()(query, key, value)
    theirs.kmeans.update()
    mixer.train()(x)
    mixer.after_update(1000)  # the first ones move more than theirs do
    expected = torch.nn.functional.normalize(theirs.kmeans.means, dim=-1)  # ours stay of unit length
    torch.testing.assert_close(mixer.centroids, expected, atol=1e-7, rtol=0)
