"""Performer and linear attention give what performer-pytorch 1.1.4 and linear-attention-transformer 0.19.1 give."""

import pytest
import torch

from ensue.nn.mixers.linear import FeatureAttention
from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.mixers.performer import Performer


def rand(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def config(causal):
    torch.manual_seed(0)
    return MixerConfig(width=16, heads=2, causal=causal)


@pytest.mark.parametrize("causal", [True, False])
def test_performer_is_that_of_the_package_with_the_same_draw(causal):
    reference = pytest.importorskip("performer_pytorch.performer_pytorch")
    own, x = Performer(config(causal), features=24).double().eval(), rand(3, 40, 16)
    query, key, value = own._heads(own._projected(x))
    phi_q = reference.softmax_kernel(query, projection_matrix=own.draw, is_query=True, eps=0.0)
    phi_k = reference.softmax_kernel(key, projection_matrix=own.draw, is_query=False, eps=0.0)
    ours = own.query_features(query)
    torch.testing.assert_close(ours / ours[..., :1], phi_q / phi_q[..., :1])
    logs = own.log_key_features(key)
    torch.testing.assert_close((logs - logs[:, :, :1, :1]).exp(), phi_k / phi_k[:, :, :1, :1])
    if causal:
        y = reference.causal_linear_attention_noncuda(phi_q, phi_k, value, chunk_size=4, eps=0.0)
    else:
        y = reference.linear_attention(phi_q, phi_k, value)
    torch.testing.assert_close(own(x).y, own.out(y.transpose(1, 2).flatten(2)), atol=1e-10, rtol=0)


class Exponential(FeatureAttention):
    """The feature maps of linear-attention-transformer: softmax(q) and exp(k)."""

    def query_features(self, query):
        return query.softmax(-1)

    def key_features(self, key):
        return key.exp()


def test_causal_linear_attention_is_that_of_the_package_with_its_feature_maps():
    reference = pytest.importorskip("linear_attention_transformer.linear_attention_transformer")
    own, x = Exponential(config(True)).double().eval(), rand(3, 40, 16)
    query, key, value = own._heads(own._projected(x))
    y = reference.causal_linear_attn(query, key, value, bucket_size=1, eps=0.0)
    torch.testing.assert_close(own(x).y, own.out(y.transpose(1, 2).flatten(2)), atol=1e-10, rtol=0)
