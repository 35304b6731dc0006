"""BigBird's attention against transformers' block-sparse one, with the same weights and the same random blocks.

Theirs has the first and the last block as global ones, ours the first two. The window is by neighbours and global
blocks see all and are seen by all, so theirs is ours on a text whose last block stands in front.
"""

import numpy as np
import pytest
import torch
from torch import nn

from ensue.nn.mixers.mixer import MixerConfig, build_mixer

pytest.importorskip("transformers")
BLOCK, BLOCKS, HEADS, WIDTH = 4, 12, 4, 32


class InFront(nn.Module):
    """Our attention in the place of theirs: the last block is moved to the front, and back again."""

    def __init__(self, ours):
        super().__init__()
        self.ours = ours

    def forward(self, hidden_states, *_, **__):
        y = self.ours(hidden_states.roll(BLOCK, dims=1)).y
        return y.roll(-BLOCK, dims=1), None


def ours_of(theirs, random):
    config = MixerConfig(width=WIDTH, heads=HEADS, causal=False, context=BLOCK * BLOCKS)
    ours = build_mixer(f"bigbird:block={BLOCK}:window=3:global=2:random={random}", config)
    with torch.no_grad():
        parts = (theirs.query, theirs.key, theirs.value)
        ours.project.weight.copy_(torch.cat([part.weight for part in parts]))
        ours.project.bias.copy_(torch.cat([part.bias for part in parts]))
        ours.out.weight.copy_(torch.eye(WIDTH))
        ours.out.bias.zero_()
    if random:
        drawn = ours.random_blocks(torch.arange(2, BLOCKS))  # (H, N, r); our block i is their block i − 1
        assert bool((drawn >= 2).all())
        theirs._bigbird_block_rand_mask_with_head = lambda **_: list(np.array(drawn) - 1)
    return ours.double()


@pytest.mark.parametrize("random", [1, 3])
def test_a_model_with_our_attention_is_transformers_big_bird(random, monkeypatch):
    from transformers import BigBirdConfig, BigBirdModel

    torch.manual_seed(0)
    config = BigBirdConfig(
        vocab_size=50,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=48,
        max_position_embeddings=BLOCK * BLOCKS,
        attention_type="block_sparse",
        block_size=BLOCK,
        num_random_blocks=random,
    )
    model = BigBirdModel(config).double().eval()
    attentions = [layer.attention for layer in model.encoder.layer]
    ours = [ours_of(one.self, random) for one in attentions]
    tokens = torch.randint(50, (2, BLOCK * BLOCKS))
    theirs = model(tokens).last_hidden_state
    gradient = torch.randn_like(theirs)
    expected = torch.autograd.grad((theirs * gradient).sum(), model.embeddings.word_embeddings.weight)[0]
    for one, own in zip(attentions, ours, strict=True):
        monkeypatch.setattr(one, "self", InFront(own))
    found = model(tokens).last_hidden_state
    by_embedding = torch.autograd.grad((found * gradient).sum(), model.embeddings.word_embeddings.weight)[0]
    torch.testing.assert_close(found, theirs, atol=1e-9, rtol=0)
    torch.testing.assert_close(by_embedding, expected, atol=1e-8, rtol=0)
