"""Reformer against reformer-pytorch 1.4.4 and transformers' LSH attention, with the same weights and rotations.

Where they differ from us, the cases are such that both agree:
- theirs draw rotations in each forward pass: here they get ours.
- transformers' attention always crosses buckets: with x and −x as inputs two buckets are equally full in every round,
  so that chunks that see no other chunk are buckets. Its scores are not divided by √d: its queries are ours / √d.
- causal, theirs chooses keys by chunks, which depend on later tokens: one chunk of each bucket, all of it, is the same.
"""

from types import SimpleNamespace

import pytest
import torch

from ensue.nn.mixers.mixer import MixerConfig, build_mixer

H, D = 2, 8


def ours(text, causal, context=64):
    torch.manual_seed(0)
    config = MixerConfig(width=16, heads=H, causal=causal, context=context, bias=False)
    mixer = build_mixer(text, config).double().eval()
    mixer.out.weight.data.copy_(torch.eye(16))
    return mixer


def heads_of(mixer, x):
    return [one.view(*x.shape[:2], H, D).transpose(1, 2).flatten(0, 1) for one in mixer.project(x).split([16, 16], -1)]


def theirs_of(mixer, causal, chunk, buckets, monkeypatch):
    reformer_pytorch = pytest.importorskip("reformer_pytorch")
    theirs = reformer_pytorch.LSHAttention(
        bucket_size=chunk,
        n_hashes=mixer.rounds,
        causal=causal,
        attend_across_buckets=False,
        random_rotations_per_head=True,
    ).eval()
    rotations = mixer.rotations.permute(0, 2, 1, 3)  # (H, d, R, buckets / 2)

    def drawn(shape, **how):
        assert tuple(shape[1:]) == (D, mixer.rounds, buckets // 2)
        return rotations.repeat(shape[0] // H, 1, 1, 1).to(how["dtype"])

    fake = {name: getattr(torch, name) for name in dir(torch)} | {"randn": drawn}
    monkeypatch.setattr("reformer_pytorch.reformer_pytorch.torch", SimpleNamespace(**fake))
    return theirs


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("chunk", [4, 8])
def test_both_directions_are_reformer_pytorchs(chunk, rounds, monkeypatch):
    buckets = 64 // chunk
    mixer = ours(f"reformer:chunk={chunk}:buckets={buckets}:rounds={rounds}", causal=False)
    theirs = theirs_of(mixer, False, chunk, buckets, monkeypatch)
    x = torch.randn(3, 64, 16, dtype=torch.float64, requires_grad=True)
    found, _, _ = theirs(*heads_of(mixer, x))
    expected = found.view(3, H, 64, D).transpose(1, 2).flatten(2)
    y = mixer(x).y
    torch.testing.assert_close(y, expected, atol=1e-9, rtol=0)
    above = torch.randn_like(y)
    torch.testing.assert_close(
        torch.autograd.grad(y, x, above)[0], torch.autograd.grad(expected, x, above)[0], atol=1e-9, rtol=0
    )


@pytest.mark.parametrize("rounds", [1, 3])
def test_causal_is_reformer_pytorchs_where_a_chunk_holds_what_a_bucket_has(rounds, monkeypatch):
    mixer = ours(f"reformer:chunk=64:buckets=2:rounds={rounds}", causal=True)
    theirs = theirs_of(mixer, True, 32, 2, monkeypatch)  # two chunks of 32, the second sees the first: all of a bucket
    half = torch.randn(2, 32, 16, dtype=torch.float64)
    x = torch.cat([half, -half], 1)[:, torch.randperm(64)]  # 32 tokens in each of two buckets, in every round
    found, _, _ = theirs(*heads_of(mixer, x))
    torch.testing.assert_close(mixer(x).y, found.view(2, H, 64, D).transpose(1, 2).flatten(2), atol=1e-9, rtol=0)


@pytest.mark.parametrize("rounds", [1, 3])
def test_both_directions_are_transformers(rounds):
    reformer = pytest.importorskip("transformers.models.reformer.modeling_reformer")
    mixer = ours(f"reformer:chunk=16:buckets=2:rounds={rounds}", causal=False)
    config = reformer.ReformerConfig(
        attn_layers=["lsh"],
        hidden_size=16,
        num_attention_heads=H,
        attention_head_size=D,
        num_buckets=2,
        num_hashes=rounds,
        lsh_attn_chunk_length=16,
        lsh_num_chunks_before=0,
        lsh_num_chunks_after=0,
        lsh_attention_probs_dropout_prob=0.0,
        is_decoder=False,
        hash_seed=5,
    )
    theirs = reformer.LSHSelfAttention(config, 0).double().eval()
    torch.manual_seed(5)
    mixer.rotations.copy_(torch.randn(H, D, rounds, 1, dtype=torch.float64).transpose(1, 2))
    with torch.no_grad():
        theirs.query_key.weight.copy_(mixer.project.weight[:16] / D**0.5)
        theirs.value.weight.copy_(mixer.project.weight[16:])
    half = torch.randn(2, 16, 16, dtype=torch.float64)
    x = torch.cat([half, -half], 1)[:, torch.randperm(32)]
    with torch.no_grad():
        expected = theirs(x).hidden_states
        torch.testing.assert_close(mixer(x).y, expected, atol=1e-5, rtol=0)  # they add 1e-6 to the length of keys
