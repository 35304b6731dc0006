"""Reformer: its limit is full attention with shared queries and keys; its hash; its cache."""

import math

import pytest
import torch
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.kernels.bucket_attention import Near, bucket_attention
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import use_cache_type
from ensue.nn.mixers.mixer import MixerConfig, build_mixer
from ensue.nn.positions import LinearBias

CONFIG = MixerConfig(width=16, heads=2, context=64)


def built(text, config=CONFIG, **how):
    torch.manual_seed(0)
    return build_mixer(text, MixerConfig(**{name: getattr(config, name) for name in config.__slots__} | how)).eval()


def full_shared(mixer, x, causal):
    """Full attention of queries that are keys too: q k / (‖k‖ √d), a token itself only if there is nothing else."""
    query, value = torch.split(mixer.project(x), [16, 16], -1)
    query, value = (one.view(*x.shape[:2], 2, 8).transpose(1, 2) for one in (query, value))
    scores = query @ F.normalize(query, dim=-1).mT / math.sqrt(8)
    steps = torch.arange(x.shape[1])
    scores = scores - 1e5 * torch.eye(len(steps))
    if causal:
        scores = scores.masked_fill(steps > steps[:, None], float("-inf"))
    return mixer.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("causal", [True, False])
def test_one_bucket_and_a_long_chunk_are_full_attention_with_shared_queries_and_keys(causal, rounds):
    mixer = built(f"reformer:buckets=1:chunk=64:rounds={rounds}", causal=causal)
    x = torch.randn(3, 20, 16)
    torch.testing.assert_close(mixer(x).y, full_shared(mixer, x, causal), atol=1e-5, rtol=1e-5)


def test_the_first_token_sees_itself():
    mixer = built("reformer")
    x = torch.randn(1, 1, 16)
    value = mixer.project(x)[..., 16:]
    torch.testing.assert_close(mixer(x).y, mixer.out(value))


@pytest.mark.parametrize("text", ["reformer:buckets=4:chunk=3:rounds=2", "routing:clusters=3:window=3"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("alibi", [True, False])
def test_weights_are_what_the_values_are_mixed_with_and_change_no_result(text, causal, alibi):
    mixer = built(text, causal=causal, score_bias=LinearBias(2) if alibi else None)
    x, layout = torch.randn(3, 13, 16), Layout(torch.tensor([13, 5, 9]))
    plain, (y, _, seen) = mixer(x, None, layout), mixer(x, None, layout, True)
    torch.testing.assert_close(y, plain.y)
    real = torch.arange(13) < layout.lengths[:, None]
    value = mixer.project(x)[..., -16:].view(3, 13, 2, 8).transpose(1, 2)
    mixed = mixer.out((seen @ value[:, :, : seen.shape[3]]).transpose(1, 2).flatten(2))
    torch.testing.assert_close(mixed[real], y[real], atol=1e-5, rtol=1e-5)
    if causal:
        assert (seen.triu(1) == 0).all()


@pytest.mark.parametrize("text", ["reformer:buckets=4:chunk=3:rounds=2", "routing:clusters=3:window=3"])
@pytest.mark.parametrize("options", [{}, {"rope_base": 100.0, "kv_heads": 1}, {"score_bias": LinearBias(2)}])
def test_weights_after_a_past_are_those_of_the_whole(text, options):
    mixer = built(text, **options)
    x = torch.randn(2, 12, 16)
    with torch.no_grad():
        whole = mixer(x, None, Layout(), True)
        first = mixer(x[:, :7])
        later = mixer(x[:, 7:11], first.state, Layout(), True)
        last = mixer(x[:, 11:], later.state, Layout(), True)
    torch.testing.assert_close(later.y, whole.y[:, 7:11], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(later.weights, whole.weights[:, :, 7:11, :11], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(last.weights, whole.weights[:, :, 11:], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(last.y, whole.y[:, 11:], atol=1e-5, rtol=1e-5)


def test_equal_directions_have_one_hash_and_opposite_ones_another():
    mixer = built("reformer:buckets=8:rounds=3")
    query = torch.randn(1, 2, 50, 8)
    bucket = mixer.buckets_of(query)
    assert bucket.shape == (1, 2, 3, 50)
    assert int(bucket.max()) <= 7
    assert (mixer.buckets_of(3 * query) == bucket).all()
    assert (mixer.buckets_of(-query) == (bucket + 4) % 8).all()


def test_many_buckets_are_pairs_of_two_hashes():
    mixer = built("reformer:buckets=256:rounds=1")
    assert mixer.rotations.shape == (2, 1, 8, 16)
    bucket = mixer.buckets_of(torch.randn(1, 2, 4000, 8))
    assert 200 < len(bucket.unique()) <= 256


def test_near_vectors_share_more_buckets_than_others():
    mixer = built("reformer:buckets=16:rounds=8")
    query = torch.randn(1, 2, 200, 8)
    bucket = mixer.buckets_of(query)
    near = (mixer.buckets_of(query + 0.1 * torch.randn_like(query)) == bucket).float().mean()
    far = (mixer.buckets_of(torch.randn_like(query)) == bucket).float().mean()
    assert near > 0.7
    assert far < 0.15


def test_a_bf16_cache_keeps_buckets_exact():
    mixer = built("reformer:buckets=1000:chunk=4", context=1000)
    use_cache_type(mixer, "bf16")
    with torch.no_grad():
        state = mixer(torch.randn(1, 300, 16)).state
        y = mixer(torch.randn(1, 1, 16), state).y
    assert state.cache.keys.dtype == torch.bfloat16
    assert state.buckets.keys.dtype == torch.int32
    assert int(state.buckets.keys.max()) > 256
    assert y.isfinite().all()


def test_no_tokens_change_nothing():
    for text in ("reformer", "routing"):
        mixer = built(text)
        assert mixer(torch.randn(2, 0, 16)).y.shape == (2, 0, 16)
        state = mixer(torch.randn(2, 3, 16)).state
        after = mixer(torch.randn(2, 0, 16), state)
        assert after.y.shape == (2, 0, 16)
        assert after.state.cache.used == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reformer:buckets=3", "1 or even"),
        ("reformer:chunk=-1", "must be 1 or more"),
        ("reformer:rounds=0", "must be 1 or more"),
        ("reformer:after=1", "in both directions"),
        ("routing:clusters=-1", "must be 0 or more"),
        ("routing:decay=2", "from 0 to 1"),
    ],
)
def test_options_out_of_range_are_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message):
        built(text)


@pytest.mark.parametrize("slopes", [None, torch.tensor([0.02, 0.01])])
@pytest.mark.parametrize("causal", [True, False])
def test_many_buckets_stay_apart_in_bfloat16(causal, slopes):
    torch.manual_seed(0)
    query, value = torch.randn(2, 2, 2, 700, 8)
    bucket = torch.randint(300, (2, 2, 1, 700))
    near = Near(4, causal)
    exact = bucket_attention(query, query, value, bucket, near, None, slopes)
    with torch.autocast("cpu", torch.bfloat16):
        rough = bucket_attention(query.bfloat16(), query.bfloat16(), value.bfloat16(), bucket, near, None, slopes)
    assert (rough - exact).norm() < 0.02 * exact.norm()
